#include "trainer/loop/step_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

class Together : public StepOrder {
 public:
  explicit Together(const ThisTrainer& trainer) : trainer_(trainer) {}

  // The servers count the examples of all.
  bool EndsRun(const StreamsAtStep& /*streams*/) const override { return false; }
  std::unique_ptr<OverlapSwitch> MakeOverlapSwitch() const override { return std::make_unique<OverlapSwitch>(); }
  StepOutcome Outcome(const StepResult& result, int64_t /*version*/) const override { return result.outcome; }
  absl::Status EndSteps(int64_t /*steps*/) override { return absl::OkStatus(); }

  absl::Status Digest(Digests* digests, int64_t step, int64_t version) override {
    return digests->Report(step, version);
  }
  absl::Status Evaluate(Evaluations* evaluations, int64_t step, int64_t version, bool last) override {
    // The evaluation of the last step comes after the last checkpoint.
    return last ? absl::OkStatus() : evaluations->Run(absl::StrCat("eval.", step), step, version);
  }
  bool MakesUpEvaluations() const override { return true; }
  absl::StatusOr<std::vector<std::string>> ExchangeParts(std::string_view key, std::string mine) override {
    ASSIGN_OR_RETURN(std::vector<std::string> all, trainer_.client->board().Exchange(key, std::move(mine)));
    // Nobody dies alone: an empty part is an evaluation that failed, and the whole has no result.
    if (std::any_of(all.begin(), all.end(), [](const std::string& part) { return part.empty(); })) all.clear();
    return all;
  }
  absl::Status CompleteEvaluations(Evaluations* /*evaluations*/, absl::Span<const int64_t> /*open*/) override {
    return absl::OkStatus();
  }
  absl::Status ReceiveLast(Session* /*session*/, int64_t /*step*/) override { return absl::OkStatus(); }

 private:
  const ThisTrainer trainer_;
};

class EachByItself : public StepOrder {
 public:
  explicit EachByItself(const ThisTrainer& trainer) : trainer_(trainer) {}

  bool EndsRun(const StreamsAtStep& streams) const override {
    return streams.ended || streams.stopped || 2 * streams.examples < streams.first_examples;
  }
  std::unique_ptr<OverlapSwitch> MakeOverlapSwitch() const override { return nullptr; }
  StepOutcome Outcome(const StepResult& result, int64_t version) const override {
    return {.version = version,
            .skipped = result.outcome.skipped,
            .stop = trainer_.client->member().StopRequested(),
            .samples = result.examples};
  }
  absl::Status EndSteps(int64_t /*steps*/) override { return absl::OkStatus(); }

  // Parameters move while one is made.
  absl::Status Digest(Digests* /*digests*/, int64_t /*step*/, int64_t /*version*/) override { return absl::OkStatus(); }
  absl::Status Evaluate(Evaluations* evaluations, int64_t step, int64_t version, bool /*last*/) override {
    return evaluations->Start(step, version);
  }
  bool MakesUpEvaluations() const override { return false; }
  absl::StatusOr<std::vector<std::string>> ExchangeParts(std::string_view key, std::string mine) override {
    // A trainer that comes late to the end reads what the others contributed.
    return trainer_.client->board().Exchange(key, std::move(mine), /*kept=*/true);
  }
  absl::Status CompleteEvaluations(Evaluations* evaluations, absl::Span<const int64_t> open_at_chief) override {
    return evaluations->Complete(open_at_chief);
  }
  // This trainer still has those of its last step.
  absl::Status ReceiveLast(Session* session, int64_t step) override { return session->Start(step); }

 protected:
  const ThisTrainer trainer_;
};

class BoundedStaleness : public EachByItself {
 public:
  explicit BoundedStaleness(const ThisTrainer& trainer) : EachByItself(trainer) {}

  absl::Status EndSteps(int64_t steps) override {
    // A push without samples says that no more steps come from here, so nobody waits for one.
    RETURN_IF_ERROR(trainer_.client->steps().BeginStep(steps, /*read_only=*/false));
    return trainer_.client->steps().FinishSends(/*samples=*/0, v1::APPLY);
  }
};

}  // namespace

std::unique_ptr<StepOrder> StepOrder::Of(const ThisTrainer& trainer, const v1::TrainingMode& mode) {
  if (trainer.sync) return std::make_unique<Together>(trainer);
  if (mode.staleness() >= 0) return std::make_unique<BoundedStaleness>(trainer);
  return std::make_unique<EachByItself>(trainer);
}

}  // namespace weir
