#include "pserver/collective/wire_mesh.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/collective.pb.h"

namespace weir {

namespace {

// Tags of one rank's messages are remembered, to know repeats, until so many more of them have been received. A repeat
// comes while its first try is the newest or nearly so.
constexpr size_t kRemembered = 4096;
// Longest text with which a group ends.
constexpr size_t kMaxAbortText = 2000;
constexpr absl::Duration kFirstPause = absl::Milliseconds(5), kLongestPause = absl::Milliseconds(500);
// Time that the mesh waits until others have heard why it has ended.
constexpr absl::Duration kFarewell = absl::Seconds(1);
// Tag of the message by which a rank tells another that it has come. No operation has it.
constexpr uint64_t kHelloTag = ~uint64_t{0};
// Tag of the message by which a rank asks another whether it is still there. It is answered at once.
constexpr uint64_t kProbeTag = kHelloTag - 1;
// Period at which Connect checks whether the job has failed.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// Period at which a rank from which a message is awaited is asked whether it is still there, if no other message goes
// to it.
constexpr absl::Duration kProbe = absl::Milliseconds(500);

absl::Time Now() { return Clock::Real()->Now(); }

bool IsTriedAgain(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

// Returns whether no process listens at an address any more, as gRPC says it: the system's text for ECONNREFUSED. A
// process that is only stopped or slow accepts connections.
bool NobodyListens(const absl::Status& status) {
  return absl::IsUnavailable(status) && absl::StrContains(status.message(), "Connection refused");
}

// Returns the answer to messages that come after the mesh has ended with `status`: never a code that is tried again.
absl::Status AnswerAfterEnd(const absl::Status& status) {
  const bool keeps = !IsTriedAgain(status) && !absl::IsCancelled(status);
  return keeps ? status : absl::AbortedError(status.message());
}

// Copies the payload, and returns its checksum if it is wanted.
uint64_t Copy(const Slices& payload, void* to, bool checked) {
  auto* out = static_cast<char*>(to);
  Checksummer checksum;
  for (const Slice& slice : payload) {
    std::memcpy(out, slice.data, slice.size);
    // Sum the copy: it is in the cache now, and it is what the caller uses.
    if (checked) checksum.Add(out, slice.size);
    out += slice.size;
  }
  return checked ? checksum.Value() : 0;
}

// Likewise, behind what is in `to`, whose memory is not filled before.
uint64_t Append(const Slices& payload, std::string* to, bool checked) {
  to->reserve(to->size() + TotalSize(payload));
  Checksummer checksum;
  for (const Slice& slice : payload) {
    const size_t at = to->size();
    to->append(slice.data, slice.size);
    if (checked) checksum.Add(to->data() + at, slice.size);
  }
  return checked ? checksum.Value() : 0;
}

class WireMeshImpl : public WireMesh {
 public:
  explicit WireMeshImpl(Options options) : options_(std::move(options)) {
    {
      MutexLock lock(&state_->mu);
      state_->peers.resize(static_cast<size_t>(options_.transport->servers()));
    }
    tries_ = StartThread("weir-wire-mesh", [this] { RunTries(); });
    if (options_.inbox != nullptr) options_.inbox->Open(this);
  }
  ~WireMeshImpl() override {
    if (options_.inbox != nullptr) options_.inbox->Close();
    End(absl::CancelledError("the collective group has ended here"));
    tries_.join();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.transport->servers(); }
  std::string Describe(int rank) const override {
    return options_.describe ? options_.describe(rank) : options_.transport->Describe(rank);
  }

  std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    return BeginToSend(peer, tag, data, bytes, /*patient=*/false);
  }
  std::unique_ptr<Transfer> SendPatiently(int peer, uint64_t tag, const void* data, size_t bytes) override {
    return BeginToSend(peer, tag, data, bytes, /*patient=*/true);
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) override;
  bool TakesAnySize() const override { return true; }
  std::unique_ptr<Transfer> ReceiveAny(int peer, uint64_t tag, size_t most, std::string* bytes) override;
  void Abort(const absl::Status& status) override;
  void HandleDeliver(const Slices& bytes, ReplyCallback reply) override;

 private:
  // A transfer that one of both ends waits for. Guarded by State::mu.
  struct Progress {
    bool done = false;
    absl::Status status;
    int waiters = 0;  // threads that wait for a change of it
  };
  // Counts a thread that waits. Lives while State::mu is held.
  class Waiter {
   public:
    explicit Waiter(Progress* of) : of_(*of) { ++of_.waiters; }
    ~Waiter() { --of_.waiters; }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    Progress& of_;
  };
  struct Outgoing : Progress {
    int peer = 0;
    std::string header;
    const void* data = nullptr;
    size_t bytes = 0;
    bool patient = false;  // constant
    bool in_flight = false;
    bool given_up = false;
    // Tries whose bytes the transport may still read, also after their calls have ended.
    int held = 0;
    absl::Duration pause = kFirstPause;
    std::string last_error;  // of a try
  };
  struct Incoming : Progress {
    void* data = nullptr;
    std::string* any = nullptr;  // a message of any size up to `bytes`; then there is no `data`
    size_t bytes = 0;
    bool copying = false;
  };
  struct Unread {
    Slices payload;
    uint64_t checksum = 0;
    ReplyCallback reply;
  };
  // Messages of one other rank.
  struct Peer {
    std::map<uint64_t, std::shared_ptr<Incoming>> expected;  // by tag
    std::map<uint64_t, Unread> unread;                       // by tag
    size_t unread_bytes = 0;
    std::set<uint64_t> received;  // the largest tags, to know repeats
    bool heard = false;           // it has been there: a call was answered, or a message has come
    int calls = 0;                // to it, under way
    // Since when nobody listens at its address, as far as the newest calls say.
    absl::Time deserted_since = absl::InfiniteFuture();
    std::string last_refusal;
  };
  // Shared with calls in flight, which may outlive the mesh.
  struct State {
    Mutex mu;
    CondVar changed;
    std::vector<Peer> peers ABSL_GUARDED_BY(mu);
    absl::Status ended ABSL_GUARDED_BY(mu);
    // Messages to try again, by time.
    std::multimap<absl::Time, std::shared_ptr<Outgoing>> due ABSL_GUARDED_BY(mu);
    CondVar due_changed;
    absl::Time next_probe ABSL_GUARDED_BY(mu) = absl::InfinitePast();
    int farewells ABSL_GUARDED_BY(mu) = 0;  // calls under way that tell others why the mesh has ended

    // Wakes those that wait for a change of `of`, if there are any: a step has many messages that nobody waits for.
    void Tell(const Progress& of) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
      if (of.waiters > 0) changed.SignalAll();
    }
  };
  using StatePtr = std::shared_ptr<State>;

  class OutgoingTransfer;
  class IncomingTransfer;

  // Keeps what the end of a call to a rank says about that rank.
  static void NoteAnswer(State* state, int peer, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu);
  void Try(const std::shared_ptr<Outgoing>& message);
  // Tries messages again when they are due and looks after the other ranks, until the mesh ends. On a thread of its
  // own: a message must reach its receiver also while its sender waits for another one.
  void RunTries();
  // Waits until the other ranks have heard why the mesh has ended, for kFarewell at most: a process that ends right
  // after a failure would cancel the calls that tell them.
  void AwaitFarewells();
  // Returns the message that is due; null if none is by the time of the next probe, or if the mesh has ended.
  std::shared_ptr<Outgoing> AwaitDue();
  // Asks the ranks from which messages are awaited whether they are still there, and ends the mesh if one is gone: its
  // process has been there, and nobody listens at its address any more.
  void Probe();
  // Asks a rank whether it is still there. Requires: Peer::calls counts the call.
  void Ask(int peer);
  void End(const absl::Status& status);
  std::unique_ptr<Transfer> BeginToSend(int peer, uint64_t tag, const void* data, size_t bytes, bool patient);
  std::unique_ptr<Transfer> BeginToReceive(int peer, uint64_t tag, std::shared_ptr<Incoming> expected);
  // Copies a message to its receiver. DataLoss: it has another size, or was damaged.
  absl::Status CopyTo(Incoming* to, int from, const Unread& message) const;
  // Copies a message to its receiver, and answers it.
  void Deliver(int from, uint64_t tag, const std::shared_ptr<Incoming>& to, const Unread& message);
  absl::Status Book(const v1::DeliverRequest& request, Unread* message, std::shared_ptr<Incoming>* to, bool* repeat);

  const Options options_;
  const StatePtr state_ = std::make_shared<State>();
  std::thread tries_;
};

class WireMeshImpl::OutgoingTransfer : public Mesh::Transfer {
 public:
  OutgoingTransfer(WireMeshImpl* mesh, std::shared_ptr<Outgoing> message)
      : mesh_(*mesh), message_(std::move(message)) {}
  ~OutgoingTransfer() override {
    State& state = *mesh_.state_;
    MutexLock lock(&state.mu);
    message_->given_up = true;
    const Waiter waiter(message_.get());
    // The transport reads the caller's memory until the call has ended.
    while (message_->in_flight) state.changed.Wait(&state.mu);
    if (message_->done && message_->status.ok()) return;
    // A call that timed out may have left bytes in a connection that does not move; they are never used.
    const absl::Time end = Now() + mesh_.options_.call_timeout;
    while (message_->held > 0 && Now() < end) state.changed.WaitWithTimeout(&state.mu, end - Now());
  }

  absl::Status Wait(absl::Duration timeout) override {
    const absl::Time end = Now() + timeout;
    State& state = *mesh_.state_;
    if (message_->patient && timeout > absl::ZeroDuration()) Hurry();
    MutexLock lock(&state.mu);
    const Waiter waiter(message_.get());
    while (!message_->done) {
      if (!state.ended.ok()) return state.ended;
      const absl::Duration left = end - Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(message_->last_error);
      state.changed.WaitWithTimeout(&state.mu, left);
    }
    return message_->status;
  }

 private:
  // Fetches answers of the receiver that lie there until another one comes.
  void Hurry() {
    {
      MutexLock lock(&mesh_.state_->mu);
      if (message_->done || !mesh_.state_->ended.ok()) return;
      ++mesh_.state_->peers[static_cast<size_t>(message_->peer)].calls;
    }
    mesh_.Ask(message_->peer);
  }

  WireMeshImpl& mesh_;
  const std::shared_ptr<Outgoing> message_;
};

class WireMeshImpl::IncomingTransfer : public Mesh::Transfer {
 public:
  IncomingTransfer(StatePtr state, int peer, uint64_t tag, std::shared_ptr<Incoming> message)
      : state_(std::move(state)), peer_(peer), tag_(tag), message_(std::move(message)) {}
  ~IncomingTransfer() override {
    MutexLock lock(&state_->mu);
    if (message_->done) return;
    state_->peers[static_cast<size_t>(peer_)].expected.erase(tag_);
    const Waiter waiter(message_.get());
    while (message_->copying) state_->changed.Wait(&state_->mu);
  }

  absl::Status Wait(absl::Duration timeout) override {
    const absl::Time end = Now() + timeout;
    MutexLock lock(&state_->mu);
    const Waiter waiter(message_.get());
    while (!message_->done) {
      if (!state_->ended.ok()) return state_->ended;
      const absl::Duration left = end - Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("");
      state_->changed.WaitWithTimeout(&state_->mu, left);
    }
    return message_->status;
  }

 private:
  const StatePtr state_;
  const int peer_;
  const uint64_t tag_;
  const std::shared_ptr<Incoming> message_;
};

std::unique_ptr<Mesh::Transfer> WireMeshImpl::BeginToSend(int peer, uint64_t tag, const void* data, size_t bytes,
                                                          bool patient) {
  auto message = std::make_shared<Outgoing>();
  message->peer = peer;
  message->patient = patient;
  message->data = data;
  message->bytes = bytes;
  v1::DeliverRequest header;
  header.set_group(options_.group);
  header.set_from(rank());
  header.set_tag(tag);
  if (options_.transport->checks_payloads()) header.set_checksum(Checksum({Slice::Borrow(data, bytes)}));
  message->header = header.SerializeAsString();
  Try(message);
  return std::make_unique<OutgoingTransfer>(this, std::move(message));
}

void WireMeshImpl::Try(const std::shared_ptr<Outgoing>& message) {
  {
    MutexLock lock(&state_->mu);
    if (!state_->ended.ok() || message->done || message->in_flight || message->given_up) return;
    message->in_flight = true;
    ++message->held;
    ++state_->peers[static_cast<size_t>(message->peer)].calls;
  }
  // The transport sends slices with an owner without a copy. The caller keeps the memory; the owner tells when the
  // transport lets go of it.
  Slice payload = Slice::Borrow(message->data, message->bytes);
  payload.owner = std::shared_ptr<const void>(message->data, [state = state_, message](const void*) {
    MutexLock lock(&state->mu);
    --message->held;
    state->Tell(*message);
  });
  Slices frame = EncodeFrame(message->header, {std::move(payload)});
  ReplyCallback done = [state = state_, message](const absl::StatusOr<Slices>& reply) {
    MutexLock lock(&state->mu);
    NoteAnswer(state.get(), message->peer, reply.status());
    message->in_flight = false;
    if (!IsTriedAgain(reply.status())) {
      message->done = true;
      message->status = reply.status();
    } else if (state->ended.ok() && !message->given_up) {
      message->last_error = std::string(reply.status().message());
      state->due.emplace(Now() + message->pause, message);
      message->pause = std::min(2 * message->pause, kLongestPause);
      state->due_changed.SignalAll();
    }
    state->Tell(*message);
  };
  if (message->patient) {
    options_.transport->CallPatiently(message->peer, Method::kDeliver, std::move(frame), options_.call_timeout,
                                      std::move(done));
  } else {
    options_.transport->Call(message->peer, Method::kDeliver, std::move(frame), options_.call_timeout, std::move(done));
  }
}

void WireMeshImpl::NoteAnswer(State* state, int peer, const absl::Status& status) {
  Peer& of = state->peers[static_cast<size_t>(peer)];
  --of.calls;
  if (NobodyListens(status)) {
    of.deserted_since = std::min(of.deserted_since, Now());
    of.last_refusal = std::string(status.message());
    return;
  }
  // A call that was cut off or timed out says nothing about the other rank.
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return;
  of.heard = true;
  of.deserted_since = absl::InfiniteFuture();
}

std::shared_ptr<WireMeshImpl::Outgoing> WireMeshImpl::AwaitDue() {
  MutexLock lock(&state_->mu);
  while (state_->ended.ok() && Now() < state_->next_probe) {
    const absl::Time due = state_->due.empty() ? absl::InfiniteFuture() : state_->due.begin()->first;
    if (due <= Now()) {
      const auto first = state_->due.begin();
      std::shared_ptr<Outgoing> message = std::move(first->second);
      state_->due.erase(first);
      return message;
    }
    state_->due_changed.WaitWithTimeout(&state_->mu, std::min(due, state_->next_probe) - Now());
  }
  state_->next_probe = Now() + std::min(kProbe, options_.gone_after / 4);
  return nullptr;
}

void WireMeshImpl::RunTries() {
  while (true) {
    if (const std::shared_ptr<Outgoing> message = AwaitDue(); message != nullptr) {
      Try(message);
      continue;
    }
    {
      MutexLock lock(&state_->mu);
      if (!state_->ended.ok()) break;
    }
    Probe();
  }
  AwaitFarewells();
  // A process that is stopped would hold its calls, and the memory of their messages, until they time out.
  if (options_.close) options_.close();
}

void WireMeshImpl::AwaitFarewells() {
  const absl::Time end = Now() + kFarewell;
  MutexLock lock(&state_->mu);
  while (state_->farewells > 0 && Now() < end) state_->changed.WaitWithTimeout(&state_->mu, end - Now());
}

void WireMeshImpl::Probe() {
  std::vector<int> asked;
  absl::Status gone;
  {
    MutexLock lock(&state_->mu);
    for (int peer = 0; peer < size(); ++peer) {
      Peer& of = state_->peers[static_cast<size_t>(peer)];
      if (!of.heard) continue;
      if (gone.ok() && Now() - of.deserted_since >= options_.gone_after) {
        gone = absl::UnavailableError(absl::StrCat(Describe(peer), " is gone: nobody has listened at its address for ",
                                                   absl::FormatDuration(options_.gone_after), ": ", of.last_refusal));
      }
      if (of.expected.empty() || of.calls > 0) continue;
      ++of.calls;
      asked.push_back(peer);
    }
  }
  for (const int peer : asked) Ask(peer);
  if (!gone.ok()) Abort(gone);
}

void WireMeshImpl::Ask(int peer) {
  v1::DeliverRequest header;
  header.set_group(options_.group);
  header.set_from(rank());
  header.set_tag(kProbeTag);
  options_.transport->Call(peer, Method::kDeliver, EncodeFrame(header.SerializeAsString(), {}), options_.call_timeout,
                           [state = state_, peer](const absl::StatusOr<Slices>& reply) {
                             MutexLock lock(&state->mu);
                             NoteAnswer(state.get(), peer, reply.status());
                           });
}

std::unique_ptr<Mesh::Transfer> WireMeshImpl::Receive(int peer, uint64_t tag, void* data, size_t bytes) {
  auto expected = std::make_shared<Incoming>();
  expected->data = data;
  expected->bytes = bytes;
  return BeginToReceive(peer, tag, std::move(expected));
}

std::unique_ptr<Mesh::Transfer> WireMeshImpl::ReceiveAny(int peer, uint64_t tag, size_t most, std::string* bytes) {
  auto expected = std::make_shared<Incoming>();
  expected->any = bytes;
  expected->bytes = most;
  return BeginToReceive(peer, tag, std::move(expected));
}

std::unique_ptr<Mesh::Transfer> WireMeshImpl::BeginToReceive(int peer, uint64_t tag,
                                                             std::shared_ptr<Incoming> expected) {
  Unread message;
  bool there = false;
  {
    MutexLock lock(&state_->mu);
    Peer& of = state_->peers[static_cast<size_t>(peer)];
    const auto found = of.unread.find(tag);
    if (found != of.unread.end()) {
      there = true;
      message = std::move(found->second);
      of.unread_bytes -= TotalSize(message.payload);
      of.unread.erase(found);
      expected->copying = true;
    } else {
      CHECK(of.expected.emplace(tag, expected).second) << "tag " << tag << " is received twice";
    }
  }
  if (there) Deliver(peer, tag, expected, message);
  return std::make_unique<IncomingTransfer>(state_, peer, tag, std::move(expected));
}

absl::Status WireMeshImpl::CopyTo(Incoming* to, int from, const Unread& message) const {
  const size_t bytes = TotalSize(message.payload);
  if (to->any == nullptr ? bytes != to->bytes : bytes > to->bytes) {
    return absl::DataLossError(absl::StrCat(Describe(from), " has sent ", bytes, " bytes, ",
                                            to->any == nullptr ? "" : "at most ", to->bytes, " were expected"));
  }
  const bool checked = options_.transport->checks_payloads();
  const uint64_t expected = checked ? message.checksum : 0;
  const uint64_t got =
      to->any == nullptr ? Copy(message.payload, to->data, checked) : Append(message.payload, to->any, checked);
  if (got == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a message of ", Describe(from), " was damaged on its way"));
}

void WireMeshImpl::Deliver(int from, uint64_t tag, const std::shared_ptr<Incoming>& to, const Unread& message) {
  const absl::Status status = CopyTo(to.get(), from, message);
  Unread repeat;  // destroyed without the lock: owners of its bytes may be the sender's
  {
    MutexLock lock(&state_->mu);
    to->copying = false;
    to->done = true;
    to->status = status;
    state_->Tell(*to);
    Peer& of = state_->peers[static_cast<size_t>(from)];
    of.received.insert(tag);
    if (of.received.size() > kRemembered) of.received.erase(of.received.begin());
    // Another try may have come meanwhile.
    if (const auto again = of.unread.find(tag); again != of.unread.end()) {
      repeat = std::move(again->second);
      of.unread_bytes -= TotalSize(repeat.payload);
      of.unread.erase(again);
    }
  }
  const absl::StatusOr<Slices> answer = status.ok() ? absl::StatusOr<Slices>(Slices()) : status;
  message.reply(answer);
  if (repeat.reply) repeat.reply(answer);
}

absl::Status WireMeshImpl::Book(const v1::DeliverRequest& request, Unread* message, std::shared_ptr<Incoming>* to,
                                bool* repeat) {
  MutexLock lock(&state_->mu);
  Peer& of = state_->peers[static_cast<size_t>(request.from())];
  // Also after the end: the answer to the first try may be lost, and the sender must not take it for a failure.
  *repeat = of.received.count(request.tag()) > 0;
  if (*repeat) return absl::OkStatus();
  if (!state_->ended.ok()) return AnswerAfterEnd(state_->ended);
  const auto expected = of.expected.find(request.tag());
  if (expected != of.expected.end()) {
    *to = expected->second;
    (*to)->copying = true;
    of.expected.erase(expected);
    return absl::OkStatus();
  }
  const size_t bytes = TotalSize(message->payload);
  const auto found = of.unread.find(request.tag());
  const size_t replaced = found == of.unread.end() ? 0 : TotalSize(found->second.payload);
  if (of.unread_bytes - replaced + bytes > options_.most_unread_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(Describe(rank()), " keeps ", of.unread_bytes,
                                                     " bytes of messages that nobody has asked for; there is no room "
                                                     "for more"));
  }
  of.unread_bytes += bytes - replaced;
  // The last try is most often the one whose caller still waits.
  std::swap(of.unread[request.tag()], *message);
  return absl::OkStatus();
}

void WireMeshImpl::HandleDeliver(const Slices& bytes, ReplyCallback reply) {
  absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  if (!frame.ok()) return reply(frame.status());
  v1::DeliverRequest request;
  if (!request.ParseFromString(frame->header))
    return reply(absl::InvalidArgumentError("Deliver: the header is damaged"));
  if (request.group() != options_.group) {
    // The text leaves out the number of the group: a caller that knows it can end the job.
    return reply(absl::FailedPreconditionError(
        "this rank belongs to another collective group than the message: the caller is of another run of the job"));
  }
  if (request.from() < 0 || request.from() >= size() || request.from() == rank()) {
    return reply(absl::InvalidArgumentError(absl::StrCat(Describe(rank()), " is of a group of ", size(),
                                                         " ranks, in which there is no other rank ", request.from())));
  }
  {
    MutexLock lock(&state_->mu);
    Peer& of = state_->peers[static_cast<size_t>(request.from())];
    of.heard = true;
    of.deserted_since = absl::InfiniteFuture();
  }
  if (const absl::Status abort = StatusOf(request.abort(), kMaxAbortText); !abort.ok()) {
    End(abort);
    return reply(Slices());
  }
  if (request.tag() == kProbeTag) return reply(Slices());
  Unread message{.payload = std::move(frame->payload), .checksum = request.checksum(), .reply = std::move(reply)};
  std::shared_ptr<Incoming> to;
  bool repeat = false;
  if (absl::Status booked = Book(request, &message, &to, &repeat); !booked.ok()) return message.reply(booked);
  if (to != nullptr) return Deliver(request.from(), request.tag(), to, message);
  if (repeat) return message.reply(Slices());
  // Another try of the message that has just been kept; if its caller still waits, the network has repeated it.
  if (message.reply) message.reply(absl::UnavailableError("another try of the message has taken its place"));
}

void WireMeshImpl::End(const absl::Status& status) {
  std::vector<Unread> unread;
  {
    MutexLock lock(&state_->mu);
    if (!state_->ended.ok()) return;
    state_->ended = EndOfMesh(status);
    for (Peer& peer : state_->peers) {
      for (auto& [tag, message] : peer.unread) unread.push_back(std::move(message));
      peer.unread.clear();
      peer.unread_bytes = 0;
    }
    state_->due.clear();
    state_->due_changed.SignalAll();
    state_->changed.SignalAll();
  }
  for (const Unread& message : unread) message.reply(AnswerAfterEnd(status));
}

void WireMeshImpl::Abort(const absl::Status& status) {
  {
    MutexLock lock(&state_->mu);
    if (!state_->ended.ok()) return;
  }
  v1::DeliverRequest header;
  header.set_group(options_.group);
  header.set_from(rank());
  *header.mutable_abort() = StatusMessage(status, kMaxAbortText);
  const std::string text = header.SerializeAsString();
  {
    MutexLock lock(&state_->mu);
    state_->farewells += size() - 1;
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    // A rank that does not hear it is told when it sends something here, or by the job.
    options_.transport->Call(peer, Method::kDeliver, EncodeFrame(text, {}), options_.call_timeout,
                             [state = state_](const absl::StatusOr<Slices>&) {
                               MutexLock lock(&state->mu);
                               --state->farewells;
                               state->changed.SignalAll();
                             });
  }
  End(status);
}

// Exchange of first messages with another rank. Each tells the number of ranks that its sender knows.
struct Hello {
  int64_t sent = 0, received = 0;  // number of ranks
  std::unique_ptr<Mesh::Transfer> send, receive;
  std::string last_error;
};

// Looks at both halves for at most `timeout`. Returns OK when both are done, DeadlineExceeded when not, else the error.
absl::Status Look(Hello* hello, absl::Duration timeout) {
  absl::Status missing;
  for (std::unique_ptr<Mesh::Transfer>* half : {&hello->receive, &hello->send}) {
    if (*half == nullptr) continue;
    absl::Status status = (*half)->Wait(missing.ok() ? timeout : absl::ZeroDuration());
    if (absl::IsDeadlineExceeded(status)) {
      if (!status.message().empty()) hello->last_error = std::string(status.message());
      missing = status;
      continue;
    }
    half->reset();
    if (!status.ok()) return status;
  }
  return missing;
}

absl::Status MeetAll(WireMesh* mesh, std::vector<Hello>* hellos, const CollectiveWaits& waits) {
  const absl::Time begun = Now();
  absl::Time warned = begun;
  while (true) {
    std::vector<std::string> missing;
    for (int peer = 0; peer < mesh->size(); ++peer) {
      Hello& hello = (*hellos)[static_cast<size_t>(peer)];
      // The first one that is missing is waited for; the others are only looked at.
      const absl::Status status = Look(&hello, missing.empty() ? kLook : absl::ZeroDuration());
      if (absl::IsDeadlineExceeded(status)) {
        missing.push_back(absl::StrCat(mesh->Describe(peer), hello.last_error.empty() ? "" : " (", hello.last_error,
                                       hello.last_error.empty() ? "" : ")"));
      } else if (!status.ok()) {
        return absl::Status(status.code(), absl::StrCat("the collective group cannot form: ", status.message()));
      }
      if (hello.receive == nullptr && hello.received != hello.sent) {
        return absl::FailedPreconditionError(absl::StrCat(
            "the collective group cannot form: it has ", mesh->size(), " ranks according to ",
            mesh->Describe(mesh->rank()), ", and ", hello.received, " according to ", mesh->Describe(peer)));
      }
    }
    if (missing.empty()) return absl::OkStatus();
    if (waits.job) RETURN_IF_ERROR(waits.job());
    const absl::Duration waited = Now() - begun;
    if (waited > waits.deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the collective group cannot form: after ",
                                                      absl::FormatDuration(waits.deadline),
                                                      " still missing: ", absl::StrJoin(missing, ", ")));
    }
    if (Now() - warned >= waits.warning) {
      warned = Now();
      LOG(WARNING) << mesh->Describe(mesh->rank()) << " waits for ranks of its collective group, for "
                   << absl::ToInt64Seconds(waited) << " s: " << absl::StrJoin(missing, ", ");
    }
  }
}

}  // namespace

void WireInbox::HandleDeliver(const Slices& message, ReplyCallback reply) {
  WireMesh* mesh = nullptr;
  {
    MutexLock lock(&mu_);
    mesh = mesh_;
    if (mesh != nullptr) ++inside_;
  }
  if (mesh == nullptr) return reply(absl::UnavailableError("this rank does not take part in a collective group"));
  mesh->HandleDeliver(message, std::move(reply));
  MutexLock lock(&mu_);
  --inside_;
  changed_.SignalAll();
}

void WireInbox::Open(WireMesh* mesh) {
  MutexLock lock(&mu_);
  CHECK(mesh_ == nullptr) << "two meshes have one inbox";
  mesh_ = mesh;
}

void WireInbox::Close() {
  MutexLock lock(&mu_);
  mesh_ = nullptr;
  // The mesh takes no longer than to copy a message.
  while (inside_ > 0) changed_.Wait(&mu_);
}

std::unique_ptr<WireMesh> WireMesh::Create(Options options) {
  CHECK(options.transport != nullptr);
  CHECK(options.rank >= 0 && options.rank < options.transport->servers());
  return std::make_unique<WireMeshImpl>(std::move(options));
}

absl::StatusOr<std::unique_ptr<WireMesh>> WireMesh::Connect(Options options, const CollectiveWaits& waits) {
  CHECK(options.inbox != nullptr);
  std::unique_ptr<WireMesh> mesh = Create(std::move(options));
  std::vector<Hello> hellos(static_cast<size_t>(mesh->size()));
  for (int peer = 0; peer < mesh->size(); ++peer) {
    Hello& hello = hellos[static_cast<size_t>(peer)];
    if (peer == mesh->rank()) continue;
    hello.sent = mesh->size();
    hello.receive = mesh->Receive(peer, kHelloTag, &hello.received, sizeof(hello.received));
    hello.send = mesh->Send(peer, kHelloTag, &hello.sent, sizeof(hello.sent));
  }
  if (absl::Status status = MeetAll(mesh.get(), &hellos, waits); !status.ok()) {
    mesh->Abort(status);
    return status;
  }
  return mesh;
}

}  // namespace weir
