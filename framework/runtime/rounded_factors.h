// Factors of products in 16 bits (ProductPrecision::kBf16, kFp16): memory for them, and which of them are there
// already.
//
// One for each executor. Its products stand in one queue, so the memory of one factor is the next one's, too. Weights
// do not change within a run, and each has memory of its own: it is rounded once a run, for forward and for backward.
#ifndef WEIR_FRAMEWORK_RUNTIME_ROUNDED_FACTORS_H_
#define WEIR_FRAMEWORK_RUNTIME_ROUNDED_FACTORS_H_

#include <cstdint>
#include <map>

#include "framework/runtime/device_kernel.h"

namespace weir {

class RoundedFactors {
 public:
  struct Weight {
    DeviceArray bits;
    // Elements that have been rounded in this run.
    int64_t rounded = 0;
    bool used = false;
  };

  // What weights are may have changed. Those that the last run did not use are given back.
  void BeginRun() {
    std::erase_if(weights_, [](const auto& entry) { return !entry.second.used; });
    for (auto& [at, weight] : weights_) {
      weight.rounded = 0;
      weight.used = false;
    }
  }
  // Something has written there within the run.
  void Forget(const void* values) {
    if (const auto weight = weights_.find(values); weight != weights_.end()) weight->second.rounded = 0;
  }
  // That of the values at this address.
  Weight& weight(const void* values) {
    Weight& weight = weights_[values];
    weight.used = true;
    return weight;
  }
  DeviceArray& left() { return left_; }
  DeviceArray& right() { return right_; }

 private:
  std::map<const void*, Weight> weights_;
  DeviceArray left_, right_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_ROUNDED_FACTORS_H_
