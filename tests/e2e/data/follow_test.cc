// data.follow: files that appear while a job trains. The bits are those of a run that finds all files at its start,
// whenever they appear, in whatever cluster, and however often the run is stopped and resumed.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/clock.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/protocol/transport.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAllReduce[] = "distribute.dense=ALL_REDUCE";
constexpr char kAhead[] = "distribute.prefetch_rows=true";
// Examples of each part; 32 make a step, 4 of each lane.
constexpr int kParts[] = {130, 7, 0, 222, 65, 1, 300, 31, 8, 150};
constexpr int kAll = 914;

class FollowTest : public SlotJobTest {
 protected:
  // A directory of parts, which a test fills.
  class Inbox {
   public:
    explicit Inbox(const std::string& name) : name_(name) { fs::create_directories(Path(name)); }
    // Adds the next `parts` parts, with a pause before each.
    void Add(int parts, absl::Duration pause = absl::ZeroDuration()) {
      for (; parts > 0; --parts, ++next_) {
        std::this_thread::sleep_for(absl::ToChronoMilliseconds(pause));
        const std::string file = Path(absl::StrFormat("%s/part-%02d.txt", name_, next_));
        WriteSlotLines(file + ".tmp", written_, written_ + kParts[next_]);
        fs::rename(file + ".tmp", file);
        written_ += kParts[next_];
      }
    }
    void Done() const { std::ofstream(Path(name_ + "/DONE")) << "\n"; }
    void NotDone() const { fs::remove(Path(name_ + "/DONE")); }

   private:
    const std::string name_;
    int next_ = 0;
    int64_t written_ = 0;
  };

  static std::vector<std::string> Settings(const std::string& inbox, const std::string& follow = "") {
    return {absl::StrCat("data.train.files=\"", inbox, "/part-*.txt\""),
            absl::StrCat("data.follow={ look_every_s: 0.05 until: \"", inbox, "/DONE\" ", follow, " }"),
            "train.epochs=1", "train.digest_every_steps=3", "deadlines.heartbeat_s=0.1"};
  }
  static InProcessRun RunOn(const std::string& inbox, std::vector<std::string> more = {}, InProcessRun run = {}) {
    std::vector<std::string> overrides = Settings(inbox);
    overrides.insert(overrides.end(), more.begin(), more.end());
    run.overrides.insert(run.overrides.begin(), overrides.begin(), overrides.end());
    return run;
  }
  static v1::CheckpointManifest Newest(const std::string& name) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(Path(name));
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() ? newest->manifest : v1::CheckpointManifest();
  }
  // Trains while parts appear one after the other.
  static InProcessResult RunWhileTheyAppear(const std::string& name, std::vector<std::string> more,
                                            InProcessRun run = {}) {
    Inbox inbox(name);
    std::thread writer([&inbox] {
      inbox.Add(std::size(kParts), absl::Milliseconds(60));
      inbox.Done();
    });
    InProcessResult result = Run(RunOn(name, std::move(more), std::move(run)));
    writer.join();
    return result;
  }
};

TEST_F(FollowTest, WhenFilesAppearAndWhereTheyAreReadChangesNoBit) {
  Inbox inbox("there");
  inbox.Add(std::size(kParts));
  inbox.Done();
  const InProcessResult there = Run(RunOn("there"));
  EXPECT_EQ(there.summary.steps, 29);
  EXPECT_EQ(there.summary.examples + there.summary.left_out, kAll);
  ASSERT_EQ(there.digests.size(), 9u);
  struct Cluster {
    const char* name;
    std::vector<std::string> overrides;
    int servers, trainers;
  };
  for (const Cluster& c : {Cluster{"local", {}, 1, 1},
                           {"sync", {}, 2, 3},
                           {"ahead", {kAhead}, 2, 2},
                           {"all_reduce", {kAllReduce}, 1, 3},
                           {"no_servers", {kAllReduce}, 0, 2},
                           {"eight", {}, 1, 8}}) {
    const InProcessResult result =
        RunWhileTheyAppear(c.name, c.overrides, {.servers = c.servers, .trainers = c.trainers});
    EXPECT_EQ(result.digests, there.digests) << c.name;
    EXPECT_EQ(result.summary.steps, there.summary.steps) << c.name;
    EXPECT_EQ(result.summary.left_out, there.summary.left_out) << c.name;
    EXPECT_EQ(EvalLines(result), EvalLines(there)) << c.name;
  }
}

TEST_F(FollowTest, FilesTogetherAreOneGroup) {
  Inbox inbox("together");
  inbox.Add(std::size(kParts));
  inbox.Done();
  std::set<std::vector<std::string>> different;
  for (const char* together : {"files_together: 1", "files_together: 4", "files_together: 100"}) {
    const InProcessResult there = Run({.overrides = Settings("together", together)});
    EXPECT_EQ(there.summary.examples + there.summary.left_out, kAll);
    different.insert(there.digests);
    const std::string name = absl::StrCat("appear", different.size());
    Inbox late(name);
    std::thread writer([&late] {
      late.Add(std::size(kParts), absl::Milliseconds(60));
      late.Done();
    });
    EXPECT_EQ(Run({.overrides = Settings(name, together), .servers = 2, .trainers = 2}).digests, there.digests);
    writer.join();
  }
  EXPECT_EQ(different.size(), 3u) << "they are shuffled together";
}

TEST_F(FollowTest, EveryWayToMakeAStep) {
  const std::vector<std::vector<std::string>> ways = {
      {"train.accumulate_steps=2"},
      {"data.shuffle=NO_SHUFFLE"},
      {"data.shuffle=WINDOW", "data.shuffle_window=10"},
      {"data.dense={ transform: STANDARDIZE }"},
      {"data.drop_last=true"},
      {kAhead, "train.accumulate_steps=2"},
      {"train.lanes=4", "data.batch_size=28"},
  };
  for (size_t i = 0; i < ways.size(); ++i) {
    const std::string name = absl::StrCat("way", i);
    const InProcessResult appear = RunWhileTheyAppear(name, ways[i], {.servers = 1, .trainers = 2});
    EXPECT_THAT(appear.digests, testing::Not(IsEmpty())) << ways[i][0];
    // Now all are there.
    EXPECT_EQ(Run(RunOn(name, ways[i])).digests, appear.digests) << ways[i][0];
  }
}

// A stop may come at any moment: between files, while they are read, before the first.
TEST_F(FollowTest, ARunThatIsStoppedAndResumedHasTheBitsOfOneThatIsNot) {
  struct Cluster {
    std::vector<std::string> overrides;
    int servers, trainers;
  };
  const std::vector<std::vector<Cluster>> ways = {
      {{{}, 2, 3}, {{}, 1, 2}, {{}, 1, 1}},
      {{{kAhead}, 1, 2}},
      {{{kAllReduce}, 1, 2}, {{kAllReduce}, 0, 3}},
      {{{"train.accumulate_steps=3"}, 1, 2}},
      {{{"data.dense={ transform: STANDARDIZE }"}, 1, 2}},
  };
  for (size_t w = 0; w < ways.size(); ++w) {
    const std::string name = absl::StrCat("stops", w), checkpoints = absl::StrCat("stopped", w);
    Inbox whole(name + "_whole");
    whole.Add(std::size(kParts));
    whole.Done();
    const InProcessResult reference = Run(RunOn(name + "_whole", ways[w][0].overrides));
    Inbox inbox(name);
    std::vector<std::string> digests;
    int64_t step = 0;
    for (int round = 0; round <= 4; ++round) {
      SCOPED_TRACE(absl::StrCat("way ", w, ", run ", round));
      const Cluster& cluster = ways[w][static_cast<size_t>(round) % ways[w].size()];
      // Parts that no stream needs any more are gone.
      if (round > 0 && !ListCheckpoints(Path(checkpoints))->empty()) {
        const v1::CheckpointManifest manifest = Newest(checkpoints);
        std::set<std::string> needed;
        for (const v1::FileGroup& group : manifest.trainers().follow().groups()) {
          for (const v1::FollowedFile& file : group.files()) needed.insert(file.name());
        }
        for (const auto& entry : fs::directory_iterator(Path(name))) {
          const std::string file = absl::StrCat(name, "/", entry.path().filename().string());
          if (needed.count(file) == 0 && file <= manifest.trainers().follow().last_file()) fs::remove(entry.path());
        }
      }
      std::atomic<bool> stop{false};
      std::thread writer([&] {
        if (round > 0) inbox.Add(round == 4 ? 1 : 3, absl::Milliseconds(30));
        if (round == 4) inbox.Done();
        std::this_thread::sleep_for(std::chrono::milliseconds(round == 2 ? 50 : 500));
        stop = round < 4;
      });
      InProcessRun run =
          RunOn(name, cluster.overrides,
                {.servers = cluster.servers, .trainers = cluster.trainers, .resume = round > 0, .stop = &stop});
      run.overrides.push_back(CheckpointIn(checkpoints));
      const absl::StatusOr<InProcessResult> result = TryRun(run);
      writer.join();
      // Way 4 has no checkpoint after the first run: statistics need the first file.
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->summary.stopped, round < 4);
      EXPECT_GE(result->summary.steps, step);
      step = result->summary.steps;
      digests.insert(digests.end(), result->digests.begin(), result->digests.end());
      EXPECT_TRUE(round > 0 || step == 0);
    }
    EXPECT_EQ(digests, reference.digests) << "way " << w;
    EXPECT_EQ(step, reference.summary.steps) << "way " << w;
  }
}

TEST_F(FollowTest, ACheckpointOnTheWayIsAsGoodAsOneAtAStop) {
  Inbox inbox("on_the_way");
  inbox.Add(std::size(kParts));
  inbox.Done();
  const InProcessResult whole = Run(RunOn("on_the_way"));
  for (const int64_t steps : {1, 4, 5, 12, 21, 28}) {
    const std::string dir = absl::StrCat("way_", steps);
    InProcessRun run = RunOn("on_the_way", {CheckpointIn(dir), absl::StrCat("train.max_steps=", steps)},
                             {.servers = 2, .trainers = 2});
    std::vector<std::string> digests = Run(run).digests;
    const v1::CheckpointManifest manifest = Newest(dir);
    EXPECT_EQ(manifest.trainers().follow().streams_size(), 8);
    for (const v1::FollowedStream& stream : manifest.trainers().follow().streams()) {
      // At the end a stream has no more than there are.
      EXPECT_TRUE(stream.given() == 4 * steps || (steps == 28 && stream.given() >= 110)) << stream.given();
    }
    run = RunOn("on_the_way", {CheckpointIn(dir)}, {.servers = 1, .trainers = 3, .resume = true});
    const InProcessResult rest = Run(run);
    digests.insert(digests.end(), rest.digests.begin(), rest.digests.end());
    EXPECT_EQ(digests, whole.digests) << steps;
  }
}

// A run that has ended goes on with the files of the next day; nothing is trained on twice, nothing left out but at the
// very end.
TEST_F(FollowTest, AnEndedRunGoesOnWithMoreFiles) {
  for (const char* mode : {"distribute.sync=true", "distribute.sync=false"}) {
    const bool sync = absl::EndsWith(mode, "true");
    const std::string name = sync ? "days" : "days_async";
    Inbox inbox(name);
    int64_t examples = 0, left_out = 0, steps = 0;
    for (int day = 0; day < 5; ++day) {
      inbox.Add(2);
      inbox.Done();
      InProcessRun run = RunOn(name, {mode, CheckpointIn(name + "_kept"), "train.digest_every_steps=0"},
                               {.servers = 2, .trainers = 2, .resume = day > 0});
      const InProcessResult result = Run(run);
      inbox.NotDone();
      if (sync) {
        examples += result.summary.examples;
        EXPECT_GT(result.summary.steps, steps);
        steps = result.summary.steps;
      } else {
        for (const TrainSummary& summary : result.summaries) examples += summary.examples;
      }
      left_out = result.summary.left_out;
    }
    EXPECT_EQ(examples + left_out, kAll) << mode;
    EXPECT_LT(left_out, 32) << mode;
  }
}

// The last step of a day may have fewer examples than its checkpoint, written at once, would make it.
TEST_F(FollowTest, ACheckpointOfEveryStepKnowsHowFarTheLastOneWent) {
  for (const char* mode : {"distribute.sync=true", "distribute.sync=false"}) {
    const bool sync = absl::EndsWith(mode, "true");
    const std::string name = sync ? "every_step" : "every_step_async";
    Inbox inbox(name);
    int64_t examples = 0, left_out = 0;
    for (int day = 0; day < 5; ++day) {
      inbox.Add(2);
      inbox.Done();
      const InProcessResult result = Run(
          RunOn(name, {mode, CheckpointIn(name + "_kept"), "train.digest_every_steps=0", "checkpoint.every_steps=1"},
                {.servers = 2, .trainers = 3, .resume = day > 0}));
      inbox.NotDone();
      if (sync) examples += result.summary.examples;
      for (const TrainSummary& summary : result.summaries) examples += sync ? 0 : summary.examples;
      left_out = result.summary.left_out;
    }
    EXPECT_EQ(examples + left_out, kAll) << mode;
  }
}

TEST_F(FollowTest, FilesOfAFewLinesAreAllTrainedOn) {
  fs::create_directories(Path("few"));
  int written = 0;
  for (int f = 0; f < 300; ++f) {
    const int lines = 1 + f % 3;
    WriteSlotLines(Path(absl::StrFormat("few/part-%03d.txt", f)), written, written + lines);
    written += lines;
  }
  std::ofstream(Path("few/DONE")) << "\n";
  const InProcessResult result = Run(RunOn("few", {}, {.servers = 1, .trainers = 3}));
  EXPECT_EQ(result.summary.examples + result.summary.left_out, written);
  EXPECT_EQ(result.summary.steps, (written + 16) / 32);
}

// The chief has done its last step and looks for files all the same.
TEST_F(FollowTest, InAsyncAChiefThatIsDoneLooksOnForTheOthers) {
  // Lanes 4 to 7, those of trainer 1, lack one example of their fourth batch.
  fs::create_directories(Path("done_early"));
  WriteSlotLines(Path("done_early/part-0.txt"), 0, 124);
  std::thread writer([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    WriteSlotLines(Path("done_early/new"), 124, 200);
    fs::rename(Path("done_early/new"), Path("done_early/part-1.txt"));
  });
  const InProcessResult result =
      Run(RunOn("done_early", {"distribute.sync=false", "train.max_steps=4", "train.digest_every_steps=0"},
                {.servers = 1, .trainers = 2}));
  writer.join();
  ASSERT_EQ(result.summaries.size(), 2u);
  for (const TrainSummary& summary : result.summaries) EXPECT_EQ(summary.steps, 4);
}

TEST_F(FollowTest, InAsyncAChiefThatIsDoneEndsAJobWithoutANewFile) {
  fs::create_directories(Path("done_never"));
  WriteSlotLines(Path("done_never/part-0.txt"), 0, 124);
  InProcessRun run = {.overrides = Settings("done_never", "deadline_s: 1"), .servers = 1, .trainers = 2};
  run.overrides.insert(run.overrides.end(),
                       {"distribute.sync=false", "train.max_steps=4", "train.digest_every_steps=0"});
  EXPECT_THAT(TryRun(run).status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no new file of data.train")));
}

// A process that takes a dead trainer's place finds where its streams were, also where the files before are gone.
TEST_F(FollowTest, AnotherTrainerGoesOnWhereADeadOneWas) {
  for (const char* more : {"data.dense={ transform: NONE }", "data.dense={ transform: STANDARDIZE }"}) {
    const std::string name = absl::StrCat("takeover_", absl::StrContains(more, "STANDARD"));
    Inbox inbox(name);
    inbox.Add(7);  // 725 examples
    std::thread writer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(3000));
      // A checkpoint after this knows the streams of both.
      inbox.Add(3);
      inbox.Done();
    });
    int zeros = 0;
    InProcessRun run = RunOn(name,
                             {"distribute.sync=false", "train.digest_every_steps=0", "checkpoint.every_steps=2", more,
                              CheckpointIn(name + "_kept"), "deadlines.lease_s=1.5", "deadlines.rpc_s=0.5"},
                             {.servers = 2,
                              .trainers = 2,
                              .replace_trainer_0 = true,
                              .between = [&](int trainer, Transport* servers) -> std::unique_ptr<Transport> {
                                if (trainer != 0 || zeros++ > 0) return nullptr;
                                const auto dead = std::make_shared<std::atomic<bool>>(false);
                                return Tapped(servers, [dead](TappedCall call) {
                                  const auto push = call.As<v1::PushRequest>();
                                  if (push && push->step() >= 15) *dead = true;
                                  if (*dead) return call.done(absl::UnavailableError("dead"));
                                  call.GoOn();
                                });
                              }});
    const absl::StatusOr<InProcessResult> result = TryRun(run);
    writer.join();
    ASSERT_TRUE(result.ok()) << more << result.status();
    int64_t given = 0;
    const v1::CheckpointManifest kept = Newest(name + "_kept");
    for (const v1::FollowedStream& stream : kept.trainers().follow().streams()) given += stream.given();
    EXPECT_EQ(given + result->summary.left_out, kAll) << more;
    EXPECT_LT(result->summary.left_out, 32) << more;
  }
}

// Else a chief that takes the place of a dead one would deal other groups than those trained on.
TEST_F(FollowTest, AChiefTrainsOnNoGroupThatItHasNotPosted) {
  Inbox inbox("posted");
  inbox.Add(std::size(kParts));
  inbox.Done();
  // Nothing that is posted of groups arrives before a push, or before a time in which there would be one.
  std::atomic<bool> early{false}, posted{false};
  absl::Time first = absl::InfiniteFuture();  // used by the follower's thread
  const auto slow = [&](TappedCall call) {
    if (call.method == Method::kPush && !posted) early = true;
    const auto exchange = call.As<v1::ExchangeRequest>();
    if (exchange && exchange->has_edition() && exchange->has_contribution() && exchange->key() == "follow.0") {
      const absl::Time now = Clock::Real()->Now();
      first = std::min(first, now);
      if (now - first < absl::Milliseconds(300) && !early) return call.done(absl::UnavailableError("later"));
      posted = true;
    }
    call.GoOn();
  };
  const InProcessResult result =
      Run(RunOn("posted", {"distribute.sync=false", "train.digest_every_steps=0"},
                {.between = [&slow](int, Transport* servers) { return Tapped(servers, slow); }}));
  EXPECT_FALSE(early);
  EXPECT_EQ(result.summary.examples + result.summary.left_out, kAll);
}

// With other trainers streams go on at the least of their steps; a later checkpoint says where they really are.
TEST_F(FollowTest, AsyncRunsGoOnWithOtherTrainers) {
  Inbox inbox("others");
  int64_t before = 0;
  const int trainers[] = {2, 3, 3};
  for (int round = 0; round < 3; ++round) {
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      inbox.Add(round == 2 ? 2 : 4);
      if (round == 2) inbox.Done();
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      stop = round < 2;
    });
    const absl::StatusOr<InProcessResult> result =
        TryRun(RunOn("others", {"distribute.sync=false", "train.digest_every_steps=0", CheckpointIn("others_kept")},
                     {.servers = 1, .trainers = trainers[round], .resume = round > 0, .stop = &stop}));
    writer.join();
    ASSERT_TRUE(result.ok()) << result.status();
    int64_t given = 0, examples = 0;
    const v1::CheckpointManifest kept = Newest("others_kept");
    for (const v1::FollowedStream& stream : kept.trainers().follow().streams()) given += stream.given();
    for (const TrainSummary& summary : result->summaries) examples += summary.examples;
    // In the second run some examples may be those of the first, but no run leaves any out.
    EXPECT_TRUE(round == 1 ? examples >= given - before : examples == given - before)
        << round << ": " << examples << " of " << given - before;
    EXPECT_TRUE(round < 2 || given + result->summary.left_out == kAll) << given;
    before = given;
  }
}

TEST_F(FollowTest, AsyncRunsAreStoppedAndResumedToo) {
  const std::vector<std::vector<std::string>> modes = {
      {"distribute.async_apply=EAGER"},
      {"distribute.half_async={}", "train.workers=2"},
      {"distribute.bounded_staleness={steps: 2}"},
      {"distribute.geo={every_steps: 5}"},
      {"train.accumulate_steps=2"},
  };
  for (size_t m = 0; m < modes.size(); ++m) {
    SCOPED_TRACE(modes[m][0]);
    const std::string name = absl::StrCat("async", m);
    Inbox inbox(name);
    int64_t examples = 0, left_out = 0;
    for (int round = 0; round < 3; ++round) {
      std::atomic<bool> stop{false};
      std::thread writer([&] {
        inbox.Add(round == 2 ? 2 : 4, absl::Milliseconds(20));
        if (round == 2) inbox.Done();
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        stop = round < 2;
      });
      InProcessRun run = RunOn(name, modes[m], {.servers = 2, .trainers = 2, .resume = round > 0, .stop = &stop});
      run.overrides.insert(run.overrides.end(), {"distribute.sync=false", "train.digest_every_steps=0",
                                                 CheckpointIn(absl::StrCat("asynced", m))});
      const absl::StatusOr<InProcessResult> result = TryRun(run);
      writer.join();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->summary.stopped, round < 2);
      for (const TrainSummary& summary : result->summaries) examples += summary.examples;
      left_out = result->summary.left_out;
    }
    EXPECT_EQ(examples + left_out, kAll);
  }
}

// Everybody waits for a trainer that waits for a file, in servers and in collective operations.
TEST_F(FollowTest, NoDeadlineRunsWhileThereIsNoFile) {
  for (const char* dense : {"distribute.dense=SERVERS", kAllReduce}) {
    const std::string name = absl::StrCat("slow_", absl::StrContains(dense, "ALL"));
    Inbox inbox(name);
    inbox.Add(2);  // 137 examples: not all lanes have as many
    std::thread writer([&] {
      inbox.Add(2, absl::Seconds(5));
      inbox.Done();
    });
    const InProcessResult result = Run(
        RunOn(name, {dense, "deadlines.progress_deadline_s=3", "deadlines.slow_warning_s=0.3", "deadlines.lease_s=2"},
              {.servers = 1, .trainers = 3}));
    writer.join();
    EXPECT_EQ(result.summary.examples + result.summary.left_out, 359) << dense;
  }
}

TEST_F(FollowTest, AFileThatNeverComesEndsTheJob) {
  Inbox inbox("never");
  inbox.Add(1);
  const auto run = [](const std::string& name, const std::string& follow) {
    InProcessRun run = {.overrides = Settings(name, follow), .servers = 1, .trainers = 2};
    return TryRun(run).status();
  };
  EXPECT_THAT(run("never", "deadline_s: 1.5"),
              StatusIs(absl::StatusCode::kUnavailable,
                       testing::AllOf(HasSubstr("no new file of data.train behind 'never/part-00.txt' for"),
                                      HasSubstr("data.follow.deadline_s"))));
  EXPECT_THAT(run("never", "deadline_s: 1.5 files_together: 2"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("1 of data.follow.files_together are there")));
  Inbox empty("nothing");
  empty.Done();
  EXPECT_THAT(run("nothing", ""), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("no file with an example to train on has appeared before "
                                                     "'nothing/DONE' (data.follow.until)")));
}

TEST_F(FollowTest, AFileThatCannotBeReadEndsTheJobByItsName) {
  Inbox inbox("damaged");
  inbox.Add(4);
  std::ofstream(Path("damaged/part-04.txt")) << SlotLine(0) << "\nthis is no line\n";
  inbox.Done();
  EXPECT_THAT(TryRun(RunOn("damaged", {}, {.servers = 1, .trainers = 2})).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("damaged/part-04.txt:2: ")));
  Inbox cut("cut");
  cut.Add(2);
  std::ofstream(Path("cut/part-02.txt.gz")) << "not gzip";
  cut.Done();
  InProcessRun run = RunOn("cut", {"data.train.files=\"cut/part*\""}, {.servers = 1, .trainers = 2});
  EXPECT_THAT(TryRun(run).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cut/part-02.txt.gz: is not gzip")));
}

TEST_F(FollowTest, AResumeNeedsTheFilesItStillReads) {
  Inbox inbox("needs");
  inbox.Add(4);
  inbox.Done();
  Run(RunOn("needs", {CheckpointIn("needs_kept"), "train.max_steps=6"}));
  const InProcessRun resumed = RunOn("needs", {CheckpointIn("needs_kept")}, {.resume = true});
  const std::string part = Path("needs/part-03.txt");
  std::ofstream(part, std::ios::app) << SlotLine(0) << "\n";
  EXPECT_THAT(TryRun(resumed).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'needs/part-03.txt' had")));
  fs::remove(part);
  EXPECT_THAT(TryRun(resumed).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("needs/part-03.txt: cannot open")));
  EXPECT_THAT(
      TryRun(RunOn("needs", {CheckpointIn("needs_kept"), "data.follow.files_together=2"}, {.resume = true})).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("data.follow.files_together 1")));
}

TEST_F(FollowTest, TheCheckpointsOfALongRunListOnlyFilesInUse) {
  const std::string name = "many";
  fs::create_directories(Path(name));
  for (int f = 0; f < 200; ++f) WriteSlotLines(Path(absl::StrFormat("many/part-%03d.txt", f)), 8 * f, 8 * f + 8);
  std::ofstream(Path("many/DONE")) << "\n";
  const InProcessResult result =
      Run(RunOn(name, {CheckpointIn("many_kept"), "checkpoint.every_steps=10"}, {.servers = 2, .trainers = 2}));
  EXPECT_EQ(result.summary.steps, 50);
  // Trainers say from time to time how far they are; the next run knows what the last one has read.
  const InProcessResult more = Run(RunOn(name, {CheckpointIn("many_kept")}, {.trainers = 2, .resume = true}));
  EXPECT_EQ(more.summary.steps, 50);
  EXPECT_LE(Newest("many_kept").trainers().follow().groups_size(), 1);
  EXPECT_EQ(Newest("many_kept").trainers().follow().last_file(), "many/part-199.txt");
}

}  // namespace
}  // namespace weir
