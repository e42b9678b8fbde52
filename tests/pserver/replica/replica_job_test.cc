// The programs of replica_job.h are what replicas and channels read of those that the transpiler makes of the jobs.
#include "tests/pserver/replica/replica_job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "transpiler/job/job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAreArray;

constexpr char kClipped[] = R"(
name: "clipped"
data { train { files: "none" } criteo {} batch_size: 32 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "deep" mlp { input: "fields" sizes: [16, 8] activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } clip { by_global_norm { max_norm: 1 } } }
train { seed: 1 lanes: 8 }
distribute { servers: 1 }
)";

std::string CutText(const std::string& optimizer, int width = 96) {
  return absl::StrCat(R"(name: "sharded"
data {
  train { files: "none" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 29 } slot { name: "code" } }
  ids { shared: "code" }
  batch_size: 64
}
model {
  layer { name: "codes" embedding { ids: "code" table: "held" pooling: SUM } }
  layer { name: "input" concat { input: "codes" input: "x" } }
  layer { name: "deep" mlp { input: "input" sizes: [)",
                      width, ", 64] activation: RELU } }\n", R"(
  layer { name: "out" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "held" width: 4 is_sparse: true dict_size: 700 }
optimizer { )",
                      optimizer, " }\n");
}

constexpr char kDeepFm[] = R"(
name: "deepfm"
data { train { files: "none" } criteo {} batch_size: 2048 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "field_vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "field_weights" pooling: SUM } }
  layer { name: "fm" fm_interaction { input: "fields" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" mlp { input: "input" sizes: [400, 400, 400] activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "fm" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "field_vectors" width: 16 is_sparse: true is_distributed: true
  optimizer { adagrad { learning_rate: 0.05 } } }
table { name: "field_weights" width: 1 is_sparse: true is_distributed: true
  optimizer { adagrad { learning_rate: 0.05 } } }
optimizer { adam { learning_rate: 0.001 } schedule { exponential { decay_steps: 40 decay_rate: 0.7 } } }
train { seed: 1 lanes: 8 }
)";

// Without what nobody reads of a dense variable on a trainer.
std::vector<std::string> VarsOf(const v1::ProgramDesc& program) {
  std::vector<std::string> texts;
  for (v1::VarDesc var : program.blocks(0).vars()) {
    var.set_kind(var.kind());
    var.set_dtype(var.dtype());
    var.clear_initializer();
    var.clear_is_parameter();
    var.clear_is_sparse();
    var.clear_stop_gradient();
    texts.push_back(var.ShortDebugString());
  }
  return texts;
}
std::vector<std::string> OpsOf(const v1::BlockDesc& block) {
  std::vector<std::string> texts;
  for (const v1::OpDesc& op : block.ops()) texts.push_back(OpText(op));
  return texts;
}

v1::BlockDesc WithoutBuckets(v1::BlockDesc block) {
  for (v1::OpDesc& op : *block.mutable_ops()) {
    auto* const attrs = op.mutable_attrs();
    attrs->erase(
        std::remove_if(attrs->begin(), attrs->end(), [](const v1::OpAttr& attr) { return attr.name() == "bucket"; }),
        attrs->end());
  }
  return block;
}

// The transpiler puts few parameters into one bucket, unless their sums go by slices; replicas have several, since
// their tests are of exchanges that are under way at the same time.
void ExpectSame(const ReplicaPrograms& made, const Programs& transpiled) {
  v1::Plan plan = transpiled.main.plan();
  plan.clear_tables();
  plan.clear_fetched_rows();
  EXPECT_EQ(made.main.plan().DebugString(), plan.DebugString());
  EXPECT_EQ(made.main.mode().ShortDebugString(), transpiled.main.mode().ShortDebugString());
  EXPECT_EQ(made.main.format_version(), transpiled.main.format_version());
  EXPECT_EQ(made.main.name(), transpiled.main.name());
  EXPECT_EQ(made.main.seed(), transpiled.main.seed());
  EXPECT_EQ(made.startup.seed(), transpiled.startup.seed());
  EXPECT_THAT(VarsOf(transpiled.main), IsSupersetOf(VarsOf(made.main)));
  EXPECT_THAT(VarsOf(transpiled.startup), IsSupersetOf(VarsOf(made.startup)));

  v1::BlockDesc sends;
  for (const v1::OpDesc& op : transpiled.main.blocks(0).ops()) {
    if (op.type() == "all_reduce" || op.type() == "local_gradient") *sends.add_ops() = op;
  }
  if (made.main.mode().all_reduce().sharded()) {
    EXPECT_THAT(OpsOf(made.main.blocks(0)), ElementsAreArray(OpsOf(sends)));
  } else {
    EXPECT_THAT(OpsOf(WithoutBuckets(made.main.blocks(0))), ElementsAreArray(OpsOf(WithoutBuckets(sends))));
  }
  ASSERT_EQ(made.main.blocks_size(), transpiled.main.blocks_size());
  for (int b = 1; b < made.main.blocks_size(); ++b) {
    EXPECT_THAT(OpsOf(made.main.blocks(b)), ElementsAreArray(OpsOf(transpiled.main.blocks(b)))) << b;
  }
  ASSERT_EQ(made.startup.blocks_size(), transpiled.startup.blocks_size());
  EXPECT_THAT(OpsOf(made.startup.blocks(1)), UnorderedElementsAreArray(OpsOf(transpiled.startup.blocks(1))));
}

void ExpectSame(const ReplicaJob& replica, const absl::StatusOr<Job>& job) {
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Programs> programs = TrainerPrograms(*job, "", "");
  ASSERT_TRUE(programs.ok()) << programs.status();
  ExpectSame(replica.Programs(), *programs);
}

// Settings of a job that is trained as the replica is.
std::vector<std::string> SettingsOf(const ReplicaJob& job, std::vector<std::string> more = {}) {
  std::vector<std::string> settings = {"distribute.dense=ALL_REDUCE", "distribute.servers=1",
                                       absl::StrCat("train.lanes=", job.lanes),
                                       absl::StrCat("distribute.trainers=", job.trainers)};
  if (job.sharded) settings.emplace_back("distribute.update=SHARDED");
  if (job.any_order) settings.emplace_back("distribute.reproducible=false");
  if (job.adasum) settings.emplace_back("distribute.all_reduce={reduction: ADASUM}");
  if (job.compression != v1::DTYPE_UNSET) {
    settings.push_back(absl::StrCat("distribute.all_reduce={compression: ", v1::DType_Name(job.compression), "}"));
  }
  if (job.local_steps > 0) {
    settings.push_back(absl::StrCat("distribute.local_sgd={every_steps: ", job.local_steps, "}"));
  }
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

void ExpectSame(const ReplicaJob& replica, const std::string& text, const std::vector<std::string>& more = {}) {
  SCOPED_TRACE(absl::StrCat(replica.trainers, " trainers, ", replica.sharded ? "sharded" : "replicated"));
  ExpectSame(replica, ParseJob(text, "job.textproto", SettingsOf(replica, more)));
}

TEST(ReplicaJobTest, SumsOfEveryKind) {
  for (const int trainers : {1, 2, 3, 5, 8}) {
    ReplicaJob job = SlotReplica();
    job.trainers = trainers;
    ExpectSame(job, kSlotJob);
    job.adasum = true;
    ExpectSame(job, kSlotJob);
    job.any_order = true;
    ExpectSame(job, kSlotJob);
    job.adasum = false;
    ExpectSame(job, kSlotJob);
    job.compression = v1::FLOAT16;
    ExpectSame(job, kSlotJob);
    job.compression = v1::BFLOAT16;
    ExpectSame(job, kSlotJob);
  }
}

TEST(ReplicaJobTest, AveragesOfEveryOptimizer) {
  struct Case {
    ReplicaJob::Optimizer optimizer;
    const char* text;
  };
  for (const Case& each : {Case{ReplicaJob::Optimizer::kSgd, "sgd { learning_rate: 0.1 }"},
                           Case{ReplicaJob::Optimizer::kMomentum, "momentum { learning_rate: 0.1 mu: 0.9 }"},
                           Case{ReplicaJob::Optimizer::kAdagrad, "adagrad { learning_rate: 0.1 }"},
                           Case{ReplicaJob::Optimizer::kAdam, "adam { learning_rate: 0.1 }"}}) {
    ReplicaJob job = SlotReplica();
    job.trainers = 3;
    job.optimizer = each.optimizer;
    job.learning_rate = 0.1;
    ExpectSame(job, kSlotJob, {absl::StrCat("optimizer={", each.text, "}")});
    job.local_steps = 3;
    job.any_order = true;
    ExpectSame(job, kSlotJob, {absl::StrCat("optimizer={", each.text, "}")});
    job.schedule = ExponentialRate(0.1, 2, 0.5);
    job.clip = ReplicaJob::Clip::kByGlobalNorm;
    job.max_norm = 1;
    ExpectSame(job, kSlotJob,
               {absl::StrCat("optimizer={", each.text,
                             " schedule { exponential { decay_steps: 2 decay_rate: 0.5 } }"
                             " clip { by_global_norm { max_norm: 1 } } }")});
  }
}

TEST(ReplicaJobTest, NormsOverTables) {
  for (const bool sharded : {false, true}) {
    for (const int trainers : {1, 2, 3}) {
      ReplicaJob job = ClippedReplica();
      job.sharded = sharded;
      job.trainers = trainers;
      ExpectSame(job, kClipped);
    }
  }
}

TEST(ReplicaJobTest, CutParametersOfEveryOptimizer) {
  const std::vector<ReplicaJob> jobs = CutReplicas();
  constexpr char kAdam[] =
      "adam { learning_rate: 0.01 } clip { by_global_norm { max_norm: 0.05 } } l2_decay: 0.01 "
      "schedule { exponential { decay_steps: 2 decay_rate: 0.5 } }";
  const std::vector<const char*> optimizers = {
      kAdam, "lamb { learning_rate: 0.01 }", "lars_momentum { learning_rate: 0.1 }",
      "momentum { learning_rate: 0.1 } clip { by_norm { max_norm: 0.05 } }", "sgd { learning_rate: 0.1 }"};
  ASSERT_EQ(jobs.size(), optimizers.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    ReplicaJob job = jobs[i];
    ExpectSame(job, CutText(optimizers[i]));
    job.sharded = true;
    for (const int trainers : {1, 2, 3, 5, 7, 8}) {
      job.trainers = trainers;
      job.lanes = trainers == 7 ? 32 : 8;
      ExpectSame(job, CutText(optimizers[i]));
    }
  }
}

TEST(ReplicaJobTest, LargeParameters) {
  for (int trainers = 1; trainers <= 8; ++trainers) {
    for (const bool sharded : {false, true}) {
      ReplicaJob wide = WideReplica(), deepfm = DeepFmReplica(), cnn = CnnReplica();
      for (ReplicaJob* const job : {&wide, &deepfm, &cnn}) {
        job->sharded = sharded;
        job->trainers = trainers;
      }
      ExpectSame(wide, CutText("adam { learning_rate: 0.01 }", 2000));
      ExpectSame(deepfm, kDeepFm);
      ExpectSame(cnn, LoadJob("examples/fashion_mnist/cnn.textproto", SettingsOf(cnn)));
    }
  }
}

}  // namespace
}  // namespace weir
