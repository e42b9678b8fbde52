#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "pserver/server/server_core_impl.h"

namespace weir {

namespace {

const ProfileName kRowsPull("Pull rows"), kBlocksPull("Pull blocks"), kVersionWait("its turn"),
    kRoomWait("unread answers");

// Number of processes that a message names.
constexpr size_t kMostNames = 5;

}  // namespace

bool ServerCoreImpl::MayRead(const v1::PullRequest& request) const {
  return mode_->MayRead(request) && !controls_.sets_values();
}

std::shared_ptr<const void> ServerCoreImpl::TakeReadable(const v1::PullRequest& request) {
  if (!MayRead(request)) return nullptr;
  std::shared_ptr<const void> credit =
      roster_->readers().TakeCredit(request.caller().session(), answers_->MostBytes(request));
  if (credit == nullptr) return nullptr;
  mode_->BeginRead(request);
  ++reads_;
  return credit;
}

std::shared_ptr<const void> ServerCoreImpl::TakeReady(const v1::PullRequest& request, absl::Time now) {
  if (IsOfReader(request)) return TakeReadable(request);
  if (!mode_->PullReady(request)) return nullptr;
  const int id = request.caller().trainer();
  const std::shared_ptr<ReplyCredits>& credits = roster_->place(id).credits;
  // A session that has ended asks no more; what it asked for before is answered.
  std::shared_ptr<const void> credit =
      credits == nullptr ? std::make_shared<int>(0) : credits->Take(answers_->MostBytes(request));
  if (credit == nullptr) return nullptr;
  mode_->PullBegins(request);
  roster_->Progressed(id, now);
  return credit;
}

std::vector<WaitingPull> ServerCoreImpl::TakeReadyPulls(absl::Time now) {
  std::vector<WaitingPull> ready;
  pulls_.RemoveIf([&](WaitingPull& pull) {
    mu_.AssertHeld();
    pull.credit = TakeReady(pull.request, now);
    if (pull.credit == nullptr) return false;
    HandledCall::EndWait(pull.handled);
    ready.push_back(std::move(pull));
    return true;
  });
  return ready;
}

bool ServerCoreImpl::Serve(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
                           std::shared_ptr<const void> credit, const ReplyCallback& reply,
                           const HandledCallPtr& handled) {
  answers_->Serve(request, payload, info, std::move(credit), reply, handled);
  if (!IsOfReader(request)) return false;
  MutexLock lock(&mu_);
  mode_->EndRead(request);
  --reads_;
  return mode_->update_due() || controls_.sets_values();
}

void ServerCoreImpl::ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info) {
  options_.pool->ParallelFor(static_cast<int64_t>(pulls.size()), [&](int64_t i) {
    WaitingPull& pull = pulls[static_cast<size_t>(i)];
    (void)Serve(pull.request, pull.payload, info, std::move(pull.credit), pull.reply, pull.handled);
  });
}

absl::Status ServerCoreImpl::CheckReadersPulls(const WaitingPull& pull, size_t of_all) const {
  const v1::Caller& caller = pull.request.caller();
  size_t own = pull.bytes;
  pulls_.ForEach([&](const WaitingPull& other) {
    const bool same = other.trainer == kReader && other.request.caller().session() == caller.session();
    own += same ? other.bytes : 0;
  });
  if (own <= options_.reader_bytes && of_all <= options_.unread_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      roster_->NameOf(caller), " has pulls of ", own, " bytes waiting, all readers of ", of_all, "; at most ",
      options_.reader_bytes, " and ", options_.unread_bytes, " may wait: read answers before asking for more"));
}

absl::Status ServerCoreImpl::KeepPull(WaitingPull pull) {
  // One that asks for no rows is not free either.
  pull.bytes += pull.request.SpaceUsedLong() + sizeof(WaitingPull);
  size_t waiting = pull.bytes;
  pulls_.ForEach([&](const WaitingPull& other) { waiting += other.trainer == pull.trainer ? other.bytes : 0; });
  if (IsOfReader(pull.request)) {
    RETURN_IF_ERROR(CheckReadersPulls(pull, waiting));
    // A reader that waits is not silent.
    roster_->readers().Renew(pull.request.caller().session(), pull.deadline);
  } else if (waiting > options_.unread_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(roster_->Name(pull.trainer), " has pulls of ", waiting, " bytes waiting and ",
                     roster_->place(pull.trainer).credits->outstanding(), " bytes of answers unread; at most ",
                     options_.unread_bytes, " may wait: read answers before asking for more"));
  }
  if (HandledCall::Wanted(pull.handled) && !IsOfReader(pull.request)) {
    HandledCall::BeginWait(pull.handled, mode_->PullReady(pull.request) ? kRoomWait : kVersionWait,
                           WhoKeepsWaiting(pull.request));
  }
  pulls_.Add(std::move(pull));
  return absl::OkStatus();
}

void ServerCoreImpl::HandlePull(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  v1::PullRequest request;
  Slices ids;
  if (absl::Status opened = OpenRequest(bytes, "Pull", Callers::kReadersToo, &request, &ids); !opened.ok()) {
    return reply(opened);
  }
  const Slice payload = CopyOf(ids, &buffers_);
  if (absl::Status valid = answers_->Check(request, payload); !valid.ok()) return reply(valid);

  Actions actions;
  VersionInfo info;
  std::shared_ptr<const void> credit;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const absl::Time now, ActFor(request.caller(), &actions));
    // A profile shows the calls of each trainer.
    if (!IsOfReader(request)) {
      HandledCall::Describe(handled, request.caller().trainer(), mode_->StepOf(request),
                            AsksForRows(request) ? kRowsPull : kBlocksPull);
    }
    info = mode_->version();
    credit = TakeReady(request, now);
    if (credit != nullptr) return absl::OkStatus();
    const absl::Time deadline = WaitUntil(now, request.wait_s());
    if (deadline > now) {
      const int id = request.caller().trainer();
      return KeepPull({id, std::move(request), payload, TotalSize(bytes), deadline, reply, handled});
    }
    actions.push_back([reply, answer = NotReady(info.version, WaitingFor(request))] { reply(answer); });
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) return reply(status);
  if (credit != nullptr && Serve(request, payload, info, std::move(credit), reply, handled)) Advance();
}

std::vector<Consistency::Blocker> ServerCoreImpl::BlockersOf(const v1::PullRequest& request) const {
  std::vector<Consistency::Blocker> blockers = mode_->BlockersOf(request);
  // A pull that the mode would answer at once can wait for trainers that have not come.
  for (int t = 0; blockers.empty() && t < roster_->size(); ++t) {
    if (roster_->place(t).state == RosterPlace::kAbsent) blockers.push_back({.trainer = t});
  }
  return blockers;
}

std::string ServerCoreImpl::ReaderWaitsFor(const v1::PullRequest& request) const {
  if (controls_.sets_values()) return absl::StrCat("values that ", self_, " reads from files");
  if (!MayRead(request)) return absl::StrCat("step ", mode_->version().version, ", which takes effect");
  return absl::StrCat(roster_->NameOf(request.caller()), " itself, or other readers, which have answers to read");
}

std::string ServerCoreImpl::WaitingFor(const v1::PullRequest& request) const {
  if (IsOfReader(request)) return ReaderWaitsFor(request);
  if (mode_->PullReady(request)) {
    const int id = request.caller().trainer();
    const std::shared_ptr<ReplyCredits>& credits = roster_->place(id).credits;
    return absl::StrCat(roster_->Name(id), " itself, which has ", credits == nullptr ? 0 : credits->outstanding(),
                        " bytes of answers to read");
  }
  std::vector<std::string> names;
  for (const Consistency::Blocker& blocker : BlockersOf(request)) {
    if (names.size() == kMostNames) break;
    const RosterPlace& place = roster_->place(blocker.trainer);
    std::string name = absl::StrCat(roster_->Name(blocker.trainer), blocker.detail);
    if (blocker.detail.empty() && place.state != RosterPlace::kAbsent) {
      absl::StrAppend(&name, " at step ", std::max<int64_t>(0, place.step));
      if (!place.waiting_for.empty()) absl::StrAppend(&name, ", which waits for ", place.waiting_for.substr(0, 200));
    }
    names.push_back(std::move(name));
  }
  return absl::StrJoin(names, "; ");
}

std::string ServerCoreImpl::WhoKeepsWaiting(const v1::PullRequest& request) const {
  if (mode_->PullReady(request)) return absl::StrCat("trainer ", request.caller().trainer());
  if (!controls_.idle()) return "a checkpoint or digest";
  std::vector<int> who;
  for (const Consistency::Blocker& blocker : BlockersOf(request)) {
    if (blocker.owes_norms) return absl::StrCat("norms from trainer ", blocker.trainer);
    who.push_back(blocker.trainer);
  }
  if (who.empty()) return "the update";
  return absl::StrCat(who.size() == 1 ? "trainer " : "trainers ", absl::StrJoin(who, ", "));
}

}  // namespace weir
