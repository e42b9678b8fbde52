#include "pserver/network/stream_client.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_message.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/stream_records.h"
#include "pserver/network/stream_writer.h"
#include "pserver/protocol/call_hints.h"

namespace weir {
namespace {

constexpr char kCalls[] = "/weir.v1.Stream/Calls";

// The stream. gRPC holds it until OnDone.
class Client : public StreamClient,
               public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
               public std::enable_shared_from_this<Client> {
 public:
  Client(std::shared_ptr<Stub> stub, CallDeadlines* deadlines, std::function<void()> gone)
      : stub_(std::move(stub)), deadlines_(deadlines), gone_(std::move(gone)), writer_([this](Slices batch) {
          out_ = ToByteBuffer(batch);
          StartWrite(&out_);
        }) {}

  void Begin() {
    self_ = shared_from_this();
    context_.set_wait_for_ready(false);
    stub_->PrepareBidiStreamingCall(&context_, kCalls, {}, this);
    // Writes are started by other threads than gRPC's, until the hold is removed.
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  bool Call(Method method, const Slices& request, absl::Duration timeout, Done done) override {
    const ProfiledCall profiled = ProfiledCallScope::current();
    Record record{.head = {.kind = RecordHead::kRequest,
                           .method = static_cast<uint32_t>(method),
                           .answer_may_wait = AnswersMayWait::current(),
                           .profiled_id = profiled.id,
                           .step = profiled.step},
                  .payload = request};
    {
      MutexLock lock(&mu_);
      if (ended_) return false;
      const uint64_t call = record.head.call = ++last_call_;
      calls_[call] = {.done = std::move(done),
                      .deadline = deadlines_->Add(Clock::Real()->Now() + timeout,
                                                  [weak = weak_from_this(), call] { Expire(weak, call); })};
    }
    // If the writer has been closed meanwhile, the end of the stream has ended the call.
    CallsTogether* const together = CallsTogether::current();
    writer_.Keep(std::move(record), /*joins_next=*/together != nullptr);
    if (together == nullptr) {
      writer_.Write();
    } else {
      together->AtEnd(this, [self = shared_from_this()] { self->writer_.Write(); });
    }
    return true;
  }

  bool ended() const override { return ended_flag_; }
  void Close() override { context_.TryCancel(); }

 private:
  struct Pending {
    Done done;
    uint64_t deadline = 0;
  };

  static void Expire(const std::weak_ptr<Client>& weak, uint64_t call) {
    const std::shared_ptr<Client> client = weak.lock();
    if (client == nullptr) return;
    // The other end may take no bytes any more: what it would get late is given up, too.
    client->writer_.Drop(call);
    client->Answer(call, absl::DeadlineExceededError("no answer in time"), /*from_server=*/false);
  }

  void Answer(uint64_t call, absl::StatusOr<Slices> reply, bool from_server) {
    Pending pending;
    {
      MutexLock lock(&mu_);
      const auto found = calls_.find(call);
      if (found == calls_.end()) return;  // given up
      pending = std::move(found->second);
      calls_.erase(found);
    }
    deadlines_->Remove(pending.deadline);
    pending.done(std::move(reply), from_server);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Stop();
      return;
    }
    const absl::StatusOr<std::vector<Record>> records = ReadRecords(FromByteBuffer(in_));
    if (!records.ok()) {
      broken_ = records.status();
      context_.TryCancel();
      Stop();
      return;
    }
    // Another thread may read what comes next while this one hands out.
    in_ = grpc::ByteBuffer();
    StartRead(&in_);
    for (const Record& record : *records) {
      if (record.head.kind == RecordHead::kReply) {
        Answer(record.head.call, record.payload, /*from_server=*/true);
      } else if (record.head.kind == RecordHead::kError) {
        v1::Status error;
        if (!error.ParseFromString(Flatten(record.payload)) || error.code() == 0) {
          error.set_code(static_cast<int>(absl::StatusCode::kUnknown));
        }
        Answer(record.head.call, StatusOf(error, kMostReceivedText), /*from_server=*/true);
      }
    }
  }

  void OnWriteDone(bool ok) override {
    // Whoever has given memory wants to know when it is free.
    out_.Clear();
    if (ok) {
      writer_.Written();
    } else {
      Stop();
    }
  }

  // Lets gRPC end the stream: OnDone follows.
  void Stop() {
    {
      MutexLock lock(&mu_);
      if (std::exchange(ended_, true)) return;
      ended_flag_ = true;
    }
    writer_.Close();
    RemoveHold();
  }

  // The error of the calls that are open when the stream ends. Most reasons say nothing of a call: it can be made
  // again.
  absl::Status WhyEnded(const grpc::Status& status) const {
    const absl::Status why = broken_.ok() ? FromGrpcStatus(status) : broken_;
    if (why.ok()) return absl::UnavailableError("the stream has ended");
    if (absl::IsUnimplemented(why)) {
      return absl::FailedPreconditionError(
          absl::StrCat("it has no streams of calls: run the same version of Weir on all hosts: ", why.message()));
    }
    return absl::IsFailedPrecondition(why) ? why : absl::UnavailableError(why.message());
  }

  void OnDone(const grpc::Status& status) override {
    Stop();
    const absl::Status why = WhyEnded(status);
    // A server that ends the stream is there, and so is the way to it.
    const bool from_server = !broken_.ok() || SaidByServer(status);
    std::map<uint64_t, Pending> calls;
    {
      MutexLock lock(&mu_);
      calls.swap(calls_);
    }
    for (auto& [number, call] : calls) {
      deadlines_->Remove(call.deadline);
      call.done(why, from_server);
    }
    const std::function<void()> gone = std::move(gone_);
    self_ = nullptr;  // may delete this object
    gone();
  }

  const std::shared_ptr<Stub> stub_;
  CallDeadlines* const deadlines_;
  std::function<void()> gone_;
  grpc::ClientContext context_;
  grpc::ByteBuffer in_, out_;
  absl::Status broken_;  // written before Stop by the thread that reads, read in OnDone
  std::shared_ptr<Client> self_;
  StreamWriter writer_;
  std::atomic<bool> ended_flag_{false};  // ended_, for those without the lock
  Mutex mu_;
  std::map<uint64_t, Pending> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

std::shared_ptr<StreamClient> StreamClient::Open(std::shared_ptr<Stub> stub, CallDeadlines* deadlines,
                                                 std::function<void()> gone) {
  auto client = std::make_shared<Client>(std::move(stub), deadlines, std::move(gone));
  client->Begin();
  return client;
}

}  // namespace weir
