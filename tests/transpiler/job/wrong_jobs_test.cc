// Wrong jobs and programs, each with its whole message: place, object, expected, found, the way out.
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

struct Wrong {
  const char* name;
  // Text of kDeepFm and its replacement.
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
        Wrong{"UnknownField", "batch_size: 64", "batch_sise: 64",
              "job.textproto:5:3: unknown field 'batch_sise' (did you mean 'batch_size'?)"},
        Wrong{"UnknownSection", "optimizer {", "optimiser {",
              "job.textproto:17:71: unknown field 'optimiser' (did you mean 'optimizer'?)"},
        Wrong{"UnknownMember", kSgd, "optimizer { sgdd {} }",
              "job.textproto:19:13: unknown field 'sgdd' (did you mean 'sgd'?)"},
        Wrong{"UnknownEnum", "pooling: SUM", "pooling: SUMM",
              "job.textproto:9:73: 'SUMM' is no value of 'pooling' (did you mean 'SUM'?)"},
        Wrong{"TextForANumber", "batch_size: 64", "batch_size: \"x\"",
              "job.textproto:5:15: 'batch_size' takes an integer, got \"x\""},
        Wrong{"FractionForAnInteger", "batch_size: 64", "batch_size: 6.5",
              "job.textproto:5:15: 'batch_size' takes an integer, got '6.5'"},
        Wrong{
            "BraceMissing", kCluster, "distribute { servers: 2",
            "job.textproto:21:1: expected '}' to close 'distribute' opened at job.textproto:20:12, got the end of the "
            "text"},
        Wrong{"TwoMembersOfAOneof", kSgd, "optimizer { sgd {} adam {} }",
              "job.textproto:19:20: 'adam' excludes 'sgd', which is written at job.textproto:19:13"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Data, WrongJobTest,
    ::testing::Values(
        Wrong{
            "NoReader", "criteo { integers: 6 categoricals: 30 }", "",
            "job.textproto:2:1: data needs one of criteo, multi_slot, csv, lib_svm, idx, tf_record, slot_sign, custom"},
        Wrong{"NoFiles", "train { files: \"train.tsv\" }", "train {}", "job.textproto:3:3: data.train names no files"},
        Wrong{
            "BatchIsNoMultipleOfLanes", "batch_size: 64", "batch_size: 100",
            "job.textproto:5:3: data.batch_size must be a multiple of train.lanes, 8, got 100; it counts the examples "
            "of the whole cluster"},
        Wrong{"BatchZero", "batch_size: 64", "batch_size: 0",
              "job.textproto:5:3: data.batch_size must be at least 1, got 0"},
        Wrong{"FollowOfNoFiles", "batch_size: 64", "batch_size: 64 follow { files_together: 0 }",
              "job.textproto:5:27: data.follow.files_together must be at least 1, got 0"},
        Wrong{"FollowWithoutPause", "batch_size: 64", "batch_size: 64 follow { look_every_s: 0 }",
              "job.textproto:5:27: data.follow.look_every_s must be positive, got 0"},
        Wrong{"FollowWithoutTime", "batch_size: 64", "batch_size: 64 follow { deadline_s: -1 }",
              "job.textproto:5:27: data.follow.deadline_s must be positive, got -1"},
        Wrong{
            "FollowTooShort", "batch_size: 64", "batch_size: 64 follow { deadline_s: 9 }",
            "job.textproto:5:27: data.follow.deadline_s must be at least twice look_every_s, 5, got 9: two looks must "
            "find a file before it is taken"},
        Wrong{"FollowUntilNothing", "batch_size: 64", "batch_size: 64 follow { until: '' }",
              "job.textproto:5:27: data.follow.until names no file; leave it out for a job that ends when it is "
              "stopped"},
        Wrong{"FollowTwice", "batch_size: 64\n}", "batch_size: 64 follow {}\n}\ntrain { epochs: 2 }",
              "job.textproto:5:18: data.follow reads each file once: train.epochs must be 1, got 2"},
        Wrong{"NoPrefetch", "batch_size: 64", "batch_size: 64 prefetch_batches: 0",
              "job.textproto:5:18: data.prefetch_batches must be at least 1, got 0"},
        Wrong{"ColumnBeyond", "batch_size: 64", "batch_size: 64 dense { column { index: 6 } }",
              "job.textproto:5:35: data.dense.column[0].index must be in [0, 6), got 6"},
        Wrong{"ColumnTwice", "batch_size: 64", "batch_size: 64 dense { column { index: 1 } column { index: 1 } }",
              "job.textproto:5:46: data.dense.column[1] is the second transform of dense[1]"},
        Wrong{"BucketsForAll", "batch_size: 64", "batch_size: 64 dense { transform: BUCKETIZE }",
              "job.textproto:5:26: data.dense.transform BUCKETIZE needs boundaries of its own for every column: use "
              "dense.column"},
        Wrong{"SharedIsNoIds", "batch_size: 64", "batch_size: 64 ids { shared: \"dense\" }",
              "job.textproto:5:24: data.ids.shared[0] 'dense' is no ids variable of the data"},
        Wrong{"TransformOfALabel", "batch_size: 64",
              "batch_size: 64 dense { column { variable: 'label' index: 0 transform: LOG1P } }",
              "job.textproto:5:35: data.dense.column[0].variable 'label' is never transformed: a loss reads it as its "
              "label, sample weight, length or probability, or computes one of them from it; take this column out, or "
              "name in data.dense.except what is to stay as it is instead"},
        Wrong{"TransformOfAnException", "batch_size: 64",
              "batch_size: 64 dense { column { index: 2 } except: 'label' except: 'dense' }",
              "job.textproto:5:26: data.dense.column[0].variable 'dense' is never transformed: data.dense.except names "
              "it; take it out of there, or take this column out"},
        Wrong{"TransformOfAFrequency", "batch_size: 64",
              "batch_size: 64 derived { name: 'f' frequency { of: 'C1' } } dense { column { variable: 'f' index: 0 } }",
              "job.textproto:5:80: data.dense.column[0].variable 'f' is never transformed: its values are learned from "
              "the data; take this column out"}),
    NameOf);

TEST(WrongBatchTest, EveryTrainerNeedsAnExampleOfAStepWithoutLanes) {
  const std::string text = Replaced(Replaced(kDeepFm, "batch_size: 64", "batch_size: 2"), kCluster,
                                    "distribute { trainers: 3 reproducible: false } train { lanes: 0 }");
  EXPECT_EQ(ParseJob(text, "job.textproto", {}).status().message(),
            "job.textproto:5:3: data.batch_size must be at least distribute.trainers, 3, got 2: it counts the examples "
            "of the whole cluster, of which every trainer needs one; raise it, or take fewer trainers");
  EXPECT_TRUE(ParseJob(text, "job.textproto", {"distribute.trainers=2"}).ok());
}

constexpr char kWeighted[] = R"(name: "weighted"
data {
  train { files: "train.csv" }
  csv { column { name: "price" } column { name: "x" } column { name: "w" } }
  batch_size: 64
  dense { column { variable: "w" index: 0 transform: LOG1P } }
}
model {
  layer { name: "out" fc { input: "x" size: 1 } }
  layer { name: "double" scale { input: "w" scale: 2 } }
  loss { square_error { input: "out" label: "price" sample_weight: "w" } }
}
optimizer { sgd { learning_rate: 0.1 } }
)";

TEST(WrongTransformTest, ASampleWeightAndWhatItIsMadeOfAreNeverTransformed) {
  const std::string text =
      "job.textproto:6:20: data.dense.column[0].variable 'w' is never transformed: a loss reads it as its label, "
      "sample weight, length or probability, or computes one of them from it; take this column out, or name in "
      "data.dense.except what is to stay as it is instead";
  EXPECT_EQ(ParseJob(kWeighted, "job.textproto", {}).status().message(), text);
  const auto made =
      ParseJob(Replaced(kWeighted, "sample_weight: \"w\"", "sample_weight: \"double\""), "job.textproto", {});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(Transpile(*made).status().message(), text);
  const auto plain = ParseJob(Replaced(kWeighted, " sample_weight: \"w\"", ""), "job.textproto", {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(Transpile(*plain).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Model, WrongJobTest,
    ::testing::Values(
        Wrong{"OddName", "name: \"deepfm\"", "name: \"deep fm\"",
              "job.textproto:1:1: name 'deep fm' must begin with a letter or _ and hold only letters, digits and _ - . "
              "/"},
        Wrong{"NoLayerName", "name: \"fm\" ", "", "job.textproto:10:3: model.layer[2].name is required"},
        Wrong{"TwoLayersOfOneName", "name: \"wide\"", "name: \"fields\"",
              "job.textproto:9:11: model.layer[1].name 'fields' is the name of layer[0] too"},
        Wrong{"LayerNamedLikeATable", "name: \"fm\"", "name: \"vectors\"",
              "job.textproto:10:11: model.layer[2].name 'vectors' is the name of a table too"},
        Wrong{"LayerWithoutKind", "fm_interaction { input: \"fields\" }", "",
              "job.textproto:10:3: model.layer[2] needs one of embedding, fc, mlp, concat, fm_interaction, add, sub, "
              "mul, div, activation, dropout, reshape, split, scale, square, reduce_sum, mean, cast, cross, "
              "dot_interaction, "
              "sequence_pool, attention_pool, conv2d, pool2d, batch_norm, dot, mmoe, layer_norm, prelu, dice, "
              "add_positions, self_attention, bilinear, cin, gru, ple, custom"},
        Wrong{"UnknownInput", "mlp { input: \"input\"", "mlp { input: \"inputs\"",
              "job.textproto:12:30: layer 'deep': input 'inputs' is neither a variable of the data nor a layer above "
              "(did you mean 'input'?)"},
        Wrong{
            "UnknownThirdInput", "input: \"wide\" input: \"fm\" input: \"out\"",
            "input: \"wide\" input: \"fm\" input: \"uot\"",
            "job.textproto:14:57: layer 'logit': input 'uot' is neither a variable of the data nor a layer above (did "
            "you mean 'out'?)"},
        Wrong{
            "UnknownThirdOfAList", "input: \"wide\" input: \"fm\" input: \"out\"", "input: [\"wide\", \"fm\", \"uot\"]",
            "job.textproto:14:53: layer 'logit': input 'uot' is neither a variable of the data nor a layer above (did "
            "you mean 'out'?)"},
        Wrong{"SecondSizeZero", "sizes: [192, 8]", "sizes: [8, 0]",
              "job.textproto:12:56: layer 'deep': sizes must be at least 1, got 0"},
        Wrong{"LayerFurtherDown", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"deep\" }",
              "job.textproto:10:39: layer 'fm': input 'deep' is a layer further down; a layer reads those above it"},
        Wrong{"IdsIntoALayer", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"cat\" }",
              "job.textproto:10:39: layer 'fm': input 'cat' holds ids; only an embedding reads them"},
        Wrong{"ShapeOfAnInteraction", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"dense\" }",
              "job.textproto:10:22: layer 'fm': fm_interaction: X must have 3 dims, got [-1, 6] (variable dense)"},
        Wrong{"CrossWithoutLayers", "fm_interaction { input: \"fields\" }", "cross { input: \"dense\" layers: 0 }",
              "job.textproto:10:45: layer 'fm': layers must be at least 1, got 0"},
        Wrong{"CrossOfTooHighARank", "fm_interaction { input: \"fields\" }", "cross { input: \"dense\" rank: 7 }",
              "job.textproto:10:45: layer 'fm': rank must be 0 (none) or in [1, 6], the values of an example of "
              "'dense', got 7"},
        Wrong{"PairsOfVectorsOfTwoWidths", "fm_interaction { input: \"fields\" }",
              "dot_interaction { input: \"fields\" input: \"dense\" }",
              "job.textproto:10:22: layer 'fm': dot_interaction: X[1] (dense) has dims [-1, 6], X[0] [-1, 30, 4]; "
              "inputs are "
              "[B, S, W] or [B, W] of one width"},
        Wrong{"PairsOfNothing", "fm_interaction { input: \"fields\" }", "dot_interaction { }",
              "job.textproto:10:22: layer 'fm': input is required"},
        Wrong{"ShapesThatDoNotAdd", "input: \"wide\" input: \"fm\" input: \"out\"",
              "input: \"wide\" input: \"deep\" input: \"fields\"",
              "job.textproto:14:25: layer 'logit': elementwise_add: X has dims [-1, 1], Y [-1, 8] from axis 0 on; they "
              "must be equal there, or 1 in Y"},
        Wrong{"SizeZero", "size: 1", "size: 0", "job.textproto:13:42: layer 'out': size must be at least 1, got 0"},
        Wrong{"UnknownTable", "table: \"vectors\"", "table: \"vektors\"",
              "job.textproto:8:49: layer 'fields': table 'vektors' is no table of the job (did you mean 'vectors'?)"},
        Wrong{"UnusedTable", "embedding { ids: \"cat\" table: \"weights\" pooling: SUM }",
              "fc { input: \"dense\" size: 1 }", "job.textproto:18:1: no embedding reads table 'weights'"},
        Wrong{"LossOfALayerThatIsNot", "logits: \"logit\"", "logits: \"logits\"",
              "job.textproto:15:46: loss 'ctr': logits 'logits' is neither a variable of the data nor a layer above "
              "(did you mean 'logit'?)"},
        Wrong{"LossOfAnotherShape", "logits: \"logit\"", "logits: \"deep\"",
              "job.textproto:15:22: loss 'ctr': sigmoid_cross_entropy_with_logits: X must be [B, 1], one number per "
              "example, got [-1, 8] (variable deep)"},
        Wrong{"NothingDependsOnALayer", "input: \"wide\" input: \"fm\" input: \"out\"", "input: \"wide\" input: \"fm\"",
              "job.textproto:12:3: no loss depends on parameter 'deep.0.b': it would never change"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Tables, WrongJobTest,
    ::testing::Values(
        Wrong{"DistributedWithoutSparse", "width: 4 is_sparse: true", "width: 4",
              "job.textproto:17:34: table[0].is_distributed needs is_sparse: true: rows of table 'vectors' on the "
              "servers can only be updated by row"},
        Wrong{
            "HeldWithoutRows", "width: 1 is_sparse: true is_distributed: true", "width: 1 is_sparse: true",
            "job.textproto:18:1: table[1].dict_size is required for table 'weights': without is_distributed that many "
            "rows are held, ids in [0, dict_size)"},
        Wrong{"NoWidth", "width: 4 ", "", "job.textproto:17:1: table[0].width must be at least 1, got 0"},
        Wrong{"CacheInSync", "name: \"weights\" width: 1", "name: \"weights\" cache { rows: 10 } width: 1",
              "job.textproto:18:25: table[1].cache contradicts sync: true, where every row is that of the step: set "
              "sync: false, or "
              "leave it out"},
        Wrong{"CacheOfRowsThatServeOneStep", kCluster,
              "distribute { sync: false prefetch_rows: true }\ntable { name: \"more\" width: 1 is_sparse: true "
              "is_distributed: true "
              "cache { rows: 9 max_steps: 1 } }",
              "job.textproto:21:84: table[2].cache.max_steps is 1, and with distribute.prefetch_rows a row is read a "
              "step before the "
              "one that it is read for: it would serve no other; raise it to 2 or more"},
        Wrong{"RowsForAHeldTable", "width: 1 is_sparse: true is_distributed: true",
              "width: 1 dict_size: 9 load: \"w.rows\"",
              "job.textproto:18:47: table[1].load is for is_distributed: true: row files hold rows by id"},
        Wrong{"TwoOfOneName", "name: \"weights\" width", "name: \"vectors\" width",
              "job.textproto:18:9: table[1].name 'vectors' is the name of an earlier table"},
        Wrong{"LifecycleOfAHeldTable", "name: \"weights\" width: 1 is_sparse: true is_distributed: true",
              "name: \"weights\" lifecycle {} width: 1 dict_size: 9",
              "job.textproto:18:25: table[1].lifecycle is for is_distributed: true: rows of other tables are all there "
              "from the "
              "start"},
        Wrong{"AdmitAfterNoStep", "width: 4", "width: 4 lifecycle { admit_after: 0 }",
              "job.textproto:17:46: table[0].lifecycle.admit_after must be at least 1, got 0"},
        Wrong{"AdmittedNever", "width: 4", "width: 4 lifecycle { admit_probability: 0 }",
              "job.textproto:17:46: table[0].lifecycle.admit_probability must be above 0 and at most 1, got 0"},
        Wrong{"ScoresOfNothing", "width: 4", "width: 4 lifecycle { admit_score: 2 }",
              "job.textproto:17:46: table[0].lifecycle.admit_score needs lifecycle.click: scores are made of shows and "
              "clicks"},
        Wrong{"DecayOfNothing", "width: 4", "width: 4 lifecycle { decay_every_steps: 2 }",
              "job.textproto:17:46: table[0].lifecycle.decay_every_steps needs lifecycle.click: scores are made of "
              "shows and clicks"},
        Wrong{"ClicksThatAreNoFloat", "width: 4", "width: 4 lifecycle { click: \"cat\" }",
              "job.textproto:17:46: table[0].lifecycle.click 'cat' is no float variable of one column of the data; "
              "there is label"},
        Wrong{"ScoresThatNeverFade", "width: 4", "width: 4 lifecycle { click: \"label\" min_score: 1 }",
              "job.textproto:17:61: table[0].lifecycle.min_score is looked at when shows decay: set "
              "lifecycle.decay_every_steps"},
        Wrong{"DecayThatGrows", "width: 4", "width: 4 lifecycle { click: \"label\" decay_every_steps: 2 decay: 1.5 }",
              "job.textproto:17:82: table[0].lifecycle.decay must be in [0, 1], got 1.5"},
        Wrong{"NoScore", "width: 4", "width: 4 lifecycle { click: \"label\" admit_score: nan }",
              "job.textproto:17:61: table[0].lifecycle.admit_score must be finite, got nan"},
        Wrong{"TtlThatClocksDecide", "width: 4", "width: 4 lifecycle { ttl_seconds: 60 }",
              "job.textproto:17:46: table[0].lifecycle.ttl_seconds makes the result depend on the servers' clocks: use "
              "ttl_steps, or "
              "set distribute.reproducible: false to permit that"},
        Wrong{"TtlBeforeNow", "width: 4", "width: 4 lifecycle { ttl_steps: -1 }",
              "job.textproto:17:46: table[0].lifecycle.ttl_steps must be at least 0, got -1"},
        Wrong{"EvictionWithoutALimit", "width: 4", "width: 4 lifecycle { when_full: EVICT_LEAST_RECENT }",
              "job.textproto:17:46: table[0].lifecycle.when_full EVICT_LEAST_RECENT needs dict_size: without it the "
              "table is never "
              "full"},
        Wrong{"LimitBelowShards", "width: 4", "width: 4 dict_size: 100 lifecycle { when_full: EVICT_LEAST_FREQUENT }",
              "job.textproto:17:34: table[0].dict_size is 100, and each of the 4096 logical shards evicts from its own "
              "part of it: "
              "raise it to at least that, or lower logical_shards"},
        Wrong{
            "DiskOfAHeldTable", "name: \"weights\" width: 1 is_sparse: true is_distributed: true",
            "name: \"weights\" disk { dir: \"d\" } width: 1 dict_size: 9",
            "job.textproto:18:25: table[1].disk is for is_distributed: true: other tables are no rows on the servers"},
        Wrong{"DiskNowhere", "width: 4", "width: 4 disk { memory_mb: 100 }",
              "job.textproto:17:34: table[0].disk.dir is required: the directory for rows that memory has no room for"},
        Wrong{"DiskWithoutMemory", "width: 4", "width: 4 disk { dir: \"d\" memory_mb: 31 }",
              "job.textproto:17:50: table[0].disk.memory_mb must be at least 16 for each of 2 servers, 32, got 31"},
        Wrong{"OddShards", "width: 4", "width: 4 logical_shards: 1000",
              "job.textproto:17:34: table[0].logical_shards must be a power of two up to 1048576, got 1000"},
        Wrong{"FewShards", "width: 4", "width: 4 logical_shards: 1",
              "job.textproto:17:34: table[0].logical_shards must be at least distribute.servers, 2, got 1"},
        Wrong{"EmptyRange", "width: 4", "width: 4 initializer { uniform { min: 1 max: 1 } }",
              "job.textproto:17:48: table[0].initializer.uniform needs min below max, got 1 and 1"},
        Wrong{
            "SaltedIdsOfAHeldTable", "width: 1 is_sparse: true is_distributed: true",
            "width: 1 is_sparse: true dict_size: 9",
            "job.textproto:9:36: layer 'wide': ids 'cat' are salted by slot and do not lie in [0, dict_size) of table "
            "'weights': add data { ids { shared: \"cat\" } }, or is_sparse: true is_distributed: true to the table"},
        Wrong{"FetchOfADistributedTable", "width: 4", "width: 4 fetch: ROWS",
              "job.textproto:17:34: table[0].fetch is for is_sparse: true without is_distributed; a distributed table "
              "is always fetched by rows"},
        Wrong{
            "FetchOfADenseTable", "width: 1 is_sparse: true is_distributed: true", "width: 1 dict_size: 9 fetch: WHOLE",
            "job.textproto:18:47: table[1].fetch is for is_sparse: true without is_distributed; without is_sparse the "
            "whole table moves"}),
    NameOf);

constexpr char kHeldWeights[] = "width: 1 is_sparse: true is_distributed: true";

INSTANTIATE_TEST_SUITE_P(
    RowUpdates, WrongJobTest,
    ::testing::Values(
        Wrong{"SegmentOfAHeldTable", kHeldWeights, "width: 1 is_sparse: true dict_size: 9 segment { width: 1 }",
              "job.textproto:18:63: table[1].segment is for is_distributed: true; table 'weights' is an ordinary "
              "parameter"},
        Wrong{"BoundOfAHeldTable", kHeldWeights, "width: 1 is_sparse: true dict_size: 9 min_value: 0",
              "job.textproto:18:63: table[1].min_value is for is_distributed: true; table 'weights' is an ordinary "
              "parameter"},
        Wrong{"SkippedRowsOfAHeldTable", kHeldWeights, "width: 1 is_sparse: true dict_size: 9 bad_gradient: SKIP_ROW",
              "job.textproto:18:63: table[1].bad_gradient is for is_distributed: true; table 'weights' is an ordinary "
              "parameter"},
        Wrong{
            "BoundOfAnUntrainedTable", "width: 4", "width: 4 trainable: false max_value: 1",
            "job.textproto:17:51: table[0].max_value says how rows are updated, but table 'vectors' is not trainable"},
        Wrong{"BoundsUpsideDown", "width: 4", "width: 4 min_value: 1 max_value: -1",
              "job.textproto:17:34: table[0].min_value must not be above max_value, -1, got 1"},
        Wrong{"ABoundThatIsNone", "width: 4", "width: 4 max_value: nan",
              "job.textproto:17:34: table[0].max_value must be finite, got nan"},
        Wrong{"SegmentsTooNarrow", "width: 4", "width: 4 segment { width: 1 } segment { width: 2 }",
              "job.textproto:17:34: table[0].segment widths add up to 3; width of table 'vectors' is 4"},
        Wrong{"SegmentWithoutAWidth", "width: 4", "width: 4 segment {} segment { width: 4 }",
              "job.textproto:17:34: table[0].segment[0].width must be at least 1, got 0"},
        Wrong{"SegmentAfterLess", "width: 4", "width: 4 segment { width: 4 after: -1 }",
              "job.textproto:17:53: table[0].segment[0].after must be at least 0, got -1"},
        Wrong{"SegmentAfterTooMuch", "width: 4", "width: 4 segment { width: 4 after: 16777217 }",
              "job.textproto:17:53: table[0].segment[0].after must be at most 16777216, got 16777217"},
        Wrong{"SegmentWithoutFans", "width: 4", "width: 4 segment { width: 4 initializer { xavier {} } }",
              "job.textproto:17:67: table[0].segment[0].initializer.xavier needs fan_in and fan_out: a distributed "
              "table has "
              "no height to take them from"},
        Wrong{"RateOfASegment", "width: 4", "width: 4 segment { width: 4 optimizer { sgd { learning_rate: 0 } } }",
              "job.textproto:17:71: table[0].segment[0].optimizer.sgd.learning_rate must be positive, got 0"},
        Wrong{"NormOfASegment", "width: 4",
              "width: 4 segment { width: 4 optimizer { sgd {} clip { by_norm { max_norm: 1 } } } }",
              "job.textproto:17:72: table[0].segment[0].optimizer.clip by a norm is over whole rows, but table "
              "'vectors' has segments: "
              "use by_value"},
        Wrong{"SegmentsWithGeo",
              "width: 1 is_sparse: true is_distributed: true }\noptimizer { sgd { learning_rate: 0.1 } }\ndistribute { "
              "servers: 2 "
              "trainers: 2 }",
              "width: 1 segment { width: 1 } is_sparse: true is_distributed: true }\noptimizer { sgd { learning_rate: "
              "0.1 } }\n"
              "distribute { sync: false geo { every_steps: 2 } }",
              "job.textproto:18:34: table[1].segment contradicts distribute.geo, whose servers add up differences and "
              "update no rows"},
        Wrong{"StorageOfAHeldTable", kHeldWeights, "width: 1 is_sparse: true dict_size: 9 storage: FLOAT16",
              "job.textproto:18:63: table[1].storage FLOAT16 is for is_distributed: true; table 'weights' is an "
              "ordinary parameter"},
        Wrong{"StorageInIntegers", "width: 4", "width: 4 storage: UINT8",
              "job.textproto:17:34: table[0].storage must be FLOAT32, FLOAT16 or BFLOAT16, got UINT8"},
        Wrong{"StorageWithGeo",
              "width: 1 is_sparse: true is_distributed: true }\noptimizer { sgd { learning_rate: 0.1 } }\ndistribute { "
              "servers: 2 "
              "trainers: 2 }",
              "width: 1 storage: BFLOAT16 is_sparse: true is_distributed: true }\noptimizer { sgd { learning_rate: 0.1 "
              "} }\n"
              "distribute { sync: false geo { every_steps: 2 } }",
              "job.textproto:18:34: table[1].storage BFLOAT16 contradicts distribute.geo, whose trainers take what "
              "they have added to a "
              "row for what the servers hold: leave it out, or use another mode"},
        Wrong{"BoundsBetweenWhichNothingLies", "width: 4",
              "width: 4 storage: FLOAT16 min_value: 0.10001 max_value: 0.10002",
              "job.textproto:17:51: table[0].min_value leaves no value of storage FLOAT16 to a row: the least not "
              "below min_value is "
              "0.100037, the greatest not above max_value 0.0999756"},
        Wrong{"ABoundBeyondItsStorage", "width: 4", "width: 4 storage: FLOAT16 max_value: -70000",
              "job.textproto:17:51: table[0].max_value leaves no value of storage FLOAT16 to a row: the least not "
              "below min_value is "
              "-65504, the greatest not above max_value -inf"},
        Wrong{"AWireThatLosesBitsOfItsStorage", "width: 4", "width: 4 storage: FLOAT16 wire { pull: WIRE_BFLOAT16 }",
              "job.textproto:17:58: table[0].wire.pull WIRE_BFLOAT16 loses bits, and which ones depends on the number "
              "of trainers: set "
              "distribute.reproducible: false to permit that"},
        Wrong{"PerRowOfAMatrix", kSgd, "optimizer { adagrad { per_row: true } }",
              "job.textproto:19:23: optimizer.adagrad.per_row is for distributed tables, but this optimizer updates "
              "'deep.0.b' too: give "
              "the tables an optimizer of their own"},
        Wrong{"LambOfASegment", "width: 4", "width: 4 segment { width: 4 optimizer { lamb {} } }",
              "job.textproto:17:1: table 'vectors': operator 'lamb' cannot update rows of a table; optimizers that "
              "can: adagrad, "
              "adagrad_per_row, adam, adamax, adamw, decayed_adagrad, ftrl, momentum, rmsprop, rmsprop_centered, sgd"},
        Wrong{"SkippedRowsWithANorm",
              "width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.05 }",
              "width: 4 bad_gradient: SKIP_ROW is_sparse: true is_distributed: true optimizer { adagrad {} clip { "
              "by_norm { max_norm: 1 } }",
              "job.textproto:17:34: table[0].bad_gradient SKIP_ROW contradicts a clip by norm, which one bad row "
              "decides: use by_value"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Optimizers, WrongJobTest,
    ::testing::Values(Wrong{"None", kSgd, "", "job.textproto: the job has no optimizer"},
                      Wrong{"NegativeRate", kSgd, "optimizer { sgd { learning_rate: -0.1 } }",
                            "job.textproto:19:19: optimizer.sgd.learning_rate must be positive, got -0.1"},
                      Wrong{"MomentumOfOne", kSgd, "optimizer { momentum { mu: 1 } }",
                            "job.textproto:19:24: optimizer.momentum.mu must be at least 0 and below 1, got 1"},
                      Wrong{"RateOfATable", "learning_rate: 0.05", "learning_rate: nan",
                            "job.textproto:17:93: table[0].optimizer.adagrad.learning_rate must be positive, got nan"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Clusters, WrongJobTest,
    ::testing::Values(
        Wrong{"ServersNegative", kCluster, "distribute { servers: -1 }",
              "job.textproto:20:14: distribute.servers must be at least 0, got -1"},
        Wrong{"NoTrainers", kCluster, "distribute { trainers: 0 }",
              "job.textproto:20:14: distribute.trainers must be at least 1, got 0"},
        Wrong{"MoreTrainersThanLanes", kCluster, "distribute { trainers: 9 }",
              "job.textproto:20:14: distribute.trainers is 9, more than train.lanes, 8: a trainer without a lane has "
              "nothing to do; raise train.lanes to 16"},
        Wrong{"OddLanes", kCluster, "train { lanes: 6 }",
              "job.textproto:20:9: train.lanes must be a power of two up to 65536, or 0 to turn lanes off, got 6"},
        Wrong{"SmallBlocks", kCluster, "distribute { min_block_size: 8191 }",
              "job.textproto:20:14: distribute.min_block_size must be at least 8192, got 8191"},
        Wrong{"EagerInSync", kCluster, "distribute { async_apply: EAGER }",
              "job.textproto:20:14: distribute.async_apply EAGER contradicts sync: true; a synchronous step takes "
              "effect as a whole"},
        Wrong{"EagerWithVerdicts", kCluster,
              "distribute { sync: false async_apply: EAGER } train { nan_policy: SKIP_STEP }",
              "job.textproto:20:26: distribute.async_apply EAGER contradicts train.nan_policy SKIP_STEP: parts that "
              "have been applied cannot be taken back by a verdict"},
        Wrong{"MeanOfMeansInAsync", kCluster, "distribute { sync: false average: BY_TRAINERS }",
              "job.textproto:20:26: distribute.average BY_TRAINERS contradicts sync: false: an asynchronous push is "
              "divided by its own samples"},
        Wrong{"MeanOfMeans", kCluster, "distribute { average: BY_TRAINERS }",
              "job.textproto:20:14: distribute.average BY_TRAINERS makes the result depend on the number of trainers: "
              "set distribute.reproducible: false to permit that"},
        Wrong{"MergeHostsUnknown", kCluster, "distribute { merge_hosts: True }",
              "job.textproto:20:27: 'True' is no value of 'merge_hosts' (did you mean 'true'?)"},
        Wrong{"MergeHostsInAsync", kCluster, "distribute { sync: false merge_hosts: true }",
              "job.textproto:20:26: distribute.merge_hosts true contradicts sync: false: each trainer's step takes "
              "effect by itself, so nothing of a host can be added; set sync: true, or leave out merge_hosts"},
        Wrong{"MergeHostsWithAsyncTables", kCluster,
              "distribute { reproducible: false async_tables: true merge_hosts: true }",
              "job.textproto:20:53: distribute.merge_hosts true contradicts async_tables: the rows of each trainer "
              "take effect by themselves, so nothing of a host can be added; leave out async_tables, or leave out "
              "merge_hosts"},
        Wrong{"MergeHostsWithMeanOfMeans", kCluster,
              "distribute { reproducible: false average: BY_TRAINERS merge_hosts: true }",
              "job.textproto:20:55: distribute.merge_hosts true contradicts average: BY_TRAINERS: servers need the "
              "mean of each trainer, not the sum of a host; set average: BY_SAMPLES, or leave out merge_hosts"},
        Wrong{"MergeHostsWithoutServers", kCluster, "distribute { servers: 0 trainers: 2 merge_hosts: true }",
              "job.textproto:20:37: distribute.merge_hosts true needs servers or dense: ALL_REDUCE: hosts merge what "
              "goes to servers, and what trainers add among themselves, but not what goes to the parts of the "
              "parameters that other trainers hold; set servers to 1 or more, or dense: ALL_REDUCE, or leave out "
              "merge_hosts"},
        Wrong{"MergeHostsWithoutSharedMemory", kCluster,
              "cluster { shared_memory: false } distribute { servers: 2 trainers: 2 merge_hosts: true }",
              "job.textproto:20:70: distribute.merge_hosts true contradicts cluster.shared_memory: false: trainers of "
              "a host merge through memory that they share; leave out one of them"},
        Wrong{"MergeHostsByGloo", kCluster,
              "comm { backend: GLOO } distribute { mode: NCCL2 trainers: 2 merge_hosts: true }",
              "job.textproto:20:61: distribute.merge_hosts true needs comm.backend: WIRE, which shares memory on a "
              "host; this is GLOO: set backend to WIRE or AUTO, or leave out merge_hosts"},
        Wrong{"NoLanes", kCluster, "train { lanes: 0 }",
              "job.textproto:20:9: train.lanes 0 makes the result depend on the number of trainers and threads: set "
              "distribute.reproducible: false to permit that"},
        Wrong{"LossyWireInSync", kCluster, "distribute { wire { push: WIRE_FLOAT16 } }",
              "job.textproto:20:21: distribute.wire.push WIRE_FLOAT16 loses bits, and which ones depends on the number "
              "of "
              "trainers: set distribute.reproducible: false to permit that"},
        Wrong{"LossyWireInGeo", kCluster, "distribute { sync: false geo {} wire { pull: WIRE_INT8 } }",
              "job.textproto:20:40: distribute.wire.pull WIRE_INT8 contradicts geo: a trainer takes what it reads for "
              "what "
              "the servers have"},
        Wrong{
            "LossyTableWire", "is_distributed: true optimizer",
            "is_distributed: true wire { pull: WIRE_BFLOAT16 } optimizer",
            "job.textproto:17:78: table[0].wire.pull WIRE_BFLOAT16 loses bits, and which ones depends on the number of "
            "trainers: set distribute.reproducible: false to permit that"},
        Wrong{"WireOfATableOnTrainers", "is_sparse: true is_distributed: true", "is_sparse: true dict_size: 10 wire {}",
              "job.textproto:17:64: table[0].wire is for tables with is_distributed: true; 'vectors' travels as "
              "distribute.wire says"},
        Wrong{"AssignUnknown", kCluster, "distribute { assign { parameter: \"deep.0.v\" server: 0 } }",
              "job.textproto:20:23: distribute.assign[0].parameter 'deep.0.v' is no parameter that servers hold (did "
              "you mean 'deep.0.b'?)"},
        Wrong{"AssignBeyond", kCluster, "distribute { assign { parameter: \"out.w\" server: 1 } }",
              "job.textproto:20:42: distribute.assign[0].server must be in [0, 1), got 1"},
        Wrong{
            "AssignTwice", kCluster,
            "distribute {\n  assign { parameter: \"out.w\" server: 0 }\n  assign { parameter: \"out.w\" server: 0 }\n}",
            "job.textproto:22:3: distribute.assign[1] places block 'out.w', which assign[0] has placed"},
        Wrong{"AddressTwice", kCluster, "distribute { servers: 2 } cluster { pserver: [\"a:1\", \"a:1\"] }",
              "job.textproto:20:54: cluster.pserver[1] 'a:1' is the address of server 0 and of server 1"},
        Wrong{"AddressWithoutPort", kCluster, "cluster { pserver: \"a\" }",
              "job.textproto:20:11: cluster.pserver[0] 'a' is no host:port"},
        Wrong{"OtherNumberOfAddresses", kCluster, "distribute { servers: 2 } cluster { pserver: \"a:1\" }",
              "job.textproto:20:37: cluster.pserver names 1 servers; distribute.servers is 2"},
        Wrong{"LeaseBelowHeartbeat", kCluster, "deadlines { lease_s: 1 }",
              "job.textproto:20:1: deadlines.heartbeat_s must be below lease_s, 1, got 1: otherwise every process is "
              "assumed dead"},
        Wrong{"EvaluationOfNothing", kCluster, "train { eval_every_steps: 5 }",
              "job.textproto:20:9: train.eval_every_steps is set, but data.eval names no files"},
        Wrong{"CheckpointsNowhere", kCluster, "checkpoint { every_steps: 5 }",
              "job.textproto:20:14: checkpoint.every_steps is set, but checkpoint.dir is empty"},
        Wrong{"ModelAndProgram", kCluster, "program: \"main.program\"",
              "job.textproto:20:1: program is set and so is model; a job has one or the other"}),
    NameOf);

// ------------------------------------------------------------------------------------------------------------ programs

// Edits of the text of a program that a job brings: forward, backward and updates. In messages FILE stands for its
// path.
class WrongProgramTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongProgramTest, GetsThisMessage) {
  const std::string path = ::testing::TempDir() + "/" + GetParam().name + ".program";
  std::ofstream(path) << Replaced(ProgramText(BuildSingleMachine(JobOf(kDeepFm))->main), GetParam().from,
                                  GetParam().to);
  const auto job = ParseJob(kDeepFm, "job.textproto", {}, {.program = path});
  const absl::Status status = job.ok() ? Transpile(*job).status() : job.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(absl::StrReplaceAll(std::string(status.message()), {{path, "FILE"}}), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, WrongProgramTest,
    ::testing::Values(
        Wrong{"OfAnotherFormat", "weir program 1", "weir program 9",
              "FILE:1:1: program format version 9 is newer than 2, the newest that this build reads"},
        Wrong{"BraceMissing", "Out=fm, Sum=fm.sum <- fm_interaction(X=fields)",
              "Out=fm, Sum=fm.sum <- fm_interaction(X=fields", "FILE:56:48: expected ',', got the end of the line"},
        Wrong{"UnknownOperator", "fm_interaction(X", "fm_interactions(X",
              "FILE: block 0, op 2 (fm_interactions): unknown operator 'fm_interactions' (did you mean "
              "'fm_interaction'?)"},
        Wrong{"UnknownSlot", "fm_interaction(X", "fm_interaction(Y",
              "FILE: block 0, op 2 (fm_interaction): no input slot 'Y'; it has X"},
        Wrong{
            "UndeclaredVariable", "fm_interaction(X=fields", "fm_interaction(X=field",
            "FILE: block 0, op 2 (fm_interaction): input X: variable 'field' is not declared (did you mean 'fields'?)"},
        Wrong{"ReadBeforeItIsWritten", "reshape(X=fields)", "reshape(X=fields@GRAD)",
              "FILE: block 0, op 3 (reshape): input X: variable 'fields@GRAD' is read before it is written"},
        Wrong{"OtherShape", "var fm dense float32 [-1, 1]", "var fm dense float32 [-1, 2]",
              "FILE: block 0, op 2 (fm_interaction): output 'fm' is declared as float32 [-1, 2]; the op gives float32 "
              "[-1, 1]"},
        Wrong{"UnknownAttribute", "concat(X=[input.flat0, dense]) axis=1", "concat(X=[input.flat0, dense]) axes=1",
              "FILE: block 0, op 4 (concat): no attribute 'axes' (did you mean 'axis'?); it has axis"},
        Wrong{"AttributeOfAnotherType", "concat(X=[input.flat0, dense]) axis=1",
              "concat(X=[input.flat0, dense]) axis=\"1\"",
              "FILE: block 0, op 4 (concat): attribute 'axis' takes integer, got string"},
        Wrong{"DeclaredTwice", "  var fm dense float32 [-1, 1]\n",
              "  var fm dense float32 [-1, 1]\n  var fm dense float32 [-1, 1]\n",
              "FILE: block 0: variable 'fm' is declared twice"},
        Wrong{"NotFed", "var dense dense float32 [-1, 6] stop_gradient: true", "var dense dense float32 [-1, 6]",
              "FILE: block 0, op 4 (concat): input X: variable 'dense' is read and nothing writes it; what is fed has "
              "stop_gradient"},
        Wrong{"LabelOfAnotherWidth", "var label dense float32 [-1, 1]", "var label dense float32 [-1, 2]",
              "FILE: block 0, op 10 (sigmoid_cross_entropy_with_logits): sigmoid_cross_entropy_with_logits: Label must "
              "be [B, 1], one number per example, got [-1, 2] (variable label)"},
        Wrong{"NoLoss",
              "loss name: \"ctr\" var: \"ctr.loss\" weight: 1 prediction: \"ctr.prediction\" label: \"label\" kind: "
              "BINARY\n",
              "", "job.textproto: FILE names no losses: there is nothing to minimise"},
        Wrong{"LossOfNothing", "var: \"ctr.loss\"", "var: \"ctr.losses\"",
              "FILE: loss 'ctr' names variable 'ctr.losses', which is not declared"},
        Wrong{"GradientOfAnotherParameter", "ParamOut=out.w <- sgd(Param=out.w, Grad=out.w@GRAD",
              "ParamOut=out.w <- sgd(Param=out.w, Grad=deep.1.w@GRAD",
              "FILE: block 0, op 30 (sgd): sgd: Grad [192, 8] does not fit Param [8, 1]"}),
    NameOf);

}  // namespace
}  // namespace weir
