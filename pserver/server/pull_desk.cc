#include "pserver/server/pull_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"

namespace weir {

namespace {

const ProfileName kVersionWait("its turn"), kRoomWait("unread answers");

// Number of processes that a message names.
constexpr size_t kMostNames = 5;

}  // namespace

bool PullDesk::MayRead(const v1::PullRequest& request) const {
  return options_.rules->MayRead(request) && !options_.controls->sets_values();
}

std::shared_ptr<const void> PullDesk::TakeReadable(const v1::PullRequest& request) {
  if (!MayRead(request)) return nullptr;
  std::shared_ptr<const void> credit =
      options_.roster->readers().TakeCredit(request.caller().session(), options_.answers->MostBytes(request));
  if (credit == nullptr) return nullptr;
  options_.rules->BeginRead(request);
  ++reads_;
  return credit;
}

std::shared_ptr<const void> PullDesk::TakeReady(const v1::PullRequest& request, absl::Time now) {
  if (IsOfReader(request)) return TakeReadable(request);
  if (!options_.rules->PullReady(request)) return nullptr;
  const int id = request.caller().trainer();
  const std::shared_ptr<ReplyCredits>& credits = options_.roster->place(id).credits;
  // A session that has ended asks no more; what it asked for before is answered.
  std::shared_ptr<const void> credit =
      credits == nullptr ? std::make_shared<int>(0) : credits->Take(options_.answers->MostBytes(request));
  if (credit == nullptr) return nullptr;
  options_.rules->PullBegins(request);
  options_.roster->Progressed(id, now);
  return credit;
}

std::vector<WaitingPull> PullDesk::TakeReadyPulls(absl::Time now) {
  std::vector<WaitingPull> ready;
  pulls_.RemoveIf([&](WaitingPull& pull) {
    pull.credit = TakeReady(pull.request, now);
    if (pull.credit == nullptr) return false;
    HandledCall::EndWait(pull.handled);
    ready.push_back(std::move(pull));
    return true;
  });
  return ready;
}

bool PullDesk::EndRead(const v1::PullRequest& request) {
  options_.rules->EndRead(request);
  --reads_;
  return options_.rules->update_due() || options_.controls->sets_values();
}

absl::Status PullDesk::CheckReadersPulls(const WaitingPull& pull, size_t of_all) const {
  const v1::Caller& caller = pull.request.caller();
  size_t own = pull.bytes;
  pulls_.ForEach([&](const WaitingPull& other) {
    const bool same = other.trainer == kReader && other.request.caller().session() == caller.session();
    own += same ? other.bytes : 0;
  });
  if (own <= options_.reader_bytes && of_all <= options_.unread_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      options_.roster->NameOf(caller), " has pulls of ", own, " bytes waiting, all readers of ", of_all, "; at most ",
      options_.reader_bytes, " and ", options_.unread_bytes, " may wait: read answers before asking for more"));
}

absl::Status PullDesk::Keep(WaitingPull pull) {
  // One that asks for no rows is not free either.
  pull.bytes += pull.request.SpaceUsedLong() + sizeof(WaitingPull);
  size_t waiting = pull.bytes;
  pulls_.ForEach([&](const WaitingPull& other) { waiting += other.trainer == pull.trainer ? other.bytes : 0; });
  if (IsOfReader(pull.request)) {
    RETURN_IF_ERROR(CheckReadersPulls(pull, waiting));
    // A reader that waits is not silent.
    options_.roster->readers().Renew(pull.request.caller().session(), pull.deadline);
  } else if (waiting > options_.unread_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.roster->Name(pull.trainer), " has pulls of ", waiting, " bytes waiting and ",
                     options_.roster->place(pull.trainer).credits->outstanding(), " bytes of answers unread; at most ",
                     options_.unread_bytes, " may wait: read answers before asking for more"));
  }
  if (HandledCall::Wanted(pull.handled) && !IsOfReader(pull.request)) {
    HandledCall::BeginWait(pull.handled, options_.rules->PullReady(pull.request) ? kRoomWait : kVersionWait,
                           WhoKeepsWaiting(pull.request));
  }
  pulls_.Add(std::move(pull));
  return absl::OkStatus();
}

void PullDesk::AnswerExpired(absl::Time now, Actions* actions) {
  pulls_.RemoveIf([&](const WaitingPull& pull) {
    if (now < pull.deadline) return false;
    actions->push_back([reply = pull.reply, bytes = NotReady(options_.counts->version().version,
                                                             WaitingFor(pull.request))] { reply(bytes); });
    return true;
  });
}

absl::Time PullDesk::NextDue() const {
  absl::Time next = absl::InfiniteFuture();
  pulls_.ForEach([&](const WaitingPull& pull) {
    const bool reads = IsOfReader(pull.request) ? MayRead(pull.request) : options_.rules->PullReady(pull.request);
    next = std::min(next, reads ? absl::InfinitePast() : pull.deadline);
  });
  return next;
}

void PullDesk::AnswerLeaving(uint64_t session, Actions* actions) {
  pulls_.RemoveIf([&](const WaitingPull& pull) {
    if (!IsOfReader(pull.request) || pull.request.caller().session() != session) return false;
    actions->push_back([reply = pull.reply, self = options_.self] {
      reply(absl::FailedPreconditionError(absl::StrCat("this reader of ", self, " has left")));
    });
    return true;
  });
}

std::vector<int64_t> PullDesk::StepsOf(int trainer) const {
  std::vector<int64_t> steps;
  pulls_.ForEach([&](const WaitingPull& pull) {
    if (pull.trainer == trainer) steps.push_back(pull.request.version());
  });
  return steps;
}

std::map<int, std::set<int>> PullDesk::WaitsByTrainer() const {
  std::map<int, std::set<int>> waits;
  pulls_.ForEach([&](const WaitingPull& pull) {
    if (IsOfReader(pull.request)) return;
    for (const PullRules::Blocker& blocker : BlockersOf(pull.request)) waits[blocker.trainer].insert(pull.trainer);
  });
  return waits;
}

std::vector<PullRules::Blocker> PullDesk::BlockersOf(const v1::PullRequest& request) const {
  std::vector<PullRules::Blocker> blockers = options_.rules->BlockersOf(request);
  // A pull that the mode would answer at once can wait for trainers that have not come.
  for (int t = 0; blockers.empty() && t < options_.roster->size(); ++t) {
    if (options_.roster->place(t).state == RosterPlace::kAbsent) blockers.push_back({.trainer = t});
  }
  return blockers;
}

std::string PullDesk::ReaderWaitsFor(const v1::PullRequest& request) const {
  if (options_.controls->sets_values()) return absl::StrCat("values that ", options_.self, " reads from files");
  if (!MayRead(request)) return absl::StrCat("step ", options_.counts->version().version, ", which takes effect");
  return absl::StrCat(options_.roster->NameOf(request.caller()),
                      " itself, or other readers, which have answers to read");
}

std::string PullDesk::WaitingFor(const v1::PullRequest& request) const {
  if (IsOfReader(request)) return ReaderWaitsFor(request);
  if (options_.rules->PullReady(request)) {
    const int id = request.caller().trainer();
    const std::shared_ptr<ReplyCredits>& credits = options_.roster->place(id).credits;
    return absl::StrCat(options_.roster->Name(id), " itself, which has ",
                        credits == nullptr ? 0 : credits->outstanding(), " bytes of answers to read");
  }
  std::vector<std::string> names;
  for (const PullRules::Blocker& blocker : BlockersOf(request)) {
    if (names.size() == kMostNames) break;
    const RosterPlace& place = options_.roster->place(blocker.trainer);
    std::string name = absl::StrCat(options_.roster->Name(blocker.trainer), blocker.detail);
    if (blocker.detail.empty() && place.state != RosterPlace::kAbsent) {
      absl::StrAppend(&name, " at step ", std::max<int64_t>(0, place.step));
      if (!place.waiting_for.empty()) absl::StrAppend(&name, ", which waits for ", place.waiting_for.substr(0, 200));
    }
    names.push_back(std::move(name));
  }
  return absl::StrJoin(names, "; ");
}

std::string PullDesk::WhoKeepsWaiting(const v1::PullRequest& request) const {
  if (options_.rules->PullReady(request)) return absl::StrCat("trainer ", request.caller().trainer());
  if (!options_.controls->idle()) return "a checkpoint or digest";
  std::vector<int> who;
  for (const PullRules::Blocker& blocker : BlockersOf(request)) {
    if (blocker.owes_norms) return absl::StrCat("norms from trainer ", blocker.trainer);
    who.push_back(blocker.trainer);
  }
  if (who.empty()) return "the update";
  return absl::StrCat(who.size() == 1 ? "trainer " : "trainers ", absl::StrJoin(who, ", "));
}

}  // namespace weir
