#include "pserver/client/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/client/client_impl.h"

namespace weir {

namespace {

constexpr absl::Duration kLongestBackoff = absl::Seconds(1);
constexpr absl::Duration kRealLook = absl::Milliseconds(50);

const ProfileName kAnswerName("an answer"), kTakesName("take the answer of");

// How the profiler calls a method: "Push".
ProfileName NameOf(Method method) {
  static const auto* const names = [] {
    auto* made = new std::vector<ProfileName>;
    for (int m = 0; m < kMethods; ++m) made->push_back(ProfileName(MethodName(static_cast<Method>(m))));
    return made;
  }();
  return (*names)[static_cast<size_t>(method)];
}

// A try is about to begin: what the profiler will say of it when its answer is there. Null when its step is not
// recorded.
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

}  // namespace

ClientImpl::ClientImpl(ClientOptions options)
    : options_(std::move(options)),
      rpc_(OfSeconds(options_.deadlines.rpc_s())),
      lease_(OfSeconds(options_.deadlines.lease_s())),
      heartbeat_period_(OfSeconds(options_.deadlines.heartbeat_s())),
      slow_warning_(OfSeconds(options_.deadlines.slow_warning_s())),
      progress_deadline_(OfSeconds(options_.deadlines.progress_deadline_s())),
      nodes_(AlignedNodes(LanesOfTrainer(options_.plan.lanes(), options_.plan.trainers(), options_.trainer_id))),
      tree_lanes_(options_.plan.lanes() == 0 ? options_.plan.trainers() : options_.plan.lanes()),
      eager_(!options_.plan.sync() && options_.plan.async_eager()),
      in_turn_(options_.plan.sync() || options_.bounded_staleness),
      shared_(std::make_shared<Shared>(options_.trainer_id)) {
  for (const v1::PlacedBlock& block : options_.plan.blocks()) block_counts_[block.name()] = block.element_count();
  for (const v1::PlacedTable& table : options_.plan.tables()) tables_[table.name()] = &table;
  for (const v1::FetchedRows& fetched : options_.plan.fetched_rows())
    fetched_[fetched.parameter()].rows = fetched.rows();
  for (const v1::PlacedBlock& block : options_.plan.blocks()) {
    const auto fetched = fetched_.find(block.parameter());
    if (fetched == fetched_.end() || block.dims_size() != 2) continue;
    const int64_t begin = block.dims(1) == 0 ? 0 : block.element_begin() / block.dims(1);
    fetched->second.blocks.push_back({block.name(), block.server(), begin, begin + block.dims(0)});
  }
  {
    MutexLock lock(&shared_->mu);
    shared_->last_heard.assign(static_cast<size_t>(servers()), absl::InfinitePast());
    shared_->knows.assign(static_cast<size_t>(servers()), false);
    shared_->released.assign(static_cast<size_t>(servers()), false);
    shared_->sessions.assign(static_cast<size_t>(servers()), 0);
    shared_->processes.assign(static_cast<size_t>(servers()), "");
    shared_->norm_rounds.assign(static_cast<size_t>(servers()), 0);
  }
  for (int s = 0; s < servers(); ++s) {
    builders_.push_back(std::make_unique<PushBuilder>(
        &buffers_, options_.transport->checks_payloads(), [this, s](v1::PushRequest header, Slices payload) {
          *header.mutable_caller() = CallerFor(s);
          header.set_step(step_);
          header.set_read_version(version_wanted_);
          const int64_t samples = step_samples_;
          if (eager_ && samples > 0 && !header.has_part_count()) {
            // A piece of a block cannot be applied by itself; it waits for the last part.
            bool whole = true;
            for (const v1::PushItem& item : header.items()) {
              const auto count = block_counts_.find(item.name());
              whole &= item.width() > 0 || (count != block_counts_.end() && item.count() == count->second);
            }
            if (whole) header.set_samples(samples);
          }
          const CallPtr call = NewCall(s, Method::kPush, EncodeFrame(header.SerializeAsString(), payload),
                                       [](const Slices& answer) -> absl::StatusOr<bool> {
                                         ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(answer));
                                         v1::PushReply reply;
                                         if (!reply.ParseFromString(frame.header))
                                           return absl::DataLossError("no PushReply");
                                         return true;
                                       });
          // The thread that has filled the part may work for no step of its own.
          call->profiled_step = Profiler::Wants(step_) ? step_ : -1;
          {
            MutexLock lock(&push_mu_);
            pushes_.push_back(call);
          }
          Issue(call);
        }));
  }
}

ClientImpl::~ClientImpl() {
  {
    MutexLock lock(&shared_->mu);
    shared_->closing = true;
    shared_->heartbeat.SignalAll();
  }
  if (heartbeat_.joinable()) heartbeat_.join();
}

v1::Caller ClientImpl::CallerFor(int server) {
  v1::Caller caller;
  caller.set_job_id(options_.job_name);
  caller.set_trainer(options_.trainer_id);
  MutexLock lock(&shared_->mu);
  caller.set_session(shared_->sessions[static_cast<size_t>(server)]);
  return caller;
}

// -------------------------------------------------------------------------------------------------------------- calls

CallPtr ClientImpl::NewCall(int server, Method method, Slices request,
                            std::function<absl::StatusOr<bool>(const Slices&)> accept) {
  auto call = std::make_shared<Call>();
  call->server = server;
  call->method = method;
  call->request = std::move(request);
  call->accept = std::move(accept);
  call->profiled_step = ProfiledStep::current();
  call->profiled_as = NameOf(method);
  return call;
}

void ClientImpl::Issue(const CallPtr& call) {
  {
    MutexLock lock(&shared_->mu);
    call->in_flight = true;
  }
  shared_->messages.fetch_add(1, std::memory_order_relaxed);
  shared_->bytes_sent.fetch_add(static_cast<int64_t>(TotalSize(call->request)), std::memory_order_relaxed);
  shared_->wire.Request(call->method, TotalSize(call->request));
  const std::shared_ptr<ProfileEvent> profiled = ProfiledTry(*call);
  const ProfiledCallScope scope(profiled == nullptr ? ProfiledCall() : ProfiledCall{profiled->call, profiled->step});
  options_.transport->Call(call->server, call->method, call->request, rpc_,
                           [shared = shared_, call, clock = options_.clock, profiled](absl::StatusOr<Slices> answer) {
                             if (profiled != nullptr) EndProfiledTry(profiled.get(), answer);
                             MutexLock lock(&shared->mu);
                             if (answer.ok()) {
                               shared->bytes_received.fetch_add(static_cast<int64_t>(TotalSize(*answer)),
                                                                std::memory_order_relaxed);
                               shared->wire.Answer(call->method, TotalSize(*answer));
                             }
                             if (answer.ok() || !Retryable(answer.status()))
                               shared->last_heard[static_cast<size_t>(call->server)] = clock->Now();
                             call->in_flight = false;
                             call->answered = true;
                             call->answer = std::move(answer);
                             shared->changed.SignalAll();
                           });
}

absl::Status ClientImpl::FailureOfJob(const absl::Status& aborted) {
  // A heart-beat's answer has the failure's own code.
  for (int s = 0; s < servers(); ++s) SendHeartbeat(s);
  MutexLock lock(&shared_->mu);
  for (int i = 0; i < 100 && shared_->failure.ok(); ++i)
    shared_->changed.WaitWithTimeout(&shared_->mu, absl::Milliseconds(10));
  shared_->SetFailure(aborted);
  return shared_->failure;
}

absl::Status ClientImpl::Look(const CallPtr& call, bool* issue) {
  *issue = false;
  absl::StatusOr<Slices> answer = absl::UnknownError("");
  {
    MutexLock lock(&shared_->mu);
    if (call->in_flight) return absl::OkStatus();
    if (!call->answered) {
      *issue = options_.clock->Now() >= call->next_try;
      return absl::OkStatus();
    }
    call->answered = false;
    answer = std::move(call->answer);
    call->answer = absl::UnknownError("");
  }
  absl::Status status = answer.status();
  if (answer.ok()) {
    ProfileSpan span(call->profiled_step, ProfileKind::kClient, kTakesName);
    if (ProfileEvent* const event = span.event()) {
      event->detail = call->profiled_as;
      event->peer = call->server;
    }
    const absl::StatusOr<bool> accepted = call->accept(*answer);
    status = accepted.status();
    if (accepted.ok()) {
      call->finished = *accepted;
      *issue = !*accepted;
      call->backoff = kFirstBackoff;
      return absl::OkStatus();
    }
  }
  const bool reread = status.code() == absl::StatusCode::kDataLoss && !call->reread;
  if (Retryable(status) || reread) {
    call->reread |= reread;
    call->trouble = status;
    shared_->retries.fetch_add(1, std::memory_order_relaxed);
    call->next_try = options_.clock->Now() + call->backoff;
    call->backoff = std::min(2 * call->backoff, kLongestBackoff);
    return absl::OkStatus();
  }
  if (status.code() == absl::StatusCode::kAborted) {
    {
      MutexLock lock(&shared_->mu);
      shared_->knows[static_cast<size_t>(call->server)] = true;
    }
    return FailureOfJob(status);
  }
  return absl::Status(status.code(), absl::StrCat(options_.transport->Describe(call->server), ": ", status.message()));
}

absl::Status ClientImpl::Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                              WaitOptions options) {
  ProfileSpan span(ProfiledStep::current(), ProfileKind::kWait,
                   options.profiled_as == nullptr ? kAnswerName : *options.profiled_as);
  int last_server = -1;
  const absl::Status status = WaitUntilAnswered(calls, what, deadline, options, &last_server);
  if (ProfileEvent* const event = span.event()) {
    event->peer = last_server;
    if (last_server >= 0) event->detail = ProfileName(options_.transport->Describe(last_server));
  }
  return status;
}

absl::Status ClientImpl::WaitUntilAnswered(absl::Span<const CallPtr> calls, const std::string& what,
                                           absl::Duration deadline, const WaitOptions& options, int* last_server) {
  absl::Time start = options_.clock->Now();
  absl::Time warned = start;
  int64_t version = -1;
  const absl::Duration look = options_.clock == Clock::Real() ? kRealLook : kLook;
  absl::Status result;
  while (true) {
    bool all = true, issued = false;
    for (const CallPtr& call : calls) {
      if (call->finished) continue;
      bool issue = false;
      result = Look(call, &issue);
      if (!result.ok()) break;
      if (issue) Issue(call);
      if (call->finished) *last_server = call->server;
      issued |= issue;
      all &= call->finished;
    }
    if (!result.ok() || all) break;
    if (issued) continue;  // an answer may be there already

    const absl::Time now = options_.clock->Now();
    if (options.while_others_work) {
      MutexLock lock(&shared_->mu);
      if (shared_->version > version) {
        version = shared_->version;
        start = now;
      }
    }
    const auto text = [&] {
      std::vector<std::string> missing;
      for (const CallPtr& call : calls) {
        if (!call->finished) missing.push_back(options_.transport->Describe(call->server));
      }
      missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
      return std::string(absl::StrCat(absl::StrJoin(missing, ", "), ": ", what));
    };
    if (now - start > deadline) {
      std::string trouble;
      for (const CallPtr& call : calls) {
        if (!call->finished && trouble.empty() && !call->trouble.ok()) {
          trouble = absl::StrCat("; the last try: ", call->trouble.message());
        }
      }
      MutexLock lock(&shared_->mu);
      const std::string& by = (options.ahead ? shared_->waiting_ahead : shared_->waiting).held_by;
      const std::string held = by.empty() ? "" : absl::StrCat("; ", by);
      result = absl::DeadlineExceededError(
          absl::StrCat(Self(), " has waited ", SecondsText(now - start), " for ", text(), trouble, held));
      break;
    }
    if (now - warned >= slow_warning_) {
      warned = now;
      LOG(WARNING) << Self() << ": waits for " << text() << ", for " << SecondsText(now - start);
    }
    MutexLock lock(&shared_->mu);
    if (!shared_->failure.ok()) {
      result = shared_->failure;
      break;
    }
    if (options.ahead && shared_->ahead_cancelled) {
      result = absl::CancelledError(absl::StrCat("nobody waits any more for ", what));
      break;
    }
    if (now - start >= absl::Seconds(1)) (options.ahead ? shared_->waiting_ahead : shared_->waiting).on = text();
    const bool news = std::any_of(calls.begin(), calls.end(), [this](const CallPtr& call) {
      shared_->mu.AssertHeld();
      return !call->finished && call->answered;
    });
    if (!news) shared_->changed.WaitWithTimeout(&shared_->mu, look);
  }
  MutexLock lock(&shared_->mu);
  Shared::Waiting& waiting = options.ahead ? shared_->waiting_ahead : shared_->waiting;
  waiting.on.clear();
  waiting.held_by.clear();
  // Why the job failed says more than what this call met on the way.
  if (!result.ok() && !shared_->failure.ok()) return shared_->failure;
  return result;
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  CHECK(options.transport != nullptr && options.clock != nullptr && options.pool != nullptr);
  const v1::Plan& plan = options.plan;
  if (options.trainer_id < 0 || options.trainer_id >= plan.trainers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer id ", options.trainer_id, "; the job has trainers 0 to ", plan.trainers() - 1));
  }
  if (options.transport->servers() != plan.servers()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.transport->servers(), " servers are given, the plan has ", plan.servers()));
  }
  return std::unique_ptr<Client>(std::make_unique<ClientImpl>(std::move(options)));
}

}  // namespace weir
