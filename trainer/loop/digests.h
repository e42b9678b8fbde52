// Digests of all parameters, for comparing runs: a progress line, and lines of every variable in a file.
#ifndef WEIR_TRAINER_LOOP_DIGESTS_H_
#define WEIR_TRAINER_LOOP_DIGESTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "framework/checkpoint/digest_log.h"
#include "proto/plan.pb.h"
#include "trainer/loop/deferred_error.h"
#include "trainer/progress/progress.h"
#include "trainer/this_trainer.h"

namespace weir {

// Not thread-safe.
class Digests {
 public:
  struct Options {
    ThisTrainer trainer;
    // File that receives a line per variable, or "" (TrainOptions.digest_log).
    std::string log;
    // Borrowed.
    const v1::Plan* plan = nullptr;
    Progress* progress = nullptr;
    DeferredError* deferred = nullptr;
  };
  explicit Digests(Options options) : o_(std::move(options)) {}

  // Asks every server for the digests of its variables at `version`, and reports them for step `step`. The chief does
  // so; the others, which call it at the same step, give it the digests of what they alone hold. Errors of the file are
  // deferred.
  absl::Status Report(int64_t step, int64_t version);

 private:
  // Returns the extent of a variable, by the plan.
  DigestExtent ExtentOf(const std::string& variable) const;

  const Options o_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_DIGESTS_H_
