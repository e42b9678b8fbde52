// How the steps of the trainers of a job stand to each other, as the train loop of one trainer has to know it.
//
// In sync the trainers make each step together: the servers say what has become of it and when the run ends, and all
// stand at the same border for a digest or an evaluation. In async each trainer makes steps of its own, ends with its
// own streams, and trains on while the others evaluate.
#ifndef WEIR_TRAINER_LOOP_STEP_ORDER_H_
#define WEIR_TRAINER_LOOP_STEP_ORDER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/param_channel.h"
#include "trainer/loop/digests.h"
#include "trainer/loop/evaluations.h"
#include "trainer/loop/overlap_switch.h"
#include "trainer/session/session.h"
#include "trainer/this_trainer.h"

namespace weir {

// State of a trainer's streams before a step.
struct StreamsAtStep {
  bool ended = false;    // all of them, before the step
  bool stopped = false;  // one of them, by a request for the end of the job
  // Examples of the step, if all of it has been read; and of this trainer's step 0.
  int64_t examples = 0, first_examples = 0;
};

// Used by the thread of the train loop, save EndsRun.
class StepOrder {
 public:
  // Chooses by the mode of the job.
  static std::unique_ptr<StepOrder> Of(const ThisTrainer& trainer, const v1::TrainingMode& mode);
  virtual ~StepOrder() = default;

  // Returns true if this trainer ends its part of the run before the step; others then go on. Thread-safe.
  virtual bool EndsRun(const StreamsAtStep& streams) const = 0;
  // Returns the switch for pulls ahead of the version; null: a pull need not wait for one.
  virtual std::unique_ptr<OverlapSwitch> MakeOverlapSwitch() const = 0;
  // Returns the outcome that counts for this trainer of a step that it has made. `version`: before the step.
  virtual StepOutcome Outcome(const StepResult& result, int64_t version) const = 0;
  // Tells the servers that no step comes behind step `steps` - 1.
  virtual absl::Status EndSteps(int64_t steps) = 0;

  virtual absl::Status Digest(Digests* digests, int64_t step, int64_t version) = 0;
  // Evaluates at a border. `last`: of the last step.
  virtual absl::Status Evaluate(Evaluations* evaluations, int64_t step, int64_t version, bool last) = 0;
  // Returns true if an evaluation that the run before has missed is made up when the run goes on.
  virtual bool MakesUpEvaluations() const = 0;
  // Exchanges the parts of an evaluation for which all trainers wait (Evaluations::Options.exchange).
  virtual absl::StatusOr<std::vector<std::string>> ExchangeParts(std::string_view key, std::string mine) = 0;
  // Ends the evaluations that are under way behind the last step. `open_at_chief`: Evaluations::open of the chief.
  virtual absl::Status CompleteEvaluations(Evaluations* evaluations, absl::Span<const int64_t> open_at_chief) = 0;
  // Brings the session to the parameters that have been saved behind the last step.
  virtual absl::Status ReceiveLast(Session* session, int64_t step) = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_STEP_ORDER_H_
