#include "pserver/client/server_steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// A step is one of all trainers: what it reads is the version before it, and its outcome is that of all.
class StepsInSync : public ServerSteps {
 public:
  explicit StepsInSync(const Options& options) : ServerSteps(options, {.in_turn = true, .one_version = true}) {}

 protected:
  // Another trainer's verdict may count.
  bool BringsNorms(int64_t /*samples*/, v1::Verdict /*verdict*/) const override {
    return member_.settings().trainer_id == 0;
  }
  std::string Awaited(int64_t version) const override { return absl::StrCat("version ", version); }
  v1::Verdict VerdictOf(v1::Verdict own) const override { return ends_ ? v1::END : own; }
  bool MayReceiveBesideSends() const override { return true; }
};

// A step is this trainer's own, and so is its outcome.
class StepsOfItsOwn : public ServerSteps {
 public:
  explicit StepsOfItsOwn(const Options& options, bool in_turn = false)
      : ServerSteps(options, {.in_turn = in_turn, .parts_apply = options.placement->plan().async_eager()}) {}

 protected:
  // A step without effect has no norms.
  bool BringsNorms(int64_t samples, v1::Verdict verdict) const override { return samples > 0 && verdict == v1::APPLY; }
  std::string Awaited(int64_t /*version*/) const override { return "blocks"; }
  StepOutcome OutcomeFrom(const StepOutcome& of_version) const override {
    StepOutcome own = of_version;
    own.skipped = sent().verdict == v1::SKIP;
    own.samples = sent().samples;
    own.stop = false;
    return own;
  }
};

// A step of its own, which begins when no trainer is too far behind.
class BoundedStepsOfItsOwn : public StepsOfItsOwn {
 public:
  explicit BoundedStepsOfItsOwn(const Options& options) : StepsOfItsOwn(options, /*in_turn=*/true) {}

 protected:
  std::string Awaited(int64_t version) const override { return absl::StrCat("the others, to begin step ", version); }
};

}  // namespace

std::unique_ptr<ServerSteps> ServerSteps::Create(const Options& options) {
  if (options.placement->plan().sync()) return std::make_unique<StepsInSync>(options);
  if (options.bounded_staleness) return std::make_unique<BoundedStepsOfItsOwn>(options);
  return std::make_unique<StepsOfItsOwn>(options);
}

ServerSteps::ServerSteps(const Options& o, const Rules& rules)
    : member_(*o.member),
      receives_beside_sends_(o.receives_beside_sends),
      in_turn_(rules.in_turn),
      pulls_(&o.member->calls(), &o.member->waits(), o.buffers, o.pool),
      rows_(o.placement, &pulls_, rules.in_turn, Waits::kProgram),
      ahead_({.placement = o.placement,
              .calls = &pulls_,
              .member = o.member,
              .received = rules.one_version ? &received_ : nullptr,
              .in_turn = rules.in_turn}),
      blocks_(o.placement, &pulls_, rules.in_turn, rules.one_version),
      pusher_(o.placement, &o.member->calls(), o.buffers, o.pool, &rows_.orders(), rules.parts_apply),
      norms_(&o.member->calls(), &o.member->waits()) {}

void ServerSteps::SetFirstStep(int64_t step) {
  version_wanted_ = step;
  received_ = step;
}

bool ServerSteps::ExchangesNorms() const {
  const std::vector<int> rounds = member_.joined().NormRounds();
  return std::any_of(rounds.begin(), rounds.end(), [](int n) { return n > 0; });
}

bool ServerSteps::ReceivesBesideSends() const {
  // Norms are asked for when the pushes are complete. Pushes to a server inside are complete at once.
  return receives_beside_sends_ && MayReceiveBesideSends() && !pulls_.answers_inside() && !ExchangesNorms();
}

absl::Status ServerSteps::BeginStep(int64_t step, bool read_only) {
  RETURN_IF_ERROR(member_.JobStatus());
  rows_.BeginStep(step, read_only);
  blocks_.Clear();
  if (read_only) {
    pusher_.BeginReadOnlyStep();
    return absl::OkStatus();
  }
  member_.job().SetStep(step);
  if (in_turn_) version_wanted_ = step;
  pusher_.SetAcks(!ReceivesBesideSends() ? Pusher::Acks::kAwaited
                  : with_pulls_          ? Pusher::Acks::kKept
                                         : Pusher::Acks::kLater);
  pusher_.BeginStep(step, version_wanted_);
  return absl::OkStatus();
}

absl::Status ServerSteps::FinishSends(int64_t samples, v1::Verdict verdict) {
  verdict = VerdictOf(verdict);
  RETURN_IF_ERROR(pusher_.FinishSends(samples, verdict, member_.StopRequested()));
  if (!ReceivesBesideSends()) RETURN_IF_ERROR(pusher_.AwaitSends());
  const int64_t step = pusher_.sent().step;
  if (BringsNorms(samples, verdict)) RETURN_IF_ERROR(norms_.Run(step, member_.joined().NormRounds(), norm_party_));
  if (in_turn_) version_wanted_ = step + 1;
  return absl::OkStatus();
}

absl::Status ServerSteps::FinishReceives(StepOutcome* outcome) {
  Pusher::Sends sends = pusher_.TakeSends();
  ASSIGN_OR_RETURN(const StepOutcome of_version,
                   blocks_.Finish(version_wanted_, Awaited(version_wanted_), std::move(sends.under_way), sends.kept));
  received_ = of_version.version;
  const StepOutcome own = OutcomeFrom(of_version);
  pusher_.EndStep(!own.skipped && !own.ended);
  if (outcome != nullptr) *outcome = own;
  return absl::OkStatus();
}

}  // namespace weir
