// Wrong jobs and programs, each with its whole message: place, thing, expected, got, the way out.
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/process_programs.h"

namespace weir {
namespace {

struct Wrong {
  const char* name;
  // What of kDeepFm is replaced by what.
  const char* from;
  const char* to;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }
std::string NameOf(const ::testing::TestParamInfo<Wrong>& info) { return info.param.name; }

// ---------------------------------------------------------------------------------------------------------------- jobs

class WrongJobTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongJobTest, GetsThisMessage) {
  const auto job = ParseJob(Replaced(kDeepFm, GetParam().from, GetParam().to), "job.textproto", {});
  const absl::Status status = job.ok() ? Transpile(*job).status() : job.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

constexpr char kSgd[] = "optimizer { sgd { learning_rate: 0.1 } }";
constexpr char kCluster[] = "distribute { servers: 2 trainers: 2 }";

INSTANTIATE_TEST_SUITE_P(
    Text, WrongJobTest,
    ::testing::Values(
        Wrong{"UnknownField", "batch_size: 64", "batch_sise: 64", "?"},
        Wrong{"UnknownSection", "optimizer {", "optimiser {", "?"},
        Wrong{"UnknownMember", kSgd, "optimizer { sgdd {} }", "?"},
        Wrong{"UnknownEnum", "pooling: SUM", "pooling: SUMM", "?"},
        Wrong{"TextForANumber", "batch_size: 64", "batch_size: \"x\"", "?"},
        Wrong{"FractionForAnInteger", "batch_size: 64", "batch_size: 6.5", "?"},
        Wrong{"BraceMissing", kCluster, "distribute { servers: 2", "?"},
        Wrong{"TwoMembersOfAOneof", kSgd, "optimizer { sgd {} adam {} }", "?"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Data, WrongJobTest,
    ::testing::Values(
        Wrong{"NoReader", "criteo { integers: 6 categoricals: 30 }", "", "?"},
        Wrong{"NoFiles", "train { files: \"train.tsv\" }", "train {}", "?"},
        Wrong{"BatchIsNoMultipleOfLanes", "batch_size: 64", "batch_size: 100", "?"},
        Wrong{"BatchZero", "batch_size: 64", "batch_size: 0", "?"},
        Wrong{"NoPrefetch", "batch_size: 64", "batch_size: 64 prefetch_batches: 0", "?"},
        Wrong{"ColumnBeyond", "batch_size: 64", "batch_size: 64 dense { column { index: 6 } }", "?"},
        Wrong{"ColumnTwice", "batch_size: 64", "batch_size: 64 dense { column { index: 1 } column { index: 1 } }", "?"},
        Wrong{"BucketsForAll", "batch_size: 64", "batch_size: 64 dense { transform: BUCKETIZE }", "?"},
        Wrong{"SharedIsNoIds", "batch_size: 64", "batch_size: 64 ids { shared: \"dense\" }", "?"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Model, WrongJobTest,
    ::testing::Values(
        Wrong{"OddName", "name: \"deepfm\"", "name: \"deep fm\"", "?"},
        Wrong{"NoLayerName", "name: \"fm\" ", "", "?"},
        Wrong{"TwoLayersOfOneName", "name: \"wide\"", "name: \"fields\"", "?"},
        Wrong{"LayerNamedLikeATable", "name: \"fm\"", "name: \"vectors\"", "?"},
        Wrong{"LayerWithoutKind", "fm_interaction { input: \"fields\" }", "", "?"},
        Wrong{"UnknownInput", "mlp { input: \"input\"", "mlp { input: \"inputs\"", "?"},
        Wrong{"LayerFurtherDown", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"deep\" }", "?"},
        Wrong{"IdsIntoALayer", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"cat\" }", "?"},
        Wrong{"ShapeOfAnInteraction", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"dense\" }", "?"},
        Wrong{"ShapesThatDoNotAdd", "input: \"wide\" input: \"fm\" input: \"out\"", "input: \"wide\" input: \"deep\" input: \"fields\"",
              "?"},
        Wrong{"SizeZero", "size: 1", "size: 0", "?"},
        Wrong{"UnknownTable", "table: \"vectors\"", "table: \"vektors\"", "?"},
        Wrong{"UnusedTable", "layer { name: \"wide\" embedding { ids: \"cat\" table: \"weights\"",
              "layer { name: \"wide\" embedding { ids: \"cat\" table: \"vectors\"", "?"},
        Wrong{"LossOfALayerThatIsNot", "logits: \"logit\"", "logits: \"logits\"", "?"},
        Wrong{"LossOfAnotherShape", "logits: \"logit\"", "logits: \"deep\"", "?"},
        Wrong{"NothingDependsOnALayer", "input: \"wide\" input: \"fm\" input: \"out\"", "input: \"wide\" input: \"fm\"", "?"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Tables, WrongJobTest,
    ::testing::Values(
        Wrong{"DistributedWithoutSparse", "width: 4 is_sparse: true", "width: 4", "?"},
        Wrong{"HeldWithoutRows", "width: 1 is_sparse: true is_distributed: true", "width: 1 is_sparse: true", "?"},
        Wrong{"NoWidth", "width: 4 ", "", "?"},
        Wrong{"TwoOfOneName", "name: \"weights\" width", "name: \"vectors\" width", "?"},
        Wrong{"OddShards", "width: 4", "width: 4 logical_shards: 1000", "?"},
        Wrong{"FewShards", "width: 4", "width: 4 logical_shards: 1", "?"},
        Wrong{"EmptyRange", "width: 4", "width: 4 initializer { uniform { min: 1 max: 1 } }", "?"},
        Wrong{"SaltedIdsOfAHeldTable", "width: 1 is_sparse: true is_distributed: true", "width: 1 is_sparse: true dict_size: 9", "?"},
        Wrong{"FetchOfADistributedTable", "width: 4", "width: 4 fetch: ROWS", "?"},
        Wrong{"FetchOfADenseTable", "width: 1 is_sparse: true is_distributed: true", "width: 1 dict_size: 9 fetch: WHOLE", "?"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Optimizers, WrongJobTest,
    ::testing::Values(
        Wrong{"None", kSgd, "", "?"},
        Wrong{"NegativeRate", kSgd, "optimizer { sgd { learning_rate: -0.1 } }", "?"},
        Wrong{"MomentumOfOne", kSgd, "optimizer { momentum { mu: 1 } }", "?"},
        Wrong{"RateOfATable", "learning_rate: 0.05", "learning_rate: nan", "?"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Clusters, WrongJobTest,
    ::testing::Values(
        Wrong{"NoServers", kCluster, "distribute { servers: 0 }", "?"},
        Wrong{"NoTrainers", kCluster, "distribute { trainers: 0 }", "?"},
        Wrong{"MoreTrainersThanLanes", kCluster, "distribute { trainers: 9 }", "?"},
        Wrong{"OddLanes", kCluster, "train { lanes: 6 }", "?"},
        Wrong{"SmallBlocks", kCluster, "distribute { min_block_size: 8191 }", "?"},
        Wrong{"EagerInSync", kCluster, "distribute { async_apply: EAGER }", "?"},
        Wrong{"EagerWithVerdicts", kCluster, "distribute { sync: false async_apply: EAGER } train { nan_policy: SKIP_STEP }", "?"},
        Wrong{"MeanOfMeansInAsync", kCluster, "distribute { sync: false average: BY_TRAINERS }", "?"},
        Wrong{"MeanOfMeans", kCluster, "distribute { average: BY_TRAINERS }", "?"},
        Wrong{"NoLanes", kCluster, "train { lanes: 0 }", "?"},
        Wrong{"AssignUnknown", kCluster, "distribute { assign { parameter: \"deep.0.v\" server: 0 } }", "?"},
        Wrong{"AssignBeyond", kCluster, "distribute { assign { parameter: \"out.w\" server: 1 } }", "?"},
        Wrong{"AssignTwice", kCluster,
              "distribute {\n  assign { parameter: \"out.w\" server: 0 }\n  assign { parameter: \"out.w\" server: 0 }\n}", "?"},
        Wrong{"AddressTwice", kCluster, "distribute { servers: 2 } cluster { pserver: [\"a:1\", \"a:1\"] }", "?"},
        Wrong{"AddressWithoutPort", kCluster, "cluster { pserver: \"a\" }", "?"},
        Wrong{"OtherNumberOfAddresses", kCluster, "distribute { servers: 2 } cluster { pserver: \"a:1\" }", "?"},
        Wrong{"LeaseBelowHeartbeat", kCluster, "deadlines { lease_s: 1 }", "?"},
        Wrong{"EvaluationOfNothing", kCluster, "train { eval_every_steps: 5 }", "?"},
        Wrong{"CheckpointsNowhere", kCluster, "checkpoint { every_steps: 5 }", "?"},
        Wrong{"ModelAndProgram", kCluster, "program: \"main.program\"", "?"}),
    NameOf);

// ------------------------------------------------------------------------------------------------------------ programs

// In the text of a program that a job brings: forward, backward and updates. The file's path reads FILE in the message.
class WrongProgramTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongProgramTest, GetsThisMessage) {
  const std::string path = ::testing::TempDir() + "/" + GetParam().name + ".program";
  std::ofstream(path) << Replaced(ProgramText(BuildSingleMachine(JobOf(kDeepFm))->main), GetParam().from, GetParam().to);
  const auto job = ParseJob(kDeepFm, "job.textproto", {}, path);
  const absl::Status status = job.ok() ? Transpile(*job).status() : job.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(absl::StrReplaceAll(std::string(status.message()), {{path, "FILE"}}), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, WrongProgramTest,
    ::testing::Values(
        Wrong{"OfAnotherFormat", "weir program 1", "weir program 2", "?"},
        Wrong{"BraceMissing", "Out=fm, Sum=fm.sum <- fm_interaction(X=fields)", "Out=fm, Sum=fm.sum <- fm_interaction(X=fields", "?"},
        Wrong{"UnknownOperator", "fm_interaction(X", "fm_interactions(X", "?"},
        Wrong{"UnknownSlot", "fm_interaction(X", "fm_interaction(Y", "?"},
        Wrong{"UndeclaredVariable", "fm_interaction(X=fields", "fm_interaction(X=field", "?"},
        Wrong{"ReadBeforeItIsWritten", "reshape(X=fields)", "reshape(X=fields@GRAD)", "?"},
        Wrong{"OtherShape", "var fm dense float32 [-1, 1]", "var fm dense float32 [-1, 2]", "?"},
        Wrong{"UnknownAttribute", "concat(X=[input.flat0, dense]) axis=1", "concat(X=[input.flat0, dense]) axes=1", "?"},
        Wrong{"AttributeOfAnotherType", "concat(X=[input.flat0, dense]) axis=1", "concat(X=[input.flat0, dense]) axis=\"1\"", "?"},
        Wrong{"DeclaredTwice", "  var fm dense float32 [-1, 1]\n", "  var fm dense float32 [-1, 1]\n  var fm dense float32 [-1, 1]\n", "?"},
        Wrong{"NotFed", "var dense dense float32 [-1, 6] stop_gradient: true", "var dense dense float32 [-1, 6]", "?"},
        Wrong{"DataOfAnotherWidth", "var label dense float32 [-1, 1]", "var label dense float32 [-1, 2]", "?"},
        Wrong{"NoLoss", "loss name: \"ctr\" var: \"ctr.loss\" weight: 1 prediction: \"ctr.prediction\" label: \"label\" kind: BINARY\n",
              "", "?"},
        Wrong{"LossOfNothing", "var: \"ctr.loss\"", "var: \"ctr.losses\"", "?"},
        Wrong{"GradientOfAnotherParameter", "ParamOut=out.w <- sgd(Param=out.w, Grad=out.w@GRAD",
              "ParamOut=out.w <- sgd(Param=out.w, Grad=deep.1.w@GRAD", "?"}),
    NameOf);

}  // namespace
}  // namespace weir
