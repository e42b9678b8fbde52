#include "pserver/server/control_actions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "pserver/params/load_rows.h"

namespace weir {

namespace {

// Replaces codes that ask the caller to repeat: an action that has failed here will fail again, and a caller that takes
// it for trouble on the way would ask until its deadline, and then know nothing of the cause.
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

// Returns the action's name in the message: "save", "digest".
std::string ActionName(const v1::ControlRequest& request) {
  const auto* const field = v1::ControlRequest::descriptor()->FindFieldByNumber(request.action_case());
  return field == nullptr ? "digest" : field->name();
}

}  // namespace

ControlActions::ControlActions(Options options)
    : options_(std::move(options)),
      checkpoints_(options_.checkpoints, options_.start_from, options_.server_id, options_.servers, options_.params) {}

ControlActions::~ControlActions() {
  if (!probe_.name.empty()) RemoveProbe(options_.checkpoints.dir, probe_.name);
}

absl::Status ControlActions::WriteProbe() {
  if (options_.checkpoints.dir.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(probe_, weir::WriteProbe(options_.checkpoints.dir));
  return absl::OkStatus();
}

absl::Status ControlActions::CheckNobodyHasPushed(const State& state, std::string_view what) const {
  if (!state.pushed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(options_.self, ": a trainer has already pushed; ",
                                                    absl::string_view(what.data(), what.size()),
                                                    " before the first step"));
}

absl::Status ControlActions::Load(const v1::LoadCheckpoint& load, const State& state,
                                  std::optional<ServerCheckpoints::Loaded>* loaded) {
  RETURN_IF_ERROR(CheckNobodyHasPushed(state, "a checkpoint is loaded"));
  ASSIGN_OR_RETURN(*loaded, checkpoints_.Load(load));
  return absl::OkStatus();
}

absl::Status ControlActions::LoadRows(const State& state) {
  RETURN_IF_ERROR(CheckNobodyHasPushed(state, "row files are loaded"));
  for (const auto& [name, files] : options_.row_files) {
    const int table = options_.params->FindTable(name);
    if (table < 0) {
      return absl::InvalidArgumentError(absl::StrCat(options_.self, " has no table ", name, " to load rows into"));
    }
    RETURN_IF_ERROR(LoadRowFiles(files, &options_.params->table(table)));
  }
  return absl::OkStatus();
}

absl::Status ControlActions::Start(const v1::StartRun& start, const State& state) {
  RETURN_IF_ERROR(CheckNobodyHasPushed(state, "values of other checkpoints are taken"));
  return checkpoints_.Start(start);
}

absl::StatusOr<v1::ControlReply> ControlActions::Dispatch(const v1::ControlRequest& request, const State& state,
                                                          std::optional<ServerCheckpoints::Loaded>* loaded) {
  v1::ControlReply reply;
  absl::Status status;
  switch (request.action_case()) {
    case v1::ControlRequest::kDigest:
      RETURN_IF_ERROR(state.step);
      status = options_.params->Digest(&reply);
      break;
    case v1::ControlRequest::kSave:
      RETURN_IF_ERROR(state.step);
      status = checkpoints_.Save(request.save(), state.trainer_steps, state.table_steps, &reply);
      break;
    case v1::ControlRequest::kPublish:
      status = checkpoints_.Publish(request.publish());
      break;
    case v1::ControlRequest::kFind:
      status = checkpoints_.Find(&reply);
      break;
    case v1::ControlRequest::kSetAside:
      status = checkpoints_.SetAside(request.set_aside());
      break;
    case v1::ControlRequest::kOwn:
      status = checkpoints_.Own(request.own(), &reply);
      break;
    case v1::ControlRequest::kPrune:
      status = checkpoints_.Prune(request.prune());
      break;
    case v1::ControlRequest::kLoadRows:
      status = LoadRows(state);
      break;
    case v1::ControlRequest::kStart:
      status = Start(request.start(), state);
      break;
    default:
      status = Load(request.load(), state, loaded);
  }
  if (!status.ok()) return status;
  return reply;
}

absl::StatusOr<v1::ControlReply> ControlActions::Run(const v1::ControlRequest& request, const State& state,
                                                     std::optional<ServerCheckpoints::Loaded>* loaded) {
  const ProfileSpan span(state.version, ProfileKind::kSave, Profiler::Started() ? ActionName(request) : "");
  return ForGood(Dispatch(request, state, loaded));
}

}  // namespace weir
