// Wrong metrics of a job, each with its whole message.
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/graph/loss_facts.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/job/metric_kind.h"

namespace weir {
namespace {

constexpr char kEval[] = "train { files: \"train.tsv\" }\n  eval { files: \"eval.tsv\" }";

struct Wrong {
  const char* name;
  // Appended to a job whose data.eval names a file; its first line is line 22.
  const char* more;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongMetricTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongMetricTest, GetsThisMessage) {
  const std::string text = Replaced(kDeepFm, "train { files: \"train.tsv\" }", kEval) + GetParam().more;
  EXPECT_EQ(std::string(ParseJob(text, "job.textproto", {}).status().message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Metrics, WrongMetricTest,
    ::testing::Values(
        Wrong{"NoKind", "metric { name: \"x\" }",
              "job.textproto:22:1: metric[0] needs one of auc, gauc, ndcg, hit_rate, recall, mrr, accuracy, confusion, "
              "calibration, normalized_entropy, rmse, mae"},
        Wrong{"NoKey", "metric { gauc {} }",
              "job.textproto:22:10: metric[0].gauc needs a key: the variable of the data whose values make the groups, "
              "such as a user"},
        Wrong{"NeitherKeyNorCatalogue", "metric { mrr {} }",
              "job.textproto:22:10: metric[0].mrr needs a key: the variable of the data whose values make the groups, "
              "such as a user; or a catalogue, to rank among all items"},
        Wrong{"KeyIsNoVariable", "metric { ndcg { key: \"user\" } }",
              "job.textproto:22:17: metric[0].ndcg.key 'user' is no variable of the data with one id an example; "
              "there is none"},
        Wrong{"KeyHasManyValues", "metric { mrr { key: \"cat\" } }",
              "job.textproto:22:16: metric[0].mrr.key 'cat' is no variable of the data with one id an example; "
              "there is none"},
        Wrong{
            "KeyIsFloats", "metric { gauc { key: \"label\" } }",
            "job.textproto:22:17: metric[0].gauc.key 'label' is floats, in which a missing value is 0, and would be a "
            "group with the others: read it as ids"},
        Wrong{"AccuracyOfNone", "metric { accuracy { k: 0 } }",
              "job.textproto:22:21: metric[0].accuracy.k must be at least 1, got 0"},
        Wrong{"NoBuckets", "metric { calibration { buckets: 0 } }",
              "job.textproto:22:24: metric[0].calibration.buckets must be at least 1, got 0"},
        Wrong{"UnknownLoss", "metric { auc {} loss: \"cvr\" }",
              "job.textproto:22:17: metric[0].loss 'cvr' is the name of no loss of the model; give the loss a name, or "
              "leave this out for the first"},
        Wrong{"ByIsNoVariable", "metric { auc {} by: \"country\" }",
              "job.textproto:22:17: metric[0].by 'country' is no variable of the data with one value an example; there "
              "are: label"},
        Wrong{"WeightIsNoVariable", "metric { auc {} weight: \"w\" }",
              "job.textproto:22:17: metric[0].weight 'w' is no float variable of the data with one value an example; "
              "there are: label"},
        Wrong{"WeightIsIds", "metric { auc {} weight: \"cat\" }",
              "job.textproto:22:17: metric[0].weight 'cat' is no float variable of the data with one value an example; "
              "there are: label"},
        Wrong{"WeightHasManyColumns", "metric { auc {} weight: \"dense\" }",
              "job.textproto:22:17: metric[0].weight 'dense' is no float variable of the data with one value an "
              "example; there are: label"},
        Wrong{"NameOfAFigureOfTheLossWithAWeight", "metric { auc {} weight: \"label\" name: \"auc\" }",
              "job.textproto:22:33: metric[0].name would be called auc, as a figure that every evaluation has of the "
              "first loss; give it a name of its own"},
        Wrong{"SameWeight", "metric { rmse {} weight: \"label\" }\nmetric { rmse {} weight: \"label\" }",
              "job.textproto:23:1: metric[1] is the second metric with a figure named rmse[weight=label]; give it a "
              "name of its own"},
        Wrong{"SameNameWithAWeight", "metric { rmse {} weight: \"label\" name: \"x\" }\nmetric { mae {} name: \"x\" }",
              "job.textproto:23:17: metric[1].name is the second metric with a figure named x; give it a name of its "
              "own"},
        Wrong{"BestByWeightedCalibration",
              "checkpoint { dir: \"c\" keep_best: 1 best_by: \"calibration[weight=label]\" }\n"
              "metric { calibration {} weight: \"label\" }",
              "job.textproto:22:36: checkpoint.best_by 'calibration[weight=label]' is best at 1, neither high nor low; "
              "calibration.error[weight=label] or normalized_entropy can be compared"},
        Wrong{"BestByAnotherWeight",
              "checkpoint { dir: \"c\" keep_best: 1 best_by: \"mae[weight=w]\" }\n"
              "metric { mae {} weight: \"label\" } metric { mae {} weight: \"label\" by: \"label\" value: \"1\" }",
              "job.textproto:22:36: checkpoint.best_by 'mae[weight=w]' is no figure of the evaluations; there are: "
              "loss, auc, mae[weight=label], mae[weight=label][label=1]. Add a metric to the job"},
        Wrong{"ValuesWithoutBy", "metric { auc {} value: \"DE\" }",
              "job.textproto:22:17: metric[0].value names values of `by`, which is not set"},
        Wrong{
            "SameName", "metric { rmse {} }\nmetric { mae {} name: \"rmse\" }",
            "job.textproto:23:17: metric[1].name is the second metric with a figure named rmse; give it a name of its "
            "own"},
        Wrong{
            "NameOfAFigureOfAnother", "metric { calibration {} }\nmetric { rmse {} name: \"calibration.error\" }",
            "job.textproto:23:18: metric[1].name is the second metric with a figure named calibration.error; give it a "
            "name of its own"},
        Wrong{"NameOfTheLoss", "metric { auc {} name: \"loss\" }",
              "job.textproto:22:17: metric[0].name would be called loss, as a figure that every evaluation has of the "
              "first loss; give it a name of its own"},
        Wrong{"NameOfAnotherKind", "metric { rmse {} name: \"auc\" }",
              "job.textproto:22:18: metric[0].name would be called auc, as a figure that every evaluation has of the "
              "first loss; give it a name of its own"},
        Wrong{"BestByCalibration",
              "checkpoint { dir: \"c\" keep_best: 1 best_by: \"calibration\" }\nmetric { calibration {} }",
              "job.textproto:22:36: checkpoint.best_by 'calibration' is best at 1, neither high nor low; "
              "calibration.error or normalized_entropy can be compared"},
        Wrong{"BestByAValueThatMayBeLeftOut",
              "checkpoint { dir: \"c\" keep_best: 1 best_by: \"auc[label=1]\" }\nmetric { auc {} by: \"label\" }",
              "job.textproto:22:36: checkpoint.best_by 'auc[label=1]' is in an evaluation only if many examples have "
              "that value; name the value in metric.value, so that it always is"},
        Wrong{
            "BestByAnotherVariable",
            "checkpoint { dir: \"c\" keep_best: 1 best_by: \"auc[lable=1]\" }\n"
            "metric { auc {} by: \"label\" value: \"1\" }",
            "job.textproto:22:36: checkpoint.best_by 'auc[lable=1]' is no figure of the evaluations; there are: loss, "
            "auc, auc[label=1]. Add a metric to the job"},
        Wrong{"BestByIsNoFigure",
              "checkpoint { dir: \"c\" keep_best: 1 best_by: \"ndcg@5\" }\n"
              "metric { auc {} by: \"label\" }",
              "job.textproto:22:36: checkpoint.best_by 'ndcg@5' is no figure of the evaluations; there are: loss, "
              "auc. Add a metric to the job"},
        Wrong{"BestOfNone", "checkpoint { dir: \"c\" best_by: \"auc\" }",
              "job.textproto:22:23: checkpoint.best_by ranks checkpoints for keep_best, which is 0"},
        Wrong{"EarlyStopWithoutEvaluations", "train { early_stop {} }",
              "job.textproto:22:9: train.early_stop needs train.eval_every_steps: it judges evaluations"},
        Wrong{"EarlyStopPatience", "train { eval_every_steps: 5 early_stop { patience: 0 } }",
              "job.textproto:22:42: train.early_stop.patience must be at least 1, got 0"},
        Wrong{"EarlyStopDelta", "train { eval_every_steps: 5 early_stop { min_delta: -1 } }",
              "job.textproto:22:42: train.early_stop.min_delta must be a number, at least 0, got -1"},
        Wrong{"EarlyStopFigure", "train { eval_every_steps: 5 early_stop { metric: \"gauc\" } }",
              "job.textproto:22:42: train.early_stop.metric 'gauc' is no figure of the evaluations; there are: loss, "
              "auc. Add a metric to the job"}),
    [](const ::testing::TestParamInfo<Wrong>& info) { return std::string(info.param.name); });

// Two towers and a layer that mixes in other data.
constexpr char kTowers[] = R"(name: "towers"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot { slot { name: "age" type: FLOAT } slot { name: "user" } slot { name: "item" } slot { name: "seen" } }
  derived { name: "word" vocabulary { of: "item" learned {} } }
  batch_size: 64
}
model {
  layer { name: "u" embedding { ids: "user" table: "users" pooling: SUM } }
  layer { name: "i" embedding { ids: "item" table: "items" pooling: SUM } }
  layer { name: "mixed" fc { input: "i" input: "age" size: 8 } }
  layer { name: "wide" fc { input: "i" size: 9 } }
  layer { name: "scores" concat { input: "mixed" input: "wide" } }
  layer { name: "out" fc { input: "scores" size: 8 } }
  loss { in_batch_softmax { query: "u" item: "out" } }
}
table { name: "users" width: 8 is_sparse: true is_distributed: true }
table { name: "items" width: 8 is_sparse: true is_distributed: true }
optimizer { sgd {} }
distribute { servers: 1 }
)";
constexpr int kTowersLine = 22;  // behind it

class WrongCatalogueTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongCatalogueTest, GetsThisMessage) {
  const std::string text = absl::StrCat(kTowers, GetParam().more);
  const absl::StatusOr<Job> job = ParseJob(text, "job.textproto", {});
  const absl::Status status = job.ok() ? Transpile(*job).status() : job.status();
  EXPECT_EQ(std::string(status.message()), absl::StrCat("job.textproto:", kTowersLine, GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Catalogues, WrongCatalogueTest,
    ::testing::Values(
        Wrong{"KeyToo", "metric { recall { key: \"user\" catalogue {} } }",
              ":19: metric[0].recall.key makes groups, each of which is ranked by itself, and catalogue ranks all "
              "items: set one"},
        Wrong{"NoVariables", "metric { recall { catalogue { query: \"u\" id: \"item\" } } }",
              ":19: metric[0].recall.catalogue needs a query and an item, the layers whose outputs are multiplied, and "
              "an id, the variable of the data with the id of the item"},
        Wrong{"NoItems", "metric { recall { catalogue { query: \"u\" item: \"i\" id: \"item\" } } }",
              ":19: metric[0].recall.catalogue needs items: so many ids from `first` on are the candidates. It can be "
              "left out if 'item' is a vocabulary (data.derived)"},
        Wrong{"FirstOfAVocabulary",
              "metric { recall { catalogue { query: \"u\" item: \"i\" id: \"word\" first: 1 } } }",
              ":63: metric[0].recall.catalogue.first is for a range of ids, whose number `items` says; without it the "
              "candidates are all values of the vocabulary"},
        Wrong{"OneItem", "metric { mrr { catalogue { query: \"u\" item: \"i\" id: \"item\" items: 1 } } }",
              ":60: metric[0].mrr.catalogue.items must be at least 2, got 1"},
        Wrong{"IdIsNoVariable", "metric { mrr { catalogue { query: \"u\" item: \"i\" id: \"film\" items: 9 } } }",
              ":49: metric[0].mrr.catalogue.id 'film' is no ids of the data with one slot"},
        Wrong{"WithoutFloats",
              "metric { mrr { catalogue { query: \"u\" item: \"i\" id: \"item\" items: 9 without: \"age\" } } }",
              ":69: metric[0].mrr.catalogue.without 'age' is no ids of the data"},
        Wrong{"NoLayer", "metric { ndcg { catalogue { query: \"you\" item: \"i\" id: \"item\" items: 9 } } }",
              ":29: metric[0].ndcg.catalogue.query the model has no variable 'you'; name one of its layers"},
        Wrong{"NoVector", "metric { ndcg { catalogue { query: \"u\" item: \"item\" id: \"item\" items: 9 } } }",
              ":40: metric[0].ndcg.catalogue.item 'item' is ids int64 [-1, 1]; expected one vector for each example, "
              "[-1, W]"},
        Wrong{"OtherWidth", "metric { ndcg { catalogue { query: \"u\" item: \"wide\" id: \"item\" items: 9 } } }",
              ":40: metric[0].ndcg.catalogue.item 'wide' has 9 numbers for each example, 'u' has 8; they are "
              "multiplied with each other"},
        Wrong{"OfMore", "metric { ndcg { catalogue { query: \"u\" item: \"out\" id: \"item\" items: 9 } } }",
              ":40: metric[0].ndcg.catalogue.item 'out' is made of 'age' besides 'item'; the vector of a candidate is "
              "made of its id alone"},
        Wrong{"OfAnother", "metric { ndcg { catalogue { query: \"i\" item: \"u\" id: \"item\" items: 9 } } }",
              ":40: metric[0].ndcg.catalogue.item 'u' is made of 'user', not of 'item'; the vector of a candidate is "
              "made of its id alone"}),
    [](const ::testing::TestParamInfo<Wrong>& info) { return std::string(info.param.name); });

TEST(CatalogueTest, VariablesOfTheModelAreKept) {
  const Transpiled transpiled = TranspiledOf(
      JobOf(absl::StrCat(kTowers,
                         "metric { recall { catalogue { query: \"u\" item: \"i\" id: \"item\" items: 9 } } }\n"
                         "metric { mrr { catalogue { query: \"u\" item: \"i\" id: \"item\" items: 9 } } }\n")));
  EXPECT_THAT(transpiled.trainer().main.kept(), ::testing::ElementsAre("u", "i"));
}

TEST(MetricTest, NeedsALossWithALabel) {
  const std::string text = Replaced(Replaced(kDeepFm, "train { files: \"train.tsv\" }", kEval),
                                    "sigmoid_cross_entropy { logits: \"logit\" label: \"label\" }",
                                    "bpr_loss { positive: \"logit\" negative: \"deep\" }");
  const auto error = [&](const std::string& more) {
    return std::string(ParseJob(absl::StrCat(text, more), "job.textproto", {}).status().message());
  };
  EXPECT_EQ(error(""), "");
  EXPECT_EQ(error("train { eval_every_steps: 5 early_stop { metric: \"loss\" } }"), "");
  EXPECT_EQ(
      error("train { eval_every_steps: 5 early_stop { metric: \"auc\" } }"),
      "job.textproto:22:42: train.early_stop.metric 'auc' is no figure of the evaluations; there are: loss. Other "
      "figures need a loss with a label, or a metric with a catalogue");
  EXPECT_EQ(error("metric { auc {} }"),
            "job.textproto:22:1: metric[0] judges predictions by a label, and the loss has none: every example is a "
            "positive. Give the loss a label, or take the metric out");
}

TEST(MetricTest, NeedsDataToEvaluate) {
  EXPECT_EQ(std::string(ParseJob(absl::StrCat(kDeepFm, "metric { auc {} }"), "job.textproto", {}).status().message()),
            "job.textproto:21:1: metric[0] is a figure of evaluations, but data.eval names no files");
}

// A job whose data has a user, a weight, and floats of its own.
std::string WithWeights(const std::string& data, const std::string& more) {
  return absl::StrCat(
      Replaced(Replaced(kDeepFm, "train { files: \"train.tsv\" }", kEval), "criteo { integers: 6 categoricals: 30 }",
               absl::StrCat("multi_slot { slot { name: \"label\" type: FLOAT } slot { name: \"dense\" type: FLOAT "
                            "dim: 6 } slot { name: \"cat\" } slot { name: \"user\" } slot { name: \"weight\" type: "
                            "FLOAT } slot { name: \"w\" type: FLOAT } }\n  ",
                            data)),
      more);
}
std::string ErrorOf(const std::string& text) {
  return std::string(ParseJob(text, "job.textproto", {}).status().message());
}

TEST(MetricTest, EveryKindTakesAWeightButThoseOfPlacesInAGroup) {
  for (const char* const kind : {"auc {}", "gauc { key: \"user\" weight: POSITIVES }", "accuracy {}", "confusion {}",
                                 "calibration {}", "normalized_entropy {}", "rmse {}", "mae {}"}) {
    EXPECT_EQ(ErrorOf(WithWeights("", absl::StrCat("metric { ", kind, " weight: \"w\" }"))), "") << kind;
  }
  for (const std::string kind : {"ndcg", "hit_rate", "recall", "mrr"}) {
    EXPECT_EQ(ErrorOf(WithWeights("", absl::StrCat("metric { weight: \"w\" ", kind, " { key: \"user\" } }"))),
              absl::StrCat("job.textproto:23:10: metric[0].weight 'w' would count examples several times, and ", kind,
                           " gives each of a group one place among the others: take it out, or use gauc, or a "
                           "catalogue, whose queries it weights"));
  }
}

TEST(MetricTest, FiguresWithAndWithoutWeightsHaveNamesOfTheirOwn) {
  EXPECT_EQ(ErrorOf(WithWeights("",
                                "metric { auc {} } metric { auc {} weight: \"w\" } metric { auc {} weight: "
                                "\"weight\" } metric { auc {} weight: \"w\" by: \"weight\" }\n"
                                "train { eval_every_steps: 5 early_stop { metric: \"auc[weight=w]\" } }\n"
                                "checkpoint { dir: \"c\" keep_best: 1 best_by: \"auc[weight=weight]\" }")),
            "");
  // Of the value w, if that is one.
  EXPECT_EQ(ErrorOf(WithWeights("", "metric { auc {} by: \"weight\" } metric { auc {} weight: \"w\" }")),
            "job.textproto:23:32: metric[1] is the second metric with a figure named auc[weight=w]; give it a name of "
            "its own");
}

TEST(MetricTest, TakesNoWeightThatTheReaderTransforms) {
  const std::string metric = "metric { auc {} weight: \"w\" }";
  EXPECT_EQ(ErrorOf(WithWeights("dense { transform: LOG1P }", metric)),
            "job.textproto:23:17: metric[0].weight 'w' is transformed by data.dense, and its values would not be those "
            "of the data: give it a data.dense.column with transform: NONE, or use another variable");
  EXPECT_EQ(
      ErrorOf(WithWeights("dense { transform: LOG1P column { variable: \"w\" index: 0 transform: NONE } }", metric)),
      "");
}

TEST(MetricTest, IsRefusedWhereRareKeysAreMixed) {
  const std::string text =
      Replaced(Replaced(kDeepFm, "train { files: \"train.tsv\" }", kEval), "criteo { integers: 6 categoricals: 30 }",
               "multi_slot { slot { name: \"label\" type: FLOAT } slot { name: \"dense\" type: FLOAT "
               "dim: 6 } slot { name: \"cat\" } slot { name: \"user\" } }\n"
               "  ids { min_count: 5 }");
  EXPECT_EQ(
      std::string(
          ParseJob(absl::StrCat(text, "metric { gauc { key: \"user\" } }"), "job.textproto", {}).status().message()),
      "job.textproto:23:17: metric[0].gauc.key 'user' is ids, of which data.ids.min_count makes one id where they "
      "are rare: groups would be mixed. Take min_count out, or use another variable");
}

TEST(MetricTest, NeedsARankOfZeroOrMore) {
  const std::string text = Replaced(Replaced(kDeepFm, "train { files: \"train.tsv\" }", kEval), "criteo {",
                                    "derived { name: \"user\" hash { of: \"C1\" } } criteo {");
  const std::string recall = absl::StrCat(text, "metric { recall { key: \"user\" k: -1 } }");
  EXPECT_EQ(std::string(ParseJob(recall, "job.textproto", {}).status().message()),
            "job.textproto:22:31: metric[0].recall.k must be at least 0, got -1");
}

TEST(MetricKindsTest, EveryMemberOfTheJobIsRegistered) {
  const v1::Metric none;
  const Setting at(&none, "metric[0]", nullptr);
  const google::protobuf::OneofDescriptor& kinds = *v1::Metric::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds.field_count(); ++i) {
    EXPECT_TRUE(MetricKinds().Find({.key = std::string(kinds.field(i)->name()), .setting = at}).ok());
  }
}

TEST(LossFactsTest, EveryMemberOfTheJobSaysWhatItPredicts) {
  const google::protobuf::OneofDescriptor& kinds = *v1::Loss::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds.field_count(); ++i) {
    const std::string kind(kinds.field(i)->name());
    const LossFacts* const facts = LossFactsOf(kind);
    EXPECT_EQ(facts != nullptr && facts->kind.has_value(), kind != "custom") << kind;
  }
}

}  // namespace
}  // namespace weir
