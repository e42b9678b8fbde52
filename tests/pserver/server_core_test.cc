// The rules of the protocol one by one, on one server under a fake clock: requests are made by hand, nothing runs beside them.
#include "pserver/server_core.h"

#include <cstring>
#include <functional>
#include <map>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/handshake.h"
#include "tests/testing/hand_made_job.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Answer = std::optional<absl::StatusOr<Slices>>;

struct Item {
  std::string name = "b";
  int lane = 0, lanes = 8;
  std::vector<float> values;
  std::vector<int64_t> ids = {};
  int width = 0;
};

// A push with its payload laid out as clients do.
struct PushSpec {
  int trainer = 0;
  int64_t step = 0;
  int part = 0;
  std::vector<Item> items = {};
  int part_count = 0;  // 0: not the last
  int64_t samples = 0;
  v1::Verdict verdict = v1::APPLY;
};

class ServerCoreTest : public ::testing::Test {
 protected:
  void Start(HandMadeJob job, int server = 0, std::string arithmetic = "avx2") {
    job_ = job;
    ServerOptions options{.server_id = server,
                          .main = job.Main(server),
                          .startup = job.Startup(server),
                          .job_name = "job",
                          .plan_text = job.PlanText(),
                          .sync = job.sync,
                          .process = "server:1",
                          .arithmetic = arithmetic,
                          .clock = &clock_,
                          .pool = &pool_,
                          .unread_bytes = unread_bytes_};
    absl::StatusOr<std::unique_ptr<ServerCore>> core = ServerCore::Create(std::move(options));
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    server_ = server;
  }

  // The answer, or nothing while the server still waits.
  std::shared_ptr<Answer> Call(Method method, const std::string& bytes) {
    auto answer = std::make_shared<Answer>();
    core_->Handle(method, {Slice::Own(bytes)}, [answer](absl::StatusOr<Slices> a) {
      EXPECT_FALSE(answer->has_value()) << "answered twice";
      *answer = std::move(a);
    });
    return answer;
  }
  template <typename Reply>
  absl::StatusOr<Reply> CallNow(Method method, const std::string& bytes) {
    const std::shared_ptr<Answer> answer = Call(method, bytes);
    if (!answer->has_value()) return absl::DeadlineExceededError("no answer yet");
    if (!(*answer)->ok()) return (*answer)->status();
    Reply reply;
    EXPECT_TRUE(reply.ParseFromString(Flatten(***answer)));
    return reply;
  }

  v1::JoinRequest JoinMessage(int trainer, const std::string& process) {
    v1::JoinRequest request;
    request.mutable_caller()->set_job_id("job");
    request.mutable_caller()->set_trainer(trainer);
    request.set_server_index(server_);
    request.set_plan_fingerprint(StableHash(job_.PlanText()));
    request.set_plan_text(job_.PlanText());
    request.set_build(std::string(kBuild));
    request.set_arithmetic("avx2");
    request.set_process(process);
    return request;
  }
  absl::Status Join(int trainer, const std::string& process) {
    const auto reply = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(trainer, process).SerializeAsString());
    if (!reply.ok()) return reply.status();
    sessions_[trainer] = reply->session();
    return absl::OkStatus();
  }
  void JoinAll() {
    for (int t = 0; t < job_.trainers; ++t) ASSERT_TRUE(Join(t, absl::StrCat("trainer:", t)).ok());
  }
  v1::Caller CallerOf(int trainer) {
    v1::Caller caller;
    caller.set_job_id("job");
    caller.set_trainer(trainer);
    caller.set_session(sessions_[trainer]);
    return caller;
  }
  absl::StatusOr<v1::HeartbeatReply> Beat(int trainer, const std::function<void(v1::HeartbeatRequest&)>& edit = {}) {
    v1::HeartbeatRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    if (edit) edit(request);
    return CallNow<v1::HeartbeatReply>(Method::kHeartbeat, request.SerializeAsString());
  }
  // Time passes; trainers in `alive` send heart-beats.
  void Pass(double seconds, const std::vector<int>& alive) {
    for (double t = 0; t < seconds; t += 0.5) {
      clock_.Advance(absl::Seconds(0.5));
      for (int trainer : alive) (void)Beat(trainer);
      core_->Tick();
    }
  }

  std::pair<v1::PushRequest, std::string> MakePush(const PushSpec& spec) {
    v1::PushRequest request;
    *request.mutable_caller() = CallerOf(spec.trainer);
    request.set_step(spec.step);
    request.set_part(spec.part);
    if (spec.part_count > 0) {
      request.set_part_count(spec.part_count);
      request.set_samples(spec.samples);
      request.set_verdict(spec.verdict);
    }
    std::string payload;
    const auto append = [&payload](const void* data, size_t bytes) {
      payload.append(static_cast<const char*>(data), bytes);
      payload.resize(AlignUp(payload.size()), '\0');
    };
    for (const Item& from : spec.items) {
      v1::PushItem* const item = request.add_items();
      item->set_name(from.name);
      item->set_lane(from.lane);
      item->set_lanes(from.lanes);
      item->set_width(from.width);
      item->set_offset(static_cast<int64_t>(payload.size()));
      item->set_count(static_cast<int64_t>(from.width > 0 ? from.ids.size() : from.values.size()));
      if (from.width > 0) append(from.ids.data(), from.ids.size() * 8);
      append(from.values.data(), from.values.size() * 4);
    }
    return {request, payload};
  }
  static std::string Seal(v1::PushRequest request, const std::string& payload) {
    const Slices slices = {Slice::Own(payload)};
    request.set_checksum(Checksum(slices));
    return Flatten(EncodeFrame(request.SerializeAsString(), slices));
  }
  absl::StatusOr<v1::PushReply> PushReplyOf(const std::shared_ptr<Answer>& answer) {
    if (!answer->has_value()) return absl::DeadlineExceededError("no answer yet");
    if (!(*answer)->ok()) return (*answer)->status();
    const absl::StatusOr<Frame> frame = DecodeFrame(***answer);
    if (!frame.ok()) return frame.status();
    v1::PushReply reply;
    EXPECT_TRUE(reply.ParseFromString(frame->header));
    return reply;
  }
  absl::StatusOr<v1::PushReply> Push(const PushSpec& spec) {
    const auto [request, payload] = MakePush(spec);
    return PushReplyOf(Call(Method::kPush, Seal(request, payload)));
  }
  absl::Status PushStatus(v1::PushRequest request, const std::string& payload) {
    return PushReplyOf(Call(Method::kPush, Seal(std::move(request), payload))).status();
  }
  // A whole step in one part.
  absl::Status PushStep(int trainer, int64_t step, std::vector<Item> items, int64_t samples, v1::Verdict verdict = v1::APPLY) {
    return Push({.trainer = trainer, .step = step, .items = std::move(items), .part_count = 1, .samples = samples, .verdict = verdict})
        .status();
  }

  struct Pulled {
    v1::PullReply header;
    std::vector<float> values;
  };
  std::string PullBytes(int trainer, int64_t version, double wait, const std::string& name, int64_t count,
                        std::vector<int64_t> ids = {}, int width = 0) {
    v1::PullRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_version(version);
    request.set_wait_s(wait);
    if (!name.empty()) {
      v1::PullItem* const item = request.add_items();
      item->set_name(name);
      item->set_count(count);
      item->set_width(width);
    }
    Slices payload;
    if (!ids.empty()) payload.push_back(Slice::Own(std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * 8)));
    return Flatten(EncodeFrame(request.SerializeAsString(), payload));
  }
  absl::StatusOr<Pulled> PulledOf(const std::shared_ptr<Answer>& answer) {
    if (!answer->has_value()) return absl::DeadlineExceededError("no answer yet");
    if (!(*answer)->ok()) return (*answer)->status();
    const absl::StatusOr<Frame> frame = DecodeFrame(***answer);
    if (!frame.ok()) return frame.status();
    Pulled pulled;
    EXPECT_TRUE(pulled.header.ParseFromString(frame->header));
    EXPECT_EQ(pulled.header.checksum(), Checksum(frame->payload));
    const std::string bytes = Flatten(frame->payload);
    pulled.values.resize(bytes.size() / 4);
    if (!bytes.empty()) std::memcpy(pulled.values.data(), bytes.data(), pulled.values.size() * 4);
    return pulled;
  }
  absl::StatusOr<Pulled> Pull(int trainer, int64_t version, const std::string& name, int64_t count,
                              std::vector<int64_t> ids = {}, int width = 0) {
    return PulledOf(Call(Method::kPull, PullBytes(trainer, version, 0, name, count, std::move(ids), width)));
  }
  std::vector<float> Bias(int trainer) {
    const auto pulled = Pull(trainer, 0, "b", 5);
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    return pulled.ok() ? std::vector<float>(pulled->values.begin(), pulled->values.begin() + 5) : std::vector<float>();
  }
  absl::StatusOr<v1::ControlReply> Digest(int trainer) {
    v1::ControlRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.mutable_digest();
    return CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString());
  }

  HandMadeJob job_;
  size_t unread_bytes_ = size_t{1} << 28;
  int server_ = 0;
  FakeClock clock_;
  ThreadPool pool_{"test", 0};
  std::map<int, uint64_t> sessions_;
  std::unique_ptr<ServerCore> core_;
};

#define EXPECT_STATUS(expression, wanted, text)                                           \
  do {                                                                                    \
    const absl::Status status_ = (expression);                                            \
    EXPECT_EQ(status_.code(), absl::StatusCode::wanted) << status_;                       \
    EXPECT_THAT(std::string(status_.message()), HasSubstr(text));                         \
  } while (false)

// ------------------------------------------------------------------------------------------------------------- joining

TEST_F(ServerCoreTest, JoinsThatDoNotFitAreRefusedWithBothSidesNamed) {
  Start({.trainers = 2});
  const auto refused = [&](const std::function<void(v1::JoinRequest&)>& edit) {
    v1::JoinRequest request = JoinMessage(0, "trainer:0");
    edit(request);
    return CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString()).status();
  };
  EXPECT_STATUS(refused([](auto& r) { r.mutable_caller()->set_job_id("other"); }), kFailedPrecondition, "job other");
  EXPECT_STATUS(refused([](auto& r) { r.set_wire_version(9); }), kFailedPrecondition, "wire version 1");
  EXPECT_STATUS(refused([](auto& r) { r.set_build("weir 9"); }), kFailedPrecondition, "weir 9");
  EXPECT_STATUS(refused([](auto& r) { r.set_server_index(1); }), kFailedPrecondition, "this is server 0");
  EXPECT_STATUS(refused([](auto& r) { r.set_server_index(1); }), kFailedPrecondition, "expects server 1");
  EXPECT_STATUS(refused([](auto& r) { r.set_arithmetic("avx512"); }), kFailedPrecondition, "avx512");
  EXPECT_STATUS(refused([](auto& r) { r.mutable_caller()->set_trainer(2); }), kInvalidArgument, "trainers 0 to 1");
  EXPECT_STATUS(refused([](auto& r) {
                  const std::string other = HandMadeJob{.trainers = 3}.PlanText();
                  r.set_plan_text(other);
                  r.set_plan_fingerprint(StableHash(other));
                }),
                kFailedPrecondition, "distribute.trainers: 2 here, 3 there");
  EXPECT_TRUE(Join(0, "trainer:0").ok());
}

TEST_F(ServerCoreTest, ASecondClaimantIsRefusedWithBothProcesses) {
  Start({.trainers = 2});
  ASSERT_TRUE(Join(0, "first:7").ok());
  const uint64_t session = sessions_[0];
  EXPECT_STATUS(Join(0, "second:8"), kFailedPrecondition, "held by first:7 and claimed by second:8");
  // A repeat of the first join, its answer having been lost, is no claimant.
  ASSERT_TRUE(Join(0, "first:7").ok());
  EXPECT_EQ(sessions_[0], session);
}

TEST_F(ServerCoreTest, AfterTheLeaseAnotherIsWelcomeAndTheFirstIsRefused) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const uint64_t old_session = sessions_[0];
  Pass(11, {1});
  ASSERT_TRUE(Join(0, "second:8").ok());
  EXPECT_NE(sessions_[0], old_session);
  EXPECT_TRUE(Beat(0).ok());
  sessions_[0] = old_session;
  EXPECT_STATUS(Beat(0).status(), kFailedPrecondition, "second:8");
}

TEST_F(ServerCoreTest, ANamesakeIsAnotherClaimant) {
  Start({.trainers = 1, .sync = false});
  v1::JoinRequest first = JoinMessage(0, "node7:1"), second = first;
  first.set_incarnation(11);
  second.set_incarnation(12);
  const auto join = [&](const v1::JoinRequest& request) {
    return CallNow<v1::JoinReply>(Method::kJoin, request.SerializeAsString());
  };
  const auto joined = join(first);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_STATUS(join(second).status(), kFailedPrecondition, "is held by node7:1");
  const auto again = join(first);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->session(), joined->session());
}

TEST_F(ServerCoreTest, WhoTakesADeadTrainersPlaceHearsItsNextStep) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(PushStep(0, step, {}, 1).ok());
  Pass(11, {1});
  const auto reply = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(0, "second:8").SerializeAsString());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->has_next_step());
  EXPECT_EQ(reply->next_step(), 3);
  sessions_[0] = reply->session();
  // What the dead one had pushed is not taken twice.
  const int64_t version = core_->Version();
  ASSERT_TRUE(PushStep(0, 2, {}, 1).ok());
  EXPECT_EQ(core_->Version(), version);
  ASSERT_TRUE(PushStep(0, 3, {}, 1).ok());
  EXPECT_EQ(core_->Version(), version + 1);
}

TEST_F(ServerCoreTest, CallsWithoutJoiningAreRefused) {
  Start({});
  EXPECT_STATUS(Beat(0).status(), kFailedPrecondition, "has not joined");
  EXPECT_STATUS(PushStep(0, 0, {}, 1), kFailedPrecondition, "has not joined");
  EXPECT_STATUS(Pull(0, 0, "b", 5).status(), kFailedPrecondition, "has not joined");
}

TEST_F(ServerCoreTest, TrainersThatNeverComeAreNamed) {
  Start({.trainers = 3});
  ASSERT_TRUE(Join(1, "trainer:1").ok());
  Pass(299, {1});
  EXPECT_TRUE(core_->JobStatus().ok());
  Pass(3, {1});
  EXPECT_STATUS(core_->JobStatus(), kDeadlineExceeded, "trainers 0, 2 have not joined");
}

TEST_F(ServerCoreTest, ADeadTrainerFreesItsPlaceWhileOthersAreStillMissing) {
  Start({.trainers = 2});
  ASSERT_TRUE(Join(0, "first:7").ok());
  Pass(11, {});
  EXPECT_TRUE(core_->JobStatus().ok());
  EXPECT_TRUE(Join(0, "second:8").ok());
}

// ------------------------------------------------------------------------------------------------------- dead and slow

TEST_F(ServerCoreTest, ADeadTrainerInSyncEndsTheJobForAllAndIsNamed) {
  Start({.trainers = 2});
  JoinAll();
  const auto waiting = Call(Method::kPull, PullBytes(1, 1, 30, "b", 5));
  Pass(9, {1});
  EXPECT_TRUE(core_->JobStatus().ok());
  EXPECT_FALSE(waiting->has_value());
  Pass(2, {1});
  EXPECT_STATUS(core_->JobStatus(), kUnavailable, "trainer 0 (trainer:0) is dead");
  // Who waits hears it at once, who beats at its next beat; one that wakes up is refused with the reason.
  ASSERT_TRUE(waiting->has_value());
  EXPECT_STATUS((*waiting)->status(), kAborted, "trainer 0 (trainer:0) is dead");
  const auto beat = Beat(1);
  ASSERT_TRUE(beat.ok());
  EXPECT_THAT(beat->failure(), HasSubstr("trainer 0 (trainer:0) is dead"));
  EXPECT_EQ(beat->failure_code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(PushStep(0, 0, {}, 1).ok());
  EXPECT_TRUE(core_->Finished());
}

TEST_F(ServerCoreTest, ServersEndWithinTwoLeasesOfAFailureNobodyAsksAbout) {
  Start({.trainers = 2});
  JoinAll();
  // One dies; the other, deaf, beats no more either.
  Pass(11, {1});
  ASSERT_FALSE(core_->JobStatus().ok());
  clock_.Advance(absl::Seconds(21));
  core_->Tick();
  EXPECT_TRUE(core_->Finished());
}

TEST_F(ServerCoreTest, InAsyncADeadTrainersUnfinishedStepIsDroppedAndTheOthersGoOn) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const std::vector<float> before = Bias(1);
  ASSERT_TRUE(Push({.trainer = 0, .step = 0, .part = 0, .items = {{.lanes = 4, .values = {1, 1, 1, 1, 1}}}}).ok());
  Pass(11, {1});
  EXPECT_TRUE(core_->JobStatus().ok());
  const auto beat = Beat(1);
  ASSERT_TRUE(beat.ok());
  EXPECT_THAT(beat->dead(), ElementsAre(0));
  EXPECT_EQ(Bias(1), before);
  // The step's last part, were it to come now, is refused.
  EXPECT_STATUS(Push({.trainer = 0, .step = 0, .part = 1, .part_count = 2, .samples = 1}).status(), kFailedPrecondition,
                "declared dead");
  EXPECT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1).ok());
  EXPECT_NE(Bias(1), before);
  ASSERT_TRUE(Beat(1, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_TRUE(core_->Finished());
  EXPECT_TRUE(core_->JobStatus().ok());
}

TEST_F(ServerCoreTest, ASlowTrainerIsNamedAndEndsTheJobAfterTheProgressDeadline) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
  Pass(9, {0, 1});
  EXPECT_EQ(Beat(1)->slow_size(), 0);
  Pass(3, {0, 1});
  ASSERT_EQ(Beat(1)->slow_size(), 1);
  EXPECT_THAT(Beat(1)->slow(0), HasSubstr("trainer 0 (trainer:0) at step 0"));
  Pass(1700, {0, 1});
  EXPECT_TRUE(core_->JobStatus().ok());
  Pass(120, {0, 1});
  EXPECT_STATUS(core_->JobStatus(), kDeadlineExceeded, "trainer 0 (trainer:0) is slow");
}

// A trainer that pulls ahead of its step has a pull here that is held, whatever it does itself.
TEST_F(ServerCoreTest, AHeldPullExcusesTheStepThatItBeginsAndNoOtherOne) {
  const auto slow = [this](int64_t steps_done) {
    Start({.trainers = 2, .sync = false, .staleness = 1});
    JoinAll();
    for (int64_t step = 0; step < steps_done; ++step) EXPECT_TRUE(PushStep(0, step, {}, 1).ok());
    // Trainer 1 has done nothing: step 2 may not begin.
    const auto held = Call(Method::kPull, PullBytes(0, 2, 60, "b", 5));
    Pass(12, {0, 1});
    EXPECT_FALSE(held->has_value());
    const auto beat = Beat(1);
    return std::vector<std::string>(beat->slow().begin(), beat->slow().end());
  };
  EXPECT_THAT(slow(2), ElementsAre(HasSubstr("trainer 1 (trainer:1)")));
  // Step 1 is what it is at.
  EXPECT_THAT(slow(1), ElementsAre(HasSubstr("trainer 0 (trainer:0)"), HasSubstr("trainer 1 (trainer:1)")));
}

TEST_F(ServerCoreTest, AFailureThatOneProcessReportsReachesAll) {
  Start({.trainers = 3});
  JoinAll();
  ASSERT_TRUE(Beat(2, [](auto& r) {
                r.set_failure("trainer 2 (trainer:2): disk on fire");
                r.set_failure_code(static_cast<int>(absl::StatusCode::kDataLoss));
              }).ok());
  EXPECT_STATUS(core_->JobStatus(), kDataLoss, "disk on fire");
  EXPECT_THAT(Beat(0)->failure(), HasSubstr("disk on fire"));
  EXPECT_STATUS(PushStep(1, 0, {}, 1), kAborted, "disk on fire");
  EXPECT_TRUE(core_->Finished());
}

// --------------------------------------------------------------------------------------------------------------- steps

TEST_F(ServerCoreTest, AGradientIsTheSumOverSamplesDividedOnce) {
  Start({.trainers = 2});
  JoinAll();
  const std::vector<float> before = Bias(0);
  // Lanes 0-3 bring 6 over 1 sample, lanes 4-7 bring 2 over 3: (6 + 2) / 4 = 2, and momentum's first step is 0.05 * 2.
  ASSERT_TRUE(PushStep(0, 0, {{.lane = 0, .lanes = 4, .values = {6, 6, 6, 6, 6}}}, 1).ok());
  EXPECT_EQ(core_->Version(), 0);
  EXPECT_EQ(Bias(0), before) << "nothing takes effect before the step is complete";
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {2, 2, 2, 2, 2}}}, 3).ok());
  EXPECT_EQ(core_->Version(), 1);
  const std::vector<float> after = Bias(0);
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(after[i], before[i] - 0.05f * 2);
}

TEST_F(ServerCoreTest, ByTrainersTheMeansOfTrainersAreAveraged) {
  Start({.trainers = 2, .average_by_trainers = true});
  JoinAll();
  const std::vector<float> before = Bias(0);
  // (6 / 1 + 2 / 2) / 2 = 3.5 where samples would give 8 / 3.
  ASSERT_TRUE(PushStep(0, 0, {{.lane = 0, .lanes = 4, .values = {6, 6, 6, 6, 6}}}, 1).ok());
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {2, 2, 2, 2, 2}}}, 2).ok());
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(Bias(0)[i], before[i] - 0.05f * 3.5f);
  // Who brings nothing counts as a mean of zero. Momentum 0.9 of 3.5, and (4 / 1 + 0) / 2.
  const std::vector<float> then = Bias(0);
  ASSERT_TRUE(PushStep(0, 1, {{.lane = 0, .lanes = 4, .values = {4, 4, 4, 4, 4}}}, 1).ok());
  ASSERT_TRUE(PushStep(1, 1, {}, 0).ok());
  const float velocity = 0.9f * 3.5f + 2.0f;
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(Bias(0)[i], then[i] - 0.05f * velocity);
}

TEST_F(ServerCoreTest, PartsComeInAnyOrderAndCountOnce) {
  Start({});
  JoinAll();
  const std::vector<float> before = Bias(0);
  const PushSpec last{.step = 0, .part = 1, .part_count = 2, .samples = 1};
  const PushSpec first{.step = 0, .part = 0, .items = {{.values = {1, 1, 1, 1, 1}}}};
  ASSERT_TRUE(Push(last).ok());
  EXPECT_EQ(core_->Version(), 0);
  EXPECT_TRUE(Push(last)->duplicate());
  EXPECT_FALSE(Push(first)->duplicate());
  EXPECT_EQ(core_->Version(), 1);
  // Long after it took effect it is still acknowledged, and dropped.
  EXPECT_TRUE(Push(first)->duplicate());
  EXPECT_TRUE(Push(last)->duplicate());
  EXPECT_EQ(core_->Version(), 1);
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
}

TEST_F(ServerCoreTest, AStepAheadOfTheServerAndPartsBeyondTheLastAreRefused) {
  Start({});
  JoinAll();
  EXPECT_STATUS(PushStep(0, 1, {}, 1), kFailedPrecondition, "is at step 0");
  ASSERT_TRUE(Push({.step = 0, .part = 1, .part_count = 2, .samples = 1}).ok());
  EXPECT_STATUS(Push({.step = 0, .part = 2}).status(), kInvalidArgument, "the step has 2 parts");
  EXPECT_STATUS(Push({.step = 0, .part = -1}).status(), kInvalidArgument, "parts run from 0");
  EXPECT_STATUS(Push({.step = -1, .part = 0}).status(), kInvalidArgument, "steps run from 0");
  for (const int64_t version : {int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    EXPECT_STATUS(Call(Method::kPull, PullBytes(0, version, 0, "b", 5))->value().status(), kInvalidArgument, "versions run from 0");
  }
}

TEST_F(ServerCoreTest, ALastPartThatContradictsEarlierOnesIsRefused) {
  Start({});
  JoinAll();
  ASSERT_TRUE(Push({.step = 0, .part = 5}).ok());
  EXPECT_STATUS(Push({.step = 0, .part = 2, .part_count = 3, .samples = 1}).status(), kInvalidArgument, "last of 3 parts");
  EXPECT_STATUS(Push({.step = 0, .part = 2, .part_count = 9, .samples = 1}).status(), kInvalidArgument, "last of 9 parts");
}

TEST_F(ServerCoreTest, OneSkipSkipsTheStepForAllAndTheVersionGoesOn) {
  Start({.trainers = 2});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {{.lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1).ok());
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1, v1::SKIP).ok());
  const auto pulled = Pull(0, 1, "b", 5);
  ASSERT_TRUE(pulled.ok());
  EXPECT_TRUE(pulled->header.ready());
  EXPECT_TRUE(pulled->header.skipped());
  EXPECT_EQ(pulled->header.version(), 1);
  EXPECT_EQ(Bias(0), before);
}

TEST_F(ServerCoreTest, AStepWithoutSamplesChangesNothingAndSaysSo) {
  Start({.trainers = 2});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {}, 0).ok());
  ASSERT_TRUE(PushStep(1, 0, {}, 0).ok());
  const auto pulled = Pull(1, 1, "b", 5);
  ASSERT_TRUE(pulled.ok());
  EXPECT_EQ(pulled->header.samples(), 0);
  EXPECT_FALSE(pulled->header.skipped());
  EXPECT_EQ(Bias(0), before);
}

TEST_F(ServerCoreTest, AnAbsentGradientLeavesItsBlockAlone) {
  Start({});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {{.values = {1, 1, 1, 1, 1}}}, 1).ok());
  const std::vector<float> moved = Bias(0);
  // Momentum would move it again with a gradient of zero.
  ASSERT_TRUE(PushStep(0, 1, {}, 1).ok());
  EXPECT_EQ(Bias(0), moved);
  EXPECT_NE(moved, before);
}

TEST_F(ServerCoreTest, TheEndIsFixedForAVersionAndSeenByAll) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
  // Asked for after version 1 exists: whoever reads version 1, before or after, goes on.
  EXPECT_FALSE(Pull(0, 1, "b", 5)->header.stop());
  core_->RequestStop();
  EXPECT_FALSE(Pull(1, 1, "b", 5)->header.stop());
  EXPECT_TRUE(Beat(0)->stop_requested());
  ASSERT_TRUE(PushStep(0, 1, {}, 1).ok());
  ASSERT_TRUE(PushStep(1, 1, {}, 1).ok());
  EXPECT_TRUE(Pull(0, 2, "b", 5)->header.stop());
  EXPECT_TRUE(Pull(1, 2, "b", 5)->header.stop());
}

TEST_F(ServerCoreTest, OnlyServer0DecidesTheEnd) {
  Start({.servers = 2}, /*server=*/1);
  JoinAll();
  core_->RequestStop();
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  EXPECT_FALSE(Pull(0, 1, "b", 5)->header.stop());
}

TEST_F(ServerCoreTest, ATrainerThatIsDoneWhileAnotherGoesOnIsAnError) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(Beat(0, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_STATUS(PushStep(1, 0, {}, 1), kFailedPrecondition, "trainer 0 (trainer:0) has ended before step 0");
  EXPECT_FALSE(core_->JobStatus().ok());
}

TEST_F(ServerCoreTest, TheServerIsFinishedWhenEveryTrainerIsDone) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(Beat(0, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_FALSE(core_->Finished());
  ASSERT_TRUE(Beat(1, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_TRUE(core_->Finished());
  // A trainer that is done holds no lease.
  Pass(30, {});
  EXPECT_TRUE(core_->JobStatus().ok());
}

TEST_F(ServerCoreTest, InAsyncEachTrainersStepTakesEffectByItselfDividedByItsOwnSamples) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {6, 6, 6, 6, 6}}}, 3).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f * 2);
  EXPECT_TRUE(Push({.trainer = 1, .step = 0, .items = {}, .part_count = 1, .samples = 3})->duplicate());
  // The other is at a step of its own; a skipped step of it changes nothing.
  const std::vector<float> now = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {{.lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1, v1::SKIP).ok());
  EXPECT_EQ(Bias(0), now);
}

TEST_F(ServerCoreTest, EagerPartsTakeEffectOnArrivalOnceAndCannotBeSkipped) {
  Start({.sync = false, .eager = true});
  JoinAll();
  const std::vector<float> before = Bias(0);
  auto [request, payload] = MakePush({.step = 0, .part = 0, .items = {{.values = {2, 2, 2, 2, 2}}}});
  request.set_samples(2);
  ASSERT_TRUE(PushStatus(request, payload).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
  ASSERT_TRUE(PushStatus(request, payload).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
  EXPECT_STATUS(Push({.step = 0, .part = 1, .part_count = 2, .samples = 2, .verdict = v1::SKIP}).status(), kInvalidArgument, "EAGER");
  ASSERT_TRUE(Push({.step = 0, .part = 1, .part_count = 2, .samples = 2}).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
}

TEST_F(ServerCoreTest, RowsAreMadeByTheirFirstUpdateNotByReading) {
  Start({});
  JoinAll();
  const uint64_t empty = Digest(0)->values();
  const auto first = Pull(0, 0, "t", 2, {5, -5}, 4);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Digest(0)->values(), empty);
  ASSERT_TRUE(PushStep(0, 0, {{.name = "t", .values = {1, 1, 1, 1}, .ids = {5}, .width = 4}}, 1).ok());
  EXPECT_NE(Digest(0)->values(), empty);
  const auto second = Pull(0, 1, "t", 2, {5, -5}, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_LT(second->values[i], first->values[i]);
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(second->values[i], first->values[i]);
}

TEST_F(ServerCoreTest, ATablePastItsCapacityFailsTheJobWithTheTableNamed) {
  Start({.table_capacity = 2});
  JoinAll();
  (void)PushStep(0, 0, {{.name = "u", .values = {1, 1, 1}, .ids = {1, 2, 3}, .width = 1}}, 1);
  EXPECT_STATUS(core_->JobStatus(), kResourceExhausted, "table u is full");
  EXPECT_THAT(std::string(core_->JobStatus().message()), HasSubstr("server 0 (server:1): step 0"));
}

// --------------------------------------------------------------------------------------------------------------- pulls

TEST_F(ServerCoreTest, APullWaitsForItsVersionAndIsAnsweredByTheLastPush) {
  Start({.trainers = 2});
  JoinAll();
  const auto waiting = Call(Method::kPull, PullBytes(0, 1, 30, "b", 5));
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  EXPECT_FALSE(waiting->has_value());
  ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
  const auto pulled = PulledOf(waiting);
  ASSERT_TRUE(pulled.ok());
  EXPECT_EQ(pulled->header.version(), 1);
}

TEST_F(ServerCoreTest, APullThatWaitsInVainSaysForWhom) {
  Start({.trainers = 3});
  ASSERT_TRUE(Join(0, "trainer:0").ok());
  ASSERT_TRUE(Join(1, "trainer:1").ok());
  const auto waiting = Call(Method::kPull, PullBytes(0, 1, 5, "b", 5));
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  Pass(4, {0, 1});
  EXPECT_FALSE(waiting->has_value());
  Pass(2, {0, 1});
  const auto pulled = PulledOf(waiting);
  ASSERT_TRUE(pulled.ok());
  EXPECT_FALSE(pulled->header.ready());
  EXPECT_THAT(pulled->header.waiting_for(), HasSubstr("trainer 1 (trainer:1) at step 0"));
  EXPECT_THAT(pulled->header.waiting_for(), HasSubstr("trainer 2 (not joined)"));
}

TEST_F(ServerCoreTest, WhoDoesNotReadAnswersGetsNoMoreAndTheOthersGoOn) {
  unread_bytes_ = 1000;
  Start({.trainers = 2, .sync = false});
  JoinAll();
  // 320 floats each: the first answer is larger than the limit, which one may be.
  const auto first = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320));
  ASSERT_TRUE(first->has_value());
  const auto second = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320)), third = Call(Method::kPull, PullBytes(0, 0, 1, "b", 5));
  core_->Tick();
  EXPECT_FALSE(second->has_value());
  EXPECT_FALSE(third->has_value());
  EXPECT_EQ(Pull(1, 0, "w", 320)->values.size(), 320u);
  EXPECT_TRUE(Beat(0).ok());
  EXPECT_TRUE(PushStep(0, 0, {}, 4).ok());
  // Its wait is over: it hears why.
  Pass(1.5, {0, 1});
  ASSERT_TRUE(third->has_value());
  const auto told = PulledOf(third);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_FALSE(told->header.ready());
  EXPECT_THAT(told->header.waiting_for(), HasSubstr("trainer 0 (trainer:0) itself, which has 1280 bytes of answers to read"));
  // It reads, and the next answer comes.
  first->reset();
  core_->Tick();
  ASSERT_TRUE(second->has_value());
  EXPECT_TRUE(PulledOf(second)->header.ready());
}

TEST_F(ServerCoreTest, PullsThatPileUpBehindUnreadAnswersAreRefused) {
  unread_bytes_ = 1000;
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const auto unread = Call(Method::kPull, PullBytes(0, 0, 5, "w", 320));
  const std::vector<int64_t> ids(60, 7);
  const auto waiting = Call(Method::kPull, PullBytes(0, 0, 5, "t", 60, ids, 4));
  EXPECT_FALSE(waiting->has_value());
  const absl::Status refused = PulledOf(Call(Method::kPull, PullBytes(0, 0, 5, "t", 80, std::vector<int64_t>(80, 7), 4))).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()),
              ::testing::ContainsRegex("trainer 0 \\(trainer:0\\) has pulls of 1[0-9]{3} bytes waiting and 1280 bytes of answers unread"));
  EXPECT_TRUE(Pull(1, 0, "t", 60, ids, 4).ok());
}

TEST_F(ServerCoreTest, PullsWithoutRowsPileUpToo) {
  unread_bytes_ = 10000;
  Start({.trainers = 2, .sync = false});
  JoinAll();
  int waiting = 0;
  absl::Status refused;
  std::vector<std::shared_ptr<Answer>> kept;
  while (refused.ok() && waiting < 1000) {
    // Of a version that does not come.
    kept.push_back(Call(Method::kPull, PullBytes(0, 100, 5, "b", 5)));
    if (!kept.back()->has_value()) {
      ++waiting;
    } else {
      refused = PulledOf(kept.back()).status();
    }
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_GT(waiting, 5);
  EXPECT_LT(waiting, 100);
}

TEST_F(ServerCoreTest, LossyFormatsAreDecodedOnArrivalAndEncodedOnTheWayOut) {
  Start({.sync = false});
  JoinAll();
  for (const v1::WireFormat format : {v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
    // Rows of t are multiples of powers of two, which each format holds.
    v1::PullRequest pull;
    *pull.mutable_caller() = CallerOf(0);
    for (const auto& [name, width, count] : {std::tuple("t", 4, 3), std::tuple("b", 0, 5)}) {
      v1::PullItem* const item = pull.add_items();
      item->set_name(name);
      item->set_width(width);
      item->set_count(count);
      item->set_format(format);
    }
    const std::vector<int64_t> ids = {5, -9, 77};
    const std::string id_bytes(reinterpret_cast<const char*>(ids.data()), 24);
    const auto answer =
        PulledOf(Call(Method::kPull, Flatten(EncodeFrame(pull.SerializeAsString(), {Slice::Own(id_bytes)}))));
    ASSERT_TRUE(answer.ok()) << answer.status();
    const size_t rows = EncodedBytes(format, 12, 4), block = EncodedBytes(format, 5, kDenseGroup);
    ASSERT_EQ(answer->values.size() * 4, AlignUp(rows) + AlignUp(block));
    std::vector<float> got(12);
    Decode(format, reinterpret_cast<const char*>(answer->values.data()), 12, 4, got.data());
    const auto exact = Pull(0, 0, "t", 3, ids, 4);
    ASSERT_TRUE(exact.ok()) << exact.status();
    for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(got[i], exact->values[i], 0.01 * std::abs(exact->values[i]) + 0.01) << i;
  }
}

TEST_F(ServerCoreTest, AGradientInALossyFormatTakesEffectAsWhatItSays) {
  Start({.sync = false});
  JoinAll();
  const std::vector<float> before = Bias(0);
  std::vector<float> after[2];
  const std::vector<float> gradient = {1, -2, 0.5f, 0, 127};
  for (const bool lossy : {false, true}) {
    Start({.sync = false});
    JoinAll();
    auto [request, payload] = MakePush({.items = {{.name = "b", .values = gradient}}, .part_count = 1, .samples = 1});
    if (lossy) {
      request.mutable_items(0)->set_format(v1::WIRE_INT8);
      payload.assign(AlignUp(EncodedBytes(v1::WIRE_INT8, 5, kDenseGroup)), '\0');
      Encode(v1::WIRE_INT8, gradient.data(), 5, kDenseGroup, payload.data());
    }
    ASSERT_TRUE(PushStatus(request, payload).ok());
    after[lossy] = Bias(0);
  }
  EXPECT_NE(after[0], before);
  // 0.5 lies between two steps of 127 / 127 = 1; the even one is 0.
  EXPECT_EQ(after[1][0], after[0][0]);
  EXPECT_EQ(after[1][1], after[0][1]);
  EXPECT_EQ(after[1][2], before[2]);
  EXPECT_EQ(after[1][4], after[0][4]);
}

TEST_F(ServerCoreTest, BytesThatDoNotMakeALossyGradientAreRefused) {
  Start({.sync = false});
  JoinAll();
  auto [request, payload] = MakePush({.items = {{.name = "b", .values = {1, 2, 3, 4, 5}}}, .part_count = 1, .samples = 1});
  request.mutable_items(0)->set_format(v1::WIRE_INT8);
  // A scale, and five bytes from 64 on: five more than there are.
  EXPECT_STATUS(PushStatus(request, payload), kInvalidArgument, "gradient of b: 5 floats do not fit in the 64 bytes");
  auto [rows, row_payload] =
      MakePush({.items = {{.name = "t", .values = {1, 2, 3, 4}, .ids = {1, 2}, .width = 4}}, .part_count = 1, .samples = 1});
  rows.mutable_items(0)->set_format(v1::WIRE_INT8);
  EXPECT_STATUS(PushStatus(rows, row_payload), kInvalidArgument, "gradient of t: 2 rows of width 4 do not fit");
}

TEST_F(ServerCoreTest, ShowsAndClicksComeWithTheRowsOfATableThatCountsThemAndWithNoOther) {
  // Two rows: ids up to 16, values from 64 to 96, counts from 128 to 144.
  const auto push = [&](size_t payload_bytes, float clicks) {
    auto made = MakePush({.items = {{.name = "t", .values = std::vector<float>(8, 1), .ids = {1, 2}, .width = 4}}, .part_count = 1, .samples = 1});
    made.first.mutable_items(0)->set_shows_and_clicks(true);
    made.second.resize(std::max(payload_bytes, made.second.size()));
    const float counts[] = {2, clicks, 1, 0};
    std::memcpy(made.second.data() + made.second.size() - 16, counts, sizeof(counts));
    made.second.resize(payload_bytes);
    return made;
  };
  const auto status = [&](const std::pair<v1::PushRequest, std::string>& made) { return PushStatus(made.first, made.second); };
  Start({.sync = false, .shows = true});
  JoinAll();
  auto without = push(144, 1);
  without.first.mutable_items(0)->clear_shows_and_clicks();
  EXPECT_STATUS(status(without), kInvalidArgument, "gradient of t: comes without shows and clicks, which this table counts");
  EXPECT_STATUS(status(push(140, 1)), kInvalidArgument, "gradient of t: shows and clicks of 2 rows do not fit in the 140 bytes");
  EXPECT_STATUS(status(push(96, 1)), kInvalidArgument, "shows and clicks of 2 rows do not fit in the 96 bytes");
  EXPECT_STATUS(status(push(144, std::nanf(""))), kInvalidArgument, "gradient of t: shows or clicks are not finite");
  EXPECT_TRUE(status(push(144, 1)).ok());
  Start({.sync = false});
  JoinAll();
  EXPECT_STATUS(status(push(144, 1)), kInvalidArgument, "gradient of t: brings shows and clicks, which nobody counts");
}

TEST_F(ServerCoreTest, PullsOfWhatIsNotThereAreRefused) {
  Start({});
  JoinAll();
  EXPECT_STATUS(Pull(0, 0, "nothing", 5).status(), kInvalidArgument, "no such block");
  EXPECT_STATUS(Pull(0, 0, "b", 6).status(), kInvalidArgument, "of a block of 5");
  EXPECT_STATUS(Pull(0, 0, "b", -1).status(), kInvalidArgument, "count is -1");
  EXPECT_STATUS(Pull(0, 0, "x", 1, {1}, 4).status(), kInvalidArgument, "no such table");
  EXPECT_STATUS(Pull(0, 0, "t", 1, {1}, 5).status(), kInvalidArgument, "the table's have 4");
  EXPECT_STATUS(Pull(0, 0, "b", 1, {}, -1).status(), kInvalidArgument, "width is -1");
  EXPECT_STATUS(Pull(0, 0, "t", 2, {1}, 4).status(), kInvalidArgument, "2 ids at offset 0");
  EXPECT_STATUS(Pull(0, 0, "t", INT64_MAX, {1}, 4).status(), kInvalidArgument, "ids at offset 0");
}

// ------------------------------------------------------------------------------------------------------- malformed bytes

TEST_F(ServerCoreTest, PushesThatMakeNoSenseAreNamedAndLeaveNoTrace) {
  Start({.servers = 2});
  JoinAll();
  const auto dense = [&] { return MakePush({.step = 0, .items = {{.name = "w.block0", .values = std::vector<float>(320, 1)}}}); };
  const auto rows = [&] { return MakePush({.step = 0, .items = {{.name = "t", .values = std::vector<float>(8, 1), .ids = {1, 2}, .width = 4}}}); };
  const auto wrong = [&](std::pair<v1::PushRequest, std::string> push, const std::function<void(v1::PushItem*)>& edit) {
    edit(push.first.mutable_items(0));
    return PushStatus(push.first, push.second);
  };
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_name("nothing"); }), kInvalidArgument, "no such block");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_lanes(4); }), kInvalidArgument, "aligned runs");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_lane(-8); }), kInvalidArgument, "aligned runs");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_begin(1); }), kInvalidArgument, "of a block of 320");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_begin(INT64_MAX); }), kInvalidArgument, "of a block of 320");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_begin(-1); }), kInvalidArgument, "of a block of 320");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_count(-1); }), kInvalidArgument, "count is -1");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(64); }), kInvalidArgument, "do not fit");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(4); }), kInvalidArgument, "multiple of 64");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(-64); }), kInvalidArgument, "multiple of 64");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(1 << 30); }), kInvalidArgument, "multiple of 64");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_width(3); }), kInvalidArgument, "it has rows of 4");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_count(3); }), kInvalidArgument, "");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_count(INT64_MAX / 2); }), kInvalidArgument, "do not fit");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_name("w.block0"); }), kInvalidArgument, "takes a dense gradient");
  const auto ids = [&](std::vector<int64_t> ids) {
    return PushStep(0, 0, {{.name = "t", .values = std::vector<float>(ids.size() * 4), .ids = ids, .width = 4}}, 1);
  };
  int64_t here = 0, there = 0;
  while (ShardServer(LogicalShard(here, 64), 64, 2) != 0) ++here;
  while (ShardServer(LogicalShard(there, 64), 64, 2) != 1) ++there;
  EXPECT_STATUS(ids({here, here}), kInvalidArgument, "stands there twice");
  EXPECT_STATUS(ids({here, there}), kInvalidArgument, "another server");
  EXPECT_STATUS(PushStep(0, 0, {{.name = "e", .values = {1, 1, 1}, .ids = {30}, .width = 3}}, 1), kInvalidArgument,
                "row 30 of a block with 30 rows");
  EXPECT_EQ(core_->Version(), 0);
  EXPECT_TRUE(core_->JobStatus().ok());

  auto [request, payload] = dense();
  request.set_checksum(1);
  Slices slices = {Slice::Own(payload)};
  EXPECT_STATUS(PushReplyOf(Call(Method::kPush, Flatten(EncodeFrame(request.SerializeAsString(), slices)))).status(), kDataLoss,
                "checksum");
  // And the same step, sent rightly, is taken.
  EXPECT_TRUE(PushStep(0, 0, {}, 1).ok());
}

TEST_F(ServerCoreTest, PiecesThatDoNotCoverABlockFailTheStepWithTheBlockNamed) {
  Start({});
  JoinAll();
  (void)PushStep(0, 0, {{.values = {1, 1, 1}}}, 1);
  EXPECT_STATUS(core_->JobStatus(), kInvalidArgument, "block b");
}

TEST_F(ServerCoreTest, NoBytesCrashTheServer) {
  Start({});
  JoinAll();
  std::mt19937_64 random(3);
  std::vector<std::pair<Method, std::string>> seeds;
  const auto [push, payload] = MakePush({.step = 0,
                                         .items = {{.name = "t", .values = std::vector<float>(8, 1), .ids = {1, 2}, .width = 4},
                                                   {.values = {1, 1, 1, 1, 1}},
                                                   {.name = "e", .values = {1, 1, 1}, .ids = {3}, .width = 3}}});
  seeds.emplace_back(Method::kPush, Seal(push, payload));
  seeds.emplace_back(Method::kPull, PullBytes(0, 0, 0, "t", 2, {5, 6}, 4));
  seeds.emplace_back(Method::kPull, PullBytes(0, 0, 0, "b", 5));
  seeds.emplace_back(Method::kJoin, JoinMessage(0, "trainer:0").SerializeAsString());
  v1::HeartbeatRequest beat;
  *beat.mutable_caller() = CallerOf(0);
  beat.set_waiting_for("x");
  seeds.emplace_back(Method::kHeartbeat, beat.SerializeAsString());
  v1::ExchangeRequest exchange;
  *exchange.mutable_caller() = CallerOf(0);
  exchange.set_key("k");
  exchange.set_contribution("v");
  seeds.emplace_back(Method::kExchange, exchange.SerializeAsString());
  v1::ControlRequest control;
  *control.mutable_caller() = CallerOf(0);
  control.mutable_load()->set_name("../x");
  seeds.emplace_back(Method::kControl, control.SerializeAsString());
  for (int round = 0; round < 30000; ++round) {
    auto [method, bytes] = seeds[random() % seeds.size()];
    for (uint64_t edits = random() % 4; edits > 0 && !bytes.empty(); --edits) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.resize(at);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random()));
      }
    }
    // A checksum would keep most edits of a push from being looked at.
    if (method == Method::kPush) {
      const auto frame = DecodeFrame({Slice::Own(bytes)});
      v1::PushRequest request;
      if (frame.ok() && request.ParseFromString(frame->header)) {
        request.set_step(1000000);  // refused late, after everything has been read
        bytes = Seal(request, Flatten(frame->payload));
      }
    }
    (void)Call(random() % 50 == 0 ? static_cast<Method>(random() % 6) : method, bytes);
    if (!core_->JobStatus().ok()) {  // an edited heart-beat may well report a failure
      Start({});
      JoinAll();
    }
  }
}

// ------------------------------------------------------------------------------------------------- exchange and control

TEST_F(ServerCoreTest, AnExchangeWaitsForAllAndNamesTheMissing) {
  Start({.trainers = 3});
  JoinAll();
  const auto ask = [&](int trainer, bool give, int read, double wait) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_key("stats");
    if (give) request.set_contribution(absl::StrCat("of ", trainer));
    request.set_read_trainer(read);
    request.set_wait_s(wait);
    return request.SerializeAsString();
  };
  const auto waiting = Call(Method::kExchange, ask(0, true, 2, 20));
  EXPECT_FALSE(waiting->has_value());
  const auto asked = CallNow<v1::ExchangeReply>(Method::kExchange, ask(1, true, -1, 0));
  ASSERT_TRUE(asked.ok());
  EXPECT_FALSE(asked->ready());
  EXPECT_THAT(asked->missing(), ElementsAre(2));
  EXPECT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, ask(2, true, -1, 0))->ready());
  ASSERT_TRUE(waiting->has_value());
  v1::ExchangeReply reply;
  ASSERT_TRUE(reply.ParseFromString(Flatten(***waiting)));
  EXPECT_EQ(reply.contribution(), "of 2");
  EXPECT_EQ(CallNow<v1::ExchangeReply>(Method::kExchange, ask(2, false, 0, 0))->contribution(), "of 0");
}

TEST_F(ServerCoreTest, WhatIsPostedTakesThePlaceOfWhatWasAndNobodyWaits) {
  Start({.trainers = 3, .sync = false});
  JoinAll();
  const auto post = [&](int trainer, int64_t edition, const std::string& bytes, int chunk = 0, int chunks = 1) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerOf(trainer);
    request.set_key("k");
    request.set_edition(edition);
    request.set_contribution(bytes);
    request.set_chunk(chunk);
    request.set_chunks(chunks);
    return CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status();
  };
  // Edition and bytes of what is there, chunk by chunk.
  const auto posted = [&](int of) {
    std::string text;
    for (int chunk = 0, chunks = 1; chunk < chunks; ++chunk) {
      v1::ExchangeRequest request;
      *request.mutable_caller() = CallerOf(0);
      request.set_key("k");
      request.set_edition(0);
      request.set_read_trainer(of);
      request.set_chunk(chunk);
      const auto reply = CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString());
      if (!reply.ok() || !reply->ready()) return std::string(reply.status().message());
      chunks = reply->chunks();
      if (chunk == 0) text = reply->has_edition() ? absl::StrCat(reply->edition(), ":") : "none";
      text += reply->contribution();
    }
    return text;
  };
  EXPECT_EQ(posted(1), "none");
  ASSERT_TRUE(post(1, 0, "first").ok());
  EXPECT_EQ(posted(1), "0:first");
  EXPECT_EQ(posted(2), "none");
  // Half of a newer one is nothing yet, and a chunk of the old one that comes again changes nothing.
  ASSERT_TRUE(post(1, 20, "ond", 1, 2).ok());
  ASSERT_TRUE(post(1, 0, "other").ok());
  ASSERT_TRUE(post(1, 10, "late").ok());
  EXPECT_EQ(posted(1), "0:first");
  ASSERT_TRUE(post(1, 20, "sec", 0, 2).ok());
  EXPECT_EQ(posted(1), "20:second");
  ASSERT_TRUE(post(1, 20, "other", 0, 1).ok());
  EXPECT_EQ(posted(1), "20:second");
  EXPECT_STATUS(post(1, -1, "x"), kInvalidArgument, "edition -1");
  EXPECT_STATUS(post(1, 30, "x", 2, 2), kInvalidArgument, "chunk 2 of 2");
  ASSERT_TRUE(post(1, 30, "x", 0, 2).ok());
  EXPECT_STATUS(post(1, 30, "x", 0, 3), kInvalidArgument, "announces 3 chunks now and 2 before");
  EXPECT_THAT(posted(3), HasSubstr("reads trainer 3, the job has 3"));
}

TEST_F(ServerCoreTest, ExchangesThatMakeNoSenseAreRefused) {
  Start({.servers = 2, .trainers = 2}, /*server=*/1);
  JoinAll();
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerOf(0);
  request.set_key("k");
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status(), kInvalidArgument, "server 0");
  Start({.trainers = 2});
  JoinAll();
  *request.mutable_caller() = CallerOf(0);
  request.set_contribution("x");
  request.set_chunks(100000);
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status(), kInvalidArgument, "chunk");
  request.set_chunks(2);
  ASSERT_TRUE(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).ok());
  request.set_chunks(3);
  EXPECT_STATUS(CallNow<v1::ExchangeReply>(Method::kExchange, request.SerializeAsString()).status(), kInvalidArgument,
                "a key is used once");
}

TEST_F(ServerCoreTest, ControlWithoutADirectoryOrAtAnotherStepIsRefused) {
  Start({});
  JoinAll();
  v1::ControlRequest request;
  *request.mutable_caller() = CallerOf(0);
  EXPECT_STATUS(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).status(), kInvalidArgument, "no action");
  request.mutable_save()->set_name("step-000000000000.tmp");
  EXPECT_STATUS(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).status(), kFailedPrecondition,
                "no checkpoint directory");
  request.mutable_digest()->set_step(3);
  EXPECT_STATUS(CallNow<v1::ControlReply>(Method::kControl, request.SerializeAsString()).status(), kFailedPrecondition,
                "is at step 0, asked for step 3");
}

// ------------------------------------------------------------------------------------------------------------- programs

TEST(ServerProgramTest, ProgramsThatLackSomethingAreRefusedByName) {
  const HandMadeJob job{.servers = 2};
  FakeClock clock;
  ThreadPool pool("test", 0);
  const auto create = [&](v1::ProgramDesc main, v1::ProgramDesc startup, int id = 0) {
    return ServerCore::Create({.server_id = id, .main = std::move(main), .startup = std::move(startup), .clock = &clock, .pool = &pool})
        .status();
  };
  EXPECT_TRUE(create(job.Main(0), job.Startup(0)).ok());
  EXPECT_STATUS(create(v1::ProgramDesc(), job.Startup(0)), kInvalidArgument, "no plan");
  EXPECT_STATUS(create(job.Main(1), job.Startup(1)), kInvalidArgument, "the program is server 1's");
  v1::ProgramDesc startup = job.Startup(0);
  startup.mutable_blocks(0)->clear_ops();
  EXPECT_STATUS(create(job.Main(0), startup), kInvalidArgument, "block w.block0");
  v1::ProgramDesc main = job.Main(0);
  main.mutable_blocks(0)->clear_ops();
  EXPECT_STATUS(create(main, job.Startup(0)), kInvalidArgument, "listen_and_serv");
}

}  // namespace
}  // namespace weir
