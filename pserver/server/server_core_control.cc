#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "pserver/server/server_core_impl.h"

namespace weir {

void ServerCoreImpl::HandleControl(const Slices& bytes, const ReplyCallback& reply) {
  AsCaller<v1::ControlRequest>(bytes, "ControlRequest", kMaxMessageBytes, reply,
                               [&](v1::ControlRequest request, absl::Time now, Actions* actions) -> absl::Status {
                                 mu_.AssertHeld();
                                 const int id = request.caller().trainer();
                                 // Checkpoints, digests and loads are the duty of the chief. A caller that knows
                                 // earlier than this server that the one before it is dead asks again until the lease
                                 // has run out here, too.
                                 RETURN_IF_ERROR(roster_->CheckChief(id, "Control"));
                                 if (request.action_case() == v1::ControlRequest::ACTION_NOT_SET) {
                                   return absl::InvalidArgumentError("Control: no action");
                                 }
                                 roster_->Progressed(id, now);
                                 return controls_.Add(std::move(request), reply, roster_->Name(id), self_, actions);
                               });
  Advance();
}

void ServerCoreImpl::RunControl(const v1::ControlRequest& request) {
  ControlActions::State state;
  {
    MutexLock lock(&mu_);
    state.version = mode_->version().version;
    if (request.has_digest() && request.digest().has_step()) {
      state.step = mode_->CheckControlled(request.digest().step());
    }
    if (request.has_save() && request.save().has_step()) state.step = mode_->CheckControlled(request.save().step());
    if (mode_->facts().counts_transactions) state.table_steps = runner_->table_steps();
    state.pushed = saves_.pushed();
    for (int t = 0; t < roster_->size(); ++t) state.trainer_steps.push_back(mode_->StepsOf(t));
  }
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
    ready = pulls_->TakeReadyPulls(now);  // a load has set the version
  }
  for (const ReplyCallback& reply : replies) Answer(reply, result);
  ServeAll(std::move(ready), info);
}

}  // namespace weir
