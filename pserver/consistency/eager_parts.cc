#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pserver/consistency/async_steps.h"
#include "pserver/consistency/make_consistency.h"

namespace weir {

namespace {

// async_apply EAGER: a part takes effect when it comes; with the last part the rest does.
class EagerParts : public AsyncSteps {
 public:
  EagerParts(Options options, StepBook book)
      : AsyncSteps(std::move(options), std::move(book)), begun_(static_cast<size_t>(book_.trainers()), false) {}

  absl::Status CheckVerdict(v1::Verdict verdict, const std::string& what) const override {
    if (verdict != v1::SKIP) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": verdict SKIP, but parts have taken effect (async_apply EAGER)"));
  }

  bool AppliesOnArrival(const v1::PushRequest& request) const override {
    return request.samples() > 0 && !request.has_part_count();
  }

  Update ApplyOnArrival(const v1::PushRequest& request, std::vector<Gradient> gradients) override {
    const int trainer = request.caller().trainer();
    const bool first = !begun_[static_cast<size_t>(trainer)];
    begun_[static_cast<size_t>(trainer)] = true;
    ++running_;
    auto own = std::make_shared<std::vector<TrainerGradients>>();
    own->push_back({trainer, request.samples(), std::move(gradients)});
    return Update{.kind = Update::Kind::kPart,
                  .trainer = trainer,
                  .step = request.step(),
                  .part = first ? ServerParams::StepPart::kFirst : ServerParams::StepPart::kLater,
                  .gradients = std::move(own)};
  }

  Effect Finish(const Update& update, bool ok, bool stop, bool joined) override {
    if (update.kind != Update::Kind::kPart) return AsyncSteps::Finish(update, ok, stop, joined);
    --running_;
    return {};
  }

 protected:
  void Drop(int trainer) override {
    AsyncSteps::Drop(trainer);
    begun_[static_cast<size_t>(trainer)] = false;
  }

  ServerParams::StepPart LastPart(int trainer) const override {
    return begun_[static_cast<size_t>(trainer)] ? ServerParams::StepPart::kLater : ServerParams::StepPart::kWhole;
  }

 private:
  std::vector<bool> begun_;  // by trainer: parts of its booked step have taken effect
};

absl::Status CheckNorms(const Consistency::Options& options) {
  if (options.norm_rounds == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "async_apply EAGER applies parts on arrival; norms of whole parameters need all of a step");
}

REGISTER_CONSISTENCY(eager)
({.name = "async_apply EAGER",
  .facts = {.counts_transactions = true},
  .check = CheckNorms,
  .chosen = [](const v1::Plan& plan, const v1::TrainingMode&) { return plan.async_eager(); },
  .make = NewConsistency<EagerParts>});

}  // namespace

}  // namespace weir
