// Ends of streams of calls that send any bytes, over gRPC and over plain sockets: what no end of ours says.
#ifndef WEIR_TESTS_PSERVER_NETWORK_STREAM_ENDS_H_
#define WEIR_TESTS_PSERVER_NETWORK_STREAM_ENDS_H_

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "framework/base/status_message.h"
#include "framework/wire/frame.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/stream_service.grpc.pb.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/sockets/socket_input.h"
#include "pserver/sockets/stream_records.h"

namespace weir {

inline constexpr absl::Duration kPatience = absl::Seconds(30);

// What carries a stream.
enum class StreamWay { kGrpc, kPlain };
inline void PrintTo(StreamWay way, std::ostream* out) { *out << (way == StreamWay::kGrpc ? "Grpc" : "Plain"); }

// A server of gRPC with one service.
class Served {
 public:
  explicit Served(grpc::Service* service) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
  }
  ~Served() { server_->Shutdown(std::chrono::system_clock::now()); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

// Two connected sockets: the first does not block, for an end of ours; the second waits for kPatience.
inline std::pair<int, int> ConnectedSockets() {
  int sockets[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0) << std::strerror(errno);
  EXPECT_EQ(::fcntl(sockets[0], F_SETFL, O_NONBLOCK), 0) << std::strerror(errno);
  const timeval patience = absl::ToTimeval(kPatience);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    EXPECT_EQ(::setsockopt(sockets[1], SOL_SOCKET, option, &patience, sizeof(patience)), 0) << std::strerror(errno);
  }
  return {sockets[0], sockets[1]};
}

// Sends and receives any bytes through a socket that blocks, and closes it.
class PlainEnd {
 public:
  explicit PlainEnd(int socket) : socket_(socket) {}
  ~PlainEnd() { ::close(socket_); }
  PlainEnd(const PlainEnd&) = delete;
  PlainEnd& operator=(const PlainEnd&) = delete;

  void Send(const std::string& bytes) {
    ASSERT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()))
        << std::strerror(errno);
  }
  void SendBatch(const std::string& batch) { Send(BatchLength(batch.size()) + batch); }
  // Returns so many bytes, or fewer if the other end has closed the connection.
  std::string Receive(size_t bytes) {
    std::string received(bytes, '\0');
    const ssize_t read = ::recv(socket_, received.data(), bytes, MSG_WAITALL);
    // It may have left bytes unread.
    EXPECT_TRUE(read >= 0 || errno == ECONNRESET) << std::strerror(errno);
    received.resize(static_cast<size_t>(std::max<ssize_t>(read, 0)));
    return received;
  }
  // Returns nothing if the other end has closed the connection.
  std::optional<std::string> ReceiveBatch() {
    uint64_t bytes = 0;
    const std::string length = Receive(sizeof(bytes));
    if (length.size() < sizeof(bytes)) return std::nullopt;
    std::memcpy(&bytes, length.data(), sizeof(bytes));
    return Receive(bytes);
  }

 private:
  const int socket_;
};

// A client that sends any bytes.
class AnyClient {
 public:
  virtual ~AnyClient() = default;
  virtual void Send(const std::string& batch) = 0;
  // Returns the records of the next batch; none: the stream has ended.
  virtual std::vector<Record> Receive() = 0;
  // Returns why the stream has ended.
  virtual absl::Status End() = 0;
};

class AnyGrpcClient : public AnyClient {
 public:
  explicit AnyGrpcClient(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    call_ = stub_.PrepareCall(&context_, "/weir.v1.Stream/Calls", &queue_);
    call_->StartCall(this);
    Next();
  }
  ~AnyGrpcClient() override {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }
  void Send(const std::string& batch) override {
    call_->Write(ToByteBuffer({Slice::Own(batch)}), this);
    Next();
  }
  std::vector<Record> Receive() override {
    grpc::ByteBuffer bytes;
    call_->Read(&bytes, this);
    if (!Next()) return {};
    return ReadRecords(FromByteBuffer(bytes)).value();
  }
  absl::Status End() override {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return FromGrpcStatus(status);
  }

 private:
  // Waits for the operation that has been started.
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

class AnyPlainClient : public AnyClient {
 public:
  explicit AnyPlainClient(int socket) : end_(socket) {
    end_.Send(SocketGreeting());
    EXPECT_EQ(end_.Receive(kGreetingBytes), SocketGreeting());
  }
  void Send(const std::string& batch) override { end_.SendBatch(batch); }
  std::vector<Record> Receive() override {
    const std::optional<std::string> batch = end_.ReceiveBatch();
    if (!batch.has_value()) return {};
    std::vector<Record> records = ReadRecords({Slice::Own(*batch)}).value();
    if (records.at(0).head.kind != RecordHead::kError || records[0].head.call != 0) return records;
    v1::Status why;
    EXPECT_TRUE(why.ParseFromString(Flatten(records[0].payload)));
    why_ = StatusOf(why, kMostReceivedText);
    EXPECT_EQ(end_.ReceiveBatch(), std::nullopt) << "the reason is the last that a server sends";
    return {};
  }
  absl::Status End() override { return why_; }

 private:
  PlainEnd end_;
  absl::Status why_ = absl::UnknownError("the server has given no reason");
};

// Sends fixed bytes after the first message, and keeps the stream open.
class FixedService : public v1::Stream::WithRawCallbackMethod_Calls<v1::Stream::Service> {
 public:
  explicit FixedService(std::string bytes) : bytes_(std::move(bytes)) {}
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Calls(grpc::CallbackServerContext*) override {
    class Reactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
     public:
      explicit Reactor(const std::string& bytes) : out_(ToByteBuffer({Slice::Own(bytes)})) { StartRead(&in_); }
      void OnReadDone(bool ok) override {
        if (ok) StartWrite(&out_);
      }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }

     private:
      grpc::ByteBuffer in_, out_;
    };
    return new Reactor(bytes_);
  }

 private:
  const std::string bytes_;
};

// The same at a plain socket, behind a greeting that may be any, too. Its end is that of the client.
class FixedPlainServer {
 public:
  FixedPlainServer(int socket, std::string bytes, std::string greeting = SocketGreeting())
      : end_(socket), thread_([this, bytes = std::move(bytes), greeting = std::move(greeting)] {
          EXPECT_EQ(end_.Receive(kGreetingBytes), SocketGreeting());
          if (!end_.ReceiveBatch().has_value()) return;
          end_.Send(greeting + BatchLength(bytes.size()) + bytes);
          while (end_.ReceiveBatch().has_value()) {
          }
        }) {}
  ~FixedPlainServer() { thread_.join(); }

 private:
  PlainEnd end_;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_NETWORK_STREAM_ENDS_H_
