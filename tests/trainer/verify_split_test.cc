// --verify: the split set has the bits of the program that was never split, and whatever is planted in it is found and
// named.

#include "trainer/verify/verify_split.h"

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/arithmetic.h"
#include "tests/testing/jobs/history_job.h"
#include "tests/testing/sum_in_arrival_order.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// A distributed table, a sparse parameter and a matrix that are cut over two servers, biases that are not.
std::string JobText(const std::string& optimizer) {
  return R"(name: "verify"
data {
  train { files: "no-such-file" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 128 }
    slot { name: "a" output: "cat" }
    slot { name: "b" output: "cat" }
    slot { name: "code" }
  }
  ids { shared: "code" }
  batch_size: 32
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "codes" embedding { ids: "code" table: "codebook" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "x" } }
  layer { name: "deep" fc { input: "input" size: 128 activation: RELU } }
  layer { name: "both" concat { input: "deep" input: "codes" } }
  layer { name: "out" fc { input: "both" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.05 } } }
table { name: "codebook" width: 8 is_sparse: true dict_size: 4096 }
optimizer { )" +
         optimizer + R"( }
distribute { servers: 2 trainers: 2 }
train { seed: 11 }
)";
}

// More of the distributed table, whose optimizer keeps one accumulator a row.
std::string TableJobText(const std::string& table) {
  std::string text = JobText("adagrad { learning_rate: 0.1 }");
  const std::string own = "adagrad { learning_rate: 0.05 } }";
  text.replace(text.find(own), own.size(), "adagrad { learning_rate: 0.05 per_row: true } } " + table);
  return text;
}

Job JobOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const absl::Status arithmetic = SetArithmetic(v1::Train::AUTO);
  EXPECT_TRUE(arithmetic.ok()) << arithmetic;
  absl::StatusOr<Job> job = ParseJob(text, "job.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *std::move(job) : Job();
}

VerifyReport Verify(const Job& job, VerifyOptions options = {}) {
  options.made_up = true;
  const absl::StatusOr<VerifyReport> report = VerifySplit(job, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : VerifyReport();
}

constexpr char kSgd[] = "sgd { learning_rate: 0.1 }";
constexpr char kAdam[] = "adam { learning_rate: 0.01 }";
constexpr char kScheduled[] =
    "momentum { learning_rate: 0.1 } schedule { exponential { decay_steps: 2 decay_rate: 0.5 } warm_up { steps: 2 } } "
    "l2_decay: 0.001 clip { by_value { max: 0.002 } }";

TEST(VerifySplitTest, EveryClusterHasTheBitsOfTheUnsplitProgram) {
  for (const char* optimizer : {kSgd, kAdam, kScheduled}) {
    for (const auto& [servers, trainers, lanes] :
         {std::tuple{1, 1, 8}, std::tuple{2, 2, 8}, std::tuple{3, 4, 4}, std::tuple{2, 1, 1}}) {
      const VerifyReport report = Verify(JobOf(JobText(optimizer), {absl::StrCat("distribute.servers=", servers),
                                                                    absl::StrCat("distribute.trainers=", trainers),
                                                                    absl::StrCat("train.lanes=", lanes)}),
                                         {.steps = 5, .threads = 2});
      EXPECT_TRUE(report.equal) << optimizer << " " << servers << " " << trainers << ": " << report.text;
      EXPECT_EQ(report.steps, 5);
      EXPECT_THAT(report.text, HasSubstr("equal after each of 5 steps of generated batches: "));
    }
  }
}

TEST(VerifySplitTest, OtherPlacementsAndSharedBuffersToo) {
  for (const char* setting :
       {"distribute.slice_var_up=false", "distribute.split_method=HASH_NAME", "distribute.memory_optimize=true",
        "table[1].is_sparse=false", "table[1].fetch=ROWS", "table[1].fetch=WHOLE", "train.accumulate_steps=3"}) {
    const VerifyReport report = Verify(JobOf(JobText(kAdam), {setting}), {.steps = 3});
    EXPECT_TRUE(report.equal) << setting << ": " << report.text;
  }
}

// Every trainer updates everything, or a share.
class AllReducedSplitTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::vector<std::string> Settings(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"distribute.dense=ALL_REDUCE", absl::StrCat("distribute.update=", GetParam())};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_P(AllReducedSplitTest, DenseGradientsAddedAmongTrainersToo) {
  const std::string clipped = "adam { learning_rate: 0.01 } clip { by_global_norm { max_norm: 0.01 } }";
  for (const std::string& optimizer : {std::string(kSgd), std::string(kScheduled), clipped}) {
    for (const auto& [servers, trainers, lanes] :
         {std::tuple{1, 1, 8}, std::tuple{2, 2, 8}, std::tuple{1, 3, 8}, std::tuple{1, 5, 32}}) {
      const VerifyReport report =
          Verify(JobOf(JobText(optimizer),
                       Settings({absl::StrCat("distribute.servers=", servers),
                                 absl::StrCat("distribute.trainers=", trainers), absl::StrCat("train.lanes=", lanes)})),
                 {.steps = 4});
      EXPECT_TRUE(report.equal) << optimizer << " " << servers << " " << trainers << ": " << report.text;
    }
  }
  for (const char* setting :
       {"distribute.memory_optimize=true", "table[1].is_sparse=false", "table[1].fetch=ROWS", "table[1].fetch=WHOLE",
        "train.accumulate_steps=3", "distribute.all_reduce={bucket_bytes: 4096 first_bucket_bytes: 4096}",
        "distribute.reproducible=false", "distribute.slice_var_up=false"}) {
    const VerifyReport report =
        Verify(JobOf(JobText(kAdam), Settings({"distribute.trainers=3", setting})), {.steps = 3});
    EXPECT_TRUE(report.equal) << setting << ": " << report.text;
  }
  const auto compressed =
      VerifySplit(JobOf(JobText(kAdam), {"distribute.dense=ALL_REDUCE", "distribute.reproducible=false",
                                         "distribute.all_reduce={compression: FLOAT16}"}),
                  {.steps = 3});
  EXPECT_THAT(std::string(compressed.status().message()),
              HasSubstr("--verify needs sums that are not rounded on the way"));
  // Without lanes each trainer is a leaf.
  const VerifyReport report =
      Verify(JobOf(JobText(kAdam), Settings({"distribute.trainers=3", "train.lanes=0", "distribute.reproducible=false",
                                             "data.batch_size=33"})),
             {.steps = 3});
  EXPECT_TRUE(report.equal) << report.text;
}

TEST_P(AllReducedSplitTest, NormsOverWholeParametersAndGroupsToo) {
  for (const char* optimizer : {"lamb { learning_rate: 0.01 }", "lars_momentum { learning_rate: 0.1 }",
                                "adagrad { learning_rate: 0.1 } clip { by_norm { max_norm: 0.05 } }",
                                "lamb { learning_rate: 0.01 } clip { by_global_norm { max_norm: 0.05 } }",
                                "momentum { learning_rate: 0.1 } l2_decay: 0.1", "ftrl { learning_rate: 0.1 }"}) {
    for (const int trainers : {2, 4}) {
      const VerifyReport report =
          Verify(JobOf(JobText(optimizer), Settings({absl::StrCat("distribute.trainers=", trainers)})), {.steps = 4});
      EXPECT_TRUE(report.equal) << optimizer << ", " << trainers << ": " << report.text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Updates, AllReducedSplitTest, ::testing::Values("REPLICATED", "SHARDED"),
                         [](const ::testing::TestParamInfo<const char*>& info) { return std::string(info.param); });

TEST(VerifySplitTest, SequencesAndTheirModelsToo) {
  for (const auto& [servers, trainers, lanes] : {std::tuple{1, 1, 8}, std::tuple{2, 2, 8}, std::tuple{3, 4, 4}}) {
    const VerifyReport report = Verify(
        JobOf(kHistoryJob, {absl::StrCat("distribute.servers=", servers),
                            absl::StrCat("distribute.trainers=", trainers), absl::StrCat("train.lanes=", lanes)}),
        {.steps = 4, .threads = 2});
    EXPECT_TRUE(report.equal) << servers << " " << trainers << ": " << report.text;
  }
}

TEST(VerifySplitTest, RowsInSegmentsToo) {
  const std::string text = TableJobText(R"(min_value: -0.5 max_value: 0.5 bad_gradient: SKIP_ROW
      segment { width: 1 optimizer { ftrl { learning_rate: 0.1 }
        schedule { inverse_time { decay_steps: 2 decay_rate: 0.5 } } } }
      segment { width: 3 after: 2 initializer { gaussian { stddev: 0.1 } } })");
  for (const auto& [servers, trainers] : {std::tuple{1, 1}, std::tuple{2, 2}, std::tuple{3, 4}}) {
    const VerifyReport report = Verify(
        JobOf(text, {absl::StrCat("distribute.servers=", servers), absl::StrCat("distribute.trainers=", trainers)}),
        {.steps = 5});
    EXPECT_TRUE(report.equal) << servers << " " << trainers << ": " << report.text;
  }
}

TEST(VerifySplitTest, RowsOf16BitsToo) {
  for (const char* more : {"", "min_value: -0.1 max_value: 0.1", "lifecycle { admit_probability: 0.5 ttl_steps: 2 }",
                           R"(bad_gradient: SKIP_ROW
           segment { width: 1 optimizer { ftrl { learning_rate: 0.1 } } }
           segment { width: 3 after: 2 initializer { gaussian { stddev: 0.1 } } optimizer { adam {} l2_decay: 0.1 }
             })"}) {
    for (const char* storage : {" storage: FLOAT16", " storage: BFLOAT16"}) {
      for (const auto& [servers, trainers] : {std::tuple{1, 1}, std::tuple{3, 4}}) {
        const VerifyReport report = Verify(
            JobOf(TableJobText(absl::StrCat(more, storage)),
                  {absl::StrCat("distribute.servers=", servers), absl::StrCat("distribute.trainers=", trainers)}),
            {.steps = 5, .threads = 2});
        EXPECT_TRUE(report.equal) << more << storage << " " << servers << " " << trainers << ": " << report.text;
      }
    }
  }
}

TEST(VerifySplitTest, RowsThatComeAndGoToo) {
  for (const char* lifecycle :
       {"admit_after: 2", "admit_probability: 0.5", "ttl_steps: 2 tombstones: true",
        "when_full: EVICT_LEAST_RECENT admit_after: 2", "when_full: EVICT_LEAST_FREQUENT ttl_steps: 3"}) {
    const std::string text = absl::StrReplaceAll(
        JobText(kSgd), {{"is_distributed: true", absl::StrCat("is_distributed: true dict_size: 16 logical_shards: 8 "
                                                              "lifecycle { ",
                                                              lifecycle, " }")}});
    const std::string fits = absl::StrReplaceAll(
        text,
        {{absl::StrContains(lifecycle, "EVICT") ? "no such text" : "dict_size: 16 logical_shards", "logical_shards"}});
    const VerifyReport report = Verify(JobOf(fits, {"distribute.servers=3"}), {.steps = 8});
    EXPECT_TRUE(report.equal) << lifecycle << ": " << report.text;
  }
}

TEST(VerifySplitTest, NormsOverWholeParametersAndGroupsToo) {
  for (const char* optimizer : {"lamb { learning_rate: 0.01 }", "lars_momentum { learning_rate: 0.1 }",
                                "adagrad { learning_rate: 0.1 } clip { by_norm { max_norm: 0.05 } }",
                                "adagrad { learning_rate: 0.1 } clip { by_global_norm { max_norm: 0.05 } }"}) {
    const VerifyReport report =
        Verify(JobOf(JobText(optimizer), {"distribute.servers=3", "distribute.trainers=4"}), {.steps = 4});
    EXPECT_TRUE(report.equal) << optimizer << ": " << report.text;
  }
  // Rows of a distributed table in the group.
  std::string text = JobText("adagrad { learning_rate: 0.1 } clip { by_global_norm { max_norm: 0.05 } }");
  const std::string own = " optimizer { adagrad { learning_rate: 0.05 } }";
  text.erase(text.find(own), own.size());
  const VerifyReport report = Verify(JobOf(text), {.steps = 4});
  EXPECT_TRUE(report.equal) << report.text;
}

TEST(VerifySplitTest, AJobWhoseResultDependsOnItsClusterIsRefusedAtItsPlace) {
  const Job job = JobOf(JobText(kSgd), {"distribute.sync=false"});
  const auto report = VerifySplit(job, {.made_up = true});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("--verify needs sync"));
}

// Slot "b" is empty in the first 96 of 256 lines: in the first three steps nothing reads its table, which has no
// gradient then, is not updated, and has no part in a norm.
TEST(VerifySplitTest, AParameterWithoutAGradientInAStepIsLeftAsItIs) {
  const std::string file = ::testing::TempDir() + "/empty.txt";
  {
    std::ofstream out(file);
    for (int i = 0; i < 256; ++i) out << "1 " << i % 2 << " 1 " << i % 7 << (i < 96 ? " 0" : " 1 3") << "\n";
  }
  const std::string text = "name: \"empty\" data { train { files: \"" + file + R"(" } multi_slot {
    slot { name: "label" type: FLOAT } slot { name: "a" } slot { name: "b" } }
  ids { shared: "a" shared: "b" empty: ZERO } shuffle: NO_SHUFFLE batch_size: 32 }
model {
  layer { name: "first" embedding { ids: "a" table: "held" pooling: SUM } }
  layer { name: "second" embedding { ids: "b" table: "seldom" pooling: SUM } }
  layer { name: "third" embedding { ids: "b" table: "rows" pooling: SUM } }
  layer { name: "both" concat { input: "first" input: "second" input: "third" } }
  layer { name: "out" fc { input: "both" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "held" width: 2 is_sparse: true dict_size: 16 }
table { name: "seldom" width: 4 is_sparse: true dict_size: 8192 }
table { name: "rows" width: 4 is_sparse: true is_distributed: true }
optimizer { momentum { learning_rate: 0.1 } clip { by_global_norm { max_norm: 0.01 } } }
distribute { servers: 3 trainers: 2 }
train { lanes: 4 }
)";
  for (const std::vector<std::string>& clusters :
       std::vector<std::vector<std::string>>{{"distribute.trainers=1"},
                                             {"distribute.servers=1"},
                                             {"distribute.update=SHARDED", "distribute.dense=ALL_REDUCE",
                                              // A norm over what servers and trainers update is refused.
                                              "table[2].optimizer={momentum { learning_rate: 0.1 }}"}}) {
    const auto report = VerifySplit(JobOf(text, clusters), {.steps = 8});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->equal) << clusters[0] << ": " << report->text;
    EXPECT_EQ(report->steps, 8);
  }
}

// Line 138 of 256 holds a number whose square is no float: in the third step, whose trainers skip it or stop.
TEST(VerifySplitTest, AStepThatIsNotFiniteIsSkippedHereToo) {
  const std::string file = ::testing::TempDir() + "/squares.txt";
  {
    std::ofstream out(file);
    for (int i = 0; i < 256; ++i) {
      out << "1 " << i % 2 << " 2 0." << i % 10 << " " << (i == 70 ? "3e38" : "0.25") << " 1 " << i % 2 << "\n";
    }
  }
  const std::string text = "name: \"square\" data { train { files: \"" + file + R"(" } multi_slot {
    slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 } slot { name: "id" } }
  shuffle: NO_SHUFFLE batch_size: 32 }
model {
  layer { name: "squared" square { input: "x" } }
  layer { name: "vector" embedding { ids: "id" table: "vectors" pooling: SUM } }
  layer { name: "input" concat { input: "squared" input: "vector" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 2 is_sparse: true is_distributed: true optimizer { adagrad {} } }
optimizer { adam { learning_rate: 0.01 } schedule { exponential { decay_steps: 2 decay_rate: 0.5 } } }
distribute { servers: 2 trainers: 2 }
)";
  for (const char* dense : {"SERVERS", "ALL_REDUCE", "ALL_REDUCE update: SHARDED"}) {
    const auto skipped = VerifySplit(
        JobOf(text,
              {"train.nan_policy=SKIP_STEP", absl::StrCat("distribute={servers: 2 trainers: 2 dense: ", dense, "}")}),
        {.steps = 8});
    ASSERT_TRUE(skipped.ok()) << skipped.status();
    EXPECT_TRUE(skipped->equal) << dense << ": " << skipped->text;
    EXPECT_EQ(skipped->steps, 8);
  }
  const auto stopped = VerifySplit(JobOf(text), {.steps = 8});
  EXPECT_THAT(std::string(stopped.status().message()), HasSubstr("is not finite at step 2: the job would stop here"));
}

// -------------------------------------------------------------------------------------------------- planted defects

using Edit = std::function<void(int server, Programs* programs)>;

// Ops of any block for which `is` says so.
std::vector<v1::OpDesc*> Ops(v1::ProgramDesc* program, const std::function<bool(const v1::OpDesc&)>& is) {
  std::vector<v1::OpDesc*> found;
  for (v1::BlockDesc& block : *program->mutable_blocks()) {
    for (v1::OpDesc& op : *block.mutable_ops()) {
      if (is(op)) found.push_back(&op);
    }
  }
  return found;
}

v1::OpAttr* Attr(v1::OpDesc* op, const std::string& name) {
  for (v1::OpAttr& attr : *op->mutable_attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

// The first op of `type` that writes `out` in a startup program.
v1::OpDesc* Maker(Programs* programs, const std::string& out) {
  const auto ops = Ops(&programs->startup, [&](const v1::OpDesc& op) { return Writes(op, out); });
  return ops.empty() ? nullptr : ops[0];
}

// The defect was planted exactly so often, and is found at this step in this variable.
struct Expected {
  int64_t step;
  std::string variable;
  std::string text;
};

void ExpectFound(const char* optimizer, const Edit& edit, int places, const Expected& expected,
                 VerifyOptions options = {}) {
  int planted = 0;
  options.edit = [&](int server, Programs* programs) {
    const std::string before = programs->main.SerializeAsString() + programs->startup.SerializeAsString();
    edit(server, programs);
    planted += before == programs->main.SerializeAsString() + programs->startup.SerializeAsString() ? 0 : 1;
  };
  const VerifyReport report = Verify(JobOf(JobText(optimizer)), options);
  EXPECT_EQ(planted, places);
  EXPECT_FALSE(report.equal);
  EXPECT_EQ(report.step, expected.step) << report.text;
  EXPECT_EQ(report.variable, expected.variable) << report.text;
  EXPECT_THAT(report.text, HasSubstr(expected.text));
}

TEST(PlantedDefectTest, MomentumInOneBlockOfSgd) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server < 0) return;
                for (v1::OpDesc* op : Ops(&programs->main, [](const v1::OpDesc& o) {
                       return o.type() == "sgd" && InputOf(o, "Param") == "deep.w.block1";
                     })) {
                  op->set_type("momentum");
                  const std::string velocity = "deep.w.block1.velocity";
                  for (auto* slots : {op->mutable_inputs(), op->mutable_outputs()}) {
                    v1::OpSlot* slot = slots->Add();
                    slot->set_name(slots == op->mutable_inputs() ? "Velocity" : "VelocityOut");
                    slot->add_vars(velocity);
                  }
                  v1::VarDesc var = *FindVar(programs->main.blocks(0), "deep.w.block1");
                  var.set_name(velocity);
                  var.set_trainable(false);
                  *programs->main.mutable_blocks(0)->add_vars() = var;
                  *programs->startup.mutable_blocks(0)->add_vars() = var;
                  const std::vector<int64_t> dims(var.dims().begin(), var.dims().end());
                  *programs->startup.mutable_blocks(0)->add_ops() = WithRole(
                      MakeOp("fill_constant", {}, {{"Out", {velocity}}}, {AttrInts("shape", dims), AttrF("value", 0)}),
                      v1::INIT);
                }
              },
              1, {0, "deep.w", "optimizer state"});
}

TEST(PlantedDefectTest, AReceiveIsMissing) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server >= 0) return;
                FilterOps(programs->main.mutable_blocks(0),
                          [](const v1::OpDesc& op) { return op.type() != "recv" || OutputOf(op, "Out") != "out.w"; });
              },
              1, {1, "out.w", "values that trainer 0 has received, elements 0 to 135"});
}

TEST(PlantedDefectTest, ASliceBeginsAtAnotherPlace) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server < 0) return;
                if (v1::OpDesc* op = Maker(programs, "deep.w.block1"))
                  Attr(op, "element_begin")->set_i(Attr(op, "element_begin")->i() + 128);
              },
              1, {0, "deep.w", "values on the servers, rows 68 to 135, 32 of 64 ranges"});
}

TEST(PlantedDefectTest, LanesAreAddedAsTheyCame) {
  // Four trainers: two sums are the same in either order.
  const SumInArrivalOrder in_arrival_order;
  const VerifyReport report =
      Verify(JobOf(JobText(kSgd), {"distribute.trainers=4"}), {.steps = 20, .dense_sum = &in_arrival_order});
  EXPECT_FALSE(report.equal);
  EXPECT_GE(report.step, 1);
  // Which sum shows it first depends on who came first.
  EXPECT_THAT(report.text, HasSubstr("first difference after step"));
  EXPECT_FALSE(report.variable.empty());
}

TEST(PlantedDefectTest, OneOptimizerStateIsNotInitialised) {
  // Not at all: the server does not start.
  ExpectFound(kAdam,
              [](int server, Programs* programs) {
                if (server < 0) return;
                FilterOps(programs->startup.mutable_blocks(0),
                          [](const v1::OpDesc& op) { return OutputOf(op, "Out") != "deep.w.block1.moment2"; });
              },
              1, {0, "deep.w", "deep.w.block1.moment2) no value"});
  // Or to another value.
  ExpectFound(kAdam,
              [](int server, Programs* programs) {
                if (server < 0) return;
                if (v1::OpDesc* op = Maker(programs, "deep.w.block1.moment2")) Attr(op, "value")->set_f(1);
              },
              1, {0, "deep.w", "optimizer state"});
}

TEST(PlantedDefectTest, AGradientIsNotDividedBySamples) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server < 0) return;
                for (v1::BlockDesc& block : *programs->main.mutable_blocks()) {
                  FilterOps(&block, [](const v1::OpDesc& op) {
                    return op.type() != "merge" || InputOf(op, "X") != "deep.b@GRAD";
                  });
                }
              },
              1, {1, "deep.b", "values on the servers, element"});
}

TEST(PlantedDefectTest, AGradientIsSentTwice) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server >= 0) return;
                v1::BlockDesc* block = programs->main.mutable_blocks(0);
                google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
                for (const v1::OpDesc& op : block->ops()) {
                  *ops.Add() = op;
                  if (op.type() == "send" && InputOf(op, "X") == "out.w@GRAD") *ops.Add() = op;
                }
                block->mutable_ops()->Swap(&ops);
              },
              1, {1, "out.w", "out.w"});
}

TEST(PlantedDefectTest, OneServerHasAnotherLearningRate) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server != 1) return;
                if (v1::OpDesc* op = Maker(programs, "learning_rate")) Attr(op, "value")->set_f(0.100001);
              },
              1, {1, "codebook", "values on the servers"});
}

TEST(PlantedDefectTest, ATableIsNotUpdatedOnOneServer) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server != 1) return;
                if (v1::OpDesc* op = Maker(programs, "vectors.learning_rate")) Attr(op, "value")->set_f(0);
              },
              1, {1, "vectors", "values on the servers, shards 2048 to "});
  ExpectFound(
      kSgd,
      [](int server, Programs* programs) {
        if (server != 1) return;
        int table_block = -1;
        for (const v1::BlockDesc& block : programs->main.blocks()) {
          for (const v1::OpDesc& op : block.ops()) {
            if (InputOf(op, "Param") == "vectors") table_block = block.index();
          }
        }
        for (v1::OpDesc* op : Ops(&programs->main, [](const v1::OpDesc& o) { return o.type() == "listen_and_serv"; })) {
          auto* blocks = Attr(op, "optimize_blocks")->mutable_blocks()->mutable_v();
          blocks->erase(std::remove(blocks->begin(), blocks->end(), table_block), blocks->end());
        }
      },
      1, {1, "vectors", "table vectors: has no optimizer"});
}

TEST(PlantedDefectTest, ReluBecomesTanh) {
  ExpectFound(
      kSgd,
      [](int server, Programs* programs) {
        if (server >= 0) return;
        for (v1::OpDesc* op :
             Ops(&programs->main, [](const v1::OpDesc& o) { return o.type() == "fc" || o.type() == "fc_grad"; })) {
          if (v1::OpAttr* activation = Attr(op, "activation"); activation != nullptr && activation->s() == "relu")
            activation->set_s("tanh");
        }
      },
      1, {1, "codebook", "\n  deep.w: values on the servers"});
}

TEST(PlantedDefectTest, BlocksAreJoinedInTheWrongOrder) {
  ExpectFound(kSgd,
              [](int server, Programs* programs) {
                if (server >= 0) return;
                for (v1::OpDesc* op : Ops(&programs->main, [](const v1::OpDesc& o) {
                       return o.type() == "concat" && o.role() == v1::DIST && OutputOf(o, "Out") == "deep.w";
                     })) {
                  op->mutable_inputs(0)->mutable_vars()->SwapElements(0, 1);
                }
              },
              1, {1, "deep.w", "values that trainer 0 has received, rows 0 to 135"});
}

}  // namespace
}  // namespace weir
