#include "pserver/member/calls.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/counters.h"
#include "framework/base/status_macros.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/member/messages.h"
#include "pserver/protocol/call_hints.h"

namespace weir {

namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
constexpr absl::Duration kLongestBackoff = absl::Seconds(1);
// Longest times between two looks of a wait: by the real clock, when it has slept until the next thing is due or until
// it is woken, and by one that may be a fake, which wakes nobody.
constexpr absl::Duration kRealLook = absl::Seconds(1);
constexpr absl::Duration kLook = absl::Milliseconds(2);
// Shortest time, for what is due only after its time.
constexpr absl::Duration kShortLook = absl::Milliseconds(1);
// Servers are told what a wait is for when it takes this long.
constexpr absl::Duration kToldAfter = absl::Seconds(1);
// Waits that may have to be explained.
constexpr absl::Duration kLongWait = absl::Milliseconds(50);
// Time for calls after a request to stop: answers that are on their way come within it, and the process ends within the
// two seconds that people allow it.
constexpr absl::Duration kStopGrace = absl::Seconds(1);

const ProfileName kAnswerName("an answer"), kTakesName("take the answer of"), kServeName("answers");

// Returns the name of a method in the profiler: "Push".
ProfileName NameOf(Method method) {
  static const auto* const names = [] {
    auto* made = new std::vector<ProfileName>;
    for (int m = 0; m < kMethods; ++m) made->push_back(ProfileName(MethodName(static_cast<Method>(m))));
    return made;
  }();
  return (*names)[static_cast<size_t>(method)];
}

// Returns what the profiler will say of a try that is about to begin; null if its step is not recorded.
std::shared_ptr<ProfileEvent> ProfiledTry(const Call& call) {
  if (!Profiler::Wants(call.profiled_step)) return nullptr;
  auto event = std::make_shared<ProfileEvent>();
  event->kind = ProfileKind::kCall;
  event->name = call.profiled_as;
  event->track = Profiler::Process().Track(absl::StrCat("calls to server ", call.server));
  event->step = call.profiled_step;
  event->peer = call.server;
  event->bytes_out = static_cast<int64_t>(TotalSize(call.request));
  event->call = Profiler::Process().NewCall();
  event->begin_ns = Profiler::NowNs();
  return event;
}

void EndProfiledTry(ProfileEvent* event, const absl::StatusOr<Slices>& answer) {
  event->end_ns = Profiler::NowNs();
  if (answer.ok()) event->bytes_in = static_cast<int64_t>(TotalSize(*answer));
  if (!answer.ok()) event->detail = ProfileName(absl::StatusCodeToString(answer.status().code()));
  Profiler::Process().Record(*event);
}

// A thread takes some 20 us to wake, in which another one copies as much.
constexpr size_t kBytesForThreads = size_t{256} << 10;

}  // namespace

void ForEachWorth(ThreadPool* pool, size_t bytes, int64_t n, const std::function<void(int64_t)>& fn) {
  if (bytes >= kBytesForThreads) return pool->ParallelFor(n, fn);
  for (int64_t i = 0; i < n; ++i) fn(i);
}

Calls::Calls(const CallSettings* settings, std::shared_ptr<Sessions> sessions, std::shared_ptr<JobView> job,
             std::shared_ptr<Waits> waits, std::shared_ptr<CallCounters> counters, Heartbeats* heartbeats)
    : settings_(*settings),
      sessions_(std::move(sessions)),
      job_(std::move(job)),
      waits_(std::move(waits)),
      counters_(std::move(counters)),
      waited_(Counters::Process().Get(absl::StrCat("trainer.", settings->trainer_id, ".wait.servers"), "microseconds")),
      heartbeats_(*heartbeats) {}

CallPtr Calls::New(int server, Method method, Slices request, Call::Accept accept) {
  auto call = std::make_shared<Call>();
  call->server = server;
  call->method = method;
  call->request = std::move(request);
  call->accept = std::move(accept);
  call->profiled_step = ProfiledStep::current();
  call->profiled_as = NameOf(method);
  call->backoff = kFirstBackoff;
  return call;
}

void Calls::Issue(const CallPtr& call) {
  waits_->Expect(&call->answer);
  const bool counted = !settings_.transport->is_own(call->server, call->method);
  if (counted) counters_->Request(call->method, TotalSize(call->request));
  const std::shared_ptr<ProfileEvent> profiled = ProfiledTry(*call);
  const ProfiledCallScope scope(profiled == nullptr ? ProfiledCall() : ProfiledCall{profiled->call, profiled->step});
  const AnswersMayWait may_wait(call->answer_may_wait);
  settings_.transport->Call(call->server, call->method, call->request, settings_.rpc,
                            [sessions = sessions_, waits = waits_, counters = counters_, call, clock = settings_.clock,
                             counted, profiled, begun = Profiler::NowNs()](absl::StatusOr<Slices> answer) {
                              if (counted) counters->Took(call->method, Profiler::NowNs() - begun);
                              if (profiled != nullptr) EndProfiledTry(profiled.get(), answer);
                              if (counted && answer.ok()) counters->Answer(call->method, TotalSize(*answer));
                              if (answer.ok() || !IsRetryable(answer.status())) {
                                sessions->Heard(call->server, clock->Now());
                              }
                              waits->Deliver(&call->answer, std::move(answer));
                            });
}

absl::Status Calls::ServeInParallel(absl::Span<const CallPtr> calls, ThreadPool* pool) {
  return LookInParallel(calls, /*issue=*/true, pool);
}

absl::Status Calls::LookInParallel(absl::Span<const CallPtr> calls, bool issue, ThreadPool* pool) {
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kThreads, kServeName);
  std::vector<absl::Status> looked(calls.size());
  pool->ParallelFor(static_cast<int64_t>(calls.size()), [&](int64_t i) {
    const CallPtr& call = calls[static_cast<size_t>(i)];
    if (issue) Issue(call);
    bool again = false;
    looked[static_cast<size_t>(i)] = Look(call, &again);
  });
  for (const absl::Status& status : looked) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status Calls::FailureOfJob(const absl::Status& aborted) {
  // A heart-beat's answer has the failure's own code.
  heartbeats_.SendToAll();
  return job_->AwaitFailure(aborted);
}

absl::StatusOr<bool> Calls::Accept(Call* call, const absl::StatusOr<Slices>& answer) const {
  RETURN_IF_ERROR(answer.status());
  ProfileSpan span(call->profiled_step, ProfileKind::kClient, kTakesName);
  if (ProfileEvent* const event = span.event()) {
    event->detail = call->profiled_as;
    event->peer = call->server;
  }
  return call->accept(*answer);
}

absl::Status Calls::Look(const CallPtr& call, bool* issue) {
  *issue = false;
  absl::StatusOr<Slices> answer = absl::UnknownError("");
  switch (waits_->Take(&call->answer, &answer)) {
    case Waits::Taken::kPending:
      return absl::OkStatus();
    case Waits::Taken::kNothing:
      *issue = settings_.clock->Now() >= call->next_try;
      return absl::OkStatus();
    case Waits::Taken::kAnswer:
      break;
  }
  const absl::StatusOr<bool> accepted = Accept(call.get(), answer);
  if (accepted.ok()) {
    call->finished = *accepted;
    *issue = !*accepted;
    call->backoff = kFirstBackoff;
    return absl::OkStatus();
  }
  const absl::Status& status = accepted.status();
  const bool reread = status.code() == absl::StatusCode::kDataLoss && !call->reread;
  if (IsRetryable(status) || reread) {
    call->reread |= reread;
    call->trouble = status;
    counters_->Retry();
    call->next_try = settings_.clock->Now() + call->backoff;
    call->backoff = std::min(2 * call->backoff, kLongestBackoff);
    return absl::OkStatus();
  }
  if (status.code() == absl::StatusCode::kAborted) {
    sessions_->KnowsFailure(call->server);
    return FailureOfJob(status);
  }
  return absl::Status(status.code(), absl::StrCat(settings_.transport->Describe(call->server), ": ", status.message()));
}

absl::Status Calls::TakeInParallel(absl::Span<const CallPtr> calls, ThreadPool* pool, int* last_server) {
  if (pool == nullptr || pool->threads() == 0) return absl::OkStatus();
  std::vector<CallPtr> answered;
  size_t bytes = 0;
  for (const CallPtr& call : calls) {
    const std::optional<size_t> size = call->finished ? std::nullopt : waits_->AnswerSize(call->answer);
    if (!size.has_value()) continue;
    answered.push_back(call);
    bytes += *size;
  }
  if (answered.size() < 2 || bytes < kBytesForThreads) return absl::OkStatus();
  RETURN_IF_ERROR(LookInParallel(answered, /*issue=*/false, pool));
  *last_server = answered.back()->server;
  return absl::OkStatus();
}

absl::StatusOr<Calls::Progress> Calls::LookAtAll(absl::Span<const CallPtr> calls, int* last_server) {
  Progress progress;
  for (const CallPtr& call : calls) {
    if (call->finished) continue;
    bool issue = false;
    RETURN_IF_ERROR(Look(call, &issue));
    if (issue) Issue(call);
    if (call->finished) *last_server = call->server;
    progress.issued |= issue;
    progress.finished &= call->finished;
  }
  return progress;
}

std::string Calls::MissingText(absl::Span<const CallPtr> calls, const std::string& what) const {
  // Servers by what is missing, in order of the calls.
  std::vector<std::pair<std::string, std::vector<std::string>>> missing;
  // An acknowledgement that comes with another answer is not what is waited for, unless a try has failed.
  std::set<int> others;
  for (const CallPtr& call : calls) {
    if (!call->finished && !call->answer_may_wait) others.insert(call->server);
  }
  for (const CallPtr& call : calls) {
    const bool comes_along = call->answer_may_wait && call->trouble.ok() && others.contains(call->server);
    if (call->finished || comes_along) continue;
    const std::string& of_call = call->what.empty() ? what : call->what;
    if (missing.empty() || missing.back().first != of_call) missing.push_back({of_call, {}});
    std::vector<std::string>& servers = missing.back().second;
    const std::string server = settings_.transport->Describe(call->server);
    if (std::find(servers.begin(), servers.end(), server) == servers.end()) servers.push_back(server);
  }
  return absl::StrJoin(missing, "; ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, absl::StrJoin(each.second, ", "), ": ", each.first);
  });
}

std::string Calls::TroubleText(absl::Span<const CallPtr> calls) {
  for (const CallPtr& call : calls) {
    if (!call->finished && !call->trouble.ok()) return absl::StrCat("; the last try: ", call->trouble.message());
  }
  return "";
}

absl::Status Calls::TooLate(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration waited,
                            const std::string& held_by) const {
  const std::string held = held_by.empty() ? "" : absl::StrCat("; ", held_by);
  return absl::DeadlineExceededError(absl::StrCat(settings_.Self(), " has waited ", SecondsText(waited), " for ",
                                                  MissingText(calls, what), TroubleText(calls), held));
}

absl::Time Calls::NextTry(absl::Span<const CallPtr> calls, absl::Time after) {
  absl::Time next = absl::InfiniteFuture();
  for (const CallPtr& call : calls) {
    if (!call->finished && call->next_try > after) next = std::min(next, call->next_try);
  }
  return next;
}

absl::Status Calls::CheckStop(absl::Span<const CallPtr> calls, const std::string& what, absl::Time* stopping) const {
  if (!job_->stop_requested()) return absl::OkStatus();
  const absl::Time now = settings_.clock->Now();
  *stopping = std::min(*stopping, now);
  if (now - *stopping <= std::min(settings_.lease, kStopGrace)) return absl::OkStatus();
  return absl::CancelledError(
      absl::StrCat(settings_.Self(), " was asked to stop while it waited for ", MissingText(calls, what)));
}

absl::Status Calls::Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                         WaitOptions options) {
  ProfileSpan span(ProfiledStep::current(), ProfileKind::kWait,
                   options.profiled_as == nullptr ? kAnswerName : *options.profiled_as);
  int last_server = -1;
  const int64_t begun = Profiler::NowNs();
  absl::Status status = WaitUntilAnswered(calls, what, deadline, options, &last_server);
  waits_->End(options.thread);
  // A wait of the thread ahead costs time only when the program waits for that thread (wait.data).
  if (options.thread == Waits::kProgram) {
    const absl::Duration waited = absl::Nanoseconds(Profiler::NowNs() - begun);
    waited_->Add(absl::ToInt64Microseconds(waited));
    if (waited >= kLongWait && last_server >= 0) {
      waits_->NoteLong(absl::StrCat(what, " of ", settings_.transport->Describe(last_server)), waited);
    }
  }
  if (!status.ok()) {
    // The failure of the job says more than the error of this call.
    if (absl::Status failure = job_->failure(); !failure.ok()) status = std::move(failure);
  }
  if (ProfileEvent* const event = span.event()) {
    event->peer = last_server;
    if (last_server >= 0) event->detail = ProfileName(settings_.transport->Describe(last_server));
  }
  return status;
}

absl::Status Calls::WaitUntilAnswered(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                                      const WaitOptions& options, int* last_server) {
  const absl::Time begun = settings_.clock->Now();
  absl::Time start = begun;
  absl::Time warned = start;
  absl::Time stopping = absl::InfiniteFuture();
  int64_t version = -1;
  bool excused = false;
  const absl::Duration look = settings_.clock == Clock::Real() ? kRealLook : kLook;
  while (true) {
    const int64_t wakes = waits_->wakes();
    const absl::Time looked = settings_.clock->Now();
    RETURN_IF_ERROR(TakeInParallel(calls, options.pool, last_server));
    ASSIGN_OR_RETURN(const Progress progress, LookAtAll(calls, last_server));
    if (progress.finished) return absl::OkStatus();
    if (progress.issued) continue;  // an answer may be there already

    const absl::Time now = settings_.clock->Now();
    if (options.while_others_work && job_->version() > version) {
      version = job_->version();
      start = now;
    }
    const bool was_excused = excused;
    excused = job_->any_awaits_files() && std::any_of(calls.begin(), calls.end(), [](const CallPtr& call) {
                return !call->finished && call->needs_trainers;
              });
    if (excused || was_excused) start = warned = now;
    const absl::Duration waited = now - start;
    if (waited > deadline) return TooLate(calls, what, waited, waits_->held_by(options.thread));
    const bool needed =
        options.thread == Waits::kProgram || (options.thread == Waits::kAhead && waits_->ahead_needed());
    if (needed && now - warned >= settings_.slow_warning) {
      warned = now;
      LOG(WARNING) << settings_.Self() << ": waits for " << MissingText(calls, what) << ", for " << SecondsText(waited)
                   << TroubleText(calls);
    }
    RETURN_IF_ERROR(job_->failure());
    if (options.until_stop) RETURN_IF_ERROR(CheckStop(calls, what, &stopping));
    if (options.thread == Waits::kAhead && waits_->ahead_cancelled()) {
      return absl::CancelledError(absl::StrCat("nobody waits any more for ", what));
    }
    const bool told = now - begun >= kToldAfter;
    if (told) waits_->SetOn(options.thread, MissingText(calls, what));
    const absl::Time due =
        std::min({start + deadline, needed ? warned + settings_.slow_warning : absl::InfiniteFuture(),
                  stopping + std::min(settings_.lease, kStopGrace), told ? absl::InfiniteFuture() : begun + kToldAfter,
                  NextTry(calls, looked)});
    waits_->AwaitWake(wakes, std::clamp(due - now, kShortLook, look));
  }
}

}  // namespace weir
