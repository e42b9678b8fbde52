// One pass over the gradients of a step: the updates of blocks and tables, or the sums of one round of whole norms.
#ifndef WEIR_PSERVER_PARAMS_UPDATE_TASK_H_
#define WEIR_PSERVER_PARAMS_UPDATE_TASK_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "framework/base/exact_sum.h"
#include "framework/base/mutex.h"
#include "pserver/params/gradient.h"
#include "pserver/protocol/norm_rounds.h"
#include "pserver/tables/lifecycle_rules.h"

namespace weir {

// Sums of one round, added to by several threads.
class RoundSums {
 public:
  // Makes the sum exist, even if nothing is added.
  void Declare(const std::string& name) {
    MutexLock lock(&mu_);
    sums_[name];
  }
  void Add(const std::string& name, const ExactSum& sum) {
    MutexLock lock(&mu_);
    sums_[name].Add(sum);
  }
  NormSums Take() {
    MutexLock lock(&mu_);
    return std::move(sums_);
  }

 private:
  Mutex mu_;
  NormSums sums_ ABSL_GUARDED_BY(mu_);
};

struct UpdateTask {
  int64_t step = 0;
  absl::Span<const TrainerGradients> trainers;
  int64_t samples = 0;  // of all trainers
  RowTime time = {};    // of rows of tables
  const Norms* norms = nullptr;
  int round = -1;             // -1: the update
  bool keep = false;          // the next task continues this step (ServerParams::SumsOfRound)
  RoundSums* sums = nullptr;  // of `round`
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_UPDATE_TASK_H_
