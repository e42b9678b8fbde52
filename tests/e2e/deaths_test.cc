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
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/slot_job.h"
#include "tests/testing/slot_job_test.h"
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

Glance LookAt(int server, Method method, const Slices& request) {
  Glance glance{.server = server, .method = method};
  if (method == Method::kPush) {
    const absl::StatusOr<Frame> frame = DecodeFrame(request);
    v1::PushRequest push;
    if (frame.ok() && push.ParseFromString(frame->header)) glance.step = push.step();
  } else if (method == Method::kControl) {
    v1::ControlRequest control;
    glance.save = control.ParseFromString(Flatten(request)) && control.has_save();
  } else if (method == Method::kExchange) {
    v1::ExchangeRequest exchange;
    if (exchange.ParseFromString(Flatten(request)) && exchange.has_contribution()) {
      glance.key = absl::StrCat(exchange.has_edition() ? "post " : "", exchange.key());
    }
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
class Mortal : public Transport {
 public:
  Mortal(Transport* inner, Decide decide, Latch* died) : inner_(inner), decide_(std::move(decide)), died_(died) {}

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    const Fate fate = *dead_ ? Fate::kDieBefore : decide_(LookAt(server, method, request));
    if (fate != Fate::kGoOn && fate != Fate::kDieAfter) Die();
    if (*dead_) return done(absl::UnavailableError("dead"));
    inner_->Call(server, method, std::move(request), timeout,
                 [dead = dead_, done = std::move(done)](absl::StatusOr<Slices> answer) {
                   done(*dead ? absl::UnavailableError("dead") : std::move(answer));
                 });
    if (fate == Fate::kDieAfter) Die();
  }
  std::string Describe(int server) const override { return inner_->Describe(server); }
  int servers() const override { return inner_->servers(); }

 private:
  void Die() {
    *dead_ = true;
    died_->Open();
  }

  Transport* const inner_;
  const Decide decide_;
  Latch* const died_;
  const std::shared_ptr<std::atomic<bool>> dead_ = std::make_shared<std::atomic<bool>>(false);
};

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
        return std::make_unique<Mortal>(servers, decide, &died);
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
  class Held : public Transport {
   public:
    Held(Transport* inner, Latch* until) : inner_(inner), until_(until) {}
    void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
      if (method == Method::kPush) until_->Await();
      inner_->Call(server, method, std::move(request), timeout, std::move(done));
    }
    std::string Describe(int server) const override { return inner_->Describe(server); }
    int servers() const override { return inner_->servers(); }

   private:
    Transport* const inner_;
    Latch* const until_;
  };
  const Ends ends = RunAndDie({"distribute.sync=false", "checkpoint.keep_last=1"}, {},
                              {.between = [&](int trainer, Transport* servers) -> std::unique_ptr<Transport> {
                                if (trainer == 0) return std::make_unique<Mortal>(servers, AtStep(50), &died);
                                return std::make_unique<Held>(servers, &died);
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
  // Trainers 1 and 2 take five steps before the death, and the last twenty when the other trainer 0 is at work.
  class Held : public Transport {
   public:
    Held(Transport* inner, Latch* died, Latch* back) : inner_(inner), died_(died), back_(back) {}
    void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
      const Glance glance = LookAt(server, method, request);
      if (glance.method == Method::kPush && glance.step == 5) died_->Await();
      if (glance.method == Method::kPush && glance.step == 40) back_->Await();
      inner_->Call(server, method, std::move(request), timeout, std::move(done));
    }
    std::string Describe(int server) const override { return inner_->Describe(server); }
    int servers() const override { return inner_->servers(); }

   private:
    Transport* const inner_;
    Latch *const died_, *const back_;
  };
  class Replacement : public Transport {
   public:
    Replacement(Transport* inner, Latch* back) : inner_(inner), back_(back) {}
    void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
      if (method == Method::kPush) back_->Open();
      inner_->Call(server, method, std::move(request), timeout, std::move(done));
    }
    std::string Describe(int server) const override { return inner_->Describe(server); }
    int servers() const override { return inner_->servers(); }

   private:
    Transport* const inner_;
    Latch* const back_;
  };
  std::atomic<int> zeros{0};
  const Ends ends = RunAndDie(
      {"distribute.sync=false"}, {},
      {.replace_trainer_0 = true, .between = [&](int trainer, Transport* servers) -> std::unique_ptr<Transport> {
         if (trainer != 0) return std::make_unique<Held>(servers, &died, &back);
         if (zeros++ == 0) return std::make_unique<Mortal>(servers, AtStep(10), &died);
         return std::make_unique<Replacement>(servers, &back);
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

// Holds a trainer's step until it has heard that the job is to end.
class HeldStep : public Transport {
 public:
  // `held`, if not null, is set when the step begins.
  HeldStep(Transport* inner, int64_t step, std::atomic<bool>* held) : inner_(inner), step_(step), held_(held) {}
  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    if (LookAt(server, method, request).step == step_) {
      if (held_ != nullptr) *held_ = true;
      stopped_->Await();
    }
    if (method == Method::kHeartbeat) {
      done = [stopped = stopped_, done = std::move(done)](absl::StatusOr<Slices> answer) {
        v1::HeartbeatReply reply;
        const bool heard = answer.ok() && reply.ParseFromString(Flatten(*answer)) && reply.stop_requested();
        done(std::move(answer));
        if (heard) stopped->Open();
      };
    }
    inner_->Call(server, method, std::move(request), timeout, std::move(done));
  }
  std::string Describe(int server) const override { return inner_->Describe(server); }
  int servers() const override { return inner_->servers(); }

 private:
  Transport* const inner_;
  const int64_t step_;
  std::atomic<bool>* const held_;
  const std::shared_ptr<Latch> stopped_ = std::make_shared<Latch>();
};

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
                .between = [&](int, Transport* servers) { return std::make_unique<HeldStep>(servers, 19, &stop); }});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(stop);
    EXPECT_EQ(result->summary.steps, 20);
    // The evaluation at the end is missing.
    EXPECT_EQ(result->summary.stopped, evaluates) << result->summary.DoneLine();
  }
}

// No death: trainer 1 is asked to stop at its step 30, when trainer 0 has done all of its steps.
TEST_F(DeathsTest, AJobWhoseLastTrainerIsStoppedIsNotComplete) {
  class Watched : public Transport {
   public:
    Watched(Transport* inner, std::atomic<bool>* at_end) : inner_(inner), at_end_(at_end) {}
    void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
      if (LookAt(server, method, request).key == "end") *at_end_ = true;
      inner_->Call(server, method, std::move(request), timeout, std::move(done));
    }
    std::string Describe(int server) const override { return inner_->Describe(server); }
    int servers() const override { return inner_->servers(); }

   private:
    Transport* const inner_;
    std::atomic<bool>* const at_end_;
  };
  std::atomic<bool> stop{false};
  const absl::StatusOr<InProcessResult> result =
      TryRun({.overrides = {"distribute.sync=false", "train.max_steps=60", "deadlines.heartbeat_s=0.1"},
              .servers = 2,
              .trainers = 2,
              .stop = &stop,
              .between = [&](int trainer, Transport* servers) -> std::unique_ptr<Transport> {
                if (trainer == 0) return std::make_unique<Watched>(servers, &stop);
                return std::make_unique<HeldStep>(servers, 30, nullptr);
              }});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->summaries.size(), 2u);
  EXPECT_EQ(result->summaries[0].steps, 60);
  EXPECT_LT(result->summaries[1].steps, 60);
  for (const TrainSummary& summary : result->summaries) EXPECT_TRUE(summary.stopped) << summary.DoneLine();
}

// Server 1 is dead for everyone from step 30 on, and what a trainer tells server 0 of it is lost once.
TEST_F(DeathsTest, ATrainerThatHasFoundAServerDeadDoesNotGoBeforeTheLivingKnow) {
  class Broken : public Transport {
   public:
    Broken(Transport* inner, std::atomic<bool>* dead) : inner_(inner), dead_(dead) {}
    void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
      const Glance glance = LookAt(server, method, request);
      if (glance.method == Method::kPush && glance.step >= 30) *dead_ = true;
      v1::HeartbeatRequest beat;
      if (method == Method::kHeartbeat && beat.ParseFromString(Flatten(request)) && beat.has_failure() &&
          tries_++ < 1) {
        return done(absl::UnavailableError("lost"));
      }
      if (*dead_ && server == 1) return done(absl::UnavailableError("dead"));
      inner_->Call(server, method, std::move(request), timeout, std::move(done));
    }
    std::string Describe(int server) const override { return inner_->Describe(server); }
    int servers() const override { return inner_->servers(); }

   private:
    Transport* const inner_;
    std::atomic<bool>* const dead_;
    std::atomic<int> tries_{0};
  };
  std::atomic<bool> dead{false};
  const Ends ends =
      RunAndDie({}, {}, {.between = [&](int, Transport* servers) { return std::make_unique<Broken>(servers, &dead); }});
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
                         return std::make_unique<Mortal>(servers, AtExchange(key), &died);
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
