// Agreement of the trainers of a job over its checkpoints: the beginning, the numbers, the last one.
#include "trainer/checkpoints/job_checkpoints.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_made_cluster.h"
#include "trainer/checkpoints/beginning.h"
#include "trainer/checkpoints/places_exchange.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;

// Whether a run may have been cut into streams by a rule: these have no data.
bool AnyScheme(int) { return true; }

// A cluster whose trainers have joined, with the checkpoints of each.
class JobCheckpointsTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "/job_checkpoints." + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    config_.config.set_name("job");
    config_.config.mutable_checkpoint()->set_dir(dir_);
  }
  void TearDown() override {
    checkpoints_.clear();
    cluster_.reset();
    fs::remove_all(dir_);
  }

  void StartCluster(const HandMadeJob& job) {
    checkpoints_.clear();
    cluster_.reset();
    job_ = job;
    ClusterOptions options = OptionsFor(job);
    options.checkpoint_dir = dir_;
    auto cluster = InProcessCluster::Create(std::move(options));
    CHECK(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    ASSERT_EQ(cluster_->RunTrainers([&](int t) { return cluster_->client(t).Join(); }), absl::OkStatus());
    checkpoints_.resize(static_cast<size_t>(job.trainers));
  }
  ThisTrainer Trainer(int t) {
    return {.id = t, .trainers = job_.trainers, .sync = job_.sync, .client = &cluster_->client(t)};
  }
  // Agrees on the beginning; the trainer then has its checkpoints.
  absl::StatusOr<Begun> BeginTrainer(int t, bool resume) {
    std::unique_ptr<JobCheckpoints>& checkpoints = checkpoints_[static_cast<size_t>(t)];
    checkpoints =
        JobCheckpoints::Create({.trainer = Trainer(t),
                                .checkpointing = std::make_unique<Checkpointing>(
                                    dir_, config_.config, cluster_->options().plan,
                                    TrainFiles{.description = "a.tsv\n", .cuts_by = AnyScheme}, &cluster_->client(t)),
                                .say = [](const std::string&) {}});
    return Begin({.trainer = Trainer(t), .job = &config_, .checkpoints = checkpoints.get(), .resume = resume});
  }
  absl::Status Train(int t, int first, int steps) {
    HandMadeParams params;
    RETURN_IF_ERROR(ReceiveHandMade(job_, &cluster_->client(t).steps(), &params));
    for (int step = first; step < steps; ++step)
      RETURN_IF_ERROR(RunHandMadeStep(job_, t, {.step = step}, &cluster_->client(t).steps(), &params).status());
    return absl::OkStatus();
  }
  JobCheckpoints& checkpoints(int t) { return *checkpoints_[static_cast<size_t>(t)]; }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    const absl::StatusOr<std::vector<CheckpointPath>> all = ListCheckpoints(dir_);
    CHECK(all.ok()) << all.status();
    for (const CheckpointPath& each : *all) names.push_back(each.name);
    return names;
  }

  HandMadeJob job_;
  Job config_;
  std::string dir_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::vector<std::unique_ptr<JobCheckpoints>> checkpoints_;
};

TEST_F(JobCheckpointsTest, InSyncTheFirstTrainerWritesAndAllResumeAtItsStep) {
  StartCluster({.servers = 2, .trainers = 2});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(BeginTrainer(t, /*resume=*/false).status());
    RETURN_IF_ERROR(Train(t, 0, 3));
    return checkpoints(t).Save({.step = 3, .version = 3});
  }),
            absl::OkStatus());
  EXPECT_THAT(Names(), ElementsAre("step-000000000003"));

  StartCluster({.servers = 2, .trainers = 2});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    ASSIGN_OR_RETURN(const Begun begun, BeginTrainer(t, /*resume=*/true));
    EXPECT_TRUE(begun.beginning.resumed());
    EXPECT_EQ(begun.step, 3);
    return absl::OkStatus();
  }),
            absl::OkStatus());
}

// Sets every field, also those of messages in it, to a value that is not its default.
void SetEveryField(google::protobuf::Message* message) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const Field* const field = message->GetDescriptor()->field(i);
    if (field->is_repeated()) {
      ASSERT_EQ(field->cpp_type(), Field::CPPTYPE_MESSAGE) << field->full_name() << ": extend this function";
      SetEveryField(reflection.AddMessage(message, field));
      continue;
    }
    switch (field->cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        SetEveryField(reflection.MutableMessage(message, field));
        break;
      case Field::CPPTYPE_INT32:
        reflection.SetInt32(message, field, field->default_value_int32() + 3);
        break;
      case Field::CPPTYPE_INT64:
        reflection.SetInt64(message, field, field->default_value_int64() + 5);
        break;
      case Field::CPPTYPE_UINT64:
        reflection.SetUInt64(message, field, field->default_value_uint64() + 7);
        break;
      case Field::CPPTYPE_DOUBLE:
        reflection.SetDouble(message, field, field->default_value_double() + 0.5);
        break;
      case Field::CPPTYPE_ENUM:
        reflection.SetEnumValue(message, field, field->default_value_enum()->number() + 1);
        break;
      case Field::CPPTYPE_STRING:
        reflection.SetString(message, field, absl::StrCat("the ", field->name()));
        break;
      default:
        FAIL() << field->full_name() << ": extend this function";
    }
  }
}

TEST_F(JobCheckpointsTest, EveryFieldOfTheTrainersStateReachesEveryTrainerAfterAResume) {
  v1::TrainerState state;
  ASSERT_NO_FATAL_FAILURE(SetEveryField(&state));
  for (const bool sync : {true, false}) {
    StartCluster({.trainers = 2, .sync = sync});
    ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
      ASSIGN_OR_RETURN(const Begun begun, BeginTrainer(t, /*resume=*/false));
      EXPECT_EQ(begun.beginning.trainers().DebugString(), "");
      RETURN_IF_ERROR(Train(t, 0, 3));
      return checkpoints(t).Save({.step = 3, .version = 3, .trainers = state});
    }),
              absl::OkStatus());
    StartCluster({.trainers = 2, .sync = sync});
    ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
      ASSIGN_OR_RETURN(const Begun begun, BeginTrainer(t, /*resume=*/true));
      EXPECT_EQ(begun.beginning.trainers().DebugString(), state.DebugString());
      return absl::OkStatus();
    }),
              absl::OkStatus());
  }
}

TEST_F(JobCheckpointsTest, AFreshRunIsToldFromACheckpointOfStep0) {
  StartCluster({});
  const absl::StatusOr<Begun> fresh = BeginTrainer(0, /*resume=*/true);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_FALSE(fresh->beginning.resumed());
  ASSERT_EQ(checkpoints(0).Save({.step = 0}), absl::OkStatus());

  StartCluster({});
  const absl::StatusOr<Begun> resumed = BeginTrainer(0, /*resume=*/true);
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_TRUE(resumed->beginning.resumed());
  EXPECT_EQ(resumed->step, 0);
}

TEST_F(JobCheckpointsTest, ABeginningThatCannotBeReadIsRefused) {
  v1::Beginning before_the_first_step;
  before_the_first_step.set_step(-1);
  for (const std::string& said : {std::string("\xff\xff\xff"), before_the_first_step.SerializeAsString()}) {
    StartCluster({});
    ASSERT_EQ(cluster_->client(0).board().Post("beginning", said, 0), absl::OkStatus());
    EXPECT_EQ(BeginTrainer(0, /*resume=*/false).status().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(JobCheckpointsTest, InAsyncEachTrainerResumesAtItsOwnStep) {
  StartCluster({.trainers = 2, .sync = false});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(BeginTrainer(t, /*resume=*/false).status());
    return Train(t, 0, t == 0 ? 2 : 5);
  }),
            absl::OkStatus());
  ASSERT_EQ(checkpoints(0).Save({.step = 2, .version = 0}), absl::OkStatus());
  ASSERT_EQ(checkpoints(1).Save({.step = 5, .version = 0}), absl::OkStatus());  // writes nothing
  EXPECT_THAT(Names(), ElementsAre("step-000000000002"));

  StartCluster({.trainers = 2, .sync = false});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    ASSIGN_OR_RETURN(const Begun begun, BeginTrainer(t, /*resume=*/true));
    EXPECT_EQ(begun.step, t == 0 ? 2 : 5);
    EXPECT_EQ(begun.beginning.step(), 2);
    return absl::OkStatus();
  }),
            absl::OkStatus());
}

// A place of stream `stream` behind `step` batches.
v1::StreamPlaces PlaceOf(int stream, int64_t step, const std::vector<std::string>& absent) {
  v1::StreamPlaces places;
  places.set_streams(2);
  places.add_places()->set_stream(stream);
  places.mutable_places(0)->set_batches(step);
  for (const std::string& name : absent) places.mutable_absent()->add_names(name);
  return places;
}

std::string TextOf(const v1::StreamPlaces& places) {
  std::string text = absl::StrCat(places.streams(), ":");
  for (const v1::StreamPlace& place : places.places())
    absl::StrAppend(&text, " ", place.stream(), "@", place.batches());
  for (const std::string& name : places.absent().names()) absl::StrAppend(&text, " no ", name);
  return text;
}

TEST_F(JobCheckpointsTest, EveryTrainerGetsThePlacesOfItsStreams) {
  config_.config.mutable_train()->set_lanes(2);
  StartCluster({.trainers = 2});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(BeginTrainer(t, /*resume=*/false).status());
    RETURN_IF_ERROR(Train(t, 0, 3));
    const std::vector<std::string> absent = t == 0 ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"b"};
    return checkpoints(t).Save({.step = 3, .version = 3, .places = [&] { return PlaceOf(t, 3, absent); }});
  }),
            absl::OkStatus());
  for (const int trainers : {2, 1}) {
    StartCluster({.trainers = trainers});
    ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
      ASSIGN_OR_RETURN(const Begun begun, BeginTrainer(t, /*resume=*/true));
      EXPECT_EQ(TextOf(begun.places), trainers == 1 ? "2: 0@3 1@3 no b" : absl::StrCat("2: ", t, "@3 no b"));
      return absl::OkStatus();
    }),
              absl::OkStatus());
  }
}

TEST_F(JobCheckpointsTest, InAsyncPlacesAreThoseOfTheLastTwoPosts) {
  config_.config.mutable_train()->set_lanes(2);
  StartCluster({.trainers = 2, .sync = false});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(BeginTrainer(t, /*resume=*/false).status());
    return Train(t, 0, t == 0 ? 2 : 5);
  }),
            absl::OkStatus());
  const auto border = [](int t, int64_t step) {
    return BorderState{.step = step, .places = [t, step] { return PlaceOf(t, step, {"a"}); }};
  };
  for (const int64_t step : {2, 3, 4}) ASSERT_EQ(checkpoints(1).Save(border(1, step)), absl::OkStatus());
  ASSERT_EQ(checkpoints(0).Save(border(0, 2)), absl::OkStatus());
  ASSERT_EQ(checkpoints(1).Save(border(1, 5)), absl::OkStatus());

  StartCluster({.trainers = 2, .sync = false});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    ASSIGN_OR_RETURN(const Begun begun, BeginTrainer(t, /*resume=*/true));
    EXPECT_EQ(TextOf(begun.places), t == 0 ? "2: 0@2 no a" : "2: 1@4 1@3 no a");
    return absl::OkStatus();
  }),
            absl::OkStatus());
}

TEST_F(JobCheckpointsTest, PlacesThatCannotBeReadAreNone) {
  config_.config.mutable_train()->set_lanes(2);
  v1::StreamPlaces all = PlaceOf(0, 3, {});
  EXPECT_EQ(AddPlaces("\x07", 1, &all).code(), absl::StatusCode::kDataLoss);
  v1::StreamPlaces other;
  other.set_streams(3);
  EXPECT_EQ(AddPlaces(other.SerializeAsString(), 1, &all).code(), absl::StatusCode::kDataLoss);
  StartCluster({.trainers = 2});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    ASSIGN_OR_RETURN(const v1::StreamPlaces places, DealPlaces(Trainer(t), 0, /*lanes=*/2, "\x07"));
    EXPECT_EQ(TextOf(places), "0:");
    return absl::OkStatus();
  }),
            absl::OkStatus());
}

TEST_F(JobCheckpointsTest, InAsyncTheLastCheckpointHasTheStepsOfAll) {
  StartCluster({.trainers = 2, .sync = false});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    RETURN_IF_ERROR(BeginTrainer(t, /*resume=*/false).status());
    RETURN_IF_ERROR(Train(t, 0, 2 + t));
    const BorderState at = {.step = 2 + t, .version = 0};
    RETURN_IF_ERROR(checkpoints(t).Save(at));
    RETURN_IF_ERROR(cluster_->client(t).board().Exchange("end", "", /*kept=*/true).status());
    return checkpoints(t).SaveLast(at);
  }),
            absl::OkStatus());
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(dir_ + "/step-000000000002");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->data().trainer_steps(), ElementsAre(2, 3));
}

TEST_F(JobCheckpointsTest, AStepIsSavedOnceAndItsEvaluationIsAdded) {
  StartCluster({});
  ASSERT_TRUE(BeginTrainer(0, /*resume=*/false).ok());
  ASSERT_EQ(Train(0, 0, 1), absl::OkStatus());
  ASSERT_EQ(checkpoints(0).Save({.step = 1, .version = 1}), absl::OkStatus());
  checkpoints(0).RecordEvaluation(2, {.samples = 1, .measures = {{"loss", 0.25}}}, nullptr);  // of another step
  EXPECT_FALSE(ReadManifest(dir_ + "/step-000000000001")->has_eval_loss());
  checkpoints(0).RecordEvaluation(1, {.samples = 1, .measures = {{"loss", 0.5}}}, nullptr);
  ASSERT_EQ(checkpoints(0).Save({.step = 1, .version = 1}), absl::OkStatus());
  EXPECT_EQ(ReadManifest(dir_ + "/step-000000000001")->eval_loss(), 0.5);
}

TEST_F(JobCheckpointsTest, AJobWithoutCheckpointsDoesNothing) {
  StartCluster({});
  const std::unique_ptr<JobCheckpoints> none = JobCheckpoints::Create({.trainer = Trainer(0)});
  EXPECT_FALSE(none->keeps());
  EXPECT_EQ(none->Save({.step = 1, .version = 1}), absl::OkStatus());
  EXPECT_EQ(none->SaveLast({.step = 1, .version = 1}), absl::OkStatus());
  EXPECT_EQ(none->AwaitSaved(), absl::OkStatus());
  EXPECT_THAT(Names(), ElementsAre());
}

}  // namespace
}  // namespace weir
