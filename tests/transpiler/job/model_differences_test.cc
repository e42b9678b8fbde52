// A job that is used with the checkpoint of another.
#include "transpiler/job/model_differences.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "transpiler/job/trained_job.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kJob[] = R"(
  name: "j"
  data {
    train { files: "train.csv" }
    csv { column { name: "label" } column { name: "x" output: "dense" } column { name: "y" output: "dense" }
          column { name: "note" type: SKIP } column { name: "user" type: ID } }
    derived { name: "xb" bucketize { of: "dense[0]" boundaries: 1 boundaries: 3 } }
    dense { transform: LOG1P }
    batch_size: 16
  }
  model {
    layer { name: "e" embedding { ids: "user" ids: "xb" table: "t" pooling: SUM } }
    layer { name: "h" mlp { input: "e" sizes: 8 activation: RELU } }
    layer { name: "logit" fc { input: "h" size: 1 } }
    loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
  }
  table { name: "t" width: 4 is_sparse: true is_distributed: true }
  optimizer { adam { learning_rate: 0.02 } }
)";

v1::JobConfig JobOf(const std::string& text) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

// Returns "path: was -> is" for the job with `from` replaced.
std::vector<std::string> Differences(const std::string& from, const std::string& to,
                                     CheckpointUse use = CheckpointUse::kPrediction) {
  const std::string edited = absl::StrReplaceAll(kJob, {{from, to}});
  EXPECT_NE(edited, kJob) << from;
  std::vector<std::string> texts;
  for (const SettingDifference& each : ModelDifferences(JobOf(kJob), JobOf(edited), use)) {
    texts.push_back(absl::StrCat(each.path, ": ", each.was, " -> ", each.is));
  }
  return texts;
}

TEST(ModelDifferencesTest, WhatChangesScoresIsFound) {
  const struct {
    const char *from, *to, *difference;
  } edits[] = {
      {"RELU", "TANH", "model.layer[1].mlp.activation: RELU -> TANH"},
      {"activation: RELU", "activation: SIGMOID", "model.layer[1].mlp.activation: RELU -> SIGMOID"},
      {"pooling: SUM", "pooling: MEAN", "model.layer[0].embedding.pooling: SUM -> MEAN"},
      {"pooling: SUM", "pooling: SUM padding_id: 3", "model.layer[0].embedding.padding_id: not set -> 3"},
      {"size: 1 }", "size: 1 bias: false }", "model.layer[2].fc.bias: true -> false"},
      {"mlp { input: \"e\" sizes: 8 activation: RELU }", "cross { input: \"e\" }", "model.layer[1].kind: mlp -> cross"},
      {"LOG1P", "NONE", "data.dense.transform: LOG1P -> NONE"},
      {"dense { transform: LOG1P }", "dense { transform: LOG1P } ids { shared: 'user' }",
       "data.ids.shared[0]: not set -> \"user\""},
      {"dense { transform: LOG1P }", "dense { transform: LOG1P } partition { name: 'dt' type: ID }",
       "data.partition[0]: not set -> { name: \"dt\" type: ID }"},
      {"boundaries: 3", "boundaries: 5", "data.derived[0].bucketize.boundaries[1]: 3 -> 5"},
      {"name: \"y\" output", "name: \"z\" output", "data.csv.column[2].name: \"y\" -> \"z\""},
      {"name: \"user\" type: ID", "name: \"user\" type: TEXT", "data.csv.column[4].type: ID -> TEXT"},
      {"is_distributed: true }", "is_distributed: true initializer { constant {} } }",
       "table[0].initializer: not set -> { constant { } }"},
      {"sigmoid_cross_entropy { logits: \"logit\"", "square_error { input: \"logit\"",
       "model.loss[0].kind: sigmoid_cross_entropy -> square_error"},
  };
  for (const auto& [from, to, difference] : edits) {
    for (const CheckpointUse use : {CheckpointUse::kPrediction, CheckpointUse::kTraining, CheckpointUse::kLoading}) {
      EXPECT_THAT(Differences(from, to, use), testing::ElementsAre(difference)) << from << " -> " << to;
    }
  }
}

TEST(ModelDifferencesTest, WhatDoesNotChangeScoresIsNone) {
  const struct {
    const char *from, *to;
  } edits[] = {
      {"train.csv", "elsewhere.csv"},
      {"batch_size: 16", "batch_size: 32 shuffle: NO_SHUFFLE bad_line: SKIP prefetch_batches: 7"},
      {"csv {", "csv { separator: ';' trim: true header: false"},
      {"csv {",
       "csv { separator: '::' quote: '' decimal_comma: true skip_lines: 3 skip_blank_lines: true comment: '#'"},
      {"name: \"user\" type: ID", "name: \"user\" type: ID whole_floats: true"},
      // Defaults that are written out, and a message that means its default.
      {"width: 4", "width: 4 storage: FLOAT32"},
      {"dense { transform: LOG1P }", "dense { transform: LOG1P } ids {}"},
      {"column { name: \"note\" type: SKIP }", ""},
      {"sizes: 8", "sizes: 8 dropout: 0.5 weight_initializer { constant {} }"},
      {"label: \"label\" }", "label: \"label\" sample_weight: \"x\" } weight: 2"},
      {"adam { learning_rate: 0.02 }", "sgd {}"},
      {"name: \"j\"", "name: \"j\" train { epochs: 9 } checkpoint { dir: 'c' } distribute { sync: false }"},
      // The order of layers is that of their inputs.
      {"layer { name: \"logit\" fc { input: \"h\" size: 1 } }",
       "layer { fc { input: \"h\" size: 1 } name: \"logit\" }"},
  };
  for (const auto& [from, to] : edits) EXPECT_THAT(Differences(from, to), IsEmpty()) << from << " -> " << to;
}

TEST(ModelDifferencesTest, LayersAndTablesAreComparedByName) {
  EXPECT_THAT(Differences("layer { name: \"h\" ", "layer { name: \"d\" dot { x: \"e\" } } layer { name: \"h\" "),
              testing::ElementsAre("model.layer[1]: not set -> { name: \"d\" dot { x: \"e\" } }"));
  EXPECT_THAT(Differences("name: \"t\" width: 4", "name: \"u\" width: 8"),
              testing::ElementsAre(HasSubstr("table[0]: not set -> { name: \"u\" width: 8"),
                                   HasSubstr("table[0]: { name: \"t\" width: 4")));
}

TEST(ModelDifferencesTest, TrainingMakesLossesAndDropoutADifference) {
  const auto of = [](const char* from, const char* to) { return Differences(from, to, CheckpointUse::kTraining); };
  EXPECT_THAT(of("label: \"label\" }", "label: \"label\" } weight: 2"),
              testing::ElementsAre("model.loss[0].weight: 1 -> 2"));
  EXPECT_THAT(of("label: \"label\" }", "label: \"x\" }"),
              testing::ElementsAre("model.loss[0].sigmoid_cross_entropy.label: \"label\" -> \"x\""));
  EXPECT_THAT(of("sizes: 8", "sizes: 8 dropout: 0.5"), testing::ElementsAre("model.layer[1].mlp.dropout: 0 -> 0.5"));
  // A learning rate may change from run to run.
  EXPECT_THAT(of("0.02", "0.01"), IsEmpty());
}

TEST(ModelDifferencesTest, LoadingMakesOptimizersADifference) {
  EXPECT_THAT(Differences("0.02 }", "0.02 } schedule { noam {} }", CheckpointUse::kLoading),
              testing::ElementsAre("optimizer.schedule: not set -> { noam { } }"));
  EXPECT_THAT(Differences("width: 4", "width: 4 logical_shards: 8", CheckpointUse::kLoading),
              testing::ElementsAre("table[0].logical_shards: 4096 -> 8"));
}

TEST(ModelDifferencesTest, TheTextHasTheFirstOnesAndTheNumberOfTheOthers) {
  v1::JobConfig job = JobOf(kJob);
  EXPECT_EQ(ModelDifferenceText(kJob, job, CheckpointUse::kPrediction), "");
  job.mutable_data()->mutable_dense()->set_transform(v1::DenseTransform::NONE);
  EXPECT_EQ(ModelDifferenceText(kJob, job, CheckpointUse::kPrediction),
            "data.dense.transform was LOG1P, and is NONE in this job");
  job.mutable_model()->mutable_layer(1)->mutable_mlp()->set_activation(v1::TANH);
  job.mutable_model()->mutable_layer(2)->mutable_fc()->set_bias(false);
  job.mutable_table(0)->set_storage(v1::FLOAT16);
  EXPECT_THAT(ModelDifferenceText(kJob, job, CheckpointUse::kPrediction),
              AllOf(HasSubstr("model.layer[1].mlp.activation was RELU, and is TANH in this job"),
                    HasSubstr("; 1 more setting differs")));
}

TEST(ModelDifferencesTest, AJobTextOfAnotherBuildIsReadAsFarAsItIsKnown) {
  EXPECT_EQ(ModelDifferenceText(absl::StrCat(kJob, "nothing_we_know: 3"), JobOf(kJob), CheckpointUse::kPrediction), "");
  EXPECT_FALSE(ReadTrainedJob("no job { at all").ok());
  EXPECT_EQ(ModelDifferenceText("no job { at all", JobOf(kJob), CheckpointUse::kPrediction), "");
  EXPECT_EQ(ModelDifferenceText("", JobOf(kJob), CheckpointUse::kPrediction), "");
}

}  // namespace
}  // namespace weir
