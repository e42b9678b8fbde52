#include "transpiler/job/load_job.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/job/check_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(JobTest, AGoodJobIsRead) {
  const Job job = JobOf(kDeepFm);
  EXPECT_EQ(job.config.name(), "deepfm");
  EXPECT_EQ(job.config.distribute().servers(), 2);
}

TEST(JobTest, OverridesApplyInOrderAndAreChecked) {
  const Job job = JobOf(kDeepFm, {"distribute.servers=3", "distribute.servers=5", "table[0].width=16"});
  EXPECT_EQ(job.config.distribute().servers(), 5);
  EXPECT_EQ(job.config.table(0).width(), 16);
  const auto wrong = ParseJob(kDeepFm, "job.textproto", {"distribute.servers=-1"});
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("--set distribute.servers: distribute.servers must be at least 0, got -1"));
  const auto shards = ParseJob(kDeepFm, "job.textproto", {"distribute.servers=0", "table[0].logical_shards=1"});
  EXPECT_THAT(std::string(shards.status().message()),
              HasSubstr("table[0].logical_shards must be at least distribute.trainers, 2, got 1"));
}

TEST(JobTest, ASettingWithValuesNamedTrueAndFalseIsReadFromTextAndFlags) {
  EXPECT_EQ(JobOf(kDeepFm).config.distribute().merge_hosts(), v1::Distribute::AUTO);
  for (const auto& [text, value] : {std::pair("AUTO", v1::Distribute::AUTO), std::pair("true", v1::Distribute::true_),
                                    std::pair("false", v1::Distribute::false_)}) {
    const std::string setting = absl::StrCat("merge_hosts: ", text);
    const Job job = JobOf(Replaced(kDeepFm, "distribute {", absl::StrCat("distribute { ", setting)));
    EXPECT_EQ(job.config.distribute().merge_hosts(), value) << text;
    EXPECT_THAT(job.config.distribute().ShortDebugString(), HasSubstr(setting));
    const Job set = JobOf(kDeepFm, {absl::StrCat("distribute.merge_hosts=", text)});
    EXPECT_EQ(set.config.distribute().merge_hosts(), value) << text;
    // JSON has the names as strings.
    std::string json;
    v1::Distribute read;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(job.config.distribute(), &json).ok());
    EXPECT_THAT(json, HasSubstr(absl::StrCat("\"mergeHosts\":\"", text, "\"")));
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &read).ok());
    EXPECT_EQ(read.merge_hosts(), value);
  }
  const auto wrong = ParseJob(kDeepFm, "job.textproto", {"distribute.merge_hosts=yes"});
  EXPECT_EQ(std::string(wrong.status().message()),
            "--set distribute.merge_hosts: 'yes' is no value of 'merge_hosts'; known: AUTO, true, false");
}

TEST(JobTest, PathsAreRelativeToTheFile) {
  const auto job = ParseJob(kDeepFm, "/somewhere/jobs/job.textproto", {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->Path("data/train.tsv"), "/somewhere/jobs/data/train.tsv");
  EXPECT_EQ(job->Path("/absolute"), "/absolute");
  EXPECT_EQ(JobOf(kDeepFm).Path("train.tsv"), "train.tsv");
}

TEST(JobTest, PathsOfAJobFromAStreamAreRelativeToTheWorkingDirectory) {
  for (const char* stream : {"/dev/stdin", "/dev/fd/63", "/proc/self/fd/0"}) {
    const auto job = ParseJob(kDeepFm, stream, {});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->Path("data/train.tsv"), "data/train.tsv");
  }
  EXPECT_EQ(ParseJob(kDeepFm, "/dev/shm/job.textproto", {})->Path("train.tsv"), "/dev/shm/train.tsv");
}

TEST(JobTest, PathsOfAnyJobAreRelativeToTheDirectoryThatIsGiven) {
  for (const char* file : {"/dev/stdin", "job.textproto", "/tmp/copy/job.textproto"}) {
    const auto job = ParseJob(kDeepFm, file, {}, {.directory = "jobs"});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->Path("data/train.tsv"), "jobs/data/train.tsv") << file;
    EXPECT_EQ(job->Path("/absolute"), "/absolute");
  }
}

TEST(JobTest, AnEmptyStreamIsOneThatWasReadBefore) {
  const auto job = LoadJob("/dev/null", {});
  EXPECT_EQ(job.status(), absl::InvalidArgumentError(
                              "/dev/null is empty; what comes from a pipe or standard input can be read once only: has "
                              "another program read it?"));
}

TEST(JobTest, AMissingFileIsNotFound) {
  const auto job = LoadJob("/nowhere/job.textproto", {});
  EXPECT_EQ(job.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("/nowhere/job.textproto: No such file"));
}

struct Wrong {
  const char* what;
  const char* from;
  const char* to;
  const char* message;  // a part of it
};

class WrongPlaceTest : public ::testing::TestWithParam<Wrong> {};

// Errors of the job itself and of its transpiling read alike.
TEST_P(WrongPlaceTest, IsNamedAtItsPlace) {
  const std::string text = Replaced(kDeepFm, GetParam().from, GetParam().to);
  const auto job = ParseJob(text, "job.textproto", {});
  const absl::Status status = job.ok() ? Transpile(*job).status() : job.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, WrongPlaceTest,
    ::testing::Values(
        Wrong{"UnknownField", "batch_size: 64", "batch_sise: 64", "job.textproto:5:3: "},
        Wrong{"WrongEnum", "pooling: SUM", "pooling: SUMM", "job.textproto:9:"},
        Wrong{"WrongType", "batch_size: 64", "batch_size: \"x\"", "job.textproto:5:"},
        Wrong{"NoName", "name: \"deepfm\"", "", "name is required"},
        Wrong{"OddName", "name: \"deepfm\"", "name: \"a b\"", "job.textproto:1:1: name 'a b' must begin with a letter"},
        Wrong{"NegativeLearningRate", "sgd { learning_rate: 0.1 }", "sgd { learning_rate: -0.1 }",
              "job.textproto:19:19: optimizer.sgd.learning_rate must be positive, got -0.1"},
        Wrong{"LearningRateIsNoNumber", "learning_rate: 0.05", "learning_rate: nan",
              "table[0].optimizer.adagrad.learning_rate must be positive, got nan"},
        Wrong{"MomentumOutOfRange", "sgd { learning_rate: 0.1 }", "momentum { mu: 1 }",
              "optimizer.momentum.mu must be at least 0 and below 1, got 1"},
        Wrong{"AdagradWithoutEpsilon", "adagrad { learning_rate: 0.05 }", "adagrad { epsilon: 0 }",
              "adagrad.epsilon must be positive when initial_accumulator is 0"},
        Wrong{"RateBelowFloats", "sgd { learning_rate: 0.1 }", "ftrl { learning_rate: 1e-50 }",
              "optimizer.ftrl.learning_rate is 1e-50, too small for the 32-bit floats"},
        Wrong{"EpsilonBelowFloats", "sgd { learning_rate: 0.1 }", "adam { epsilon: 1e-50 }",
              "job.textproto:19:20: optimizer.adam.epsilon is 1e-50, too small"},
        Wrong{"AccumulatorBelowFloats", "adagrad { learning_rate: 0.05 }", "adagrad { epsilon: 1e-50 }",
              "adagrad.epsilon is 1e-50, too small"},
        Wrong{"DecayOfOneAsAFloat", "sgd { learning_rate: 0.1 }", "momentum { mu: 0.99999999999 }",
              "momentum.mu must be at least 0 and below 1, got 1, which is 1 as a 32-bit float"},
        Wrong{"ConstantBeyondFloats", "width: 4", "width: 4 initializer { constant { value: 1e39 } }",
              "initializer.constant.value is 1e+39, too large"},
        Wrong{"UniformBeyondFloats", "width: 4", "width: 4 initializer { uniform { min: -1e39 max: 1 } }",
              "initializer.uniform.min is -1e+39, too large"},
        Wrong{"DeviationBeyondFloats", "width: 4", "width: 4 initializer { gaussian { stddev: 1e39 } }",
              "initializer.gaussian.stddev is 1e+39, too large"},
        Wrong{"TableBeyondAnyMemory", "width: 4 is_sparse: true is_distributed: true",
              "width: 16 dict_size: 100000000000000",
              "job.textproto:17:35: table[0].dict_size times width, 100000000000000 * 16, is more than 2^48 numbers"},
        Wrong{"LayerBeyondAnyMemory", "fc { input: \"deep\" size: 1 }",
              "fc { input: \"deep\" size: 2147483647 } } layer { name: \"out2\" fc { input: \"out\" size: 2147483647 }",
              "layer 'out2': variable 'out2.w' is float32 [2147483647, 2147483647], more than 2^48 elements"},
        Wrong{"CompressionThatMustBeReproducible", "distribute { servers: 2 trainers: 2 }",
              "distribute { servers: 2 trainers: 2 dense: ALL_REDUCE all_reduce { compression: FLOAT16 } }",
              "job.textproto:20:68: distribute.all_reduce.compression FLOAT16 rounds the sum of each trainer"},
        Wrong{
            "CompressionOfAdasum", "distribute { servers: 2 trainers: 2 }",
            "distribute { servers: 2 trainers: 2 dense: ALL_REDUCE reproducible: false all_reduce { compression: "
            "BFLOAT16 reduction: ADASUM } }",
            "job.textproto:20:88: distribute.all_reduce.compression BFLOAT16 contradicts all_reduce.reduction: ADASUM"},
        Wrong{"NoOptimizer", "optimizer { sgd { learning_rate: 0.1 } }", "", "the job has no optimizer"},
        Wrong{"EmptyOptimizer", "optimizer { sgd { learning_rate: 0.1 } }", "optimizer { }",
              "optimizer needs one of sgd, momentum, adagrad, adam, ftrl, "},
        Wrong{"ScheduleWithoutSteps", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } schedule { cosine { } }",
              "job.textproto:19:51: optimizer.schedule.cosine.decay_steps must be at least 1, got 0"},
        Wrong{"EmptySchedule", "sgd { learning_rate: 0.1 }", "sgd { learning_rate: 0.1 } schedule { }",
              "optimizer.schedule needs one of constant, exponential, natural_exp"},
        Wrong{"PiecewiseBesideARate", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } schedule { piecewise { values: 1 } }",
              "job.textproto:19:19: optimizer.sgd.learning_rate is set, but optimizer.schedule.piecewise has the "
              "rates: leave one"},
        Wrong{"WarmUpToNothing", "sgd { learning_rate: 0.1 }",
              "sgd { } schedule { piecewise { values: 1 } warm_up { steps: 2 } }",
              "optimizer.schedule.warm_up needs end_learning_rate"},
        Wrong{"PiecewiseWithoutAValue", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } schedule { piecewise { values: 1 boundaries: 5 } }",
              "optimizer.schedule.piecewise needs one value more than boundaries, got 1 values and 1 boundaries"},
        Wrong{"NegativeDecay", "sgd { learning_rate: 0.1 }", "sgd { learning_rate: 0.1 } l2_decay: -1",
              "optimizer.l2_decay must not be negative, got -1"},
        Wrong{"ClipUpsideDown", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } clip { by_value { min: 2 max: 1 } }",
              "optimizer.clip.by_value.min leaves nothing between min, 2, and max, 1"},
        Wrong{"ClipAndNoClip", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } parameter { name: \"out.w\" no_clip: true clip { by_value { max: 1 } } }",
              "optimizer.parameter[0].no_clip contradicts clip"},
        Wrong{"ParameterThatThereIsNot", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } parameter { name: \"out.ww\" }",
              "optimizer.parameter[0].name 'out.ww' matches no parameter that this optimizer updates (did you mean "
              "'out.w'?)"},
        Wrong{"ParameterOfAnotherOptimizer", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } parameter { name: \"vect*\" }",
              "optimizer.parameter[0].name 'vect*' matches no parameter that this optimizer updates"},
        Wrong{"NegativeFactor", "sgd { learning_rate: 0.1 }",
              "sgd { learning_rate: 0.1 } parameter { name: \"*\" learning_rate_factor: -2 }",
              "optimizer.parameter[0].learning_rate_factor must not be negative, got -2"},
        Wrong{"NoLoss", "  loss { name: \"ctr\" sigmoid_cross_entropy { logits: \"logit\" label: \"label\" } }\n", "",
              "model.loss must have at least one loss"},
        Wrong{"NoReader", "criteo { integers: 6 categoricals: 30 }", "",
              "data needs one of criteo, multi_slot, csv, lib_svm, idx, tf_record, slot_sign, custom"},
        Wrong{"DistributedWithoutSparse", "width: 4 is_sparse: true", "width: 4",
              "job.textproto:17:34: table[0].is_distributed needs is_sparse: true"},
        Wrong{"DenseTableWithoutSize", "is_sparse: true is_distributed: true }", "is_sparse: true }",
              "table[1].dict_size is required for table 'weights'"},
        Wrong{"TableWithoutWidth", "width: 4 ", "", "table[0].width must be at least 1, got 0"},
        Wrong{"TwoTablesOfOneName", "name: \"weights\"", "name: \"vectors\"",
              "'vectors' is the name of an earlier table"},
        Wrong{"UnknownTable", "table: \"vectors\"", "table: \"vektors\"",
              "layer 'fields': table 'vektors' is no table of the job (did you mean 'vectors'?)"},
        Wrong{"UnusedTable", "table: \"vectors\"", "table: \"weights\"", "no embedding reads table 'vectors'"},
        Wrong{"ShardsAreNoPowerOfTwo", "width: 4", "width: 4 logical_shards: 1000",
              "table[0].logical_shards must be a power of two up to 1048576, got 1000"},
        Wrong{"FewerShardsThanServers", "width: 4", "width: 4 logical_shards: 1",
              "table[0].logical_shards must be at least distribute.servers, 2, got 1"},
        Wrong{"UniformWithoutWidth", "width: 4", "width: 4 initializer { uniform { min: 1 max: 1 } }",
              "initializer.uniform needs min below max, got 1 and 1"},
        Wrong{"XavierWithoutHeight", "width: 4", "width: 4 initializer { xavier { } }",
              "initializer.xavier needs fan_in and fan_out"},
        Wrong{"XavierWithANegativeFan", "width: 4", "width: 4 initializer { xavier { fan_in: 3 fan_out: -1 } }",
              "initializer.xavier.fan_out must be at least 0, got -1"},
        Wrong{"LayerWithoutName", "name: \"fm\" ", "", "model.layer[2].name is required"},
        Wrong{"TwoLayersOfOneName", "name: \"wide\"", "name: \"fields\"",
              "job.textproto:9:11: model.layer[1].name 'fields' is the name of layer[0] too"},
        Wrong{"LayerNamedLikeData", "name: \"fm\"", "name: \"dense\"",
              "'dense' is the name of a variable of the data too"},
        Wrong{"LayerNamedLikeATable", "name: \"fm\"", "name: \"vectors\"", "'vectors' is the name of a table too"},
        Wrong{"LayerWithoutKind", "fm_interaction { input: \"fields\" }", "",
              "model.layer[2] needs one of embedding, fc"},
        Wrong{"UnknownInput", "mlp { input: \"input\"", "mlp { input: \"inputs\"",
              "job.textproto:12:30: layer 'deep': input 'inputs' is neither a variable of the data nor a layer above "
              "(did "
              "you mean 'input'?)"},
        Wrong{"LayerFurtherDown", "input: \"fields\" }", "input: \"deep\" }",
              "layer 'fm': input 'deep' is a layer further down"},
        Wrong{"LayerThatReadsItself", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"fm\" }",
              "layer 'fm': input 'fm' is this layer itself; a layer reads those above it"},
        Wrong{"IdsIntoALayer", "fm_interaction { input: \"fields\" }", "fm_interaction { input: \"cat\" }",
              "'cat' holds ids; only an embedding reads them"},
        Wrong{"FloatsIntoAnEmbedding", "ids: \"cat\"", "ids: \"dense\"", "'dense' holds floats, not ids"},
        Wrong{"SizeZero", "size: 1", "size: 0", "layer 'out': size must be at least 1, got 0"},
        Wrong{"ShapesDoNotFit", "input: \"wide\" input: \"fm\"", "input: \"fm\" input: \"deep\"", "[-1, 8]"},
        Wrong{"LossShapesDoNotFit", "logits: \"logit\"", "logits: \"deep\"", "loss 'ctr': "},
        Wrong{"UnknownLabel", "label: \"label\"", "label: \"lable\"", "loss 'ctr': label 'lable' is neither"},
        Wrong{"NegativeLoss", "loss { name: \"ctr\" sigmoid", "loss { name: \"ctr\" weight: -0.5 sigmoid",
              "model.loss[0].weight must not be negative, got -0.5: training would maximise the loss"},
        Wrong{"TwoLossesOfOneName", "  loss {",
              "  loss { name: \"ctr\" square_error { input: \"logit\" label: \"label\" } }\n  loss {",
              "model.loss[1] has the name 'ctr' of an earlier loss"},
        Wrong{"NothingDependsOnALayer", "add { input: \"wide\" input: \"fm\" input: \"out\" }",
              "add { input: \"wide\" input: \"fm\" }", "no loss depends on parameter 'deep.0.b'"},
        Wrong{"BatchIsNoMultipleOfLanes", "batch_size: 64", "batch_size: 100",
              "job.textproto:5:3: data.batch_size must be a multiple of train.lanes, 8, got 100"},
        Wrong{"BatchZero", "batch_size: 64", "batch_size: 0", "data.batch_size must be at least 1, got 0"},
        Wrong{"BatchBeyondAnyMachine", "batch_size: 64", "batch_size: 9000000000000",
              "must be at most 16777216, got 9000000000000"},
        Wrong{"MoreColumnsThanAnyData", "categoricals: 30", "categoricals: 2000000000",
              "job.textproto:4:24: data.criteo.categoricals must be at most 1048576, got 2000000000"},
        Wrong{"ColumnsTimesBatchBeyondMemory", "categoricals: 30 }\n  batch_size: 64",
              "categoricals: 1000000 }\n  batch_size: 8000000", "values of a variable in a lane"},
        Wrong{"ShuffleMemoryBeyondAnyMachine", "batch_size: 64", "batch_size: 64 shuffle_memory_mb: 9000000000000",
              "job.textproto:5:18: data.shuffle_memory_mb must be at most 16777216, got 9000000000000"},
        Wrong{"ThreadsBeyondAnyMachine", "distribute {", "train { threads: 100000000 } distribute {",
              "job.textproto:20:9: train.threads must be at most 1024, got 100000000"},
        Wrong{"WidthBeyondAMessage", "width: 4 ", "width: 2147483647 ",
              "table[0].width must be at most 1048576, got 2147483647"},
        Wrong{"SlotBeyondAnyData", "criteo { integers: 6 categoricals: 30 }",
              "multi_slot { slot { name: \"label\" type: FLOAT dim: 2147483647 } }",
              "data.multi_slot.slot[0].dim must be at most 1048576, got 2147483647"},
        Wrong{"SlotsTogetherBeyondAnyData", "criteo { integers: 6 categoricals: 30 }",
              "multi_slot { slot { name: \"label\" type: FLOAT dim: 1048576 } slot { name: \"x\" type: FLOAT } }",
              "data.multi_slot.slot[1].dim makes 1048577 floats of all slots together"},
        Wrong{"CsvWithoutColumns", "criteo { integers: 6 categoricals: 30 }", "csv {}",
              "data.csv.column must name at least one column that is not skipped"},
        Wrong{"CsvColumnWithoutName", "criteo { integers: 6 categoricals: 30 }", "csv { column {} }",
              "data.csv.column[0] needs a name"},
        Wrong{"CsvColumnTwice", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' } column { name: 'a' } }",
              "job.textproto:4:39: data.csv.column[1].name 'a' is the name of an earlier column"},
        Wrong{"CsvSeparatorWithAQuote", "criteo { integers: 6 categoricals: 30 }",
              "csv { separator: ',-\"' column { name: 'a' } }",
              "job.textproto:4:9: data.csv.separator must be no quote and no end of line"},
        Wrong{"CsvEmptySeparator", "criteo { integers: 6 categoricals: 30 }",
              "csv { separator: '' column { name: 'a' } }",
              "job.textproto:4:9: data.csv.separator must be one character or several, got ''"},
        Wrong{
            "CsvQuoteOfTwo", "criteo { integers: 6 categoricals: 30 }", "csv { column { name: 'a' } quote: 'ab' }",
            "job.textproto:4:30: data.csv.quote must be one character, or empty where fields have no quotes, got 'ab'"},
        Wrong{"CsvDecimalCommaOrSeparator", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' } quote: '' decimal_comma: true }",
              "job.textproto:4:40: data.csv.decimal_comma cannot be told from the separator ','"},
        Wrong{"CsvWholeFloats", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' whole_floats: true } }",
              "job.textproto:4:28: data.csv.column[0].whole_floats is for ID columns"},
        Wrong{"CsvSkipsNoNumber", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' } skip_lines: -2 }",
              "job.textproto:4:30: data.csv.skip_lines must not be negative, got -2"},
        Wrong{"PartitionWithoutName", "criteo { integers: 6 categoricals: 30 }",
              "criteo { integers: 6 categoricals: 30 } partition { type: ID }",
              "job.textproto:4:43: data.partition[0] needs a name, that of directories NAME=VALUE"},
        Wrong{"PartitionOfTheReader", "criteo { integers: 6 categoricals: 30 }",
              "criteo { integers: 6 categoricals: 30 } partition { name: 'dense' }",
              "job.textproto:4:55: data.partition[0].name 'dense' is a variable of the data already"},
        Wrong{"PartitionTwice", "criteo { integers: 6 categoricals: 30 }",
              "criteo { integers: 6 categoricals: 30 } partition { name: 'dt' } partition { name: 'dt' }",
              "job.textproto:4:80: data.partition[1].name 'dt' is a variable of the data already"},
        Wrong{"PartitionTimeFormat", "criteo { integers: 6 categoricals: 30 }",
              "criteo { integers: 6 categoricals: 30 } partition { name: 'dt' time_format: '%Y' }",
              "data.partition[0].time_format is for type: TIME"},
        Wrong{"CsvSeparatorIsAQuote", "criteo { integers: 6 categoricals: 30 }",
              "csv { separator: '\"' column { name: 'a' } }", "data.csv.separator must be no quote and no end of line"},
        Wrong{"CsvListInNumbers", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' list: '.' dim: 2 } }", "data.csv.column[0].list '.' may stand in a number"},
        Wrong{"CsvClassesOfIds", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' type: TEXT classes { text: 'x' } } }",
              "data.csv.column[0].classes is for FLOAT columns"},
        Wrong{"CsvClassesOfAList", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' list: '|' dim: 2 classes { text: 'x' } } }",
              "data.csv.column[0].classes is for a field that is no list"},
        Wrong{"CsvClassWithoutText", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' classes { text: 'x' } classes {} } }",
              "data.csv.column[0].classes[1] has no text"},
        Wrong{"CsvClassTwice", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' missing: 'no' classes { text: 'no' } } }",
              "data.csv.column[0].classes[0].text[0] 'no' stands there twice"},
        Wrong{"CsvEmptyMark", "criteo { integers: 6 categoricals: 30 }", "csv { column { name: 'a' missing: '' } }",
              "data.csv.column[0].missing[0] must not be empty: an empty field is missing"},
        Wrong{"CsvMarkThatTrimTakes", "criteo { integers: 6 categoricals: 30 }",
              "csv { trim: true column { name: 'a' missing: ' ?' } }",
              "data.csv.column[0].missing[0] ' ?' has blanks at its ends, which trim takes from every field"},
        Wrong{"CsvDimWithoutAList", "criteo { integers: 6 categoricals: 30 }", "csv { column { name: 'a' dim: 2 } }",
              "data.csv.column[0].dim is for a list; say which character separates its values"},
        Wrong{"CsvDimOfIds", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' type: ID list: '|' dim: 2 } }", "data.csv.column[0].dim is for FLOAT columns"},
        Wrong{"CsvWeightOfAFloat", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' list: '|' weight: ':' } }",
              "data.csv.column[0].weight is for ID and TEXT columns"},
        Wrong{"CsvWeightInNumbers", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' type: ID list: '|' weight: '.' } }",
              "data.csv.column[0].weight '.' may stand in a number"},
        Wrong{"CsvWeightWithoutAList", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' type: TEXT weight: ':' } }", "data.csv.column[0].weight is for a list"},
        Wrong{"CsvWeightLikeTheList", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' type: TEXT list: '|' weight: '|' } }",
              "data.csv.column[0].weight must differ from list"},
        Wrong{"CsvOutputOfTwoKinds", "criteo { integers: 6 categoricals: 30 }",
              "csv { column { name: 'a' output: 'x' } column { name: 'b' type: ID output: 'x' } }",
              "data.csv.column[1] gives ids to 'x', which earlier columns fill with floats"},
        Wrong{"LibSvmWithoutSlots", "criteo { integers: 6 categoricals: 30 }", "lib_svm {}",
              "data.lib_svm.slot must name at least one slot"},
        Wrong{"LibSvmLabelTwice", "criteo { integers: 6 categoricals: 30 }", "lib_svm { slot { name: 'label' } }",
              "data.lib_svm.slot[0] gives 'label', which the format itself does"},
        Wrong{"LibSvmUpsideDown", "criteo { integers: 6 categoricals: 30 }",
              "lib_svm { slot { name: 'a' first: 3 last: 2 } }",
              "job.textproto:4:39: data.lib_svm.slot[0].last must be at least first, 3, got 2"},
        Wrong{"LibSvmFloatsWithoutEnd", "criteo { integers: 6 categoricals: 30 }",
              "lib_svm { slot { name: 'a' type: FLOAT } }",
              "data.lib_svm.slot[0] makes 18446744073709551615 + 1 columns; a FLOAT slot has at most 1048576"},
        Wrong{"LibSvmSlotsOverlap", "criteo { integers: 6 categoricals: 30 }",
              "lib_svm { slot { name: 'a' last: 7 } slot { name: 'b' first: 7 } }",
              "data.lib_svm.slot[1] takes indexes that slot[0], 'a', takes, too"},
        Wrong{"LibSvmFieldWithoutFields", "criteo { integers: 6 categoricals: 30 }",
              "lib_svm { slot { name: 'a' field: 1 } }",
              "data.lib_svm.slot[0].field is for libffm text; set fields: true"},
        Wrong{"LibSvmNegativeField", "criteo { integers: 6 categoricals: 30 }",
              "lib_svm { fields: true slot { name: 'a' field: -1 } }",
              "data.lib_svm.slot[0].field must not be negative, got -1"},
        Wrong{"IdxWithoutValues", "criteo { integers: 6 categoricals: 30 }", "idx {}",
              "data.idx.values must be at least 1 and below 1048576, got 0"},
        Wrong{"IdxOutputIsTheLabel", "criteo { integers: 6 categoricals: 30 }", "idx { values: 4 output: \"label\" }",
              "data.idx.output must be a name, and not 'label'"},
        Wrong{"LabelsOfAnotherReader", "files: \"train.tsv\"", "files: \"train.tsv\" labels: \"y\"",
              "job.textproto:3:30: data.train.labels are for data.idx; other formats have labels in their lines"},
        Wrong{"NoFiles", "files: \"train.tsv\"", "", "data.train names no files"},
        Wrong{"LanesNoPowerOfTwo", "distribute {", "train { lanes: 6 } distribute {",
              "train.lanes must be a power of two up to 65536, or 0"},
        Wrong{"MoreTrainersThanLanes", "trainers: 2", "trainers: 9",
              "distribute.trainers is 9, more than train.lanes, 8"},
        Wrong{"ServersNegative", "servers: 2", "servers: -1", "distribute.servers must be at least 0, got -1"},
        Wrong{"ServersInTrainersInAsync", "servers: 2", "sync: false servers: 0",
              "job.textproto:20:26: distribute.servers 0 contradicts sync: false"},
        Wrong{"OtherNumberOfServingTrainers", "distribute { servers: 2",
              "cluster { pserver: \"a:1\" } distribute { servers: 0",
              "cluster.pserver names 1 trainers; distribute.trainers is 2, and with distribute.servers: 0 each"},
        Wrong{"TrainersZero", "trainers: 2", "trainers: 0", "distribute.trainers must be at least 1, got 0"},
        Wrong{"SmallBlocks", "trainers: 2", "trainers: 2 min_block_size: 8191",
              "job.textproto:20:37: distribute.min_block_size must be at least 8192, got 8191"},
        Wrong{"EagerInSync", "trainers: 2", "trainers: 2 async_apply: EAGER", "EAGER contradicts sync: true"},
        Wrong{"EagerWithVerdicts", "distribute { servers: 2",
              "train { nan_policy: SKIP_STEP } distribute { sync: false async_apply: EAGER servers: 2",
              "EAGER contradicts train.nan_policy SKIP_STEP"},
        Wrong{
            "EagerWithAGlobalNorm", "sgd { learning_rate: 0.1 } }\ndistribute {",
            "sgd {} clip { by_global_norm { max_norm: 1 } } }\ndistribute { sync: false async_apply: EAGER",
            "job.textproto:20:26: distribute.async_apply EAGER applies parts on arrival; the norm of 'optimizer.clip'"},
        Wrong{"LambOfADistributedTable", "adagrad { learning_rate: 0.05 }", "lamb {}",
              "table 'vectors': operator 'lamb' cannot update rows of a table"},
        Wrong{"ClipWithoutANorm", "sgd { learning_rate: 0.1 }", "sgd {} clip { by_norm {} }",
              "optimizer.clip.by_norm needs max_norm"},
        Wrong{"ClipByANegativeNorm", "sgd { learning_rate: 0.1 }", "sgd {} clip { by_global_norm { max_norm: -1 } }",
              "optimizer.clip.by_global_norm.max_norm must be positive, got -1"},
        Wrong{"ByTrainersInAsync", "trainers: 2", "trainers: 2 sync: false average: BY_TRAINERS",
              "BY_TRAINERS contradicts sync: false"},
        Wrong{"ByTrainersIsNotReproducible", "trainers: 2", "trainers: 2 average: BY_TRAINERS",
              "set distribute.reproducible: false"},
        Wrong{"NoLanesIsNotReproducible", "distribute {", "train { lanes: 0 } distribute {",
              "train.lanes 0 makes the result depend on the number of trainers"},
        Wrong{"DeadlineZero", "distribute {", "deadlines { rpc_s: 0 } distribute {",
              "deadlines.rpc_s must be positive, got 0"},
        Wrong{"HeartbeatAsLongAsLease", "distribute {", "deadlines { heartbeat_s: 10 } distribute {",
              "deadlines.heartbeat_s must be below lease_s, 10, got 10"},
        Wrong{"EvaluationWithoutData", "distribute {", "train { eval_every_steps: 5 } distribute {",
              "train.eval_every_steps is set, but data.eval names no files"},
        Wrong{"CheckpointsWithoutDirectory", "distribute {", "checkpoint { every_steps: 5 } distribute {",
              "checkpoint.every_steps is set, but checkpoint.dir is empty"},
        Wrong{"NoCheckpointIsKept", "distribute {", "checkpoint { keep_last: 0 } distribute {",
              "checkpoint.keep_last must be at least 1, got 0"},
        Wrong{"TwoServersAtOneAddress", "distribute {", "cluster { pserver: [\"a:1\", \"a:1\"] } distribute {",
              "'a:1' is the address of server 0 and of server 1"},
        Wrong{"AddressWithoutPort", "distribute {", "cluster { pserver: [\"a:1\", \"b\"] } distribute {",
              "'b' is no host:port"},
        Wrong{"OtherNumberOfAddresses", "distribute {", "cluster { pserver: \"a:1\" } distribute {",
              "cluster.pserver names 1 servers; distribute.servers is 2"},
        Wrong{"ModelAndProgram", "model {", "program: \"job.textproto\" model {",
              "job.textproto:7:1: program is set and so is model"},
        Wrong{"TransformOfAnUnknownColumn", "batch_size: 64", "batch_size: 64 dense { column { index: 6 } }",
              "data.dense.column[0].index must be in [0, 6), got 6"},
        Wrong{"BucketsDescend", "batch_size: 64",
              "batch_size: 64 dense { column { index: 1 transform: BUCKETIZE boundaries: [2, 1] } }",
              "data.dense.column[0].boundaries[1] must be finite and ascend"},
        Wrong{"BucketsAreOneInFloat32", "batch_size: 64",
              "batch_size: 64 dense { column { index: 1 transform: BUCKETIZE boundaries: [1, 1.00000001] } }",
              "data.dense.column[0].boundaries[1] 1.0000000099999999 is the same float32 as the boundary before, 1"},
        Wrong{"BoundThatFloatsDoNotTell", "train { files: \"train.tsv\" }",
              "train { files: \"train.tsv\" where { of: \"label\" from: 20240105 } }",
              "data.train.where[0].from cannot be told from 20240104: 'label' is a float"},
        Wrong{"NoNameThatMayBeAbsent", "batch_size: 64", "batch_size: 64 may_be_absent: \"C1\"",
              "data.may_be_absent[0] 'C1': the reader looks for nothing by name"},
        Wrong{"SharedIsNoIds", "batch_size: 64", "batch_size: 64 ids { shared: \"dense\" }",
              "data.ids.shared[0] 'dense' is no ids variable"},
        Wrong{"SaltedIdsOfADenseTable", "is_sparse: true is_distributed: true }", "is_sparse: true dict_size: 100 }",
              "'cat' are salted by slot and do not lie in [0, dict_size) of table 'weights'"}),
    [](const ::testing::TestParamInfo<Wrong>& info) { return info.param.what; });

TEST(JobTest, OneCheckpointAloneMayBeKept) {
  EXPECT_EQ(JobOf(kDeepFm, {"checkpoint.keep_last=1"}).config.checkpoint().keep_last(), 1);
}

TEST(JobTest, NeitherModelNorProgramIsAnError) {
  const auto job = ParseJob("name: \"a\" data { criteo {} } optimizer { sgd {} }", "job.textproto", {});
  EXPECT_THAT(std::string(job.status().message()), HasSubstr("the job has neither a model nor a program"));
}

TEST(JobTest, AMissingProgramFileIsNamed) {
  const auto job = ParseJob("name: \"a\" data { criteo {} } optimizer { sgd {} }\nprogram: \"nowhere.program\"",
                            "job.textproto", {});
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("job.textproto:2:1: cannot open nowhere.program: No such file"));
}

// A job whose program is this text, beside it.
absl::Status StatusOfProgram(const std::string& program) {
  const std::string directory = ::testing::TempDir();
  std::ofstream(directory + "/given.program") << program;
  const auto job = ParseJob(R"(name: "given" program: "given.program"
data { multi_slot { slot { name: "x" type: FLOAT dim: 2 } slot { name: "y" type: FLOAT } } batch_size: 64 }
optimizer { sgd { learning_rate: 0.1 } })",
                            directory + "/job.textproto", {});
  return job.ok() ? Transpile(*job).status() : job.status();
}

TEST(JobTest, AProgramIsFedWithWhatTheDataGives) {
  const std::string good = R"(weir program 1
loss name: "cost" var: "cost" prediction: "out" label: "y" kind: REGRESSION
block 0 {
  var x [-1, 2] stop_gradient: true
  var y [-1, 1] stop_gradient: true
  var w [2, 1] persistable: true is_parameter: true initializer { constant { value: 0 } }
  var out [-1, 1]
  var cost [-1, 1]
  Out=out <- mul(X=x, Y=w)
  Out=cost <- square_error(X=out, Label=y) @LOSS
})";
  EXPECT_TRUE(StatusOfProgram(good).ok()) << StatusOfProgram(good);
  const auto message = [&](const std::string& from, const std::string& to) {
    return std::string(StatusOfProgram(Replaced(good, from, to)).message());
  };
  EXPECT_THAT(message("var x [-1, 2] stop_gradient: true",
                      "var x [-1, 2] persistable: true initializer { constant { value: 0 } }"),
              HasSubstr("job.textproto:1:15: variable 'x' of given.program is persistable and has the name of a "
                        "variable of the data"));
  EXPECT_THAT(message("label: \"y\"", ""),
              HasSubstr("job.textproto:1:15: the first loss 'cost' (variable 'cost') names no label"));
  EXPECT_THAT(message("prediction: \"out\"", ""), HasSubstr("names no prediction"));
  EXPECT_THAT(message("var y [-1, 1]", "var y [64, 1]"), HasSubstr("Label must be [-1, 1], got [64, 1]"));
}

TEST(JobTest, TheThreadsFlagIsInRangeOrRefused) {
  const Job job = JobOf(kDeepFm, {"train.threads=3"});
  EXPECT_EQ(*ThreadSetting(0, job.config), 3);
  EXPECT_EQ(*ThreadSetting(5, job.config), 5);
  for (const int flag : {-5, kMaxThreads + 1}) {
    EXPECT_THAT(std::string(ThreadSetting(flag, job.config).status().message()),
                HasSubstr("--threads=" + std::to_string(flag)));
  }
}

TEST(JobTest, MultiSlotGivesOneVariablePerOutput) {
  const std::string text = Replaced(kDeepFm, "criteo { integers: 6 categoricals: 30 }", R"(multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "age" type: FLOAT output: "dense" }
    slot { name: "trash" skip: true }
    slot { name: "hours" type: FLOAT dim: 5 output: "dense" }
    slot { name: "work" output: "cat" }
    slot { name: "home" output: "cat" }
  })");
  const auto single = BuildSingleMachine(JobOf(text));
  ASSERT_TRUE(single.ok()) << single.status();
  const v1::BlockDesc& block = single->main.blocks(0);
  EXPECT_EQ(FindVar(block, "dense")->dims(1), 6);
  EXPECT_EQ(FindVar(block, "cat")->dims(1), 2);
  EXPECT_EQ(FindVar(block, "cat")->kind(), v1::IDS);
  EXPECT_TRUE(FindVar(block, "label")->stop_gradient());
  EXPECT_EQ(FindVar(block, "trash"), nullptr);
}

TEST(JobTest, SlotsOfTwoTypesCannotShareAnOutput) {
  const std::string text =
      Replaced(kDeepFm, "criteo { integers: 6 categoricals: 30 }",
               "multi_slot { slot { name: \"a\" type: FLOAT output: \"x\" } slot { name: \"b\" output: "
               "\"x\" } }");
  const auto job = ParseJob(text, "job.textproto", {});
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("data.multi_slot.slot[1] gives ids to 'x', which earlier slots fill with floats"));
}

}  // namespace
}  // namespace weir
