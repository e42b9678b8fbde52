#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "pserver/server/server_core_impl.h"

namespace weir {

// Checkpoints, digests and loads are the duty of trainer 0; in async of the first that is not known to be gone. A
// caller that knows earlier than this server that the one before it is dead asks again until the lease has run out
// here, too.
absl::Status ServerCoreImpl::CheckMayControl(int trainer) const {
  // In async server 0 says who the chief is; the others have not heard.
  const int chief = options_.sync || options_.server_id == 0 ? roster_->chief() : trainer;
  if (trainer == chief) return absl::OkStatus();
  const std::string text =
      absl::StrCat(self_, ": Control is called by ", roster_->Name(chief), "; this is ", roster_->Name(trainer));
  return options_.sync ? absl::FailedPreconditionError(text) : absl::UnavailableError(text);
}

void ServerCoreImpl::HandleControl(const Slices& bytes, const ReplyCallback& reply) {
  AsCaller<v1::ControlRequest>(bytes, "ControlRequest", kMaxMessageBytes, reply,
                               [&](v1::ControlRequest request, absl::Time now, Actions* actions) -> absl::Status {
                                 mu_.AssertHeld();
                                 const int id = request.caller().trainer();
                                 RETURN_IF_ERROR(CheckMayControl(id));
                                 if (request.action_case() == v1::ControlRequest::ACTION_NOT_SET) {
                                   return absl::InvalidArgumentError("Control: no action");
                                 }
                                 roster_->Progressed(id, now);
                                 return controls_.Add(std::move(request), reply, roster_->Name(id), self_, actions);
                               });
  Advance();
}

void ServerCoreImpl::RunControl(const v1::ControlRequest& request) {
  ControlActions::State state{.sync = options_.sync};
  {
    MutexLock lock(&mu_);
    state.version = mode_->version().version;
    state.pushed = saves_.pushed();
    for (int t = 0; t < roster_->size(); ++t) state.trainer_steps.push_back(mode_->StepsOf(t));
  }
  state.table_steps = runner_->table_steps();
  std::optional<ServerCheckpoints::Loaded> loaded;
  const absl::StatusOr<v1::ControlReply> result = actions_->Run(request, state, &loaded);
  const bool saved = result.ok() && request.has_save();
  if (loaded.has_value()) runner_->SetTableSteps(loaded->table_steps);

  std::vector<ReplyCallback> replies;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    if (loaded.has_value()) mode_->Restore(loaded->step, loaded->trainer_steps);
    replies = controls_.Finish(result);
    if (saved) saves_.Written();
    info = mode_->version();
    // Meanwhile everyone waited for this server.
    roster_->AllProgressed(now, /*caught_up=*/false);
    ready = TakeReadyPulls(now);  // a load has set the version
  }
  for (const ReplyCallback& reply : replies) Answer(reply, result);
  ServeAll(std::move(ready), info);
}

}  // namespace weir
