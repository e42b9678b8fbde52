// Both ends of a stream of calls: against each other, and against peers that say what no end of ours says.

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "framework/base/mutex.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "gtest/gtest.h"
#include "proto/stream_service.grpc.pb.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/stream_client.h"
#include "pserver/network/stream_records.h"
#include "pserver/network/stream_server.h"
#include "pserver/network/stream_writer.h"
#include "pserver/protocol/call_hints.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

std::string Request(uint64_t call, const std::string& payload, uint32_t version = kRecordVersion,
                    Method method = Method::kPush, bool may_wait = false) {
  Slices batch;
  AppendRecord({.head = {.kind = RecordHead::kRequest,
                         .call = call,
                         .method = static_cast<uint32_t>(method),
                         .answer_may_wait = may_wait},
                .payload = {Slice::Own(payload)}},
               &batch);
  std::string bytes = Flatten(batch);
  bytes[0] = static_cast<char>(version);
  return bytes;
}
// One whose answer may wait.
std::string Patient(uint64_t call, const std::string& payload) {
  return Request(call, payload, kRecordVersion, Method::kPush, /*may_wait=*/true);
}
std::string Reply(uint64_t call, const std::string& payload) {
  Slices batch;
  AppendRecord({.head = {.kind = RecordHead::kReply, .call = call}, .payload = {Slice::Own(payload)}}, &batch);
  return Flatten(batch);
}

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

// Answers "echo" at once; keeps all other requests.
class Keeper {
 public:
  StreamServer::Handler handler() {
    return [this](Method, const Slices& request, ReplyCallback reply) {
      const bool echo = Flatten(request) == "echo";
      if (echo) reply(request);
      MutexLock lock(&mu_);
      echoes_ += echo ? 1 : 0;
      came_.SignalAll();
      if (echo) return;
      kept_.push_back(std::move(reply));
    };
  }
  void AwaitEchoes(int n) {
    MutexLock lock(&mu_);
    while (echoes_ < n) came_.Wait(&mu_);
  }
  ReplyCallback Take() {
    MutexLock lock(&mu_);
    while (kept_.empty()) came_.Wait(&mu_);
    ReplyCallback reply = std::move(kept_.front());
    kept_.pop_front();
    return reply;
  }

 private:
  Mutex mu_;
  CondVar came_;
  std::deque<ReplyCallback> kept_ ABSL_GUARDED_BY(mu_);
  int echoes_ ABSL_GUARDED_BY(mu_) = 0;
};

// A client that sends any bytes and waits for each operation.
class AnyBytes {
 public:
  explicit AnyBytes(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    call_ = stub_.PrepareCall(&context_, "/weir.v1.Stream/Calls", &queue_);
    call_->StartCall(this);
    Next();
  }
  ~AnyBytes() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }
  void Send(const std::string& bytes) {
    call_->Write(ToByteBuffer({Slice::Own(bytes)}), this);
    Next();
  }
  // Returns the records of the next message; none: the stream has ended.
  std::vector<Record> Receive() {
    grpc::ByteBuffer bytes;
    call_->Read(&bytes, this);
    if (!Next()) return {};
    return ReadRecords(FromByteBuffer(bytes)).value();
  }
  absl::Status End() {
    grpc::Status status;
    call_->Finish(&status, this);
    Next();
    return FromGrpcStatus(status);
  }

 private:
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

class StreamServerTest : public testing::Test {
 protected:
  Keeper keeper_;
  const std::unique_ptr<StreamServer> streams_ = StreamServer::Create(keeper_.handler());
  Served served_{streams_->service()};
};

TEST_F(StreamServerTest, ARequestIsAnsweredWhileOthersOfItsBatchWait) {
  AnyBytes client(served_.channel());
  client.Send(Request(1, "keep") + Request(2, "echo") + Request(3, "keep"));
  std::vector<Record> records = client.Receive();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.call, 2u);
  EXPECT_EQ(Flatten(records[0].payload), "echo");
  const ReplyCallback first = keeper_.Take();
  keeper_.Take()(absl::AbortedError("of the third"));
  records = client.Receive();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.call, 3u);
  EXPECT_EQ(records[0].head.kind, RecordHead::kError);
  v1::Status error;
  ASSERT_TRUE(error.ParseFromString(Flatten(records[0].payload)));
  EXPECT_EQ(error.code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(error.message(), "of the third");
  first(Slices{Slice::Own("first")});
  EXPECT_EQ(Flatten(client.Receive().at(0).payload), "first");
}

std::vector<uint64_t> CallsOf(const std::vector<Record>& records) {
  std::vector<uint64_t> calls;
  for (const Record& record : records) calls.push_back(record.head.call);
  return calls;
}

TEST_F(StreamServerTest, AnAnswerThatMayWaitComesWithTheNextOneIfThereWillBeOne) {
  AnyBytes client(served_.channel());
  client.Send(Patient(1, "echo"));
  EXPECT_EQ(CallsOf(client.Receive()), std::vector<uint64_t>{1}) << "nobody else asks";
  client.Send(Request(2, "keep") + Patient(3, "echo") + Patient(4, "echo"));
  const ReplyCallback kept = keeper_.Take();
  keeper_.AwaitEchoes(3);
  client.Send(Patient(5, "echo") + Request(6, "echo"));
  EXPECT_EQ(CallsOf(client.Receive()), (std::vector<uint64_t>{3, 4, 5, 6}));
  client.Send(Patient(7, "keep"));
  const ReplyCallback patient = keeper_.Take();
  kept(Slices{Slice::Own("kept")});
  EXPECT_EQ(CallsOf(client.Receive()), std::vector<uint64_t>{2});
  patient(Slices{Slice::Own("patient")});
  EXPECT_EQ(CallsOf(client.Receive()), std::vector<uint64_t>{7}) << "the one to wait for has been answered";
}

TEST_F(StreamServerTest, AnErrorDoesNotWait) {
  AnyBytes client(served_.channel());
  client.Send(Request(1, "keep", kRecordVersion, Method::kPull) + Patient(2, "keep"));
  (void)keeper_.Take();
  keeper_.Take()(absl::DataLossError("again"));
  EXPECT_EQ(CallsOf(client.Receive()), std::vector<uint64_t>{2});
}

TEST_F(StreamServerTest, APullIsBookedBeforeThePushThatItGoesWith) {
  AnyBytes client(served_.channel());
  client.Send(Request(1, "echo") + Request(2, "keep", kRecordVersion, Method::kPull) + Request(3, "keep"));
  EXPECT_EQ(CallsOf(client.Receive()), std::vector<uint64_t>{1});
  keeper_.Take()(Slices{Slice::Own("of the pull")});
  const std::vector<Record> records = client.Receive();
  EXPECT_EQ(CallsOf(records), std::vector<uint64_t>{2});
  EXPECT_EQ(Flatten(records.at(0).payload), "of the pull");
}

TEST(UnreadAnswersTest, AClientThatReadsNoneIsCutOff) {
  // Each answer is larger than the window of a stream, so that all but some wait.
  const auto answer = std::make_shared<const std::string>(1 << 20, 'a');
  const std::unique_ptr<StreamServer> streams =
      StreamServer::Create([answer](Method, const Slices&, ReplyCallback reply) {
        reply(Slices{{answer->data(), answer->size(), answer}});
      });
  Served served(streams->service());
  AnyBytes deaf(served.channel());
  std::string batch;
  for (uint64_t call = 1; call <= 64; ++call) batch += Request(call, "");
  // What comes after the end of the stream fits the client's window.
  for (size_t sent = 0; sent < StreamServer::kMostOpenCalls + 128; sent += 64) deaf.Send(batch);
  while (!deaf.Receive().empty()) {
  }
  const absl::Status status = deaf.End();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST_F(StreamServerTest, NoticesAreSkippedAndOtherMethodsRefused) {
  AnyBytes client(served_.channel());
  Slices batch;
  AppendRecord({.head = {.kind = RecordHead::kApply, .run = 1, .epoch = 2, .step = 3}, .payload = {}}, &batch);
  client.Send(Flatten(batch) + Request(1, "echo", kRecordVersion, Method::kControl));
  const std::vector<Record> records = client.Receive();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.kind, RecordHead::kError);
  EXPECT_THAT(Flatten(records[0].payload), HasSubstr("is not served through a stream"));
}

TEST_F(StreamServerTest, WhatIsNoBatchEndsTheStreamWithItsReason) {
  AnyBytes damaged(served_.channel());
  damaged.Send("no records");
  EXPECT_TRUE(damaged.Receive().empty());
  const absl::Status status = damaged.End();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("a batch of records ends with 10 bytes"));

  AnyBytes newer(served_.channel());
  newer.Send(Request(1, "echo", kRecordVersion + 1));
  EXPECT_TRUE(newer.Receive().empty());
  const absl::Status other = newer.End();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(other.message(), HasSubstr("sends records of version 2, and this one reads version 1"));
}

TEST_F(StreamServerTest, AClientWithTooManyOpenCallsIsCutOffAndOthersAreServed) {
  AnyBytes greedy(served_.channel());
  std::string batch;
  for (uint64_t call = 1; call <= StreamServer::kMostOpenCalls; ++call) batch += Request(call, "keep");
  greedy.Send(batch);
  greedy.Send(Request(9999, "echo"));
  EXPECT_TRUE(greedy.Receive().empty());
  const absl::Status status = greedy.End();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("more than 4096 calls open"));
  // Answers that come when the stream is gone are dropped.
  for (size_t call = 0; call < StreamServer::kMostOpenCalls; ++call) keeper_.Take()(Slices{});
  AnyBytes other(served_.channel());
  other.Send(Request(1, "echo"));
  EXPECT_EQ(Flatten(other.Receive().at(0).payload), "echo");
}

TEST_F(StreamServerTest, ShutdownWaitsForOpenCallsAndRefusesNewOnes) {
  AnyBytes client(served_.channel());
  client.Send(Request(1, "keep"));
  const ReplyCallback kept = keeper_.Take();
  std::future<void> down = std::async(std::launch::async, [this] { streams_->Shutdown(kPatience); });
  streams_->Refuse();
  client.Send(Request(2, "echo"));
  EXPECT_EQ(client.Receive().at(0).head.kind, RecordHead::kError);
  EXPECT_EQ(down.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  kept(Slices{Slice::Own("late")});
  EXPECT_EQ(Flatten(client.Receive().at(0).payload), "late");
  down.get();
  EXPECT_TRUE(client.Receive().empty());
  EXPECT_TRUE(absl::IsUnavailable(client.End()));
}

// Sends fixed bytes after the first message, and keeps the stream open.
class FixedBytes : public v1::Stream::WithRawCallbackMethod_Calls<v1::Stream::Service> {
 public:
  explicit FixedBytes(std::string bytes) : bytes_(std::move(bytes)) {}
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

class StreamClientTest : public testing::Test {
 protected:
  // Services outlive their server.
  void Open(std::unique_ptr<v1::Stream::Service> service) {
    service_ = std::move(service);
    Connect(service_.get());
  }
  void Open(StreamServer::Handler handler) {
    streams_ = StreamServer::Create(std::move(handler));
    Connect(streams_->service());
  }
  void Connect(grpc::Service* service) {
    served_ = std::make_unique<Served>(service);
    stub_ = std::make_shared<StreamClient::Stub>(served_->channel());
    stream_ = StreamClient::Open(stub_, &deadlines_, [this] { gone_.set_value(); });
  }
  std::future<absl::StatusOr<std::string>> Start(const std::string& text, absl::Duration timeout = kPatience) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<std::string>>>();
    const auto done = [promise](const absl::StatusOr<Slices>& reply, bool) {
      promise->set_value(reply.ok() ? absl::StatusOr<std::string>(Flatten(*reply)) : reply.status());
    };
    if (!stream_->Call(Method::kPush, {Slice::Own(text)}, timeout, done))
      done(absl::CancelledError("not begun"), false);
    return promise->get_future();
  }
  void TearDown() override {
    stream_->Close();
    gone_.get_future().get();
  }

  CallDeadlines deadlines_;
  std::unique_ptr<v1::Stream::Service> service_;
  std::unique_ptr<StreamServer> streams_;
  std::unique_ptr<Served> served_;
  std::shared_ptr<StreamClient::Stub> stub_;
  std::shared_ptr<StreamClient> stream_;
  std::promise<void> gone_;
};

TEST_F(StreamClientTest, AnswersOfNoCallAreDropped) {
  Open(std::make_unique<FixedBytes>(Reply(77, "of nobody") + Reply(1, "first") + Reply(1, "again")));
  EXPECT_EQ(*Start("question").get(), "first");
  EXPECT_FALSE(stream_->ended());
}

TEST_F(StreamClientTest, BytesThatAreNoBatchEndTheStreamAndItsCallsMayBeRepeated) {
  Open(std::make_unique<FixedBytes>("no records"));
  const absl::Status status = Start("question").get().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("a batch of records ends with 10 bytes"));
  EXPECT_TRUE(stream_->ended());
  EXPECT_EQ(Start("another").get().status().message(), "not begun");
}

TEST_F(StreamClientTest, ServersOfAnotherVersionAreRefusedAndBothVersionsNamed) {
  std::string newer = Reply(1, "first");
  newer[0] = 2;
  Open(std::make_unique<FixedBytes>(newer));
  const absl::Status status = Start("question").get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("sends records of version 2, and this one reads version 1"));
}

TEST_F(StreamClientTest, AServerWithoutStreamsIsRefused) {
  Open(std::make_unique<v1::Stream::Service>());
  const absl::Status status = Start("question").get().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("it has no streams of calls: run the same version of Weir on all hosts"));
}

TEST_F(StreamClientTest, ALateAnswerIsDroppedAndTheStreamGoesOn) {
  Keeper keeper;
  Open(keeper.handler());
  EXPECT_TRUE(absl::IsDeadlineExceeded(Start("keep", absl::Milliseconds(20)).get().status()));
  keeper.Take()(Slices{Slice::Own("late")});
  EXPECT_EQ(*Start("echo").get(), "echo");
  EXPECT_FALSE(stream_->ended());
}

TEST_F(StreamClientTest, MemoryOfRequestsAndAnswersIsLetGoWhileTheStreamIsOpen) {
  const auto answer = std::make_shared<const std::string>(100'000, 'a');
  Open([answer](Method, const Slices&, const ReplyCallback& reply) {
    reply(Slices{{answer->data(), answer->size(), answer}});
  });
  const auto request = std::make_shared<const std::string>(100'000, 'r');
  std::promise<bool> right;
  ASSERT_TRUE(stream_->Call(Method::kPush, {{request->data(), request->size(), request}}, kPatience,
                            [&right, answer](const absl::StatusOr<Slices>& reply, bool) {
                              right.set_value(reply.ok() && Flatten(*reply) == *answer);
                            }));
  EXPECT_TRUE(right.get_future().get());
  const absl::Time end = absl::Now() + kPatience;
  // The handler has a reference to the answer.
  while ((request.use_count() > 1 || answer.use_count() > 2) && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(request.use_count(), 1);
  EXPECT_EQ(answer.use_count(), 2);
}

TEST_F(StreamClientTest, CallsTogetherAreSentAtTheEndOfTheirScope) {
  std::atomic<int> asked{0};
  Open([&asked](Method, const Slices& request, const ReplyCallback& reply) {
    ++asked;
    reply(request);
  });
  EXPECT_EQ(*Start("to open the stream").get(), "to open the stream");
  std::vector<std::future<absl::StatusOr<std::string>>> answers;
  {
    const CallsTogether together;
    for (const char* text : {"a", "b", "c"}) answers.push_back(Start(text));
    EXPECT_EQ(answers[0].wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
    EXPECT_EQ(asked, 1);
  }
  std::string all;
  for (auto& answer : answers) all += *answer.get();
  EXPECT_EQ(all, "abc");
  EXPECT_EQ(CallsTogether::current(), nullptr);
}

TEST_F(StreamClientTest, ManyThreadsCallAtOnceAndEachGetsItsAnswer) {
  Open([](Method, const Slices& request, const ReplyCallback& reply) {
    reply(Slices{Slice::Own("<"), Slice::Own(Flatten(request)), Slice::Own(">")});
  });
  std::vector<std::future<int>> threads;
  for (int t = 0; t < 4; ++t) {
    threads.push_back(std::async(std::launch::async, [this, t] {
      int wrong = 0;
      for (int i = 0; i < 200; ++i) {
        const std::string text = std::to_string(1000 * t + i) + std::string(i % 3 * 40'000, 'x');
        wrong += Start(text).get().value() == "<" + text + ">" ? 0 : 1;
      }
      return wrong;
    }));
  }
  for (auto& thread : threads) EXPECT_EQ(thread.get(), 0);
}

}  // namespace
}  // namespace weir
