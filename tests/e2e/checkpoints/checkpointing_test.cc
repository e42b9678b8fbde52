// Which checkpoints are there after a run that went on from an earlier one than the newest, or that failed while it
// saved.

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/counters.h"
#include "framework/base/exit_code.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/owner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/file_calls.h"
#include "tests/testing/jobs/square_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

class CheckpointingTest : public ::testing::Test {
 protected:
  CheckpointingTest() {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    WriteSquares(dir_ + "/square.txt", [](int) { return false; });
  }
  ~CheckpointingTest() override { fs::remove_all(dir_); }

  // A checkpoint every 20 steps, and at the end.
  absl::StatusOr<InProcessResult> TryRun(int64_t max_steps, InProcessRun run) const {
    run.job_text = kSquareJob;
    run.directory = dir_;
    run.overrides.insert(run.overrides.begin(), {"train.epochs=100", "train.digest_every_steps=20",
                                                 absl::StrCat("train.max_steps=", max_steps),
                                                 "checkpoint.dir=\"checkpoints\"", "checkpoint.every_steps=20"});
    return TrainInProcess(run);
  }
  InProcessResult Run(int64_t max_steps, InProcessRun run) const {
    absl::StatusOr<InProcessResult> result = TryRun(max_steps, std::move(run));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }

  static std::vector<int64_t> Steps(const std::string& dir) {
    std::vector<int64_t> steps;
    const auto found = ListCheckpoints(dir);
    for (const CheckpointPath& each : *found) steps.push_back(each.step);
    return steps;
  }
  std::string Newest() const {
    const auto newest = FindNewestComplete(checkpoints_, "square");
    return newest.ok() ? newest->found.name : newest.status().ToString();
  }
  // Another byte in the same place: sizes say nothing of it.
  static void Damage(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(70);
    const char was = static_cast<char>(file.get());
    file.seekp(70);
    file.put(static_cast<char>(was ^ 1));
  }

  const std::string dir_ = ::testing::TempDir() + "/checkpointing";
  const std::string checkpoints_ = dir_ + "/checkpoints";
};

// Trainers of async are apart. With another number of them all go on where the slowest was.
TEST_F(CheckpointingTest, WhatIsPublishedBelowTheStepsOfAnEarlierRunStaysAndIsTheNewest) {
  Run(100, {.overrides = {"distribute.sync=false", "checkpoint.keep_last=2"}, .servers = 2, .trainers = 2});
  ASSERT_THAT(Steps(checkpoints_), ElementsAre(80, 100));
  // Trainer 1 had done fifty steps.
  const absl::StatusOr<v1::CheckpointManifest> read = ReadManifest(checkpoints_ + "/step-000000000100");
  ASSERT_TRUE(read.ok()) << read.status();
  v1::CheckpointManifest manifest = *read;
  manifest.mutable_data()->set_trainer_steps(1, 50);
  for (v1::CheckpointShard& shard : *manifest.mutable_shards()) shard.set_trainer_steps(1, 50);
  const std::string temporary = *BeginCheckpoint(checkpoints_, 100);
  fs::copy(checkpoints_ + "/step-000000000100", checkpoints_ + "/" + temporary, fs::copy_options::recursive);
  ASSERT_TRUE(PublishCheckpoint(checkpoints_, temporary, manifest).ok());

  const std::vector<std::string> three = {"distribute.sync=false", "checkpoint.keep_last=2"};
  // Ended before the first checkpoint: the one that it went on from is still the newest.
  EXPECT_FALSE(TryRun(55, {.overrides = three,
                           .trainers = 3,
                           .resume = true,
                           .edit =
                               [](int server, Programs* programs) {
                                 // A worker without its program ends with an error in its first step.
                                 if (server < 0) programs->main.mutable_blocks(0)->clear_ops();
                               }})
                   .ok());
  EXPECT_EQ(Newest(), "step-000000000100");

  Run(70, {.overrides = three, .trainers = 3, .resume = true});
  // It goes on at step 50, and its checkpoints are called so that the newest has the highest number.
  EXPECT_EQ(Newest(), "step-000000000102");
  EXPECT_THAT(Steps(checkpoints_), ElementsAre(101, 102));
  Run(75, {.overrides = three, .trainers = 3, .resume = true});
  EXPECT_EQ(Newest(), "step-000000000103");
  EXPECT_THAT(Steps(checkpoints_), ElementsAre(102, 103));
}

TEST_F(CheckpointingTest, ADamagedOneDoesNotOutliveThoseThatTookItsPlace) {
  const InProcessResult whole = Run(100, {.overrides = {"checkpoint.keep_last=2"}, .servers = 2});
  ASSERT_THAT(Steps(checkpoints_), ElementsAre(80, 100));
  Damage(checkpoints_ + "/step-000000000100/shard-00001");
  Run(95, {.overrides = {"checkpoint.keep_last=1"}, .resume = true});
  EXPECT_EQ(Newest(), "step-000000000095");
  EXPECT_THAT(Steps(checkpoints_ + "/earlier-1"), ElementsAre(100));
  const InProcessResult resumed = Run(100, {.overrides = {"checkpoint.keep_last=1"}, .resume = true});
  EXPECT_EQ(resumed.digests, std::vector<std::string>{whole.digests.back()});
}

bool WriteSomebodysMark(const std::string& dir) {
  std::ofstream(dir + "/OWNER") << "job: \"somebody\" run: \"2\"\n";
  return true;
}

// Checks the exit code and the last line of a trainer whose last checkpoint failed.
void ExpectNotSaved(const absl::Status& status, const std::string& cause) {
  EXPECT_EQ(ExitCodeOf(status), kExitBadInput) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the checkpoint of step 30 was not saved: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(cause));
  EXPECT_THAT(std::string(status.message()), HasSubstr("is step-000000000020, from which --resume goes on"));
}

TEST_F(CheckpointingTest, AFullDiskAtTheLastCheckpointIsTheLastWord) {
  const InProcessResult whole = Run(40, {.overrides = {"train.digest_every_steps=40"}});
  // One file is written by a server, the other by the chief.
  for (const char* file : {"/shard-00001", "/MANIFEST"}) {
    {
      const FileCallHook hook([file](const FileCall& call) {
        const bool last = call.path.find("tmp-step-000000000030") != std::string::npos;
        return call.name == "write" && last && call.path.find(file) != std::string::npos ? ENOSPC : 0;
      });
      ExpectNotSaved(TryRun(30, {.servers = 2}).status(), "No space left on device");
    }
    EXPECT_EQ(Newest(), "step-000000000020");
  }
  EXPECT_EQ(Run(40, {.overrides = {"train.digest_every_steps=40"}, .resume = true}).digests, whole.digests);
}

TEST_F(CheckpointingTest, ADiskThatHasBecomeReadOnlyIsNoLostPeer) {
  const FileCallHook hook([](const FileCall& call) {
    return call.name == "mkdir" && call.path.find("tmp-step-000000000030") != std::string::npos ? EROFS : 0;
  });
  ExpectNotSaved(TryRun(30, {.servers = 2}).status(), "Read-only file system");
}

TEST_F(CheckpointingTest, ACheckpointThatCannotBeRemovedEndsNoTraining) {
  const FileCallHook hook([](const FileCall& call) {
    return call.name == "unlink" && call.path.find("/trash-step-") != std::string::npos ? ENOTEMPTY : 0;
  });
  Run(100, {.overrides = {"checkpoint.keep_last=1"}, .servers = 2});
  EXPECT_THAT(Steps(checkpoints_), ElementsAre(100));
}

TEST_F(CheckpointingTest, AResumeThatDoesNotFitNamesTheSettingThatIsAnother) {
  Run(20, {});
  for (const auto& [setting, text] :
       {std::pair{"optimizer={ adam { learning_rate: 0.01 } schedule { noam { d_model: 8 warmup_steps: 10 } } }",
                  "does not have the state of a learning-rate schedule"},
        std::pair{"table[0].width=3", "the setting table[0].width was 2, and is 3"}}) {
    const absl::Status refused = TryRun(40, {.overrides = {setting}, .resume = true}).status();
    EXPECT_EQ(ExitCodeOf(refused), kExitBadInput) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr(text), HasSubstr("in this job: set it back"), Not(HasSubstr("@LR_SCHEDULE"))));
  }
  EXPECT_THAT(std::string(TryRun(40, {.overrides = {"name=\"other\""}, .resume = true}).status().message()),
              HasSubstr("are of job 'square', and this is job 'other'"));
}

TEST_F(CheckpointingTest, AResumeOfAnotherModelIsWarnedOf) {
  Run(20, {});
  testing::internal::CaptureStderr();
  Run(21, {.overrides = {"model.layer[3].fc.activation=TANH"}, .resume = true});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("is of another model: model.layer[3].fc.activation was IDENTITY, and is TANH in this job"));
}

TEST_F(CheckpointingTest, ADirectoryInWhichAnotherJobWritesIsRefusedByName) {
  Run(40, {});
  const auto half = BeginCheckpoint(checkpoints_, 60);
  ASSERT_TRUE(half.ok());
  {
    DirectoryOwner other({.dir = checkpoints_, .job = "elsewhere", .run = "1", .beat = absl::Milliseconds(10)});
    std::string holder;
    ASSERT_TRUE(*other.Take(&holder));
    for (const bool resume : {false, true}) {
      const absl::Status refused = TryRun(60, {.resume = resume}).status();
      EXPECT_EQ(ExitCodeOf(refused), kExitBadInput) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("belongs to job 'elsewhere'"));
    }
    EXPECT_TRUE(fs::exists(checkpoints_ + "/" + *half));
    EXPECT_THAT(Steps(checkpoints_), ElementsAre(20, 40));
  }
  Run(60, {.resume = true});
  EXPECT_FALSE(fs::exists(checkpoints_ + "/" + *half));
  EXPECT_FALSE(fs::exists(checkpoints_ + "/OWNER"));
}

// Another job starts while this one is assumed dead: at its next checkpoint this one ends, and changes nothing.
TEST_F(CheckpointingTest, ARunWhoseDirectoryHasPassedToAnotherWritesNothingMore) {
  const FileCallHook hook([&](const FileCall& call) {
    // The first checkpoint gets its name.
    if (call.name != "rename" || !call.to.ends_with("/step-000000000020")) return 0;
    return fs::remove(checkpoints_ + "/OWNER") && WriteSomebodysMark(checkpoints_) ? 0 : EIO;
  });
  const absl::Status status = TryRun(60, {}).status();
  EXPECT_EQ(ExitCodeOf(status), kExitBadInput) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("has passed to job 'somebody'"));
  EXPECT_THAT(Steps(checkpoints_), ElementsAre(20));
}

constexpr char kLongJob[] = R"(
name: "long"
data {
  train { files: "long-*.csv" }
  csv { column { name: "label" } column { name: "x" } column { name: "id" type: ID } }
  shuffle: NO_SHUFFLE
  batch_size: 64
}
model {
  layer { name: "vector" embedding { ids: "id" table: "vectors" pooling: SUM } }
  layer { name: "input" concat { input: "x" input: "vector" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 2 is_sparse: true is_distributed: true optimizer { adagrad {} } }
optimizer { adam { learning_rate: 0.01 } }
train { lanes: 8 digest_every_steps: 1457 }
checkpoint { dir: "checkpoints" every_steps: 1456 }
)";

// Writes 104 MiB: four files of 26,624 lines of 1 KiB, of which the job reads three columns.
void WriteLongLines(const std::string& dir) {
  for (int f = 0; f < 4; ++f) {
    std::ofstream out(absl::StrCat(dir, "/long-", f, ".csv"));
    out << "label,x,id,rest\n";
    for (int i = 0; i < 26624; ++i) {
      std::string line = absl::StrCat(i % 2, ",0.", i % 100, ",", i % 991, ",");
      line.resize(1023, 'r');
      out << line << "\n";
    }
  }
}

TEST_F(CheckpointingTest, AResumeSeeksInPlainFiles) {
  WriteLongLines(dir_);
  const auto run = [&](int64_t steps, bool resume) {
    const int64_t before = Counters::Process().Value("data.read");
    const auto result = TrainInProcess({.job_text = kLongJob,
                                        .directory = dir_,
                                        .overrides = {absl::StrCat("train.max_steps=", steps)},
                                        .resume = resume});
    EXPECT_TRUE(result.ok()) << result.status();
    return std::pair(result.ok() ? result->digests : std::vector<std::string>(),
                     Counters::Process().Value("data.read") - before);
  };
  // 1456 of 1664 steps, and the one behind them.
  constexpr int64_t kBytes = 4 * 26624 * int64_t{1024};
  const auto [whole, read] = run(1457, /*resume=*/false);
  EXPECT_GT(read, kBytes * 85 / 100);
  fs::remove_all(dir_ + "/checkpoints/step-000000001457");
  const auto [resumed, again] = run(1457, /*resume=*/true);
  EXPECT_EQ(resumed, whole);
  EXPECT_THAT(resumed, SizeIs(1));
  EXPECT_LE(again, kBytes * 2 / 100);
}

TEST_F(CheckpointingTest, PlacesOfStreamsFitAnyNumberOfTrainers) {
  const std::vector<std::string> window = {"data.shuffle=WINDOW", "data.shuffle_window=9", "train.epochs=20"};
  const InProcessResult whole = Run(100, {.overrides = window, .trainers = 2});
  fs::remove_all(checkpoints_);
  Run(42, {.overrides = window, .servers = 2, .trainers = 2});
  testing::internal::CaptureStderr();
  Run(70, {.overrides = window, .trainers = 3, .resume = true});
  // The last one has two streams.
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("data: 2 streams go on where the checkpoint left them; read again: 18 examples of shuffle"));
  // As a build writes it that knows no places.
  const absl::StatusOr<v1::CheckpointManifest> read = ReadManifest(checkpoints_ + "/step-000000000070");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(Run(100, {.overrides = window, .trainers = 2, .resume = true}).digests.back(), Eq(whole.digests.back()));
  fs::remove_all(checkpoints_ + "/step-000000000100");
  fs::remove_all(checkpoints_ + "/step-000000000080");
  v1::CheckpointManifest manifest = *read;
  manifest.clear_extra();
  const std::string temporary = *BeginCheckpoint(checkpoints_, 70);
  fs::copy(checkpoints_ + "/step-000000000070", checkpoints_ + "/" + temporary, fs::copy_options::recursive);
  ASSERT_TRUE(PublishCheckpoint(checkpoints_, temporary, manifest).ok());
  EXPECT_THAT(Run(100, {.overrides = window, .trainers = 2, .resume = true}).digests.back(), Eq(whole.digests.back()));
}

TEST_F(CheckpointingTest, ARunGoesOnByTheRuleThatCutItsStreamsUnlessItHasMadeNoStep) {
  Run(20, {});
  const std::string saved = checkpoints_ + "/step-000000000020";
  const absl::StatusOr<v1::CheckpointManifest> read = ReadManifest(saved);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->trainers().stream_scheme(), 4);
  for (const auto& [step, scheme, goes_on_by] : {std::tuple(20, 2, 2), std::tuple(0, 1, 4)}) {
    // As a build of that rule writes it, without places of streams.
    v1::CheckpointManifest manifest = *read;
    manifest.set_step(step);
    manifest.mutable_data()->set_trainer_steps(0, step);
    for (v1::CheckpointShard& shard : *manifest.mutable_shards()) shard.set_trainer_steps(0, step);
    manifest.clear_extra();
    manifest.mutable_trainers()->set_stream_scheme(scheme);
    const std::string temporary = *BeginCheckpoint(checkpoints_, step);
    fs::copy(saved, checkpoints_ + "/" + temporary, fs::copy_options::recursive);
    ASSERT_TRUE(PublishCheckpoint(checkpoints_, temporary, manifest).ok());
    for (const int64_t other : Steps(checkpoints_))
      if (other != step) fs::remove_all(checkpoints_ + "/" + StepDirectoryName(other));
    Run(step + 10, {.resume = true});
    const absl::StatusOr<v1::CheckpointManifest> next = ReadManifest(checkpoints_ + "/" + StepDirectoryName(step + 10));
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->trainers().stream_scheme(), goes_on_by);
  }
}

TEST_F(CheckpointingTest, InAsyncATrainerGoesOnAtTheStepThatTheServersHave) {
  // Steps of several batches, and the places of a chief and of another trainer, whose steps are not the chief's.
  const std::vector<std::string> async = {"distribute.sync=false", "train.accumulate_steps=2", "data.shuffle=WINDOW",
                                          "data.shuffle_window=5"};
  Run(45, {.overrides = async, .trainers = 2});
  testing::internal::CaptureStderr();
  Run(60, {.overrides = async, .trainers = 2, .resume = true});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("data: 4 streams go on where the checkpoint left them"));
  EXPECT_THAT(log, Not(HasSubstr("does not go on at its place")));
}

}  // namespace
}  // namespace weir
