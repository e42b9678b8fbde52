#include "pserver/network/open_stream.h"

#include <atomic>
#include <string>
#include <utility>

#include "framework/base/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/stream_calls.h"
#include "pserver/sockets/socket_link.h"

namespace weir {
namespace {

constexpr char kCalls[] = "/weir.v1.Stream/Calls";

// A stream of gRPC, which holds it until OnDone.
class GrpcClient : public StreamCalls, public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  GrpcClient(std::shared_ptr<StreamStub> stub, CallDeadlines* deadlines, std::function<void()> gone,
             std::function<void(const std::string&)> plain)
      : StreamCalls(deadlines,
                    [this](const Slices& batch) {
                      out_ = ToByteBuffer(batch);
                      StartWrite(&out_);
                      return false;
                    }),
        stub_(std::move(stub)),
        gone_(std::move(gone)),
        plain_(std::move(plain)) {}

  void Begin() {
    self_ = shared_from_this();
    context_.set_wait_for_ready(false);
    stub_->PrepareBidiStreamingCall(&context_, kCalls, {}, this);
    // Writes are started by other threads than gRPC's, until the hold is removed.
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  bool greeted() const override { return greeted_; }
  void Close() override { context_.TryCancel(); }

 private:
  void OnReadInitialMetadataDone(bool ok) override {
    if (!ok) return;
    greeted_ = true;
    const auto& told = context_.GetServerInitialMetadata();
    if (plain_ != nullptr && told.find(kPlainSocketsKey) != told.end()) plain_(context_.peer());
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    greeted_ = true;
    const absl::Status batch = HandOut(
        FromByteBuffer(in_),
        [this] {
          in_ = grpc::ByteBuffer();
          StartRead(&in_);
        },
        nullptr);
    if (batch.ok()) return;
    broken_ = batch;
    context_.TryCancel();
    End();
  }

  void OnWriteDone(bool ok) override {
    // Whoever has given memory wants to know when it is free.
    out_.Clear();
    if (!ok) return End();
    writer().Written();
  }

  // Lets gRPC end the stream: OnDone follows.
  void End() {
    if (Stop()) RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    End();
    // A server that ends the stream is there, and so is the way to it.
    EndCalls(broken_.ok() ? FromGrpcStatus(status) : broken_, !broken_.ok() || SaidByServer(status));
    const std::function<void()> gone = std::move(gone_);
    self_ = nullptr;  // may delete this object
    gone();
  }

  const std::shared_ptr<StreamStub> stub_;
  std::function<void()> gone_;
  const std::function<void(const std::string&)> plain_;
  grpc::ClientContext context_;
  grpc::ByteBuffer in_, out_;
  absl::Status broken_;  // written before End by the thread that reads, read in OnDone
  std::atomic<bool> greeted_{false};
  std::shared_ptr<StreamCalls> self_;
};

// A stream of plain sockets, which the callbacks of its link hold until it has ended.
class SocketClient : public StreamCalls {
 public:
  SocketClient(int socket, CallDeadlines* deadlines, std::function<void()> gone)
      : StreamCalls(deadlines, [this](Slices batch) { return link_->Write(std::move(batch)); }),
        link_(std::make_shared<SocketLink>(socket)),
        gone_(std::move(gone)) {}

  void Begin() {
    const auto self = std::static_pointer_cast<SocketClient>(shared_from_this());
    link_->Start({.batch = [self](const Slices& batch,
                                  const std::function<void()>& read_on) { return self->Handle(batch, read_on); },
                  .written = [self] { self->writer().Written(); },
                  .ended = [self](const absl::Status& why) { self->End(why); }});
  }

  bool greeted() const override { return link_->greeted(); }
  void Close() override { link_->Close(); }

 private:
  absl::Status Handle(const Slices& batch, const std::function<void()>& read_on) {
    absl::Status ended;
    const absl::Status good = HandOut(batch, read_on, &ended);
    if (good.ok() && ended.ok()) return good;
    {
      MutexLock lock(&mu_);
      broken_ = good.ok() ? ended : good;
    }
    if (!ended.ok()) link_->Close();
    return good;
  }

  void End(const absl::Status& why) {
    absl::Status broken;
    {
      MutexLock lock(&mu_);
      broken = broken_;
    }
    Stop();
    EndCalls(broken.ok() ? why : broken, /*from_server=*/!broken.ok());
    gone_();
  }

  const std::shared_ptr<SocketLink> link_;
  const std::function<void()> gone_;
  Mutex mu_;
  absl::Status broken_ ABSL_GUARDED_BY(mu_);  // why the server, or this end because of it, has ended the stream
};

}  // namespace

std::shared_ptr<StreamClient> OpenGrpcStream(std::shared_ptr<StreamStub> stub, CallDeadlines* deadlines,
                                             std::function<void()> gone,
                                             std::function<void(const std::string& peer)> plain) {
  auto client = std::make_shared<GrpcClient>(std::move(stub), deadlines, std::move(gone), std::move(plain));
  client->Begin();
  return client;
}

std::shared_ptr<StreamClient> OpenSocketStream(int socket, CallDeadlines* deadlines, std::function<void()> gone) {
  auto client = std::make_shared<SocketClient>(socket, deadlines, std::move(gone));
  client->Begin();
  return client;
}

}  // namespace weir
