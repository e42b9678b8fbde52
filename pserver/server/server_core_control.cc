#include "pserver/server/server_core_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "pserver/server/load_rows.h"

namespace weir {

namespace {

// What went wrong here will go wrong again: a caller that takes it for trouble on the way would ask until its deadline,
// and then know nothing of the cause.
absl::StatusOr<v1::ControlReply> ForGood(absl::StatusOr<v1::ControlReply> result) {
  switch (result.status().code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return absl::FailedPreconditionError(result.status().message());
    default:
      return result;
  }
}

// Control calls of one trainer that wait for their turn: one of our clients has one at a time, and one that it gave up.
constexpr int kMaxControls = 8;
// Of one of them: as many as one of our clients makes until its deadline, with the default ones, twice over.
constexpr size_t kMaxControlRepeats = 128;

// "save", "digest": as the message calls it.
std::string ActionName(const v1::ControlRequest& request) {
  const auto* const field = v1::ControlRequest::descriptor()->FindFieldByNumber(request.action_case());
  return field == nullptr ? "digest" : field->name();
}

}  // namespace

// Checkpoints, digests and loads are the duty of trainer 0; in async of the first that is not known to be gone. A
// caller that knows earlier than this server that the one before it is dead asks again until the lease has run out
// here, too.
absl::Status ServerCoreImpl::CheckMayControl(int trainer) const {
  // In async server 0 says who the chief is; the others have not heard.
  const int chief = sync_ ? 0 : options_.server_id == 0 ? chief_ : trainer;
  if (trainer == chief) return absl::OkStatus();
  const std::string text = absl::StrCat(Self(), ": Control is called by ", Name(chief), "; this is ", Name(trainer));
  return sync_ ? absl::FailedPreconditionError(text) : absl::UnavailableError(text);
}

void ServerCoreImpl::HandleControl(const Slices& bytes, const ReplyCallback& reply) {
  absl::StatusOr<v1::ControlRequest> request = AdmitAndParse<v1::ControlRequest>(bytes, "ControlRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const absl::Time now, ActFor(request->caller(), &actions));
    const int id = request->caller().trainer();
    RETURN_IF_ERROR(CheckMayControl(id));
    if (request->action_case() == v1::ControlRequest::ACTION_NOT_SET) {
      return absl::InvalidArgumentError("Control: no action");
    }
    trainers_[static_cast<size_t>(id)].progress = now;
    // A save may take longer than a caller waits for one answer; its repeat joins the first instead of starting anew.
    const auto same = [&](const std::shared_ptr<ControlCall>& call) {
      return call != nullptr && request->has_request_id() && call->request.request_id() == request->request_id() &&
             call->trainer == id && call->session == request->caller().session();
    };
    if (same(last_control_)) {
      actions.push_back([reply, result = last_control_reply_] {
        if (result.ok()) {
          reply(Serialize(*result));
        } else {
          reply(result.status());
        }
      });
      return absl::OkStatus();
    }
    for (const std::shared_ptr<ControlCall>& waiting : controls_) {
      if (same(waiting)) {
        WaitAsNewest(reply, kMaxControlRepeats, &waiting->replies, &actions);
        return absl::OkStatus();
      }
    }
    if (same(control_)) {
      WaitAsNewest(reply, kMaxControlRepeats, &control_->replies, &actions);
      return absl::OkStatus();
    }
    const auto waiting =
        std::count_if(controls_.begin(), controls_.end(), [id](const auto& call) { return call->trainer == id; });
    if (waiting >= kMaxControls) {
      return absl::ResourceExhaustedError(absl::StrCat(Name(id), " has ", waiting, " control calls waiting at ", Self(),
                                                       ", as many as may: wait for their answers"));
    }
    controls_.push_back(
        std::make_shared<ControlCall>(ControlCall{id, request->caller().session(), *std::move(request), {reply}}));
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) return reply(status);
  Advance();
}

void ServerCoreImpl::RunControl(std::shared_ptr<ControlCall> call) {
  const absl::StatusOr<v1::ControlReply> result = ForGood(DoControl(call->request));
  std::vector<ReplyCallback> replies;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    control_ = nullptr;
    last_control_ = call;
    last_control_reply_ = result;
    if (result.ok() && call->request.has_save()) written_ = effective_;
    // A repeat is known by its id; what was asked for may be a manifest.
    call->request.clear_action();
    replies = std::move(call->replies);
    info = version_;
    // Meanwhile everyone waited for this server.
    version_since_ = options_.clock->Now();
    for (Trainer& trainer : trainers_) trainer.progress = version_since_;
    TakeReadyPulls(&ready);  // a load has set the version
  }
  for (const ReplyCallback& reply : replies) {
    if (result.ok()) {
      reply(Serialize(*result));
    } else {
      reply(result.status());
    }
  }
  ServeAll(std::move(ready), info);
}

absl::StatusOr<v1::ControlReply> ServerCoreImpl::DoControl(const v1::ControlRequest& request) {
  int64_t version = 0;
  std::vector<int64_t> trainer_steps;
  std::optional<int64_t> table_steps;
  {
    MutexLock lock(&mu_);
    version = version_.version;
    if (!sync_) table_steps = table_steps_;
    for (const Trainer& trainer : trainers_) trainer_steps.push_back(sync_ ? version : trainer.applied_step + 1);
  }
  const ProfileSpan span(version, ProfileKind::kSave, Profiler::Started() ? ActionName(request) : "");
  const auto check_step = [&](bool given, int64_t step) -> absl::Status {
    if (!sync_ || !given || step == version) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(Self(), " is at step ", version, ", asked for step ", step));
  };
  v1::ControlReply reply;
  if (request.has_digest()) {
    RETURN_IF_ERROR(check_step(request.digest().has_step(), request.digest().step()));
    RETURN_IF_ERROR(params_->Digest(&reply));
    return reply;
  }
  switch (request.action_case()) {
    case v1::ControlRequest::kSave:
      RETURN_IF_ERROR(check_step(request.save().has_step(), request.save().step()));
      RETURN_IF_ERROR(checkpoints_->Save(request.save(), trainer_steps, table_steps, &reply));
      return reply;
    case v1::ControlRequest::kPublish:
      RETURN_IF_ERROR(checkpoints_->Publish(request.publish()));
      return reply;
    case v1::ControlRequest::kFind:
      RETURN_IF_ERROR(checkpoints_->Find(&reply));
      return reply;
    case v1::ControlRequest::kSetAside:
      RETURN_IF_ERROR(checkpoints_->SetAside(request.set_aside()));
      return reply;
    case v1::ControlRequest::kOwn:
      RETURN_IF_ERROR(checkpoints_->Own(request.own(), &reply));
      return reply;
    case v1::ControlRequest::kPrune:
      RETURN_IF_ERROR(checkpoints_->Prune(request.prune()));
      return reply;
    case v1::ControlRequest::kLoadRows:
      RETURN_IF_ERROR(DoLoadRows());
      return reply;
    default:
      RETURN_IF_ERROR(DoLoad(request.load()));
      return reply;
  }
}

absl::Status ServerCoreImpl::CheckNobodyHasPushed(std::string_view what) {
  MutexLock lock(&mu_);
  if (!pushed_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(Self(), ": a trainer has already pushed; ",
                                                    absl::string_view(what.data(), what.size()),
                                                    " before the first step"));
}

absl::Status ServerCoreImpl::DoLoadRows() {
  RETURN_IF_ERROR(CheckNobodyHasPushed("row files are loaded"));
  for (const auto& [name, files] : options_.row_files) {
    const int table = params_->FindTable(name);
    if (table < 0)
      return absl::InvalidArgumentError(absl::StrCat(Self(), " has no table ", name, " to load rows into"));
    RETURN_IF_ERROR(LoadRowFiles(files, &params_->table(table)));
  }
  return absl::OkStatus();
}

absl::Status ServerCoreImpl::DoLoad(const v1::LoadCheckpoint& load) {
  RETURN_IF_ERROR(CheckNobodyHasPushed("a checkpoint is loaded"));
  ASSIGN_OR_RETURN(const ServerCheckpoints::Loaded loaded, checkpoints_->Load(load));
  MutexLock lock(&mu_);
  version_ = VersionInfo{.version = loaded.step};
  table_steps_ = borders_ = loaded.table_steps;
  version_since_ = options_.clock->Now();
  // Another number of trainers goes on from where all of them had come at least (trainer/train_loop.cc reads on there).
  const std::vector<int64_t>& steps = loaded.trainer_steps;
  const bool same = steps.size() == static_cast<size_t>(trainer_count_);
  const int64_t least = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
  for (int t = 0; t < trainer_count_; ++t) {
    int64_t& applied_step = trainers_[static_cast<size_t>(t)].applied_step;
    applied_step = (same ? steps[static_cast<size_t>(t)] : least) - 1;
    if (gate_ != nullptr) gate_->Finished(t, applied_step);
  }
  return absl::OkStatus();
}

}  // namespace weir
