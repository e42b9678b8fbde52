#include "tests/testing/faulty_transport.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/wire/frame.h"
#include "proto/parameter_server.pb.h"

namespace weir {

// One call: its answer is given once, whatever comes back how often.
struct FaultyTransport::Pending {
  int server;
  Method method;
  std::string request;
  absl::Duration timeout;
  uint64_t number;
  Mutex mu;
  ReplyCallback done ABSL_GUARDED_BY(mu);

  void Finish(absl::StatusOr<Slices> answer) {
    ReplyCallback callback;
    {
      MutexLock lock(&mu);
      callback = std::move(done);
      done = nullptr;
    }
    if (callback) callback(std::move(answer));
  }
  bool IsOpen() {
    MutexLock lock(&mu);
    return done != nullptr;
  }
};

FaultyTransport::FaultyTransport(Transport* inner, Clock* clock, int trainer, FaultOptions options,
                                 FaultCounters* counters)
    : inner_(inner), clock_(clock), trainer_(trainer), options_(options), counters_(counters) {
  MutexLock lock(&mu_);
  dead_servers_.resize(static_cast<size_t>(inner_->servers()), false);
  thread_ = std::thread([this] { Run(); });
}

FaultyTransport::~FaultyTransport() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void FaultyTransport::At(absl::Time when, std::function<void()> action) {
  MutexLock lock(&mu_);
  due_.emplace(when, std::move(action));
  changed_.SignalAll();
}

void FaultyTransport::Run() {
  pthread_setname_np(pthread_self(), "faulty");
  while (true) {
    std::function<void()> action;
    {
      MutexLock lock(&mu_);
      while (!stop_ && (due_.empty() || due_.begin()->first > clock_->Now())) {
        changed_.WaitWithTimeout(&mu_, absl::Milliseconds(1));
      }
      // When the transport ends, all pending actions run at once in the order of their times, so that every call is
      // answered.
      if (stop_ && due_.empty()) return;
      action = std::move(due_.begin()->second);
      due_.erase(due_.begin());
    }
    action();
  }
}

bool FaultyTransport::Reachable(int server) {
  MutexLock lock(&mu_);
  return !dead_ && !dead_servers_[static_cast<size_t>(server)] && !stop_;
}

void FaultyTransport::KillServer(int server) {
  MutexLock lock(&mu_);
  dead_servers_[static_cast<size_t>(server)] = true;
}

void FaultyTransport::KillTrainer() {
  MutexLock lock(&mu_);
  dead_ = true;
}

void FaultyTransport::Revive() {
  MutexLock lock(&mu_);
  dead_ = false;
  dead_servers_.assign(dead_servers_.size(), false);
}

void FaultyTransport::Deliver(std::shared_ptr<Pending> pending, bool drop_reply, absl::Duration reply_delay) {
  if (!Reachable(pending->server)) return;  // the timeout answers
  {
    MutexLock lock(&mu_);
    uint64_t& newest = newest_delivered_[pending->server];
    if (pending->number < newest) ++counters_->reordered;
    newest = std::max(newest, pending->number);
  }
  Slices bytes;
  bytes.push_back(Slice::Own(pending->request));
  inner_->Call(pending->server, pending->method, std::move(bytes), pending->timeout,
               [this, pending, drop_reply, reply_delay](absl::StatusOr<Slices> answer) {
                 // A server may answer when the transport, which has given up all calls, is gone.
                 if (drop_reply || !pending->IsOpen() || !Reachable(pending->server)) return;
                 if (reply_delay == absl::ZeroDuration()) return pending->Finish(std::move(answer));
                 // The bytes may be borrowed for the call only.
                 if (answer.ok()) answer = Slices{Slice::Own(Flatten(*answer))};
                 At(clock_->Now() + reply_delay,
                    [pending, answer = std::move(answer)]() mutable { pending->Finish(std::move(answer)); });
               });
}

void FaultyTransport::Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) {
  ++counters_->calls;
  auto pending = std::make_shared<Pending>();
  pending->server = server;
  pending->method = method;
  pending->request = Flatten(request);
  pending->timeout = timeout;
  {
    MutexLock lock(&pending->mu);
    pending->done = std::move(done);
  }
  CallInfo info{.trainer = trainer_, .server = server, .method = method};
  uint64_t dice = 0;
  std::shared_ptr<const std::function<Fate(const CallInfo&)>> fate;
  {
    MutexLock lock(&mu_);
    fate = fate_;
    pending->number = ++calls_;
    const uint64_t n = ++sequence_[{server, static_cast<int>(method)}];
    dice = MixId(options_.seed * 1000003 +
                 MixId(n * 64 + static_cast<uint64_t>(method) * 8 + static_cast<uint64_t>(server)) +
                 static_cast<uint64_t>(trainer_) * 7919);
    info.tries = tries_[StableHash(pending->request)]++;
  }
  const auto chance = [&dice](double p) {
    dice = MixId(dice);
    return static_cast<double>(dice >> 11) / 9007199254740992.0 < p;
  };
  const auto some_delay = [&]() -> absl::Duration {
    if (!chance(options_.delay)) return absl::ZeroDuration();
    ++counters_->delays;
    dice = MixId(dice);
    return options_.max_delay * (static_cast<double>(dice >> 11) / 9007199254740992.0);
  };
  bool drop_request = chance(options_.drop_request), drop_reply = chance(options_.drop_reply);
  bool duplicate = chance(options_.duplicate);
  const absl::Duration request_delay = some_delay(), reply_delay = some_delay();
  // A repeat that comes late, behind calls that were made after it, is the one that hurts.
  dice = MixId(dice);
  const absl::Duration duplicate_delay = options_.max_delay * (static_cast<double>(dice >> 11) / 9007199254740992.0);

  if (fate != nullptr && *fate) {
    if (method == Method::kPush) {
      Slices bytes;
      bytes.push_back(Slice::Borrow(pending->request.data(), pending->request.size()));
      const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
      v1::PushRequest push;
      if (frame.ok() && push.ParseFromString(frame->header)) {
        info.step = push.step();
        info.part = push.part();
        info.last = push.has_part_count();
      }
    }
    if (method == Method::kNorms) {
      v1::NormsRequest norms;
      if (norms.ParseFromString(pending->request)) info.step = norms.step();
    }
    switch ((*fate)(info)) {
      case Fate::kPass:
        break;
      case Fate::kDropRequest:
        drop_request = true;
        break;
      case Fate::kDropReply:
        drop_reply = true;
        break;
      case Fate::kDuplicate:
        duplicate = true;
        break;
      case Fate::kKillServer:
        KillServer(server);
        break;
      case Fate::kKillTrainer:
        KillTrainer();
        break;
    }
  }
  if (!Reachable(server)) {
    // Answer like a refused connection: soon, but not on the caller's own stack.
    At(clock_->Now() + absl::Milliseconds(1),
       [pending] { pending->Finish(absl::UnavailableError("nobody is there")); });
    return;
  }
  At(clock_->Now() + timeout, [pending] { pending->Finish(absl::DeadlineExceededError("no answer in time")); });
  if (duplicate) {
    ++counters_->duplicates;
    At(clock_->Now() + duplicate_delay,
       [this, pending] { Deliver(pending, /*drop_reply=*/true, absl::ZeroDuration()); });
  }
  if (drop_request) {
    ++counters_->dropped_requests;
    return;
  }
  if (drop_reply) ++counters_->dropped_replies;
  if (request_delay == absl::ZeroDuration()) return Deliver(pending, drop_reply, reply_delay);
  At(clock_->Now() + request_delay,
     [this, pending, drop_reply, reply_delay] { Deliver(pending, drop_reply, reply_delay); });
}

FaultOptions BadNetwork(uint64_t seed) {
  return {.seed = seed,
          .drop_request = 0.025,
          .drop_reply = 0.025,
          .duplicate = 0.05,
          .delay = 0.05,
          .max_delay = absl::Milliseconds(5)};
}

FaultOptions RepeatingNetwork() { return {.duplicate = 0.5, .max_delay = absl::ZeroDuration()}; }

std::function<std::unique_ptr<Transport>(int trainer, Transport* servers)> NetworksWith(FaultOptions faults,
                                                                                        FaultCounters* counters) {
  return [faults, counters](int trainer, Transport* servers) {
    return std::make_unique<FaultyTransport>(servers, Clock::Real(), trainer, faults, counters);
  };
}

}  // namespace weir
