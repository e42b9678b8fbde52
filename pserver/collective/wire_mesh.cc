#include "pserver/collective/wire_mesh.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/collective.pb.h"

namespace weir {

namespace {

// Tags of one rank's messages are remembered, to know repeats, until so many more of them have been received. A repeat
// comes while its first try is the newest or nearly so.
constexpr size_t kRemembered = 4096;
constexpr absl::Duration kFirstPause = absl::Milliseconds(5), kLongestPause = absl::Milliseconds(500);

absl::Time Now() { return Clock::Real()->Now(); }

// Copies the payload, and returns its checksum if it is wanted.
uint64_t Copy(const Slices& payload, void* to, bool checked) {
  auto* out = static_cast<char*>(to);
  Checksummer checksum;
  for (const Slice& slice : payload) {
    std::memcpy(out, slice.data, slice.size);
    // From the copy, which is in the cache now, and is what is used.
    if (checked) checksum.Add(out, slice.size);
    out += slice.size;
  }
  return checked ? checksum.Value() : 0;
}

class WireMeshImpl : public WireMesh {
 public:
  explicit WireMeshImpl(Options options) : options_(options) {
    MutexLock lock(&state_->mu);
    state_->peers.resize(static_cast<size_t>(options_.transport->servers()));
  }
  ~WireMeshImpl() override { End(absl::CancelledError("the collective group has ended here")); }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.transport->servers(); }
  std::string Describe(int rank) const override { return options_.transport->Describe(rank); }

  std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) override;
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) override;
  void Abort(const absl::Status& status) override;
  void HandleDeliver(const Slices& bytes, ReplyCallback reply) override;

 private:
  // A transfer that one of both ends waits for. Guarded by State::mu.
  struct Progress {
    bool done = false;
    absl::Status status;
  };
  struct Outgoing : Progress {
    int peer = 0;
    std::string header;
    Slices payload;
    bool in_flight = false;
    bool given_up = false;
    absl::Time next_try = absl::InfinitePast();
    absl::Duration pause = kFirstPause;
  };
  struct Incoming : Progress {
    void* data = nullptr;
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
  };
  // Shared with calls in flight, which may outlive the mesh.
  struct State {
    Mutex mu;
    CondVar changed;
    std::vector<Peer> peers ABSL_GUARDED_BY(mu);
    absl::Status ended ABSL_GUARDED_BY(mu);
  };
  using StatePtr = std::shared_ptr<State>;

  class OutgoingTransfer;
  class IncomingTransfer;

  void Try(const std::shared_ptr<Outgoing>& message);
  void End(const absl::Status& status);
  // Copies a message to its receiver, and answers it.
  void Deliver(int from, uint64_t tag, const std::shared_ptr<Incoming>& to, Unread message);
  absl::Status Book(const v1::DeliverRequest& request, Unread* message, std::shared_ptr<Incoming>* to, bool* repeat);

  const Options options_;
  const StatePtr state_ = std::make_shared<State>();
};

class WireMeshImpl::OutgoingTransfer : public Mesh::Transfer {
 public:
  OutgoingTransfer(WireMeshImpl* mesh, std::shared_ptr<Outgoing> message)
      : mesh_(*mesh), message_(std::move(message)) {}
  ~OutgoingTransfer() override {
    State& state = *mesh_.state_;
    MutexLock lock(&state.mu);
    message_->given_up = true;
    // The transport reads the caller's memory until the call has ended.
    while (message_->in_flight) state.changed.Wait(&state.mu);
  }

  absl::Status Wait(absl::Duration timeout) override {
    const absl::Time end = Now() + timeout;
    State& state = *mesh_.state_;
    while (true) {
      {
        MutexLock lock(&state.mu);
        while (!message_->done && (message_->in_flight || Now() < message_->next_try)) {
          if (!state.ended.ok()) return state.ended;
          const absl::Time until = message_->in_flight ? end : std::min(end, message_->next_try);
          state.changed.WaitWithTimeout(&state.mu, until - Now());
          if (!message_->done && Now() >= end) return absl::DeadlineExceededError("the message is not received");
        }
        if (message_->done) return message_->status;
        if (!state.ended.ok()) return state.ended;
      }
      mesh_.Try(message_);
    }
  }

 private:
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
    while (message_->copying) state_->changed.Wait(&state_->mu);
  }

  absl::Status Wait(absl::Duration timeout) override {
    const absl::Time end = Now() + timeout;
    MutexLock lock(&state_->mu);
    while (!message_->done) {
      if (!state_->ended.ok()) return state_->ended;
      const absl::Duration left = end - Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no message yet");
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

std::unique_ptr<Mesh::Transfer> WireMeshImpl::Send(int peer, uint64_t tag, const void* data, size_t bytes) {
  auto message = std::make_shared<Outgoing>();
  message->peer = peer;
  message->payload = {Slice::Borrow(data, bytes)};
  // The transport sends slices with an owner without a copy; the caller keeps the memory.
  message->payload[0].owner = std::shared_ptr<const void>(std::shared_ptr<const void>(), data);
  v1::DeliverRequest header;
  header.set_group(options_.group);
  header.set_from(rank());
  header.set_tag(tag);
  if (options_.transport->checks_payloads()) header.set_checksum(Checksum(message->payload));
  message->header = header.SerializeAsString();
  Try(message);
  return std::make_unique<OutgoingTransfer>(this, std::move(message));
}

void WireMeshImpl::Try(const std::shared_ptr<Outgoing>& message) {
  {
    MutexLock lock(&state_->mu);
    if (!state_->ended.ok() || message->done || message->in_flight || message->given_up) return;
    message->in_flight = true;
  }
  options_.transport->Call(message->peer, Method::kDeliver, EncodeFrame(message->header, message->payload),
                           options_.call_timeout, [state = state_, message](absl::StatusOr<Slices> reply) {
                             MutexLock lock(&state->mu);
                             message->in_flight = false;
                             const bool again =
                                 absl::IsUnavailable(reply.status()) || absl::IsDeadlineExceeded(reply.status());
                             if (again) {
                               message->next_try = Now() + message->pause;
                               message->pause = std::min(2 * message->pause, kLongestPause);
                             } else {
                               message->done = true;
                               message->status = reply.status();
                             }
                             state->changed.SignalAll();
                           });
}

std::unique_ptr<Mesh::Transfer> WireMeshImpl::Receive(int peer, uint64_t tag, void* data, size_t bytes) {
  auto expected = std::make_shared<Incoming>();
  expected->data = data;
  expected->bytes = bytes;
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
  if (there) Deliver(peer, tag, expected, std::move(message));
  return std::make_unique<IncomingTransfer>(state_, peer, tag, std::move(expected));
}

void WireMeshImpl::Deliver(int from, uint64_t tag, const std::shared_ptr<Incoming>& to, Unread message) {
  absl::Status status;
  const size_t bytes = TotalSize(message.payload);
  if (bytes != to->bytes) {
    status =
        absl::DataLossError(absl::StrCat(Describe(from), " has sent ", bytes, " bytes, ", to->bytes, " were expected"));
  } else {
    const bool checked = options_.transport->checks_payloads();
    if (Copy(message.payload, to->data, checked) != (checked ? message.checksum : 0)) {
      status = absl::DataLossError(absl::StrCat("a message of ", Describe(from), " was damaged on its way"));
    }
  }
  ReplyCallback repeat;
  {
    MutexLock lock(&state_->mu);
    to->copying = false;
    to->done = true;
    to->status = status;
    Peer& of = state_->peers[static_cast<size_t>(from)];
    of.received.insert(tag);
    if (of.received.size() > kRemembered) of.received.erase(of.received.begin());
    // Another try may have come meanwhile.
    if (const auto again = of.unread.find(tag); again != of.unread.end()) {
      repeat = std::move(again->second.reply);
      of.unread_bytes -= TotalSize(again->second.payload);
      of.unread.erase(again);
    }
    state_->changed.SignalAll();
  }
  const absl::StatusOr<Slices> answer = status.ok() ? absl::StatusOr<Slices>(Slices()) : status;
  message.reply(answer);
  if (repeat) repeat(answer);
}

absl::Status WireMeshImpl::Book(const v1::DeliverRequest& request, Unread* message, std::shared_ptr<Incoming>* to,
                                bool* repeat) {
  MutexLock lock(&state_->mu);
  if (!state_->ended.ok()) return absl::AbortedError(state_->ended.message());
  Peer& of = state_->peers[static_cast<size_t>(request.from())];
  const auto expected = of.expected.find(request.tag());
  if (expected != of.expected.end()) {
    *to = expected->second;
    (*to)->copying = true;
    of.expected.erase(expected);
    return absl::OkStatus();
  }
  *repeat = of.received.count(request.tag()) > 0;
  if (*repeat) return absl::OkStatus();
  const size_t bytes = TotalSize(message->payload);
  const auto [place, first] = of.unread.try_emplace(request.tag());
  if (first && of.unread_bytes + bytes > options_.most_unread_bytes) {
    of.unread.erase(place);
    return absl::ResourceExhaustedError(absl::StrCat(Describe(rank()), " keeps ", of.unread_bytes,
                                                     " bytes of messages that nobody has asked for; there is no room "
                                                     "for more"));
  }
  // The last try is the one whose caller still waits; the answer to an earlier one is dropped on the way.
  if (first) of.unread_bytes += bytes;
  ReplyCallback earlier = std::move(place->second.reply);
  place->second = std::move(*message);
  *message = Unread();
  message->reply = std::move(earlier);
  return absl::OkStatus();
}

void WireMeshImpl::HandleDeliver(const Slices& bytes, ReplyCallback reply) {
  absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  if (!frame.ok()) return reply(frame.status());
  v1::DeliverRequest request;
  if (!request.ParseFromString(frame->header))
    return reply(absl::InvalidArgumentError("Deliver: the header is damaged"));
  if (request.group() != options_.group) {
    return reply(absl::FailedPreconditionError(
        absl::StrCat(Describe(rank()), " belongs to collective group ", absl::Hex(options_.group), ", the message to ",
                     absl::Hex(request.group()), ": the caller is of another run of the job")));
  }
  if (request.from() < 0 || request.from() >= size() || request.from() == rank()) {
    return reply(absl::InvalidArgumentError(absl::StrCat("Deliver: there is no other rank ", request.from())));
  }
  if (request.has_abort()) {
    const auto code = static_cast<absl::StatusCode>(request.abort_code());
    End(absl::Status(request.abort_code() > 0 && request.abort_code() <= 16 ? code : absl::StatusCode::kUnknown,
                     request.abort()));
    return reply(Slices());
  }
  Unread message{.payload = std::move(frame->payload), .checksum = request.checksum(), .reply = std::move(reply)};
  std::shared_ptr<Incoming> to;
  bool repeat = false;
  if (absl::Status booked = Book(request, &message, &to, &repeat); !booked.ok()) return message.reply(booked);
  if (to != nullptr) return Deliver(request.from(), request.tag(), to, std::move(message));
  if (repeat) return message.reply(Slices());
  // An earlier try of the message that has just been kept.
  if (message.reply) message.reply(absl::CancelledError("a later try has taken its place"));
}

void WireMeshImpl::End(const absl::Status& status) {
  std::vector<ReplyCallback> replies;
  {
    MutexLock lock(&state_->mu);
    if (!state_->ended.ok()) return;
    state_->ended = status;
    for (Peer& peer : state_->peers) {
      for (auto& [tag, unread] : peer.unread) replies.push_back(std::move(unread.reply));
      peer.unread.clear();
    }
    state_->changed.SignalAll();
  }
  for (const ReplyCallback& reply : replies) reply(absl::AbortedError(status.message()));
}

void WireMeshImpl::Abort(const absl::Status& status) {
  {
    MutexLock lock(&state_->mu);
    if (!state_->ended.ok()) return;
  }
  v1::DeliverRequest header;
  header.set_group(options_.group);
  header.set_from(rank());
  header.set_abort(std::string(status.message().substr(0, 2000)));
  header.set_abort_code(static_cast<int>(status.code()));
  const std::string text = header.SerializeAsString();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    // Whoever does not hear it learns of the failure from the job.
    options_.transport->Call(peer, Method::kDeliver, EncodeFrame(text, {}), options_.call_timeout,
                             [](const absl::StatusOr<Slices>&) {});
  }
  End(status);
}

}  // namespace

std::unique_ptr<WireMesh> WireMesh::Create(Options options) {
  CHECK(options.transport != nullptr);
  CHECK(options.rank >= 0 && options.rank < options.transport->servers());
  return std::make_unique<WireMeshImpl>(options);
}

}  // namespace weir
