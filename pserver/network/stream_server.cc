#include "pserver/network/stream_server.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_message.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "grpcpp/support/server_callback.h"
#include "proto/stream_service.grpc.pb.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/stream_records.h"
#include "pserver/network/stream_writer.h"

namespace weir {
namespace {

class Link;

// What the streams of a server share, and the answers that the handler holds keep alive.
struct Shared {
  StreamServer::Handler handler;
  Mutex mu;
  CondVar fewer;
  std::set<std::shared_ptr<Link>> links ABSL_GUARDED_BY(mu);
  int64_t open ABSL_GUARDED_BY(mu) = 0;  // calls of all streams
  bool refuses ABSL_GUARDED_BY(mu) = false;

  // Counts a call. False: new calls are refused.
  bool Begin() {
    MutexLock lock(&mu);
    if (refuses) return false;
    ++open;
    return true;
  }
  void End() {
    MutexLock lock(&mu);
    if (--open == 0) fewer.SignalAll();
  }
};

// A stream as the answers to its calls see it: they may come when it is gone.
class Link {
 public:
  explicit Link(std::function<void(Slices)> write) : writer_(std::move(write)) {}

  // Counts a request. False: the client has too many open, or does not read its answers.
  bool Begin(const RecordHead& request) {
    const size_t unread = writer_.waiting();
    MutexLock lock(&mu_);
    if (open_ + may_wait_ + unread >= StreamServer::kMostOpenCalls) return false;
    ++(request.answer_may_wait ? may_wait_ : open_);
    return true;
  }
  void Answer(const RecordHead& request, const absl::StatusOr<Slices>& reply) {
    Record record{.head = {.kind = reply.ok() ? RecordHead::kReply : RecordHead::kError, .call = request.call}};
    if (reply.ok()) {
      record.payload = *reply;
    } else {
      const absl::Status cut(reply.status().code(), SentText(reply.status()));
      record.payload = {Slice::Own(StatusMessage(cut).SerializeAsString())};
    }
    bool waits = false;
    {
      MutexLock lock(&mu_);
      --(request.answer_may_wait ? may_wait_ : open_);
      // The caller may have to act on an error before there can be another answer.
      waits = request.answer_may_wait && reply.ok() && open_ > 0;
      // Under the lock: the answer that it waits for comes after it.
      writer_.Keep(std::move(record), waits);
    }
    if (!waits) writer_.Write();
  }
  StreamWriter& writer() { return writer_; }
  void SetEnd(std::function<void(const grpc::Status&)> end) {
    MutexLock lock(&mu_);
    end_ = std::move(end);
  }
  // Ends the stream, unless it has ended.
  void End(const grpc::Status& status) {
    std::function<void(const grpc::Status&)> end;
    {
      MutexLock lock(&mu_);
      end = std::exchange(end_, nullptr);
    }
    if (end == nullptr) return;
    // No write may be started when the stream is finished.
    writer_.Close();
    end(status);
  }

 private:
  StreamWriter writer_;
  Mutex mu_;
  // Calls without an answer; those whose answers may wait are counted apart.
  size_t open_ ABSL_GUARDED_BY(mu_) = 0, may_wait_ ABSL_GUARDED_BY(mu_) = 0;
  std::function<void(const grpc::Status&)> end_ ABSL_GUARDED_BY(mu_);
};

// Lives until OnDone.
class Reactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Reactor(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)), link_(std::make_shared<Link>([this](Slices batch) {
          out_ = ToByteBuffer(batch);
          StartWrite(&out_);
        })) {
    link_->SetEnd([this](const grpc::Status& status) { Finish(status); });
    bool refuses = false;
    {
      MutexLock lock(&shared_->mu);
      refuses = shared_->refuses;
      if (!refuses) shared_->links.insert(link_);
    }
    if (refuses) {
      link_->End(ToGrpcStatus(absl::UnavailableError("the server is shutting down")));
    } else {
      StartRead(&in_);
    }
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return link_->End(grpc::Status::OK);
    const size_t bytes = in_.Length();
    absl::StatusOr<std::vector<Record>> records = ReadRecords(FromByteBuffer(in_));
    if (!records.ok()) return link_->End(ToGrpcStatus(records.status()));
    // This object may be deleted as soon as a read or an answer is under way.
    const std::shared_ptr<Shared> shared = shared_;
    const std::shared_ptr<Link> link = link_;
    for (const Record& record : *records) {
      if (record.head.kind == RecordHead::kRequest && !link->Begin(record.head)) {
        return link->End(ToGrpcStatus(absl::ResourceExhaustedError(absl::StrCat(
            "the client has more than ", StreamServer::kMostOpenCalls, " calls open, or answers unread"))));
      }
    }
    in_ = grpc::ByteBuffer();
    StartRead(&in_);
    // The last push of a step may run its update here, and the pull behind it waits for that: it is booked first, to be
    // answered with all others.
    for (const bool pushes : {false, true}) {
      for (Record& record : *records) {
        if (record.head.kind != RecordHead::kRequest || IsPush(record) != pushes) continue;
        if (pushes) KeepAlone(bytes, &record);
        Handle(shared, link, record);
      }
    }
  }

  static bool IsPush(const Record& record) { return record.head.method == static_cast<uint32_t>(Method::kPush); }
  // Gradients are kept until their step is complete, and all of a batch with them: copies one that is the lesser part
  // of it.
  static void KeepAlone(size_t batch_bytes, Record* record) {
    if (2 * record->bytes() < batch_bytes) record->payload = {Slice::Own(Flatten(record->payload))};
  }

  static void Handle(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Link>& link, const Record& record) {
    const Method method = static_cast<Method>(record.head.method);
    if (method != Method::kPush && method != Method::kPull && method != Method::kNorms && method != Method::kDeliver) {
      return link->Answer(record.head, absl::UnimplementedError(absl::StrCat("method ", record.head.method,
                                                                             " is not served through a stream")));
    }
    if (!shared->Begin()) return link->Answer(record.head, absl::UnavailableError("the server is shutting down"));
    const ProfiledCallScope scope({.id = record.head.profiled_id, .step = record.head.step});
    shared->handler(method, record.payload, [shared, link, head = record.head](const absl::StatusOr<Slices>& reply) {
      link->Answer(head, reply);
      shared->End();
    });
  }

  void OnWriteDone(bool ok) override {
    // Answers count as unread until their memory is free.
    out_.Clear();
    if (ok) {
      link_->writer().Written();
    } else {
      link_->End(grpc::Status::OK);
    }
  }
  void OnCancel() override { link_->End(grpc::Status::CANCELLED); }
  void OnDone() override {
    // Waits for a write that is being started.
    link_->writer().Close();
    {
      MutexLock lock(&shared_->mu);
      shared_->links.erase(link_);
    }
    delete this;
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Link> link_;
  grpc::ByteBuffer in_, out_;
};

class Server : public StreamServer, public v1::Stream::WithRawCallbackMethod_Calls<v1::Stream::Service> {
 public:
  explicit Server(Handler handler) : shared_(std::make_shared<Shared>()) { shared_->handler = std::move(handler); }

  grpc::Service* service() override { return this; }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Calls(grpc::CallbackServerContext*) override {
    return new Reactor(shared_);
  }

  void Refuse() override {
    MutexLock lock(&shared_->mu);
    shared_->refuses = true;
  }

  void Shutdown(absl::Duration grace) override {
    Refuse();
    const absl::Time until = Clock::Real()->Now() + grace;
    std::set<std::shared_ptr<Link>> links;
    {
      MutexLock lock(&shared_->mu);
      while (shared_->open > 0) {
        const absl::Duration left = until - Clock::Real()->Now();
        if (left <= absl::ZeroDuration()) break;
        shared_->fewer.WaitWithTimeout(&shared_->mu, left);
      }
      links = shared_->links;
    }
    for (const std::shared_ptr<Link>& link : links) link->writer().AwaitIdle(until);
    for (const std::shared_ptr<Link>& link : links) {
      link->End(ToGrpcStatus(absl::UnavailableError("the server is shutting down")));
    }
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<StreamServer> StreamServer::Create(Handler handler) {
  return std::make_unique<Server>(std::move(handler));
}

}  // namespace weir
