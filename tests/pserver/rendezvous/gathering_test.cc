#include "pserver/rendezvous/gathering.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/rendezvous/meeting_frame.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::RendezvousGreeting Trainer(int id, int trainers = 3, int servers = 0) {
  v1::RendezvousGreeting greeting;
  greeting.set_version(kRendezvousVersion);
  greeting.set_job_name("job");
  greeting.set_run_id("run");
  greeting.set_id(id);
  greeting.set_trainers(trainers);
  greeting.set_servers(servers);
  if (servers == 0) greeting.set_endpoint(absl::StrCat("10.0.0.", id + 1, ":6170"));
  greeting.set_process(absl::StrCat("host:", 100 + id));
  greeting.set_incarnation(1000 + static_cast<uint64_t>(id));
  return greeting;
}

v1::RendezvousGreeting Server(int id, int trainers, int servers) {
  v1::RendezvousGreeting greeting = Trainer(id, trainers, servers);
  greeting.set_server(true);
  greeting.set_run_id("");
  greeting.set_endpoint(absl::StrCat("10.0.1.", id + 1, ":6170"));
  greeting.set_process(absl::StrCat("host:", 200 + id));
  greeting.set_incarnation(2000 + static_cast<uint64_t>(id));
  return greeting;
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(GatheringTest, TheAnswerHasAllInOrder) {
  Gathering gathering(Trainer(0));
  EXPECT_FALSE(gathering.complete());
  EXPECT_EQ(gathering.Missing(), "trainers 1 and 2");
  ASSERT_TRUE(gathering.Add(Trainer(2)).ok());
  EXPECT_EQ(gathering.Missing(), "trainer 1");
  EXPECT_EQ(gathering.Counts(), std::pair(2, 3));
  ASSERT_TRUE(gathering.Add(Trainer(1)).ok());
  ASSERT_TRUE(gathering.complete());
  EXPECT_EQ(gathering.Missing(), "");
  const auto answer = gathering.Answer();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->trainer(), ElementsAre("10.0.0.1:6170", "10.0.0.2:6170", "10.0.0.3:6170"));
  EXPECT_THAT(answer->server(), IsEmpty());
}

TEST(GatheringTest, ServersComeToo) {
  Gathering gathering(Trainer(0, 2, 2));
  EXPECT_EQ(gathering.Missing(), "trainer 1, servers 0 and 1");
  ASSERT_TRUE(gathering.CheckRun(Server(1, 2, 2)).ok());
  for (const auto& greeting : {Server(1, 2, 2), Trainer(1, 2, 2), Server(0, 2, 2)}) {
    ASSERT_TRUE(gathering.Add(greeting).ok());
  }
  const auto answer = gathering.Answer();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->trainer(), IsEmpty());
  EXPECT_THAT(answer->server(), ElementsAre("10.0.1.1:6170", "10.0.1.2:6170"));
}

TEST(GatheringTest, OneThatHasLeftIsMissingAgain) {
  Gathering gathering(Trainer(0));
  ASSERT_TRUE(gathering.Add(Trainer(1)).ok());
  v1::RendezvousGreeting another = Trainer(1);
  another.set_incarnation(7);
  gathering.Remove(another);
  EXPECT_EQ(gathering.Missing(), "trainer 2");
  gathering.Remove(Trainer(1));
  EXPECT_EQ(gathering.Missing(), "trainers 1 and 2");
  EXPECT_TRUE(gathering.Add(another).ok());
}

TEST(GatheringTest, ARepeatedGreetingReplacesTheFormer) {
  Gathering gathering(Trainer(0, 2));
  ASSERT_TRUE(gathering.Add(Trainer(1, 2)).ok());
  v1::RendezvousGreeting moved = Trainer(1, 2);
  moved.set_endpoint("10.0.0.9:1");
  ASSERT_TRUE(gathering.Add(moved).ok());
  EXPECT_THAT(gathering.Answer()->trainer(), ElementsAre("10.0.0.1:6170", "10.0.0.9:1"));
}

TEST(GatheringTest, AnotherJobOrRunIsNamedWithBoth) {
  const Gathering gathering(Trainer(0));
  v1::RendezvousGreeting greeting = Trainer(1);
  EXPECT_TRUE(gathering.CheckRun(greeting).ok());
  greeting.set_job_name("other\n");
  EXPECT_EQ(gathering.CheckRun(greeting).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(gathering.CheckRun(greeting)),
              HasSubstr("trainer 1 (host:101) is of job 'other\\n', trainer 0 (host:100) of job 'job'"));
  greeting = Trainer(1);
  greeting.set_run_id("");
  EXPECT_THAT(Text(gathering.CheckRun(greeting)),
              HasSubstr("trainer 1 (host:101) is of run none, trainer 0 (host:100) of run 'run'"));
  // Whatever the name of trainer 0 is.
  greeting.set_run_id("*");
  EXPECT_TRUE(gathering.CheckRun(greeting).ok());
  EXPECT_TRUE(Gathering(greeting).CheckRun(Trainer(0)).ok());
  greeting = Trainer(1);
  greeting.set_version(2);
  EXPECT_THAT(Text(gathering.CheckRun(greeting)), HasSubstr("meets by version 2, trainer 0 (host:100) of one"));
  // A server with a run is of that run alone.
  greeting = Server(0, 3, 1);
  greeting.set_run_id("old");
  EXPECT_THAT(Text(gathering.CheckRun(greeting)), HasSubstr("server 0 (host:200) is of run 'old', trainer 0"));
}

TEST(GatheringTest, ContradictionsAreNamedWithBoth) {
  Gathering gathering(Trainer(0, 3, 1));
  ASSERT_TRUE(gathering.Add(Trainer(1, 3, 1)).ok());
  const auto refused = [&gathering](const v1::RendezvousGreeting& greeting) {
    const absl::Status status = gathering.Add(greeting);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(gathering.Missing(), "trainer 2, server 0");
    return Text(status);
  };
  EXPECT_THAT(refused(Trainer(2, 4, 1)), HasSubstr("trainer 2 (host:102) says that there are 4 trainers, trainer 0 "
                                                   "(host:100) that there are 3; give all"));
  EXPECT_THAT(refused(Trainer(2, 3, 2)),
              HasSubstr("says that there are 2 servers, trainer 0 (host:100) that there are 1"));
  v1::RendezvousGreeting second = Trainer(1, 3, 1);
  second.set_incarnation(7);
  second.set_process("host:999");
  EXPECT_THAT(refused(second), HasSubstr("trainer 1 (host:999) comes, but trainer 1 (host:101) is there already"));
  second = Trainer(0, 3, 1);
  second.set_incarnation(7);
  EXPECT_THAT(refused(second), HasSubstr("trainer 0 (host:100) is there already"));
  EXPECT_THAT(refused(Trainer(3, 3, 1)), HasSubstr("trainer 3 (host:103) comes, but there are 3: 0 to 2"));
  EXPECT_THAT(refused(Trainer(-1, 3, 1)), HasSubstr("there are 3: 0 to 2"));
  EXPECT_THAT(refused(Server(1, 3, 1)), HasSubstr("server 1 (host:201) comes, but there are 1: 0 to 0"));
}

TEST(GatheringTest, AnAddressWhereNobodyCanConnectIsRefused) {
  Gathering gathering(Trainer(0, 2));
  for (const char* endpoint : {"", "host", "host:0", "0.0.0.0:1", "[::]:1", "a b:1", "host:99999"}) {
    v1::RendezvousGreeting greeting = Trainer(1, 2);
    greeting.set_endpoint(endpoint);
    const absl::Status status = gathering.Add(greeting);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << endpoint;
    EXPECT_THAT(Text(status), HasSubstr("as its address, where nobody can connect")) << endpoint;
  }
}

TEST(GatheringTest, ALoopbackAddressBesideOthersIsRefused) {
  for (const char* loopback : {"127.0.0.1:5", "127.0.1.1:5", "[::1]:5", "localhost:5"}) {
    Gathering gathering(Trainer(0, 2));
    v1::RendezvousGreeting greeting = Trainer(1, 2);
    greeting.set_endpoint(loopback);
    ASSERT_TRUE(gathering.Add(greeting).ok());
    EXPECT_THAT(
        Text(gathering.Answer().status()),
        AllOf(HasSubstr(absl::StrCat("trainer 1 (host:101) is at ", loopback, ", an address of its own machine alone")),
              HasSubstr("trainer 0 (host:100) at 10.0.0.1:6170")));
  }
  v1::RendezvousGreeting own = Trainer(0, 2), other = Trainer(1, 2);
  own.set_endpoint("127.0.0.1:1");
  other.set_endpoint("127.0.0.1:2");
  Gathering one_machine(own);
  ASSERT_TRUE(one_machine.Add(other).ok());
  EXPECT_TRUE(one_machine.Answer().ok());
}

TEST(GatheringTest, TwoAtOneAddressAreRefused) {
  Gathering gathering(Trainer(0, 2));
  v1::RendezvousGreeting greeting = Trainer(1, 2);
  greeting.set_endpoint("10.0.0.1:6170");
  ASSERT_TRUE(gathering.Add(greeting).ok());
  EXPECT_THAT(Text(gathering.Answer().status()),
              HasSubstr("trainer 0 (host:100) and trainer 1 (host:101) both give the address 10.0.0.1:6170"));
}

TEST(GatheringTest, ListsAndNamesAreShort) {
  EXPECT_EQ(ListOf({1}, {}), "trainer 1");
  EXPECT_EQ(ListOf({1, 2, 3}, {0}), "trainers 1, 2 and 3, server 0");
  std::vector<int> many(500);
  for (int i = 0; i < 500; ++i) many[static_cast<size_t>(i)] = i;
  EXPECT_EQ(ListOf(many, {}), "trainers 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 490 more");
  v1::RendezvousGreeting greeting = Trainer(1);
  greeting.set_process(std::string(5000, 'x') + "\n");
  EXPECT_LT(NameOf(greeting).size(), 300u);
  greeting.set_process("a\nb");
  EXPECT_THAT(NameOf(greeting), Not(HasSubstr("\n")));
}

TEST(MeetingFrameTest, MessagesAreCutOutOfBytes) {
  const std::string bytes = EncodeMeetingFrame(Trainer(1)) + EncodeMeetingFrame(Trainer(2));
  MeetingFrames frames(kLargestGreeting);
  std::vector<int> ids;
  for (const char byte : bytes) {
    frames.Append(std::string_view(&byte, 1));
    const auto text = frames.Next();
    ASSERT_TRUE(text.ok()) << text.status();
    if (!text->has_value()) continue;
    v1::RendezvousGreeting greeting;
    ASSERT_TRUE(greeting.ParseFromString(**text));
    ids.push_back(greeting.id());
  }
  EXPECT_THAT(ids, ElementsAre(1, 2));
  EXPECT_EQ(DecodeGreeting(EncodeMeetingFrame(Trainer(1)))->id(), 1);
}

TEST(MeetingFrameTest, OtherBytesAreRefusedAtTheFirstWrongOne) {
  const std::string good = EncodeMeetingFrame(Trainer(1));
  for (const std::string& bytes : {std::string("G"), std::string("WEIRmeat"), std::string("GET / HTTP/1.1\r\n\r\n")}) {
    MeetingFrames frames(kLargestGreeting);
    frames.Append(bytes);
    EXPECT_EQ(frames.Next().status().code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
  MeetingFrames frames(kLargestGreeting);
  frames.Append("WEIRmeet" + std::string("\xff\xff\xff\xff", 4));
  EXPECT_THAT(Text(frames.Next().status()), HasSubstr("has 4294967295 bytes; at most 8192 are read"));
  EXPECT_FALSE(DecodeGreeting(good.substr(0, good.size() - 1)).ok());
  EXPECT_FALSE(DecodeGreeting(good + "x").ok());
  EXPECT_FALSE(DecodeGreeting("").ok());
  std::string damaged = good;
  damaged[12] = '\x07';
  EXPECT_FALSE(DecodeGreeting(damaged).ok());
}

}  // namespace
}  // namespace weir
