// Memory for factors of products rounded to 16 bits (ProductPrecision::kBf16, kFp16), and a record of the weights
// rounded already.
//
// One object per executor. Its products run in one queue, so the next product reuses the memory of the last one's
// factors. Weights do not change within a run, and each has memory of its own: it is rounded once per run, for forward
// and backward.
#ifndef WEIR_FRAMEWORK_DEVICE_ROUNDED_FACTORS_H_
#define WEIR_FRAMEWORK_DEVICE_ROUNDED_FACTORS_H_

#include <cstdint>
#include <map>

#include "framework/device/device_kernel.h"

namespace weir {

class RoundedFactors {
 public:
  struct Weight {
    DeviceArray bits;
    // Elements rounded in this run.
    int64_t rounded = 0;
    bool used = false;
  };

  // Begins a run, in which weights may have new values. Frees the memory of weights that the last run did not use.
  void BeginRun() {
    std::erase_if(weights_, [](const auto& entry) { return !entry.second.used; });
    for (auto& [at, weight] : weights_) {
      weight.rounded = 0;
      weight.used = false;
    }
  }
  // Discards a rounded weight, because its values were written within the run.
  void Forget(const void* values) {
    if (const auto weight = weights_.find(values); weight != weights_.end()) weight->second.rounded = 0;
  }
  // Returns the entry for the weight at this address.
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

#endif  // WEIR_FRAMEWORK_DEVICE_ROUNDED_FACTORS_H_
