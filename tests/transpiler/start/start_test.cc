// The plan of a start: what each parameter takes, the account, and errors that list the lines to add.
#include "transpiler/start/start.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/start/start_testing.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(StartTest, TheSameModelIsTakenAsAWhole) {
  const Start start = Planned(kOld, "");
  EXPECT_EQ(Map(start, "deep.0.w", 0), "0<-0x10");
  EXPECT_EQ(Map(start, "deep.0.w", 1), "0<-0x16");
  for (const v1::StartLine& line : start.lineage.account()) EXPECT_EQ(line.kind(), v1::StartLine::TAKEN) << line.name();
  for (const v1::DenseStart& dense : start.plan.dense()) {
    EXPECT_THAT(dense.parts(0).states(), ::testing::ElementsAre("moment1", "moment2", "step")) << dense.variable();
  }
  ASSERT_EQ(start.lineage.ancestors_size(), 1);
  EXPECT_EQ(start.lineage.ancestors(0).step(), 7);
  EXPECT_THAT(StartText(start), AllOf(HasSubstr("taken     deep.0.w"), HasSubstr("3 rows"), Not(HasSubstr("new "))));
  const Start without = Planned(kOld, "optimizer_state: DROP");
  for (const v1::DenseStart& dense : without.plan.dense()) {
    EXPECT_EQ(dense.parts(0).states_size(), 0);
  }
}

TEST_F(StartTest, SettingsThatMakeOtherPredictionsAreInTheAccount) {
  const std::string text = Edited({{"sizes: [16, 8]", "activation: TANH sizes: [16, 8]"}});
  ASSERT_NE(text, kOld);
  const Start start = Planned(text, "");
  std::vector<std::string> settings;
  for (const v1::StartLine& line : start.lineage.account()) {
    if (line.kind() == v1::StartLine::SETTING) settings.push_back(absl::StrCat(line.name(), " ", line.reason()));
  }
  ASSERT_EQ(settings.size(), 1u) << StartText(start);
  EXPECT_THAT(settings[0], AllOf(HasSubstr("mlp.activation was RELU, is TANH"), HasSubstr("other predictions")));
  EXPECT_THAT(StartText(start), HasSubstr("setting   model.layer["));
}

TEST_F(StartTest, AColumnIsAddedFirstInTheMiddleAndLast) {
  for (const auto& [before, map] :
       {std::pair{"    column { name: \"user\"", "4<-0x10"}, std::pair{"    column { name: \"item\"", "0<-0x4 8<-4x6"},
        std::pair{"  }\n  batch_size", "0<-0x8 12<-8x2"}}) {
    const std::string text = Edited({{before, kNewColumn + before}});
    const Start start = Planned(text, "new: \"cat.shop\"");
    EXPECT_EQ(Map(start, "deep.0.w", 0), map);
    EXPECT_THAT(StartText(start), Not(HasSubstr("setting "))) << "the account has a line for it";
    EXPECT_EQ(Zeros(Planned(text, "new: \"cat.shop\""), "deep.0.w"), "");
    // It enters the sum of wide, whose rows begin with 0 anyway, and fm, where rows must be 0; so weights need not be.
    const Start silent = Planned(text, "new: \"cat.shop\" new_values: ZERO");
    EXPECT_EQ(Zeros(silent, "deep.0.w"), "");
    EXPECT_EQ(ZeroColumns(silent, "vectors"), "0-4");
    EXPECT_EQ(ZeroColumns(silent, "weights"), "0-0");
    EXPECT_THAT(StartText(silent), HasSubstr("also of ids that the checkpoint could have had"));
  }
}

TEST_F(StartTest, ANumberIsAddedBehindAConcatenation) {
  const std::string text = Edited({{"    column { name: \"hour\"",
                                    "    column { name: \"price\" output: \"dense\" }\n"
                                    "    column { name: \"hour\""}});
  const Start silent = Planned(text, "new: \"dense.price\" new_values: ZERO");
  EXPECT_EQ(Map(silent, "deep.0.w", 0), "0<-0x9 10<-9x1");
  EXPECT_EQ(Zeros(silent, "deep.0.w"), "9-10 x 0-16");
  EXPECT_EQ(ZeroColumns(silent, "vectors"), "0-0");
}

TEST_F(StartTest, ColumnsInAnotherOrderAreFollowed) {
  const std::string text = Edited({{"    column { name: \"user\" type: TEXT output: \"cat\" }\n", ""},
                                   {"    column { name: \"item\" type: TEXT output: \"cat\" }\n",
                                    "    column { name: \"item\" type: TEXT output: \"cat\" }\n"
                                    "    column { name: \"user\" type: TEXT output: \"cat\" }\n"}});
  const Start start = Planned(text, "");
  EXPECT_EQ(Map(start, "deep.0.w", 0), "0<-4x4 4<-0x4 8<-8x2");
  EXPECT_THAT(StartText(start), HasSubstr("in another order"));
}

TEST_F(StartTest, AColumnIsDropped) {
  const std::string text = Edited({{"    column { name: \"user\" type: TEXT output: \"cat\" }\n", ""}});
  EXPECT_EQ(Map(Planned(text, "drop: \"cat.user\""), "deep.0.w", 0), "0<-4x6");
  EXPECT_THAT(Plan(text, "").status().message(),
              AllOf(HasSubstr("not said to be dropped: cat.user"), HasSubstr(R"(drop: "cat\\.user")")));
}

TEST_F(StartTest, ATableIsWidenedAndCut) {
  const std::string wide = Edited({{"width: 4", "width: 6"}});
  const Start silent = Planned(wide, "new: \"vectors\" new_values: ZERO");
  EXPECT_EQ(Map(silent, "deep.0.w", 0), "0<-0x4 6<-4x4 12<-8x2");
  // The new columns enter fm, so they are 0, and what reads them beside it is not.
  EXPECT_EQ(ZeroColumns(silent, "vectors"), "4-6");
  EXPECT_EQ(Zeros(silent, "deep.0.w"), "");
  // Without fm the weights are.
  const std::string no_fm =
      Edited({{"  layer { name: \"fm\" fm_interaction { input: \"fields\" } }\n", ""}, {" input: \"fm\"", ""}});
  WriteCheckpoint("no_fm", no_fm);
  const absl::StatusOr<Start> behind =
      Plan(Edited({{"width: 4", "width: 6"}}, no_fm), "new: \"vectors\" new_values: ZERO", "no_fm");
  ASSERT_TRUE(behind.ok()) << behind.status();
  EXPECT_EQ(ZeroColumns(*behind, "vectors"), "0-0");
  EXPECT_EQ(Zeros(*behind, "deep.0.w"), "4-6,10-12 x 0-16");
  // Behind fm alone they could not learn.
  const std::string only_fm = Edited({{"concat { input: \"fields\" input: \"dense\" }", "scale { input: \"dense\" }"}});
  WriteCheckpoint("only_fm", only_fm);
  EXPECT_THAT(Plan(Edited({{"width: 4", "width: 6"}}, only_fm), "new: \"vectors\" new_values: ZERO", "only_fm")
                  .status()
                  .message(),
              AllOf(HasSubstr("start_from[0].new_values"), HasSubstr("never learn")));
  const Start cut = Planned(Edited({{"width: 4", "width: 2"}}), "drop: \"vectors\"");
  EXPECT_EQ(Map(cut, "deep.0.w", 0), "0<-0x2 2<-4x2 4<-8x2");
}

TEST_F(StartTest, LayersAreRenamedAndWidened) {
  const std::string text = Edited({{"\"deep\" mlp", "\"tower\" mlp"}, {"input: \"deep\"", "input: \"tower\""}});
  const Start start = Planned(text, R"x(rename { from: "deep(.*)" to: "tower\\1" })x");
  EXPECT_EQ(Map(start, "tower.0.w", 0), "0<-0x10");
  EXPECT_EQ(Map(start, "out.w", 0), "0<-0x8");
  EXPECT_THAT(StartText(start), HasSubstr("was 'deep.0.w'"));
  EXPECT_THAT(Plan(text, "").status().message(), AllOf(HasSubstr("tower.0.w"), HasSubstr("deep.0.w")));
  const Start wide = Planned(Edited({{"[16, 8]", "[24, 8]"}}), "new: \"deep.0.w\" new_values: ZERO");
  EXPECT_EQ(Map(wide, "deep.0.w", 1), "0<-0x16");
  EXPECT_EQ(Map(wide, "deep.0.b", 0), "0<-0x16");
  EXPECT_EQ(Zeros(wide, "deep.0.w"), "");
  EXPECT_EQ(Zeros(wide, "deep.1.w"), "16-24 x 0-8");
}

TEST_F(StartTest, ALayerOfItsOwnIsSilentInASum) {
  const std::string text = Edited({{"  layer { name: \"logit\" add { input: \"wide\"",
                                    "  layer { name: \"linear\" fc { input: \"dense\" size: 1 } }\n"
                                    "  layer { name: \"logit\" add { input: \"linear\" input: \"wide\""}});
  const Start silent = Planned(text, "new: \"linear.*\" new_values: ZERO");
  EXPECT_EQ(Zeros(silent, "linear.w"), "0-2 x 0-1");
  EXPECT_EQ(Zeros(silent, "linear.b"), "0-1");
  EXPECT_EQ(Zeros(silent, "out.w"), "");
  const std::string sigmoid = Replaced(text, "size: 1 } }\n  layer { name: \"logit\"",
                                       "size: 1 activation: SIGMOID } }\n  layer { name: \"logit\"");
  EXPECT_THAT(Plan(sigmoid, "new: \"linear.*\" new_values: ZERO").status().message(),
              HasSubstr("cannot be 0 at first"));
}

TEST_F(StartTest, ATowerOfItsOwnTableIsSilentBehindAConcatenation) {
  const std::string text =
      Edited({{"  }\n  batch_size", "    column { name: \"shop\" type: TEXT }\n  }\n  batch_size"},
              {"  layer { name: \"input\" concat { input: \"fields\"",
               "  layer { name: \"of_shop\" embedding { ids: \"shop\" table: \"shops\" pooling: MEAN } }\n"
               "  layer { name: \"input\" concat { input: \"of_shop\" input: \"fields\""},
              {"optimizer {", "table { name: \"shops\" width: 3 is_sparse: true is_distributed: true }\noptimizer {"}});
  const Start silent = Planned(text, "new: \"shops?\" new_values: ZERO");
  EXPECT_EQ(Map(silent, "deep.0.w", 0), "3<-0x10");
  EXPECT_EQ(Zeros(silent, "deep.0.w"), "0-3 x 0-16");
  EXPECT_EQ(ZeroColumns(silent, "shops"), "0-0");
}

TEST_F(StartTest, TwoCheckpointsMeetInOneJob) {
  WriteCheckpoint("tower", Edited({{"\"deep\" mlp", "\"tower\" mlp"}, {"input: \"deep\"", "input: \"tower\""}}));
  const std::string text =
      absl::StrCat(kOld, "start_from { checkpoint: \"", dir_,
                   "/tower\" rename { from: \"tower(.*)\" to: \"deep\\\\1\" } take: \"deep.*\" }\n");
  const Start start = Planned(text, "");
  // The first start_from of the text is that of the tower.
  for (const v1::DenseStart& dense : start.plan.dense()) {
    EXPECT_EQ(dense.parts(0).source(), absl::StartsWith(dense.variable(), "deep.") ? 0 : 1) << dense.variable();
  }
}

TEST_F(StartTest, TablesAreMergedSplitAndRenamed) {
  const std::string one = Edited({{"table: \"weights\" pooling: SUM", "table: \"lone\" pooling: SUM"},
                                  {"name: \"weights\" width", "name: \"lone\" width"}});
  const Start renamed = Planned(one, R"(rename { from: "weights" to: "lone" })");
  EXPECT_EQ(renamed.plan.tables_size(), 2);
  const std::string merged =
      Edited({{"width: 4", "width: 1"},
              {"table: \"vectors\"", "table: \"weights\""},
              {"table { name: \"vectors\" width: 1 is_sparse: true is_distributed: true }\n", ""}});
  const Start both = Planned(merged, R"(rename { from: "weights|vectors" to: "weights" } drop: "weights")");
  ASSERT_EQ(both.plan.tables_size(), 1);
  EXPECT_EQ(both.plan.tables(0).parts_size(), 2);
}

TEST_F(StartTest, ErrorsNameThePlaceAndTheLines) {
  const std::string column = Edited({{"    column { name: \"user\"", kNewColumn + "    column { name: \"user\""}});
  EXPECT_THAT(Plan(column, "").status().message(),
              AllOf(HasSubstr("job.textproto:"), HasSubstr("start_from[0]: in no checkpoint, and not said to be new: "),
                    HasSubstr(R"(new: "cat\\.shop")")));
  for (const auto& [from, text] : std::vector<std::pair<std::string, std::string>>{
           {"new: \"nothing\"", "start_from[0].new: 'nothing' matches nothing that is new"},
           {"drop: \"nothing\"", "start_from[0].drop: 'nothing' matches nothing of checkpoint"},
           {R"(rename { from: "no.*" to: "x" })", "start_from[0].rename[0].from: 'no.*' matches nothing"}}) {
    EXPECT_THAT(Plan(kOld, from).status().message(), AllOf(HasSubstr("job.textproto:"), HasSubstr(text)));
  }
  EXPECT_THAT(Plan(kOld, "", "nowhere").status().message(),
              AllOf(HasSubstr("start_from[0].checkpoint"), HasSubstr("there is no ")));
  for (const auto& [from, text] : std::vector<std::pair<std::string, std::string>>{
           {"new: \"(\"", "start_from[0].new[0]: '(' is no regular expression: missing )"},
           {"rename { from: \"a\" }", "start_from[0].rename[0].to: is empty"},
           {R"(rename { from: "a" to: "\\1" })", "start_from[0].rename[0].to: '\\1': "}}) {
    const absl::StatusOr<Job> job =
        ParseJob(absl::StrCat(kOld, "start_from { checkpoint: \"x\" ", from, " }"), "job.textproto", {});
    EXPECT_THAT(job.status().message(), AllOf(HasSubstr("job.textproto:"), HasSubstr(text)));
  }
}

TEST_F(StartTest, WhatSumsAndProductsKeepOfSlotsIsFollowed) {
  const std::string column = "    column { name: \"user\"";
  const std::string no_fm = "  layer { name: \"fm\" fm_interaction { input: \"fields\" } }\n";
  // Sums over the columns of each slot: [B, slots].
  std::string sums = Between("  layer { name: \"sums\" reduce_sum { input: \"fields\" axis: 2 } }\n", "sums");
  sums = Edited({{no_fm, ""}, {" input: \"fm\"", ""}}, sums);
  WriteCheckpoint("sums", sums);
  const absl::StatusOr<Start> first =
      Plan(Edited({{column, kNewColumn + column}}, sums), "new: \"cat.shop\" new_values: ZERO", "sums");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Map(*first, "deep.0.w", 0), "1<-0x4");
  EXPECT_EQ(Zeros(*first, "deep.0.w"), "0-1 x 0-16");
  EXPECT_EQ(ZeroColumns(*first, "vectors"), "0-0");
  // Products of pairs: those with the new slot have weights of their own, which are 0, so that its rows learn.
  std::string pairs = Between("  layer { name: \"pairs\" dot_interaction { input: \"fields\" } }\n", "pairs");
  pairs = Edited({{no_fm, ""}, {" input: \"fm\"", ""}}, pairs);
  WriteCheckpoint("pairs", pairs);
  const absl::StatusOr<Start> crossed =
      Plan(Edited({{column, kNewColumn + column}}, pairs), "new: \"cat.shop\" new_values: ZERO", "pairs");
  ASSERT_TRUE(crossed.ok()) << crossed.status();
  EXPECT_EQ(Map(*crossed, "deep.0.w", 0), "2<-0x3");
  EXPECT_EQ(Zeros(*crossed, "deep.0.w"), "0-2 x 0-16");
  EXPECT_EQ(ZeroColumns(*crossed, "vectors"), "0-0");
}

TEST_F(StartTest, PartsOfAnAttentionAreFollowed) {
  const std::string layers = R"(  layer { name: "past" embedding { ids: "history" table: "vectors" sequence: 5 } }
  layer { name: "now" embedding { ids: "cat" table: "vectors" pooling: SUM } }
  layer { name: "attended" attention_pool { query: "now" sequence: "past" sizes: [6] } }
)";
  const std::string text = Edited({{"  }\n  batch_size",
                                    "    column { name: \"history\" type: ID list: \" \" }\n"
                                    "  }\n  batch_size"}},
                                  Between(layers, "attended"));
  WriteCheckpoint("attended", text);
  const absl::StatusOr<Start> wide = Plan(Edited({{"width: 4", "width: 6"}}, text), "new: \"vectors\"", "attended");
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(Map(*wide, "attended.0.w", 0), "0<-0x4 6<-4x4 12<-8x4 18<-12x4");
  EXPECT_EQ(Map(*wide, "deep.0.w", 0), "0<-0x4 6<-4x2");
}

TEST_F(StartTest, PlacesOfAnOperatorWithoutNamesAreTakenOfEqualInputsOnly) {
  const std::string layers = R"(  layer { name: "past" embedding { ids: "history" table: "vectors" sequence: 5 } }
  layer { name: "unit" gru { input: "past" size: 3 } }
)";
  const std::string text = Edited({{"  }\n  batch_size",
                                    "    column { name: \"history\" type: ID list: \" \" }\n"
                                    "  }\n  batch_size"}},
                                  Between(layers, "unit"));
  WriteCheckpoint("unit", text);
  const absl::StatusOr<Start> same = Plan(text, "", "unit");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(Map(*same, "unit.w", 1), "0<-0x9");
  EXPECT_EQ(Map(*same, "deep.0.w", 0), "0<-0x5");
  const std::string wide = Edited({{"width: 4", "width: 6"}}, text);
  EXPECT_THAT(Plan(wide, "new: \"vectors\"", "unit").status().message(),
              AllOf(HasSubstr("'unit.w' cannot be matched"), HasSubstr("of operator gru"),
                    HasSubstr("by new here and by drop there")));
  // The way out that it names.
  const absl::StatusOr<Start> replaced =
      Plan(wide, "new: \"vectors|unit.*|deep.0.w\" drop: \"unit.*|deep.0.w\"", "unit");
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(Map(*replaced, "unit.w", 1), "none");
  EXPECT_EQ(Map(*replaced, "deep.1.w", 0), "0<-0x16");
  EXPECT_THAT(StartText(*replaced), AllOf(HasSubstr("new       unit.w"), HasSubstr("dropped   unit.w")));
}

TEST_F(StartTest, AnInputThatIsReadAnotherWayIsAnotherInput) {
  const std::string text = Edited({{"  batch_size", "  dense { column { index: 1 transform: LOG1P } }\n  batch_size"}});
  EXPECT_THAT(Plan(text, "").status().message(),
              AllOf(HasSubstr("'dense.hour' is {; transform: LOG1P} here and was {; } in "),
                    HasSubstr(R"(new: "dense\\.hour")"), HasSubstr(R"(drop: "earlier\\ dense\\.hour")")));
  const Start start = Planned(text, R"(new: "dense.hour" drop: "earlier dense.hour")");
  EXPECT_EQ(Map(start, "deep.0.w", 0), "0<-0x9");
}

TEST_F(StartTest, NumbersMayHaveOtherNamesAndIdsMayNot) {
  const std::string number = Edited({{"column { name: \"hour\"", "column { name: \"time\""}});
  EXPECT_EQ(Map(Planned(number, R"(rename { from: "dense.hour" to: "dense.time" })"), "deep.0.w", 0), "0<-0x10");
  const std::string ids = Edited({{"column { name: \"user\"", "column { name: \"person\""}});
  EXPECT_THAT(Plan(ids, R"(rename { from: "cat.user" to: "cat.person" })").status().message(),
              HasSubstr("'cat.user' is a column of ids, which depend on its name, so it cannot be renamed"));
}

TEST_F(StartTest, WithoutTheJobOfACheckpointShapesMustBeTheSame) {
  WriteCheckpoint("bare", kOld, {.with_job = false});
  EXPECT_TRUE(Plan(kOld, "", "bare").ok()) << Plan(kOld, "", "bare").status();
  EXPECT_THAT(Plan(Edited({{"    column { name: \"user\"", kNewColumn + "    column { name: \"user\""}}),
                   "new: \"cat.shop\"", "bare")
                  .status()
                  .message(),
              HasSubstr("whose job this build cannot read"));
}

}  // namespace
}  // namespace weir
