// Processes die. The chief: at every moment of its life, in every mode in which the others go on; they end well, and
// the last checkpoint holds all that they have done. A server: all hear of it from the trainers that have found it out.

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/mutex.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One call, as far as a test looks at it.
struct Glance {
  int server = 0;
  Method method = Method::kPush;
  int64_t step = -1;  // Push
  bool save = false;  // Control
  std::string key;    // Exchange, with a contribution; "post " before it for a post
};

Glance LookAt(const TappedCall& call) {
  Glance glance{.server = call.server, .method = call.method};
  if (const auto push = call.As<v1::PushRequest>()) glance.step = push->step();
  if (const auto control = call.As<v1::ControlRequest>()) glance.save = control->has_save();
  if (const auto exchange = call.As<v1::ExchangeRequest>(); exchange && exchange->has_contribution()) {
    glance.key = absl::StrCat(exchange->has_edition() ? "post " : "", exchange->key());
  }
  return glance;
}

// Opens once; a test that waits for it in vain fails, and goes on.
class Latch {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  void Await() {
    MutexLock lock(&mu_);
    for (int s = 0; !open_ && s < 60; ++s) changed_.WaitWithTimeout(&mu_, absl::Seconds(1));
    EXPECT_TRUE(open_) << "what this waits for has not happened in 60 s";
    open_ = true;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
};

enum class Fate { kGoOn, kDieBefore, kDieAfter };
using Decide = std::function<Fate(const Glance&)>;

// A trainer that dies at a call: from then on nothing leaves it and nothing reaches it.
std::unique_ptr<Transport> Mortal(Transport* servers, Decide decide, Latch* died) {
  const auto dead = std::make_shared<std::atomic<bool>>(false);
  const auto die = [dead, died] {
    *dead = true;
    died->Open();
  };
  return Tapped(servers, [dead, die, decide = std::move(decide)](TappedCall call) {
    const Fate fate = *dead ? Fate::kDieBefore : decide(LookAt(call));
    if (fate == Fate::kDieBefore) {
      die();
      return call.done(absl::UnavailableError("dead"));
    }
    call.OnAnswer([dead](absl::StatusOr<Slices>& answer) {
      if (*dead) answer = absl::UnavailableError("dead");
    });
    call.GoOn();
    if (fate == Fate::kDieAfter) die();
  });
}

Decide AtPost(const std::string& key, Fate fate = Fate::kDieBefore) {
  return [key = "post " + key, fate](const Glance& g) { return g.key == key ? fate : Fate::kGoOn; };
}
Decide AtExchange(const std::string& key) {
  return [key](const Glance& g) { return g.key == key ? Fate::kDieBefore : Fate::kGoOn; };
}
Decide AtStep(int64_t step) {
  return
      [step](const Glance& g) { return g.method == Method::kPush && g.step >= step ? Fate::kDieBefore : Fate::kGoOn; };
}
// When the shard of server 0 is written, and that of server 1 is not; behind `key`, if any.
Decide InSave(const std::string& key = "") {
  return [key, behind = std::make_shared<std::atomic<bool>>(key.empty())](const Glance& g) {
    if (g.key == key) *behind = true;
    return *behind && g.save && g.server == 1 ? Fate::kDieBefore : Fate::kGoOn;
  };
}

class DeathsTest : public SlotJobTest {
 protected:
  struct Ends {
    std::vector<absl::Status> trainers, servers;
    std::vector<std::string> outputs;
    std::string dir;
  };

  // Three trainers of 60 steps with a checkpoint every 20 of their own, of which trainer 0 dies.
  static Ends RunAndDie(std::vector<std::string> overrides, Decide decide, InProcessRun run = {}) {
    static int runs = 0;
    Ends ends;
    ends.dir = Path(absl::StrCat("checkpoints", runs++));
    for (const char* setting :
         {"train.max_steps=60", "checkpoint.every_steps=20", "deadlines.lease_s=1.5", "deadlines.heartbeat_s=0.1",
          "deadlines.rpc_s=0.5", "deadlines.slow_warning_s=5", "deadlines.progress_deadline_s=30"}) {
      run.overrides.push_back(setting);
    }
    run.overrides.push_back(absl::StrCat("checkpoint.dir=\"", ends.dir, "\""));
    for (std::string& more : overrides) run.overrides.push_back(std::move(more));
    run.servers = 2;
    if (run.trainers == 1) run.trainers = 3;
    run.trainer_ends = &ends.trainers;
    run.server_ends = &ends.servers;
    run.outputs = &ends.outputs;
    Latch died;
    if (!run.between) {
      run.between = [&](int trainer, Transport* servers) -> std::unique_ptr<Transport> {
        if (trainer != 0) return nullptr;
        return Mortal(servers, decide, &died);
      };
    }
    (void)TryRun(std::move(run));
    return ends;
  }

  static v1::CheckpointManifest Newest(const std::string& dir) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return {};
    EXPECT_TRUE(newest->refused.empty());
    return newest->manifest;
  }

  static void ExpectTheOthersSavedAll(const Ends& ends, const std::string& what) {
    ASSERT_EQ(ends.trainers.size(), 3u) << what;
    EXPECT_FALSE(ends.trainers[0].ok()) << what;
    for (const int t : {1, 2}) EXPECT_TRUE(ends.trainers[t].ok()) << what << ": " << ends.trainers[t];
    for (const absl::Status& end : ends.servers) EXPECT_TRUE(end.ok()) << what << ": " << end;
    const v1::CheckpointManifest manifest = Newest(ends.dir);
    ASSERT_EQ(manifest.data().trainer_steps_size(), 3) << what;
    for (const int t : {1, 2}) EXPECT_EQ(manifest.data().trainer_steps(t), 60) << what;
    // It is the new chief that says so, or the old one, if it died behind it.
    EXPECT_THAT(ends.outputs[0] + ends.outputs[1],
                HasSubstr(absl::StrCat("path=", ends.dir, "/", StepDirectoryName(manifest.step()))))
        << what;
    EXPECT_THAT(ends.outputs[1], HasSubstr("eval step=60 ")) << what;
    EXPECT_THAT(ends.outputs[2], Not(HasSubstr("checkpoint step="))) << what;
    // Nothing half-written is left by anyone who lives.
    for (const auto& entry : std::filesystem::directory_iterator(ends.dir)) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tmp-"))) << what;
    }
  }
};

TEST_F(DeathsTest, WhereverTheChiefDiesTheOthersBeginAndTheirLastCheckpointHoldsAll) {
  const std::vector<std::pair<std::string, Decide>> moments = {
      {"before it says where to begin", AtPost("beginning")},
      {"when it has said where to begin", AtPost("beginning", Fate::kDieAfter)},
      {"in a step", AtStep(30)},
      {"in a save", InSave()},
      {"behind its last step", AtExchange("end")},
      {"in the last evaluation", AtExchange("eval.end")},
      {"in the last save", InSave("end")},
  };
  for (const auto& [what, decide] : moments) {
    ExpectTheOthersSavedAll(RunAndDie({"distribute.sync=false"}, decide), what);
  }
}

// It is published, and nobody knows.
TEST_F(DeathsTest, WhenItDiesAsTheLastCheckpointIsPublishedThereIsOne) {
  const Ends ends = RunAndDie({"distribute.sync=false", "train.eval_every_steps=20"}, AtPost("saved"));
  ExpectTheOthersSavedAll(ends, "published");
  // The evaluations on the way were the old chief's to tell of; what it left untold is the new one's.
  EXPECT_THAT(absl::StrCat(ends.outputs[0], ends.outputs[1]), HasSubstr("eval step=20 "));
}

TEST_F(DeathsTest, InEveryModeInWhichTheOthersGoOn) {
  const std::vector<std::vector<std::string>> modes = {
      {"distribute.async_apply=EAGER"},
      {"distribute.half_async={}", "train.workers=2"},
      {"distribute.bounded_staleness={steps: 2}"},
      {"distribute.geo={every_steps: 5}"},
      {"distribute.wire.push=WIRE_INT8"},
  };
  for (std::vector<std::string> mode : modes) {
    const std::string what = mode[0];
    mode.push_back("distribute.sync=false");
    ExpectTheOthersSavedAll(RunAndDie(mode, AtStep(30)), what);
    if (what != "distribute.geo={every_steps: 5}") continue;
    ExpectTheOthersSavedAll(RunAndDie(mode, InSave("end")), what + ", in the last save");
  }
}

// Trainers 1 and 2 have done nothing when the chief, which has saved at its steps 20 and 40, dies.
TEST_F(DeathsTest, ANewChiefThatIsBehindTheOldOneWritesCheckpointsAboveItsOwn) {
  Latch died;
  const Ends ends = RunAndDie({"distribute.sync=false", "checkpoint.keep_last=1"}, {},
                              {.between = [&](int trainer, Transport* servers) {
                                if (trainer == 0) return Mortal(servers, AtStep(50), &died);
                                return Tapped(servers, [&](TappedCall call) {
                                  if (call.method == Method::kPush) died.Await();
                                  call.GoOn();
                                });
                              }});
  ExpectTheOthersSavedAll(ends, "behind");
  EXPECT_EQ(ListCheckpoints(ends.dir)->size(), 1u);
  EXPECT_EQ(Newest(ends.dir).data().trainer_steps(0), 50);
}

// A resume goes on from what the new chief has written, with every trainer at its own step.
TEST_F(DeathsTest, ARunGoesOnFromTheNewChiefsCheckpoint) {
  const Ends first = RunAndDie({"distribute.sync=false"}, AtStep(30));
  ExpectTheOthersSavedAll(first, "first");
  const v1::CheckpointManifest before = Newest(first.dir);
  EXPECT_EQ(before.data().trainer_steps(0), 30);
  Run({.overrides = {"distribute.sync=false", "train.max_steps=70", absl::StrCat("checkpoint.dir=\"", first.dir, "\"")},
       .servers = 2,
       .trainers = 3,
       .resume = true});
  const v1::CheckpointManifest after = Newest(first.dir);
  EXPECT_GT(after.step(), before.step());
  for (int t = 0; t < 3; ++t) EXPECT_EQ(after.data().trainer_steps(t), 70) << t;
}

// The duties stay where they are when another trainer 0 comes, and all of its steps are in the last checkpoint.
TEST_F(DeathsTest, AnotherTrainer0IsNoSecondChief) {
  Latch died, back;
  std::atomic<int> zeros{0};
  const Ends ends = RunAndDie({"distribute.sync=false"}, {},
                              {.replace_trainer_0 = true, .between = [&](int trainer, Transport* servers) {
                                 if (trainer == 0 && zeros++ == 0) return Mortal(servers, AtStep(10), &died);
                                 return Tapped(servers, [&, trainer](TappedCall call) {
                                   const int64_t step = LookAt(call).step;
                                   // Trainers 1 and 2 take five steps before the death, and the last twenty when the
                                   // other trainer 0 is at work.
                                   if (trainer == 0 && step >= 0) back.Open();
                                   if (trainer != 0 && step == 5) died.Await();
                                   if (trainer != 0 && step == 40) back.Await();
                                   call.GoOn();
                                 });
                               }});
  for (const absl::Status& end : ends.trainers) EXPECT_TRUE(end.ok()) << end;
  for (const absl::Status& end : ends.servers) EXPECT_TRUE(end.ok()) << end;
  EXPECT_THAT(ends.outputs[0], Not(HasSubstr("checkpoint step=")));
  EXPECT_THAT(ends.outputs[1], HasSubstr("checkpoint step="));
  const v1::CheckpointManifest manifest = Newest(ends.dir);
  ASSERT_EQ(manifest.data().trainer_steps_size(), 3);
  for (int t = 0; t < 3; ++t) EXPECT_EQ(manifest.data().trainer_steps(t), 60) << t;
}

TEST_F(DeathsTest, WithADirectoryPerHostTheNewChiefsHostHasItsPart) {
  const std::string hosts = Path("hosts");
  const Ends ends = RunAndDie({"distribute.sync=false", "checkpoint.per_host=true"}, InSave("end"),
                              {.checkpoint_dir = [&](int server) { return absl::StrCat(hosts, "/", server); }});
  for (const int t : {1, 2}) EXPECT_TRUE(ends.trainers[t].ok()) << ends.trainers[t];
  for (const absl::Status& end : ends.servers) EXPECT_TRUE(end.ok()) << end;
  EXPECT_THAT(ends.outputs[1], HasSubstr("checkpoint step="));
  const absl::StatusOr<std::vector<CheckpointPath>> chiefs = ListCheckpoints(ends.dir);
  ASSERT_TRUE(chiefs.ok() && !chiefs->empty());
  for (const int server : {0, 1}) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(hosts, "/", server, "/", chiefs->back().name))) << server;
  }
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(chiefs->back().path);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  for (const int t : {1, 2}) EXPECT_EQ(manifest->data().trainer_steps(t), 60);
}

// Holds a trainer's step until it has heard that the job is to end. `held`, if not null, is set when the step begins.
std::unique_ptr<Transport> HeldStep(Transport* servers, int64_t step, std::atomic<bool>* held) {
  return Tapped(servers, [step, held, stopped = std::make_shared<Latch>()](TappedCall call) {
    if (LookAt(call).step == step) {
      if (held != nullptr) *held = true;
      stopped->Await();
    }
    if (call.method == Method::kHeartbeat) {
      call.OnAnswer([stopped](const absl::StatusOr<Slices>& answer) {
        v1::HeartbeatReply reply;
        if (answer.ok() && reply.ParseFromString(Flatten(*answer)) && reply.stop_requested()) stopped->Open();
      });
    }
    call.GoOn();
  });
}

// No death: the stop comes in the last of all steps.
TEST_F(DeathsTest, AJobThatIsStoppedInItsLastStepIsComplete) {
  for (const bool evaluates : {false, true}) {
    std::atomic<bool> stop{false};
    std::string job = kSlotJob;
    if (!evaluates) job = absl::StrReplaceAll(job, {{"eval { files: \"eval.txt\" }", ""}});
    const absl::StatusOr<InProcessResult> result =
        TryRun({.job_text = job,
                .overrides = {"train.max_steps=20", "deadlines.heartbeat_s=0.1"},
                .servers = 2,
                .stop = &stop,
                .between = [&](int, Transport* servers) { return HeldStep(servers, 19, &stop); }});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(stop);
    EXPECT_EQ(result->summary.steps, 20);
    // The evaluation at the end is missing.
    EXPECT_EQ(result->summary.stopped, evaluates) << result->summary.DoneLine();
  }
}

// No death: trainer 1 is asked to stop at its step 30, when trainer 0 has done all of its steps.
TEST_F(DeathsTest, AJobWhoseLastTrainerIsStoppedIsNotComplete) {
  std::atomic<bool> stop{false};
  const absl::StatusOr<InProcessResult> result =
      TryRun({.overrides = {"distribute.sync=false", "train.max_steps=60", "deadlines.heartbeat_s=0.1"},
              .servers = 2,
              .trainers = 2,
              .stop = &stop,
              .between = [&](int trainer, Transport* servers) {
                if (trainer != 0) return HeldStep(servers, 30, nullptr);
                return Tapped(servers, [&stop](TappedCall call) {
                  if (LookAt(call).key == "end") stop = true;
                  call.GoOn();
                });
              }});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->summaries.size(), 2u);
  EXPECT_EQ(result->summaries[0].steps, 60);
  EXPECT_LT(result->summaries[1].steps, 60);
  for (const TrainSummary& summary : result->summaries) EXPECT_TRUE(summary.stopped) << summary.DoneLine();
}

// Server 1 is dead for everyone from step 30 on, and what a trainer tells server 0 of it is lost once.
TEST_F(DeathsTest, ATrainerThatHasFoundAServerDeadDoesNotGoBeforeTheLivingKnow) {
  std::atomic<bool> dead{false};
  const Ends ends =
      RunAndDie({}, {}, {.between = [&dead](int, Transport* servers) {
                  return Tapped(servers, [&dead, lost = std::make_shared<std::atomic<int>>(0)](TappedCall call) {
                    if (LookAt(call).step >= 30) dead = true;
                    const auto beat = call.As<v1::HeartbeatRequest>();
                    if (beat && beat->has_failure() && (*lost)++ < 1) {
                      return call.done(absl::UnavailableError("lost"));
                    }
                    if (dead && call.server == 1) return call.done(absl::UnavailableError("dead"));
                    call.GoOn();
                  });
                }});
  for (const absl::Status& end : ends.trainers) {
    EXPECT_EQ(end.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(end.message()), HasSubstr("server 1"));
  }
  EXPECT_THAT(std::string(ends.servers[0].message()), HasSubstr("server 1")) << ends.servers[0];
}

// A prediction in which somebody's part is missing is none.
TEST_F(DeathsTest, APredictionWithoutATrainersPartFailsAndNamesIt) {
  const std::vector<std::string> overrides = {"distribute.sync=false", "deadlines.lease_s=1.5",
                                              "deadlines.heartbeat_s=0.1", "deadlines.rpc_s=0.5"};
  std::vector<std::string> train = overrides;
  train.push_back("train.max_steps=20");
  train.push_back(CheckpointIn("to_predict"));
  Run({.overrides = train, .trainers = 2});
  for (const char* key : {"model", "scored", "written"}) {
    for (const int victim : {0, 1}) {
      Latch died;
      std::vector<absl::Status> ends;
      InProcessRun run{.job_text = kSlotJob,
                       .directory = dir_,
                       .overrides = overrides,
                       .trainers = 2,
                       .trainer_ends = &ends,
                       .between = [&](int trainer, Transport* servers) -> std::unique_ptr<Transport> {
                         if (trainer != victim) return nullptr;
                         return Mortal(servers, AtExchange(key), &died);
                       }};
      (void)PredictInProcess(run, {.checkpoints = Path("to_predict"), .output = Path("scores")});
      EXPECT_EQ(ends[1 - victim].code(), absl::StatusCode::kUnavailable) << key << " " << ends[1 - victim];
      EXPECT_THAT(std::string(ends[1 - victim].message()),
                  HasSubstr(absl::StrCat("trainer ", victim, " died before its part was done")));
    }
  }
}

}  // namespace
}  // namespace weir
