// Both ends of a stream of calls, of gRPC and of plain sockets: against each other, and against peers that say what no
// end of ours says.

#include <fcntl.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
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
#include "gtest/gtest.h"
#include "proto/stream_service.grpc.pb.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/open_stream.h"
#include "pserver/network/stream_server.h"
#include "pserver/network/stream_session.h"
#include "pserver/protocol/call_hints.h"
#include "pserver/sockets/socket_input.h"
#include "pserver/sockets/stream_records.h"
#include "pserver/sockets/stream_writer.h"
#include "tests/pserver/network/stream_ends.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

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

// Answers "echo" at once; keeps all other requests.
class Keeper {
 public:
  StreamHandler handler() {
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

class StreamServerTest : public testing::TestWithParam<StreamWay> {
 protected:
  // Returns a client of `streams`, which `served` serves over gRPC.
  static std::unique_ptr<AnyClient> Connect(StreamServer* streams, const Served& served) {
    if (GetParam() == StreamWay::kGrpc) return std::make_unique<AnyGrpcClient>(served.channel());
    const auto [ours, any] = ConnectedSockets();
    streams->Serve(ours);
    return std::make_unique<AnyPlainClient>(any);
  }
  std::unique_ptr<AnyClient> Connect() { return Connect(streams_.get(), served_); }

  Keeper keeper_;
  const std::unique_ptr<StreamServer> streams_ = StreamServer::Create(keeper_.handler());
  Served served_{streams_->service()};
};
INSTANTIATE_TEST_SUITE_P(Ways, StreamServerTest, testing::Values(StreamWay::kGrpc, StreamWay::kPlain),
                         testing::PrintToStringParamName());

TEST_P(StreamServerTest, ARequestIsAnsweredWhileOthersOfItsBatchWait) {
  const std::unique_ptr<AnyClient> client = Connect();
  client->Send(Request(1, "keep") + Request(2, "echo") + Request(3, "keep"));
  std::vector<Record> records = client->Receive();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.call, 2u);
  EXPECT_EQ(Flatten(records[0].payload), "echo");
  const ReplyCallback first = keeper_.Take();
  keeper_.Take()(absl::AbortedError("of the third"));
  records = client->Receive();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.call, 3u);
  EXPECT_EQ(records[0].head.kind, RecordHead::kError);
  v1::Status error;
  ASSERT_TRUE(error.ParseFromString(Flatten(records[0].payload)));
  EXPECT_EQ(error.code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(error.message(), "of the third");
  first(Slices{Slice::Own("first")});
  EXPECT_EQ(Flatten(client->Receive().at(0).payload), "first");
}

std::vector<uint64_t> CallsOf(const std::vector<Record>& records) {
  std::vector<uint64_t> calls;
  for (const Record& record : records) calls.push_back(record.head.call);
  return calls;
}

TEST(UnprovenSocketsTest, TheOldestThatHasHadNoAnswerIsClosedForOneMore) {
  Keeper keeper;
  const std::unique_ptr<StreamServer> streams =
      StreamServer::Create(keeper.handler(), StreamServer::PlainSockets{.most_unproven = 2});
  const auto connect = [&streams] {
    const auto [ours, any] = ConnectedSockets();
    streams->Serve(ours);
    return std::make_unique<AnyPlainClient>(any);
  };
  const auto expect_served = [](AnyPlainClient* client) {
    client->Send(Request(1, "echo"));
    EXPECT_EQ(CallsOf(client->Receive()), std::vector<uint64_t>{1});
  };
  const auto first = connect();
  expect_served(first.get());
  const auto refused = connect();
  refused->Send(Request(1, "echo", kRecordVersion, Method::kControl));
  EXPECT_EQ(refused->Receive().at(0).head.kind, RecordHead::kError);
  const auto waiting = connect();
  waiting->Send(Request(1, "keep"));
  const ReplyCallback reply = keeper.Take();
  const auto another = connect();
  EXPECT_TRUE(refused->Receive().empty()) << "an error proves nothing";
  reply(Slices{Slice::Own("of the job")});
  EXPECT_EQ(CallsOf(waiting->Receive()), std::vector<uint64_t>{1});
  const auto last = connect();
  for (const auto& client : {&first, &waiting, &another, &last}) expect_served(client->get());
}

TEST(UnprovenSocketsTest, ManyAtOnceAreClosedToo) {
  Keeper keeper;
  const std::unique_ptr<StreamServer> streams =
      StreamServer::Create(keeper.handler(), StreamServer::PlainSockets{.most_unproven = 2});
  std::vector<int> ends;
  for (int i = 0; i < 50; ++i) {
    const auto [ours, any] = ConnectedSockets();
    ends.push_back(any);
    streams->Serve(ours);
  }
  const auto closed = [&ends] {
    return std::count_if(ends.begin(), ends.end(), [](int end) {
      std::array<char, kGreetingBytes + 1> bytes;
      const ssize_t read = ::recv(end, bytes.data(), bytes.size(), MSG_DONTWAIT);
      return read == 0 || (read < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
    });
  };
  const absl::Time until = absl::Now() + kPatience;
  while (closed() < 48 && absl::Now() < until) absl::SleepFor(absl::Milliseconds(1));
  // Two stay, or fewer, since those that have been closed but not ended yet count too when there are many.
  EXPECT_GE(closed(), 48);
  streams->CloseUnproven();
  while (closed() < 50 && absl::Now() < until) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(closed(), 50);
  for (const int end : ends) ::close(end);
}

TEST_P(StreamServerTest, AnAnswerThatMayWaitComesWithTheNextOneIfThereWillBeOne) {
  const std::unique_ptr<AnyClient> client = Connect();
  client->Send(Patient(1, "echo"));
  EXPECT_EQ(CallsOf(client->Receive()), std::vector<uint64_t>{1}) << "nobody else asks";
  client->Send(Request(2, "keep") + Patient(3, "echo") + Patient(4, "echo"));
  const ReplyCallback kept = keeper_.Take();
  keeper_.AwaitEchoes(3);
  client->Send(Patient(5, "echo") + Request(6, "echo"));
  EXPECT_EQ(CallsOf(client->Receive()), (std::vector<uint64_t>{3, 4, 5, 6}));
  client->Send(Patient(7, "keep"));
  const ReplyCallback patient = keeper_.Take();
  kept(Slices{Slice::Own("kept")});
  EXPECT_EQ(CallsOf(client->Receive()), std::vector<uint64_t>{2});
  patient(Slices{Slice::Own("patient")});
  EXPECT_EQ(CallsOf(client->Receive()), std::vector<uint64_t>{7}) << "the one to wait for has been answered";
}

TEST_P(StreamServerTest, AnErrorDoesNotWait) {
  const std::unique_ptr<AnyClient> client = Connect();
  client->Send(Request(1, "keep", kRecordVersion, Method::kPull) + Patient(2, "keep"));
  (void)keeper_.Take();
  keeper_.Take()(absl::DataLossError("again"));
  EXPECT_EQ(CallsOf(client->Receive()), std::vector<uint64_t>{2});
}

TEST_P(StreamServerTest, APullIsBookedBeforeThePushThatItGoesWith) {
  const std::unique_ptr<AnyClient> client = Connect();
  client->Send(Request(1, "echo") + Request(2, "keep", kRecordVersion, Method::kPull) + Request(3, "keep"));
  EXPECT_EQ(CallsOf(client->Receive()), std::vector<uint64_t>{1});
  keeper_.Take()(Slices{Slice::Own("of the pull")});
  const std::vector<Record> records = client->Receive();
  EXPECT_EQ(CallsOf(records), std::vector<uint64_t>{2});
  EXPECT_EQ(Flatten(records.at(0).payload), "of the pull");
}

TEST_P(StreamServerTest, AClientThatReadsNoAnswersIsCutOff) {
  // Each answer is larger than the window of a stream, so that all but some wait.
  const auto answer = std::make_shared<const std::string>(1 << 20, 'a');
  const std::unique_ptr<StreamServer> streams =
      StreamServer::Create([answer](Method, const Slices&, ReplyCallback reply) {
        reply(Slices{{answer->data(), answer->size(), answer}});
      });
  Served served(streams->service());
  const std::unique_ptr<AnyClient> deaf = Connect(streams.get(), served);
  std::string batch;
  for (uint64_t call = 1; call <= 64; ++call) batch += Request(call, "");
  // What comes after the end of the stream fits the client's window.
  for (size_t sent = 0; sent < kMostStreamCalls + 128; sent += 64) deaf->Send(batch);
  while (!deaf->Receive().empty()) {
  }
  const absl::Status status = deaf->End();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST_P(StreamServerTest, NoticesAreSkippedAndOtherMethodsRefused) {
  const std::unique_ptr<AnyClient> client = Connect();
  Slices batch;
  AppendRecord({.head = {.kind = RecordHead::kApply, .run = 1, .epoch = 2, .step = 3}, .payload = {}}, &batch);
  client->Send(Flatten(batch) + Request(1, "echo", kRecordVersion, Method::kControl));
  const std::vector<Record> records = client->Receive();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.kind, RecordHead::kError);
  EXPECT_THAT(Flatten(records[0].payload), HasSubstr("is not served through a stream"));
}

TEST_P(StreamServerTest, WhatIsNoBatchEndsTheStreamWithItsReason) {
  const std::unique_ptr<AnyClient> damaged = Connect();
  damaged->Send("no records");
  EXPECT_TRUE(damaged->Receive().empty());
  const absl::Status status = damaged->End();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("a batch of records ends with 10 bytes"));

  const std::unique_ptr<AnyClient> newer = Connect();
  newer->Send(Request(1, "echo", kRecordVersion + 1));
  EXPECT_TRUE(newer->Receive().empty());
  const absl::Status other = newer->End();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(other.message(), HasSubstr("sends records of version 2, and this one reads version 1"));
}

TEST_P(StreamServerTest, AClientWithTooManyOpenCallsIsCutOffAndOthersAreServed) {
  const std::unique_ptr<AnyClient> greedy = Connect();
  std::string batch;
  for (uint64_t call = 1; call <= kMostStreamCalls; ++call) batch += Request(call, "keep");
  greedy->Send(batch);
  greedy->Send(Request(9999, "echo"));
  EXPECT_TRUE(greedy->Receive().empty());
  const absl::Status status = greedy->End();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("more than 4096 calls open"));
  // Answers that come when the stream is gone are dropped.
  for (size_t call = 0; call < kMostStreamCalls; ++call) keeper_.Take()(Slices{});
  const std::unique_ptr<AnyClient> other = Connect();
  other->Send(Request(1, "echo"));
  EXPECT_EQ(Flatten(other->Receive().at(0).payload), "echo");
}

TEST_P(StreamServerTest, ShutdownWaitsForOpenCallsAndRefusesNewOnes) {
  const std::unique_ptr<AnyClient> client = Connect();
  client->Send(Request(1, "keep"));
  const ReplyCallback kept = keeper_.Take();
  std::future<void> down = std::async(std::launch::async, [this] { streams_->Shutdown(kPatience); });
  streams_->Refuse();
  client->Send(Request(2, "echo"));
  EXPECT_EQ(client->Receive().at(0).head.kind, RecordHead::kError);
  EXPECT_EQ(down.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  kept(Slices{Slice::Own("late")});
  EXPECT_EQ(Flatten(client->Receive().at(0).payload), "late");
  down.get();
  EXPECT_TRUE(client->Receive().empty());
  EXPECT_TRUE(absl::IsUnavailable(client->End()));
}

struct Answer {
  absl::StatusOr<std::string> reply;
  bool from_server = false;
};

class StreamClientTest : public testing::TestWithParam<StreamWay> {
 protected:
  // To a server that sends fixed bytes.
  void OpenToFixed(const std::string& bytes) {
    if (GetParam() == StreamWay::kPlain) return OpenToPlain(bytes, SocketGreeting());
    // Services outlive their server.
    service_ = std::make_unique<FixedService>(bytes);
    OpenToService(service_.get());
  }
  void OpenToPlain(const std::string& bytes, const std::string& greeting) {
    const auto [ours, any] = ConnectedSockets();
    fixed_ = std::make_unique<FixedPlainServer>(any, bytes, greeting);
    stream_ = OpenSocketStream(ours, &deadlines_, [this] { gone_.set_value(); });
  }
  void OpenToService(grpc::Service* service) {
    served_ = std::make_unique<Served>(service);
    stub_ = std::make_shared<StreamStub>(served_->channel());
    stream_ = OpenGrpcStream(stub_, &deadlines_, [this] { gone_.set_value(); });
  }
  void OpenTo(StreamHandler handler) {
    streams_ = StreamServer::Create(std::move(handler));
    if (GetParam() == StreamWay::kGrpc) return OpenToService(streams_->service());
    const auto [ours, servers] = ConnectedSockets();
    ASSERT_EQ(::fcntl(servers, F_SETFL, O_NONBLOCK), 0);
    streams_->Serve(servers);
    stream_ = OpenSocketStream(ours, &deadlines_, [this] { gone_.set_value(); });
  }
  std::future<Answer> Start(const std::string& text, absl::Duration timeout = kPatience) {
    auto promise = std::make_shared<std::promise<Answer>>();
    const auto done = [promise](const absl::StatusOr<Slices>& reply, bool from_server) {
      promise->set_value({reply.ok() ? absl::StatusOr<std::string>(Flatten(*reply)) : reply.status(), from_server});
    };
    if (!stream_->Call(Method::kPush, {Slice::Own(text)}, timeout, done))
      done(absl::CancelledError("not begun"), false);
    return promise->get_future();
  }
  bool Gone() { return has_gone_.wait_for(absl::ToChronoSeconds(kPatience)) == std::future_status::ready; }
  void TearDown() override {
    stream_->Close();
    EXPECT_TRUE(Gone());
  }

  // Outlives the server, whose threads may still be in its handler when an answer has come.
  Keeper keeper_;
  CallDeadlines deadlines_;
  std::unique_ptr<v1::Stream::Service> service_;
  std::unique_ptr<StreamServer> streams_;
  std::unique_ptr<Served> served_;
  std::unique_ptr<FixedPlainServer> fixed_;
  std::shared_ptr<StreamStub> stub_;
  std::shared_ptr<StreamClient> stream_;
  std::promise<void> gone_;
  const std::future<void> has_gone_ = gone_.get_future();
};
INSTANTIATE_TEST_SUITE_P(Ways, StreamClientTest, testing::Values(StreamWay::kGrpc, StreamWay::kPlain),
                         testing::PrintToStringParamName());

TEST_P(StreamClientTest, AnswersOfNoCallAreDropped) {
  OpenToFixed(Reply(77, "of nobody") + Reply(1, "first") + Reply(1, "again"));
  EXPECT_EQ(*Start("question").get().reply, "first");
  EXPECT_FALSE(stream_->ended());
}

TEST_P(StreamClientTest, BytesThatAreNoBatchEndTheStreamAndItsCallsMayBeRepeated) {
  OpenToFixed("no records");
  const absl::Status status = Start("question").get().reply.status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("a batch of records ends with 10 bytes"));
  EXPECT_TRUE(stream_->ended());
  EXPECT_EQ(Start("another").get().reply.status().message(), "not begun");
}

TEST_P(StreamClientTest, ServersOfAnotherVersionAreRefusedAndBothVersionsNamed) {
  std::string newer = Reply(1, "first");
  newer[0] = 2;
  OpenToFixed(newer);
  const absl::Status status = Start("question").get().reply.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("sends records of version 2, and this one reads version 1"));
}

// What a server without streams answers, once a call is under way.
class NoService : public v1::Stream::WithRawCallbackMethod_Calls<v1::Stream::Service> {
 public:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Calls(grpc::CallbackServerContext*) override {
    class Reactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
     public:
      Reactor() { StartRead(&in_); }
      void OnReadDone(bool) override { Finish({grpc::StatusCode::UNIMPLEMENTED, ""}); }
      void OnDone() override { delete this; }

     private:
      grpc::ByteBuffer in_;
    };
    return new Reactor;
  }
};

using GrpcStreamClientTest = StreamClientTest;
INSTANTIATE_TEST_SUITE_P(Ways, GrpcStreamClientTest, testing::Values(StreamWay::kGrpc),
                         testing::PrintToStringParamName());

TEST_P(GrpcStreamClientTest, AServerWithoutStreamsIsRefused) {
  service_ = std::make_unique<NoService>();
  OpenToService(service_.get());
  const absl::Status status = Start("question").get().reply.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("it has no streams of calls: run the same version of Weir on all hosts"));
}

TEST_P(StreamClientTest, ALateAnswerIsDroppedAndTheStreamGoesOn) {
  OpenTo(keeper_.handler());
  EXPECT_TRUE(absl::IsDeadlineExceeded(Start("keep", absl::Milliseconds(20)).get().reply.status()));
  keeper_.Take()(Slices{Slice::Own("late")});
  EXPECT_EQ(*Start("echo").get().reply, "echo");
  EXPECT_FALSE(stream_->ended());
}

TEST_P(StreamClientTest, MemoryOfRequestsAndAnswersIsLetGoWhileTheStreamIsOpen) {
  const auto answer = std::make_shared<const std::string>(100'000, 'a');
  OpenTo([answer](Method, const Slices&, const ReplyCallback& reply) {
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

TEST_P(StreamClientTest, CallsTogetherAreSentAtTheEndOfTheirScope) {
  std::atomic<int> asked{0};
  OpenTo([&asked](Method, const Slices& request, const ReplyCallback& reply) {
    ++asked;
    reply(request);
  });
  EXPECT_EQ(*Start("to open the stream").get().reply, "to open the stream");
  std::vector<std::future<Answer>> answers;
  {
    const CallsTogether together;
    for (const char* text : {"a", "b", "c"}) answers.push_back(Start(text));
    EXPECT_EQ(answers[0].wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
    EXPECT_EQ(asked, 1);
  }
  std::string all;
  for (auto& answer : answers) all += *answer.get().reply;
  EXPECT_EQ(all, "abc");
  EXPECT_EQ(CallsTogether::current(), nullptr);
}

TEST_P(StreamClientTest, ManyThreadsCallAtOnceAndEachGetsItsAnswer) {
  OpenTo([](Method, const Slices& request, const ReplyCallback& reply) {
    reply(Slices{Slice::Own("<"), Slice::Own(Flatten(request)), Slice::Own(">")});
  });
  std::vector<std::future<int>> threads;
  for (int t = 0; t < 4; ++t) {
    threads.push_back(std::async(std::launch::async, [this, t] {
      int wrong = 0;
      for (int i = 0; i < 200; ++i) {
        const std::string text = std::to_string(1000 * t + i) + std::string(i % 3 * 40'000, 'x');
        wrong += Start(text).get().reply.value() == "<" + text + ">" ? 0 : 1;
      }
      return wrong;
    }));
  }
  for (auto& thread : threads) EXPECT_EQ(thread.get(), 0);
}

TEST_P(StreamClientTest, AStreamToBeClosedWhenIdleAnswersItsCallsFirst) {
  OpenTo(keeper_.handler());
  std::future<Answer> first = Start("keep"), second = Start("keep");
  const ReplyCallback one = keeper_.Take(), other = keeper_.Take();
  stream_->CloseWhenIdle();
  one(Slices{Slice::Own("answer")});
  other(Slices{Slice::Own("answer")});
  EXPECT_EQ(*first.get().reply, "answer");
  EXPECT_EQ(*second.get().reply, "answer");
  EXPECT_TRUE(Gone());
  EXPECT_TRUE(stream_->ended());
}

TEST_P(StreamClientTest, AnIdleStreamToBeClosedWhenIdleIsClosed) {
  OpenTo(keeper_.handler());
  EXPECT_EQ(*Start("echo").get().reply, "echo");
  stream_->CloseWhenIdle();
  EXPECT_EQ(Start("another").get().reply.status().message(), "not begun");
  EXPECT_TRUE(Gone());
  EXPECT_TRUE(stream_->ended());
}

TEST_P(StreamClientTest, AStreamToBeClosedWhenIdleIsClosedWhenItsLastCallIsGivenUp) {
  OpenTo(keeper_.handler());
  std::future<Answer> kept = Start("keep", absl::Milliseconds(50));
  stream_->CloseWhenIdle();
  EXPECT_TRUE(absl::IsDeadlineExceeded(kept.get().reply.status()));
  EXPECT_TRUE(Gone());
}

TEST_P(StreamClientTest, TheFirstAnswerShowsThatTheServerSpeaksTheProtocol) {
  OpenToFixed(Reply(1, "answer"));
  EXPECT_FALSE(stream_->greeted()) << "the server waits for a call";
  EXPECT_EQ(*Start("question").get().reply, "answer");
  EXPECT_TRUE(stream_->greeted());
}

TEST_P(StreamClientTest, AServerThatShutsDownTellsTheCallsThatAreOpen) {
  OpenTo(keeper_.handler());
  std::future<Answer> kept = Start("keep");
  (void)keeper_.Take();
  streams_->Shutdown(absl::ZeroDuration());
  const Answer answer = kept.get();
  EXPECT_EQ(answer.reply.status(), absl::UnavailableError("the server is shutting down"));
  EXPECT_TRUE(answer.from_server);
  EXPECT_TRUE(Gone());
  EXPECT_TRUE(stream_->ended());
}

// Cases of plain sockets alone.
class PlainStreamClientTest : public StreamClientTest {
 protected:
  // Returns what a call gets from a server that ends the stream with `why`.
  Answer EndedWith(const absl::Status& why) {
    Slices end;
    AppendRecord(EndRecord(why), &end);
    OpenToFixed(Flatten(end));
    return Start("question").get();
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, PlainStreamClientTest, testing::Values(StreamWay::kPlain),
                         testing::PrintToStringParamName());

TEST_P(PlainStreamClientTest, MostReasonsOfTheServerSayThatCallsMayBeRepeated) {
  const Answer answer = EndedWith(absl::ResourceExhaustedError("too many"));
  EXPECT_EQ(answer.reply.status(), absl::UnavailableError("too many"));
  EXPECT_TRUE(answer.from_server);
  EXPECT_TRUE(Gone()) << "the client closes its end";
}

TEST_P(PlainStreamClientTest, AServerThatHasOtherRecordsIsNotAskedAgain) {
  const Answer answer = EndedWith(absl::FailedPreconditionError("other records"));
  EXPECT_EQ(answer.reply.status(), absl::FailedPreconditionError("other records"));
  EXPECT_TRUE(answer.from_server);
}

TEST_P(PlainStreamClientTest, AServerThatHasNoStreamsIsNotAskedAgain) {
  const Answer answer = EndedWith(absl::UnimplementedError("unknown service"));
  EXPECT_EQ(answer.reply.status(),
            absl::FailedPreconditionError(
                "it has no streams of calls: run the same version of Weir on all hosts: unknown service"));
  EXPECT_TRUE(answer.from_server);
}

TEST_P(PlainStreamClientTest, AReasonBehindAnswersEndsTheOtherCalls) {
  Slices end;
  AppendRecord(EndRecord(absl::AbortedError("enough")), &end);
  OpenToFixed(Reply(1, "answer") + Flatten(end));
  std::future<Answer> first, second;
  {
    const CallsTogether together;
    first = Start("first");
    second = Start("second");
  }
  EXPECT_EQ(*first.get().reply, "answer");
  EXPECT_EQ(second.get().reply.status(), absl::UnavailableError("enough"));
}

TEST_P(PlainStreamClientTest, AServerThatGreetsWithAnotherVersionIsRefusedAndBothVersionsNamed) {
  std::string newer = SocketGreeting();
  newer[kGreeting.size()] = 2;
  OpenToPlain(Reply(1, "answer"), newer);
  const Answer answer = Start("question").get();
  EXPECT_EQ(answer.reply.status(),
            absl::FailedPreconditionError("the other end speaks version 2 of the connection for tensors, this one 1: "
                                          "run the same version of Weir on all hosts"));
  EXPECT_FALSE(stream_->greeted());
}

TEST_P(PlainStreamClientTest, AServerThatDoesNotGreetEndsTheStreamAndItsCallsMayBeRepeated) {
  OpenToPlain(Reply(1, "answer"), std::string(kGreetingBytes, 'x'));
  const Answer answer = Start("question").get();
  EXPECT_TRUE(absl::IsUnavailable(answer.reply.status())) << answer.reply.status();
  EXPECT_FALSE(answer.from_server);
  EXPECT_FALSE(stream_->greeted());
}

}  // namespace
}  // namespace weir
