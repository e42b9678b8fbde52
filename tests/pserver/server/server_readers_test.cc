// Readers of a server: who is let in, what they get, and that nothing of the training depends on them. One server under
// a fake clock.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/membership/limits.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int kThreads = 2;
constexpr int kSteps = 40;

class ServerReadersTest : public CoreByHand {
 protected:
  ~ServerReadersTest() override {
    core_.reset();
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  absl::StatusOr<v1::JoinReply> JoinReader(const std::string& process,
                                           const std::function<void(v1::JoinRequest*)>& edit = {}) {
    v1::JoinRequest request;
    request.mutable_caller()->set_trainer(kReader);
    request.set_reader(true);
    request.set_wire_version(kWireVersion);
    request.set_process(process);
    if (edit) edit(&request);
    return CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString());
  }
  // From now on the calls of trainer kReader are those of this reader.
  void Become(const std::string& process) {
    const auto reply = JoinReader(process);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_NE(reply->session(), 0u);
    sessions_[kReader] = reply->session();
  }
  absl::Status JoinStatus(const std::function<void(v1::JoinRequest*)>& edit) {
    return JoinReader("reader:1", edit).status();
  }
  int64_t RowsOf(const std::string& table) {
    for (const ServerReport::Table& each : core_->Report().tables) {
      if (each.name == table) return each.rows;
    }
    return -1;
  }
  // Returns one step's gradients of a trainer: of all blocks and tables, others in every step.
  std::vector<Item> Gradients(int trainer, int64_t step) {
    const int lanes = job_.lanes / job_.trainers;
    const auto numbers = [&](size_t n, uint64_t seed) {
      std::vector<float> values;
      for (size_t i = 0; i < n; ++i) {
        const uint64_t h = MixId(MixId(MixId(seed) + static_cast<uint64_t>(step)) + i + 1000 * (trainer + 1));
        values.push_back(static_cast<float>(h >> 40) / 16777216.0f - 0.5f);
      }
      return values;
    };
    std::vector<int64_t> ids = {1000000 + step};
    for (int64_t i = 0; i < 20; ++i) ids.push_back((step * 7 + i * (trainer + 1)) % 60);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    std::vector<Item> items = {{.name = "w", .values = numbers(640, 1)},
                               {.name = "b", .values = numbers(5, 2)},
                               {.name = "e", .values = numbers(6, 3), .ids = {step % 29, 29}, .width = 3},
                               {.name = "t", .values = numbers(4 * ids.size(), 4), .ids = ids, .width = 4},
                               {.name = "u", .values = numbers(ids.size(), 5), .ids = ids, .width = 1}};
    for (Item& item : items) {
      item.lane = trainer * lanes;
      item.lanes = lanes;
    }
    return items;
  }
  // Returns a pull of everything: blocks, rows that steps change, and rows that there will never be.
  static std::string EverythingBytes(const v1::Caller& caller, int64_t version) {
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < 64; ++id) ids.push_back(id);
    for (int64_t id = 0; id < 16; ++id) ids.push_back(-1 - id * 12345);
    v1::PullRequest request;
    *request.mutable_caller() = caller;
    request.set_version(version);
    request.set_wait_s(30);
    const auto add = [&request](const char* name, int64_t count, int width) {
      v1::PullItem* const item = request.add_items();
      item->set_name(name);
      item->set_count(count);
      item->set_width(width);
    };
    add("w", 640, 0);
    add("b", 5, 0);
    add("e", 90, 0);
    add("t", static_cast<int64_t>(ids.size()), 4);
    add("u", static_cast<int64_t>(ids.size()), 1);
    const std::string payload(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t));
    return Flatten(EncodeFrame(request.SerializeAsString(), {Slice::Own(payload)}));
  }

  std::string dir_;
};

// ------------------------------------------------------------------------------------------------------ who is let in

TEST_F(ServerReadersTest, AReaderComesBeforeTheTrainersAndWhenAllPlacesAreTaken) {
  for (const HandMadeJob& job : {HandMadeJob{.trainers = 2}, HandMadeJob{.trainers = 2, .sync = false},
                                 HandMadeJob{.trainers = 2, .sync = false, .staleness = 0}}) {
    Start(job);
    ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
    const std::vector<float> before = Bias(kReader);
    JoinAll();
    EXPECT_EQ(Bias(kReader), before);
    ASSERT_NO_FATAL_FAILURE(Become("reader:2"));
    EXPECT_EQ(Bias(kReader), before);
    for (int t = 0; t < 2; ++t) ASSERT_TRUE(PushStep(t, 0, Gradients(t, 0), 1).ok());
    const auto read = Pull(kReader, 0, "b", 5);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->header.version(), core_->Version());
    EXPECT_EQ(Bias(kReader), Bias(0));
    EXPECT_NE(Bias(kReader), before);
    EXPECT_EQ(Pull(kReader, 0, "t", 3, {5, 6, 77}, 4)->values, Pull(0, 0, "t", 3, {5, 6, 77}, 4)->values);
  }
}

TEST_F(ServerReadersTest, AReaderNeedsNoJobAndGetsThePlan) {
  const HandMadeJob job{.trainers = 2};
  Start(job);
  const auto reply = JoinReader("reader:1");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->server_index(), 0);
  EXPECT_EQ(reply->process(), "server:1");
  v1::Plan plan;
  ASSERT_TRUE(plan.ParseFromString(reply->plan()));
  EXPECT_EQ(plan.SerializeAsString(), job.Plan().SerializeAsString());
  const auto trainer = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(0, "trainer:0").SerializeAsString());
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  EXPECT_FALSE(trainer->has_plan());
}

TEST_F(ServerReadersTest, WhatAReaderSaysOfTheJobMustBeTrue) {
  Start({.trainers = 2});
  EXPECT_STATUS(JoinStatus([](auto* r) { r->mutable_caller()->set_job_id("other"); }), kFailedPrecondition,
                "reader (reader:1) comes with job other and wire version 2; this server has another one of them");
  EXPECT_STATUS(JoinStatus([](auto* r) { r->set_server_index(1); }), kFailedPrecondition,
                "this is server 0 (server:1), reader (reader:1) expects server 1 at this address");
  EXPECT_STATUS(JoinStatus([](auto* r) { r->set_wire_version(7); }), kFailedPrecondition,
                "reader (reader:1) comes with job (none) and wire version 7; this server has another one");
  EXPECT_STATUS(JoinStatus([](auto* r) {
                  r->set_plan_text("distribute.servers: 1\ndistribute.trainers: 3\n");
                  r->set_plan_fingerprint(StableHash(r->plan_text()));
                }),
                kFailedPrecondition, "is not that of server 0 (server:1): distribute.trainers: 2 here, 3 there");
  // A server of an older build knows trainers only, and must not take a reader for trainer 0.
  EXPECT_STATUS(JoinStatus([](auto* r) { r->mutable_caller()->clear_trainer(); }), kInvalidArgument,
                "reader (reader:1) comes as trainer 0; a reader is no trainer, but -1");
  EXPECT_TRUE(JoinStatus([&](auto* r) {
                r->mutable_caller()->set_job_id("job");
                r->set_server_index(0);
                r->set_plan_fingerprint(StableHash(job_.PlanText()));
              }).ok());
  EXPECT_STATUS(JoinStatus([](auto* r) { r->set_reader(false); }), kFailedPrecondition,
                "trainer -1 (reader:1) comes with job (none)");
}

TEST_F(ServerReadersTest, ARepeatedJoinGetsItsSessionAgain) {
  Start({});
  const auto join = [&](uint64_t incarnation) {
    return JoinReader("reader:1", [=](auto* r) { r->set_incarnation(incarnation); })->session();
  };
  const uint64_t first = join(1);
  EXPECT_EQ(join(1), first);
  EXPECT_NE(join(2), first);
}

TEST_F(ServerReadersTest, TheNumberOfReadersHasALimitAndOneThatLeavesMakesRoom) {
  Start({});
  for (size_t i = 0; i < kMaxReaders; ++i) ASSERT_NO_FATAL_FAILURE(Become(absl::StrCat("reader:", i)));
  EXPECT_STATUS(JoinStatus([](auto* r) { r->set_process("late:1"); }), kResourceExhausted,
                "server 0 (server:1) has 64 readers, as many as may");
  // Trainers have their places.
  JoinAll();
  ASSERT_TRUE(Beat(kReader, [](v1::HeartbeatRequest& beat) { beat.set_leave(true); }).ok());
  EXPECT_STATUS(Beat(kReader).status(), kFailedPrecondition, "has no such reader");
  ASSERT_NO_FATAL_FAILURE(Become("late:1"));
  // Those that are silent make room, too.
  Pass(11, {0, kReader});
  for (size_t i = 1; i < kMaxReaders; ++i) ASSERT_NO_FATAL_FAILURE(Become(absl::StrCat("second:", i)));
  EXPECT_STATUS(JoinStatus({}), kResourceExhausted, "has 64 readers");
}

TEST_F(ServerReadersTest, EveryCallRenewsTheLeaseAndItsEndIsSilent) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  for (int i = 0; i < 3; ++i) {
    Pass(6, {0, 1});
    if (i % 2 == 0) {
      EXPECT_TRUE(Pull(kReader, 0, "b", 5).ok());
    } else {
      EXPECT_TRUE(Beat(kReader).ok());
    }
  }
  Pass(11, {0, 1});
  EXPECT_STATUS(Pull(kReader, 0, "b", 5).status(), kFailedPrecondition,
                "server 0 (server:1) has no such reader: it has not joined, or has been silent for 10 s; join again");
  EXPECT_TRUE(core_->JobStatus().ok());
  EXPECT_TRUE(Beat(0)->dead().empty());
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  EXPECT_TRUE(Pull(kReader, 0, "b", 5).ok());
}

TEST_F(ServerReadersTest, AServerThatWasAsleepGivesReadersTimeToCall) {
  Start({});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  core_->Tick();
  clock_.Advance(absl::Seconds(30));
  core_->Tick();
  EXPECT_TRUE(Beat(kReader).ok());
}

// ---------------------------------------------------------------------------------------------- what they may not do

TEST_F(ServerReadersTest, AReaderPushesNothingAndControlsNothing) {
  Start({});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  const std::vector<float> before = Bias(0);
  const std::string says = "server 0 (server:1) takes it from trainers; the caller is a reader, which only pulls, and";
  EXPECT_STATUS(PushStep(kReader, 0, {{.lane = 0, .lanes = 8, .values = {1, 1, 1, 1, 1}}}, 1), kFailedPrecondition,
                absl::StrCat("PushRequest: ", says));
  EXPECT_STATUS(Digest(kReader).status(), kFailedPrecondition, absl::StrCat("ControlRequest: ", says));
  v1::ExchangeRequest exchange;
  *exchange.mutable_caller() = CallerOf(kReader);
  exchange.set_key("key");
  exchange.set_contribution("bytes");
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, exchange.SerializeAsString()).status(),
                kFailedPrecondition, absl::StrCat("ExchangeRequest: ", says));
  v1::NormsRequest norms;
  *norms.mutable_caller() = CallerOf(kReader);
  EXPECT_STATUS(CallNow<v1::NormsReply>(Method::kNorms, norms.SerializeAsString()).status(), kFailedPrecondition,
                absl::StrCat("NormsRequest: ", says));
  const std::string hears = "hears of ends, stops and failures from trainers; the caller is a reader";
  const auto beat = [&](const std::function<void(v1::HeartbeatRequest&)>& edit) {
    return Beat(kReader, edit).status();
  };
  EXPECT_STATUS(beat([](auto& r) { r.set_done(true); }), kFailedPrecondition, hears);
  EXPECT_STATUS(beat([](auto& r) { r.set_stop_requested(true); }), kFailedPrecondition, hears);
  EXPECT_STATUS(beat([](auto& r) { r.mutable_failure()->set_message("no"); }), kFailedPrecondition, hears);
  EXPECT_TRUE(beat([](auto& r) { r.set_step(1000); }).ok());
  EXPECT_TRUE(core_->JobStatus().ok());
  EXPECT_FALSE(Beat(0)->stop_requested());
  EXPECT_EQ(Bias(0), before);
  EXPECT_EQ(core_->Version(), 0);
}

TEST_F(ServerReadersTest, AReaderAsksForTheNewestVersionAlone) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  EXPECT_STATUS(Pull(kReader, 1, "b", 5).status(), kInvalidArgument, "a reader asks for version 1");
  const auto rows = [&](const std::function<void(v1::PullRequest*)>& edit) {
    v1::PullRequest request;
    *request.mutable_caller() = CallerOf(kReader);
    v1::PullItem* const item = request.add_items();
    item->set_name("t");
    item->set_width(4);
    item->set_count(1);
    edit(&request);
    return PulledOf(Call(Method::kPull,
                         Flatten(EncodeFrame(request.SerializeAsString(), {Slice::Own(std::string(8, 'i'))}))))
        .status();
  };
  EXPECT_TRUE(rows([](v1::PullRequest*) {}).ok());
  EXPECT_STATUS(rows([](v1::PullRequest* r) {
                  r->set_ahead_of(1);
                  r->set_ahead_call(1);
                }),
                kInvalidArgument, "a reader has no steps to pull ahead of, and nothing to correct");
  EXPECT_STATUS(rows([](v1::PullRequest* r) { r->add_corrects(1); }), kInvalidArgument, "nothing to correct");
  EXPECT_STATUS(Pull(kReader, 0, "nothing", 5).status(), kInvalidArgument, "no such block");
}

TEST_F(ServerReadersTest, ASessionIsAReadersOrATrainers) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  const uint64_t reader = sessions_[kReader], trainer = sessions_[1];
  sessions_[1] = reader;
  EXPECT_STATUS(Beat(1).status(), kFailedPrecondition, "the lease of trainer 1 has passed to trainer:1");
  sessions_[kReader] = trainer;
  EXPECT_STATUS(Pull(kReader, 0, "b", 5).status(), kFailedPrecondition, "has no such reader");
}

TEST_F(ServerReadersTest, AReaderThatDoesNotReadGetsNoMoreAndTrainersGoOn) {
  edit_ = [](ServerOptions* options) { options->reader_bytes = 2500; };
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  EXPECT_STATUS(Pull(kReader, 0, "w", 640).status(), kInvalidArgument, "the reply would have more than 2500 bytes");
  auto first = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 600));
  ASSERT_TRUE(first->has_value());
  const auto second = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 600));
  EXPECT_FALSE(second->has_value());
  absl::Status refused;
  std::vector<std::shared_ptr<Answer>> more;
  while (refused.ok() && more.size() < 20) {
    more.push_back(Call(Method::kPull, PullBytes(kReader, 0, 5, "b", 5)));
    if (more.back()->has_value()) refused = (*more.back())->status();
  }
  EXPECT_STATUS(refused, kResourceExhausted, "reader (reader:1) has pulls of ");
  EXPECT_TRUE(Pull(0, 0, "w", 640).ok());
  Pass(5.5, {0, 1, kReader});
  ASSERT_TRUE(second->has_value());
  EXPECT_FALSE(PulledOf(second)->header.ready());
  EXPECT_THAT(PulledOf(second)->header.waiting_for(), HasSubstr("reader (reader:1) itself, or other readers"));
  const auto third = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 600));
  first->reset();
  core_->Tick();
  ASSERT_TRUE(third->has_value());
  EXPECT_TRUE(PulledOf(third)->header.ready());
}

TEST_F(ServerReadersTest, AllReadersTogetherHaveTheRoomOfATrainerAlsoAfterTheirEnd) {
  unread_bytes_ = 6000;
  Start({.trainers = 2});
  JoinAll();
  std::vector<std::shared_ptr<Answer>> kept;
  for (int i = 0; i < 2; ++i) {
    ASSERT_NO_FATAL_FAILURE(Become(absl::StrCat("reader:", i)));
    kept.push_back(Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 640)));
    ASSERT_TRUE(kept.back()->has_value());
    ASSERT_TRUE(Beat(kReader, [](v1::HeartbeatRequest& beat) { beat.set_leave(true); }).ok());
  }
  ASSERT_NO_FATAL_FAILURE(Become("reader:2"));
  const auto waiting = Call(Method::kPull, PullBytes(kReader, 0, 5, "w", 640));
  EXPECT_FALSE(waiting->has_value());
  EXPECT_TRUE(Pull(0, 0, "w", 640).ok());
  kept.clear();
  core_->Tick();
  EXPECT_TRUE(waiting->has_value());
}

TEST_F(ServerReadersTest, PlansThatAreNotReadAreNotSentWithoutEnd) {
  const size_t plan = HandMadeJob().Plan().ByteSizeLong();
  edit_ = [plan](ServerOptions* options) { options->reader_bytes = 3 * plan; };
  Start({});
  v1::JoinRequest request;
  request.mutable_caller()->set_trainer(kReader);
  request.set_reader(true);
  request.set_wire_version(kWireVersion);
  std::vector<std::shared_ptr<Answer>> unread;
  for (int i = 0; i < 4; ++i) unread.push_back(Call(Method::kJoin, request.SerializeAsString()));
  EXPECT_TRUE((*unread[2])->ok());
  EXPECT_STATUS((*unread[3])->status(), kResourceExhausted, "have answers to read before this one");
  unread.clear();
  EXPECT_TRUE(CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString()).ok());
}

TEST_F(ServerReadersTest, WaitingPullsEndWithTheirReader) {
  edit_ = [](ServerOptions* options) { options->reader_bytes = 3000; };
  Start({});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  const auto unread = Call(Method::kPull, PullBytes(kReader, 0, 60, "w", 600));
  const auto waiting = Call(Method::kPull, PullBytes(kReader, 0, 60, "w", 600));
  ASSERT_FALSE(waiting->has_value());
  ASSERT_TRUE(Beat(kReader, [](v1::HeartbeatRequest& beat) { beat.set_leave(true); }).ok());
  ASSERT_TRUE(waiting->has_value());
  EXPECT_STATUS(PulledOf(waiting).status(), kFailedPrecondition, "this reader of server 0 (server:1) has left");
}

TEST_F(ServerReadersTest, AReaderThatWaitsIsNotSilent) {
  edit_ = [](ServerOptions* options) { options->reader_bytes = 3000; };
  Start({});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  auto unread = Call(Method::kPull, PullBytes(kReader, 0, 60, "w", 600));
  const auto waiting = Call(Method::kPull, PullBytes(kReader, 0, 30, "w", 600));
  Pass(25, {0});
  unread->reset();
  core_->Tick();
  ASSERT_TRUE(waiting->has_value());
  EXPECT_TRUE(PulledOf(waiting)->header.ready());
  Pass(16, {0});
  EXPECT_STATUS(Beat(kReader).status(), kFailedPrecondition, "has no such reader");
}

// ------------------------------------------------------------------------------------------- nobody waits for readers

TEST_F(ServerReadersTest, AJobEndsWithoutItsReaders) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  ASSERT_TRUE(Beat(0, [](v1::HeartbeatRequest& beat) { beat.set_done(true); }).ok());
  EXPECT_FALSE(core_->Finished());
  ASSERT_TRUE(Beat(1, [](v1::HeartbeatRequest& beat) { beat.set_done(true); }).ok());
  EXPECT_TRUE(core_->Finished());
  EXPECT_EQ(core_->Report().trainers.size(), 2u);
}

TEST_F(ServerReadersTest, AReaderIsNoSignOfATrainer) {
  Start({.trainers = 2});
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  Pass(1000, {kReader});
  EXPECT_STATUS(core_->JobStatus(), kDeadlineExceeded, "trainers 0, 1 have not joined");
}

TEST_F(ServerReadersTest, ReadersHearWhyAJobHasFailed) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  ASSERT_TRUE(Beat(0, [](v1::HeartbeatRequest& beat) { beat.mutable_failure()->set_message("no more disk"); }).ok());
  EXPECT_EQ(Beat(kReader)->failure().message(), "no more disk");
  EXPECT_STATUS(Pull(kReader, 0, "b", 5).status(), kAborted, "the job has failed: no more disk");
  const auto late = JoinReader("late:1");
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->failure().message(), "no more disk");
  EXPECT_EQ(late->session(), 0u);
  EXPECT_FALSE(core_->Finished());
  EXPECT_EQ(Beat(1)->failure().message(), "no more disk");
  EXPECT_TRUE(core_->Finished());
}

TEST_F(ServerReadersTest, AReaderDoesNotHoldBackTrainersThatStalenessBinds) {
  Start({.trainers = 2, .sync = false, .staleness = 0});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  ASSERT_TRUE(Pull(0, 0, "b", 5).ok());
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  // Trainer 0 waits for trainer 1, which a reader does not.
  EXPECT_FALSE(Pull(0, 1, "b", 5)->header.ready());
  EXPECT_TRUE(Pull(kReader, 0, "b", 5)->header.ready());
  EXPECT_EQ(core_->counters().Value("staleness.most_steps"), 0);
}

// ------------------------------------------------------------------------------------------------ between two updates

// The answer is sent while its reader still counts as reading: what comes meanwhile waits for it.
TEST_F(ServerReadersTest, AnUpdateWaitsForAReadAndFurtherReadsWaitForTheUpdate) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  ASSERT_TRUE(PushStep(0, 0, Gradients(0, 0), 1).ok());
  const std::string bytes = PullBytes(kReader, 0, 30, "b", 5);
  std::shared_ptr<Answer> second;
  bool answered = false;
  core_->Handle(Method::kPull, {Slice::Own(bytes)}, [&](const absl::StatusOr<Slices>& answer) {
    answered = answer.ok();
    EXPECT_TRUE(PushStep(1, 0, Gradients(1, 0), 1).ok());
    EXPECT_EQ(core_->Version(), 0);
    second = Call(Method::kPull, bytes);
    EXPECT_FALSE(second->has_value());
    // Trainers are not affected.
    EXPECT_TRUE(Beat(0).ok());
  });
  EXPECT_TRUE(answered);
  EXPECT_EQ(core_->Version(), 1);
  ASSERT_TRUE(second != nullptr && second->has_value());
  EXPECT_EQ(PulledOf(second)->header.version(), 1);
}

TEST_F(ServerReadersTest, ALoadWaitsForAReadAndFurtherReadsWaitForTheLoad) {
  for (const bool sync : {true, false}) {
    Start({.sync = sync});
    JoinAll();
    ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
    v1::ControlRequest load;
    *load.mutable_caller() = CallerOf(0);
    load.mutable_load_rows();
    const std::string bytes = PullBytes(kReader, 0, 30, "b", 5);
    std::shared_ptr<Answer> loaded, second;
    core_->Handle(Method::kPull, {Slice::Own(bytes)}, [&](const absl::StatusOr<Slices>&) {
      loaded = Call(Method::kControl, load.SerializeAsString());
      EXPECT_FALSE(loaded->has_value());
      second = Call(Method::kPull, bytes);
      EXPECT_FALSE(second->has_value());
      EXPECT_THAT(PulledOf(Call(Method::kPull, PullBytes(kReader, 0, 0, "b", 5)))->header.waiting_for(),
                  HasSubstr("values that server 0 (server:1) reads from files"));
    });
    ASSERT_TRUE(loaded != nullptr && loaded->has_value() && second->has_value());
    EXPECT_TRUE(PulledOf(second)->header.ready());
  }
}

// A call that blocks until its answer is there, from whichever thread it comes.
class BlockingAnswer {
 public:
  ReplyCallback Callback() {
    return [this](absl::StatusOr<Slices> answer) {
      MutexLock lock(&mu_);
      answer_ = std::move(answer);
      there_ = true;
      changed_.SignalAll();
    };
  }
  absl::StatusOr<Slices> Take() {
    MutexLock lock(&mu_);
    while (!there_) changed_.Wait(&mu_);
    return std::move(answer_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool there_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<Slices> answer_ ABSL_GUARDED_BY(mu_);
};

struct Kind {
  std::string name;
  HandMadeJob job;
  std::function<void(v1::VarDesc*)> table = {};  // edits the table t
};

class ReadersBesideTrainingTest : public ServerReadersTest {
 protected:
  void SetUp() override { dir_ = absl::StrCat(::testing::TempDir(), "/readers_beside_training"); }

  // What a job has come to.
  struct Result {
    uint64_t values = 0, state = 0;
    int64_t rows = 0;
    bool operator==(const Result&) const = default;
  };
  using Versions = std::map<int64_t, std::string>;

  // Trains, with readers that pull all the time or without. `versions`: bytes of all values by version: set without
  // readers, and compared to what readers get with them. Null: not compared (async).
  Result Train(const Kind& kind, bool readers, Versions* versions) {
    core_.reset();
    std::filesystem::remove_all(dir_);
    edit_ = [&](ServerOptions* options) {
      for (v1::VarDesc& var : *options->main.mutable_blocks(0)->mutable_vars()) {
        if (var.name() == "t" && kind.table) kind.table(&var);
      }
    };
    Start(kind.job);
    JoinAll();
    std::atomic<bool> over = false;
    std::atomic<int64_t> reads = 0;
    std::vector<std::thread> threads;
    for (int r = 0; readers && r < kThreads; ++r) {
      EXPECT_NO_FATAL_FAILURE(Become(absl::StrCat("reader:", r)));
      threads.emplace_back([&, bytes = EverythingBytes(CallerOf(kReader), 0)] {
        while (!over) {
          BlockingAnswer answer;
          core_->Handle(Method::kPull, {Slice::Own(bytes)}, answer.Callback());
          Compare(answer.Take(), versions);
          ++reads;
        }
      });
    }
    const auto steps = [&](int trainer) {
      for (int64_t step = 0; step < kSteps; ++step) {
        EXPECT_TRUE(PushStep(trainer, step, Gradients(trainer, step), 8).ok());
        while (kind.job.sync && core_->Version() <= step) std::this_thread::yield();
      }
    };
    if (versions != nullptr && !readers) Remember(Call(Method::kPull, EverythingBytes(CallerOf(0), 0)), versions);
    if (kind.job.sync && readers) {
      std::vector<std::thread> trainers;
      for (int t = 0; t < kind.job.trainers; ++t) trainers.emplace_back(steps, t);
      for (std::thread& thread : trainers) thread.join();
    } else {
      // One order: in async the bits depend on it.
      for (int64_t step = 0; step < kSteps; ++step) {
        for (int t = 0; t < kind.job.trainers; ++t) {
          if (kind.job.lambda >= 0) {
            EXPECT_TRUE(Pull(t, 0, "w", 640).ok());
          }
          EXPECT_TRUE(PushStep(t, step, Gradients(t, step), 8).ok());
        }
        if (versions != nullptr && !readers) {
          Remember(Call(Method::kPull, EverythingBytes(CallerOf(0), step + 1)), versions);
        }
        // Readers get a turn between any two steps.
        const int64_t seen = reads;
        while (readers && reads < seen + 2) std::this_thread::yield();
      }
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(reads > 0, readers);
    const auto digest = Digest(0);
    EXPECT_TRUE(digest.ok()) << digest.status();
    return {digest->values(), digest->state(), RowsOf("t") + 1000 * RowsOf("u")};
  }

  void ExpectWholeVersions(const Kind& kind) {
    Versions versions;
    const Result alone = Train(kind, /*readers=*/false, &versions);
    EXPECT_EQ(versions.size(), kSteps + 1u) << kind.name;
    EXPECT_EQ(Train(kind, /*readers=*/true, &versions), alone) << kind.name;
  }
  void ExpectNoChange(const Kind& kind) {
    const Result alone = Train(kind, /*readers=*/false, nullptr);
    EXPECT_EQ(Train(kind, /*readers=*/true, nullptr), alone) << kind.name;
  }

 private:
  void Remember(const std::shared_ptr<Answer>& answer, Versions* versions) {
    const auto pulled = PulledOf(answer);
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    (*versions)[pulled->header.version()] = Bits(pulled->values);
  }
  static std::string Bits(const std::vector<float>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  void Compare(absl::StatusOr<Slices> answer, const Versions* versions) {
    const auto pulled = PulledOf(std::make_shared<Answer>(std::move(answer)));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    ASSERT_TRUE(pulled->header.ready());
    if (versions == nullptr) return;
    const auto expected = versions->find(pulled->header.version());
    ASSERT_TRUE(expected != versions->end()) << pulled->header.version();
    EXPECT_TRUE(Bits(pulled->values) == expected->second) << "version " << pulled->header.version();
  }
};

TEST_F(ReadersBesideTrainingTest, InSyncReadersGetWholeVersionsAndChangeNoBit) {
  ExpectWholeVersions({"plain", {.trainers = 2}});
  ExpectWholeVersions({"rows that come and go", {.trainers = 2}, [](v1::VarDesc* t) {
                         t->mutable_lifecycle()->set_admit_after(2);
                         t->mutable_lifecycle()->set_ttl_steps(3);
                         t->mutable_lifecycle()->set_tombstones(true);
                       }});
  ExpectWholeVersions({"rows in 16 bits", {.trainers = 2}, [](v1::VarDesc* t) { t->set_dtype(v1::FLOAT16); }});
  ExpectWholeVersions({"a limit that evicts", {.trainers = 2}, [](v1::VarDesc* t) {
                         t->set_capacity(64);
                         t->mutable_lifecycle()->set_when_full(v1::Lifecycle::EVICT_LEAST_RECENT);
                       }});
}

TEST_F(ReadersBesideTrainingTest, OutsideSyncReadersChangeNoBit) {
  ExpectNoChange({"plain", {.trainers = 2, .sync = false}});
  ExpectNoChange({"delay compensation", {.trainers = 2, .sync = false, .lambda = 0.5}});
  ExpectNoChange({"bounded staleness", {.trainers = 2, .sync = false, .staleness = 1}});
}

// Rows take effect in the order of their coming, so only their number is that of the job.
TEST_F(ReadersBesideTrainingTest, AsyncTablesAreReadWhileTheirRowsChange) {
  const Kind kind{"async tables", {.trainers = 2, .async_tables = true}};
  EXPECT_EQ(Train(kind, /*readers=*/true, nullptr).rows, Train(kind, /*readers=*/false, nullptr).rows);
}

TEST_F(ReadersBesideTrainingTest, RowsOnDiskAreReadAndNoBitChanges) {
#ifdef WEIR_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not see the locks of RocksDB, which is not instrumented";
#endif
  const auto on_disk = [this](v1::VarDesc* t) {
    t->mutable_disk()->set_dir(dir_);
    t->mutable_disk()->set_memory_mb(0);
  };
  ExpectWholeVersions({"sync", {.trainers = 2}, on_disk});
  ExpectNoChange({"async, rows that come and go in 16 bits", {.trainers = 2, .sync = false}, [&](v1::VarDesc* t) {
                    on_disk(t);
                    t->mutable_lifecycle()->set_ttl_steps(5);
                    t->set_dtype(v1::BFLOAT16);
                  }});
}

TEST_F(ServerReadersTest, AReadMakesNoRowAndCountsNone) {
  edit_ = [](ServerOptions* options) {
    for (v1::VarDesc& var : *options->main.mutable_blocks(0)->mutable_vars()) {
      if (var.name() == "t") var.mutable_lifecycle()->set_admit_after(2);
    }
  };
  Start({.sync = false});
  JoinAll();
  ASSERT_NO_FATAL_FAILURE(Become("reader:1"));
  const auto first = Pull(kReader, 0, "t", 2, {5, 6}, 4);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Pull(kReader, 0, "t", 2, {5, 6}, 4)->values, first->values);
  EXPECT_EQ(Pull(0, 0, "t", 2, {5, 6}, 4)->values, first->values);
  EXPECT_EQ(RowsOf("t"), 0);
  const std::vector<Item> push = {{.name = "t", .values = {1, 1, 1, 1}, .ids = {5}, .width = 4}};
  ASSERT_TRUE(PushStep(0, 0, push, 1).ok());
  ASSERT_TRUE(Pull(kReader, 0, "t", 2, {5, 6}, 4).ok());
  EXPECT_EQ(RowsOf("t"), 0) << "one step has had the id";
  ASSERT_TRUE(PushStep(0, 1, push, 1).ok());
  EXPECT_EQ(RowsOf("t"), 1);
}

}  // namespace
}  // namespace weir
