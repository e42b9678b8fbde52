// Tables of two values a row that begin at 1 and are changed by sgd at rate 0.5.
#include "trainer/verify/unsplit_tables.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "framework/checkpoint/digest.h"
#include "framework/graph/program_text.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

constexpr char kSgd[] = "  ParamOut=t <- sgd(Param=t, Grad=t@GRAD, LearningRate=rate) @OPTIMIZE grads(t=t@GRAD)\n";

class UnsplitTablesTest : public ::testing::Test {
 protected:
  // Adds the table. `fields`: more of its description; `ops`: those of the program, after one of the model.
  absl::Status Add(const std::string& fields = "", const std::string& ops = kSgd) {
    const std::string text =
        "weir program\nseed 7\nblock 0 parent -1 {\n"
        "  var t table [-1, 2] persistable: true initializer { constant { value: 1 } } " +
        fields +
        "\n  var t@GRAD [-1, 2] kind: SELECTED_ROWS\n  var rate [1] persistable: true\n"
        "  Out=y <- relu(X=x) @FORWARD\n" +
        ops + "}\n";
    auto program = ParseProgramText(text, "x.program");
    CHECK(program.ok()) << program.status();
    *scope_.FindOrCreate("rate") = Tensor::Of<float>({1}, {0.5f});
    return tables_.Add(*program, program->blocks(0).vars(0), scope_);
  }
  void Update(int64_t step, UnsplitTables::Rows gradients, int64_t samples = 1) {
    tables_.Update("t", gradients, samples, step, scope_);
  }
  // A step in which the gradients of the ids are 1.
  void Step(int64_t step, const std::vector<int64_t>& ids) {
    UnsplitTables::Rows gradients;
    for (const int64_t id : ids) gradients[id] = {1, 1};
    Update(step, gradients);
    tables_.EndStep(step);
  }
  std::vector<float> Row(int64_t id) {
    const std::vector<int64_t> ids = {id};
    std::vector<float> row(2);
    const RowSource::TableRows pull[] = {{.table = "t", .width = 2, .ids = &ids, .rows = row.data()}};
    EXPECT_EQ(tables_.rows()->PullRows(pull), absl::OkStatus());
    return row;
  }
  DigestTable Digests() {
    DigestTable digests;
    tables_.AddDigests(&digests);
    return digests;
  }

  Scope scope_;
  UnsplitTables tables_;
};

TEST_F(UnsplitTablesTest, ARowHasItsInitialValuesUntilAStepChangesIt) {
  ASSERT_EQ(Add(), absl::OkStatus());
  EXPECT_THAT(Row(7), ElementsAre(1, 1));
  Update(/*step=*/0, {{7, {1, 2}}}, /*samples=*/2);
  EXPECT_THAT(Row(7), ElementsAre(0.75, 0.5));  // 1 - 0.5 * 1 / 2, 1 - 0.5 * 2 / 2
  EXPECT_THAT(Row(8), ElementsAre(1, 1));
}

TEST_F(UnsplitTablesTest, ATableIsKnownWithTheOpsThatWorkOnItsRows) {
  ASSERT_EQ(Add("logical_shards: 4"), absl::OkStatus());
  EXPECT_TRUE(tables_.Has("t"));
  EXPECT_FALSE(tables_.Has("rate"));
  EXPECT_EQ(tables_.width("t"), 2);
  EXPECT_EQ(tables_.shards("t"), 4);
  EXPECT_THAT(tables_.row_ops(), ElementsAre(1));
  EXPECT_FALSE(tables_.IsMergedFirst("t"));
  EXPECT_FALSE(tables_.SkipsRows("t"));
}

TEST_F(UnsplitTablesTest, RowsOfAnUnknownTableAreRefused) {
  ASSERT_EQ(Add(), absl::OkStatus());
  const std::vector<int64_t> ids = {1};
  std::vector<float> row(2);
  const RowSource::TableRows pull[] = {{.table = "s", .width = 2, .ids = &ids, .rows = row.data()}};
  EXPECT_EQ(tables_.rows()->PullRows(pull), absl::InvalidArgumentError("there is no table s"));
}

TEST_F(UnsplitTablesTest, AGradientThatTheProgramChangesAsAWholeIsDividedThere) {
  ASSERT_EQ(Add("", std::string("  Out=t@GRAD <- of_all_rows(X=t@GRAD) @OPTIMIZE grads(t=t@GRAD)\n") + kSgd),
            absl::OkStatus());
  EXPECT_TRUE(tables_.IsMergedFirst("t"));
  EXPECT_THAT(tables_.row_ops(), ElementsAre(2));
  Update(0, {{7, {1, 2}}}, /*samples=*/2);
  EXPECT_THAT(Row(7), ElementsAre(0.5, 0));
}

TEST_F(UnsplitTablesTest, ARowWithABadGradientIsLeftAlone) {
  ASSERT_EQ(Add("", std::string("  Out=t@GRAD <- drop_bad_rows(X=t@GRAD) @OPTIMIZE grads(t=t@GRAD)\n") + kSgd),
            absl::OkStatus());
  EXPECT_TRUE(tables_.SkipsRows("t"));
  Update(0, {{7, {1, std::numeric_limits<float>::quiet_NaN()}}, {8, {1, 1}}});
  EXPECT_THAT(Row(7), ElementsAre(1, 1));
  EXPECT_THAT(Row(8), ElementsAre(0.5, 0.5));
}

TEST_F(UnsplitTablesTest, ATableThatNothingUpdatesStays) {
  ASSERT_EQ(Add("", ""), absl::OkStatus());
  Update(0, {{7, {1, 2}}});
  EXPECT_THAT(Row(7), ElementsAre(1, 1));
}

TEST_F(UnsplitTablesTest, WhatServersDecideByThemselvesIsRefused) {
  const absl::Status clocks = Add("lifecycle { ttl_seconds: 5 }");
  EXPECT_EQ(clocks.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(clocks.message()), HasSubstr("table t: lifecycle.ttl_seconds"));
  const absl::Status clicks = Add("lifecycle { click: \"label\" }");
  EXPECT_EQ(clicks.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(clicks.message()), HasSubstr("lifecycle.click"));
}

TEST_F(UnsplitTablesTest, ARowIsMadeInTheStepThatAdmitsItsId) {
  ASSERT_EQ(Add("lifecycle { admit_after: 2 }"), absl::OkStatus());
  Step(0, {7});
  EXPECT_THAT(Row(7), ElementsAre(1, 1));
  Step(1, {7});
  EXPECT_THAT(Row(7), ElementsAre(0.5, 0.5));
}

TEST_F(UnsplitTablesTest, ARowThatNoStepHasGoesAfterAWhile) {
  ASSERT_EQ(Add("logical_shards: 1 lifecycle { ttl_steps: 2 }"), absl::OkStatus());
  Step(0, {7});
  Step(1, {});
  EXPECT_THAT(Row(7), ElementsAre(0.5, 0.5));
  Step(2, {});
  EXPECT_THAT(Row(7), ElementsAre(1, 1));
}

TEST_F(UnsplitTablesTest, OfAFullShardTheRowWhoseLastStepIsOldestGoes) {
  ASSERT_EQ(Add("logical_shards: 1 capacity: 2 lifecycle { when_full: EVICT_LEAST_RECENT }"), absl::OkStatus());
  Step(0, {1, 2});
  Step(1, {1});
  Step(2, {3});
  EXPECT_THAT(Row(1), ElementsAre(0, 0));
  EXPECT_THAT(Row(2), ElementsAre(1, 1));  // gone
  EXPECT_THAT(Row(3), ElementsAre(0.5, 0.5));
}

TEST_F(UnsplitTablesTest, OfAFullShardTheRowOfTheFewestStepsGoes) {
  ASSERT_EQ(Add("logical_shards: 1 capacity: 2 lifecycle { when_full: EVICT_LEAST_FREQUENT }"), absl::OkStatus());
  Step(0, {1});
  Step(1, {1});
  Step(2, {2, 3});
  Step(3, {});
  EXPECT_THAT(Row(1), ElementsAre(0, 0));
  // Rows 2 and 3 are of one step: the one with the lower id is gone.
  EXPECT_THAT(Row(2), ElementsAre(1, 1));
  EXPECT_THAT(Row(3), ElementsAre(0.5, 0.5));
}

TEST_F(UnsplitTablesTest, DigestsAreThoseOfTheRows) {
  ASSERT_EQ(Add("logical_shards: 4"), absl::OkStatus());
  Step(0, {7, 9});
  VariableDigester digester("t", 4);
  const std::vector<float> row = {0.5f, 0.5f};
  digester.AddRow(7, row, {});
  digester.AddRow(9, row, {});
  const DigestTable digests = Digests();
  ASSERT_THAT(digests, ElementsAre(Key("t")));
  EXPECT_EQ(digests.at("t").values, digester.sum().values);
  EXPECT_EQ(digests.at("t").state, digester.sum().state);
}

TEST_F(UnsplitTablesTest, IdsThatWaitForTheirRowsAreInTheDigests) {
  ASSERT_EQ(Add("logical_shards: 4 lifecycle { admit_after: 3 }"), absl::OkStatus());
  Step(0, {7});
  Step(1, {7});
  VariableDigester digester("t@candidates", 4);
  const std::vector<float> count = {std::bit_cast<float>(uint32_t{2})};
  digester.AddRow(7, count, {});
  const DigestTable digests = Digests();
  ASSERT_THAT(digests, ElementsAre(Key("t"), Key("t@candidates")));
  EXPECT_EQ(digests.at("t").values, 0);
  EXPECT_EQ(digests.at("t@candidates").values, digester.sum().values);
}

TEST_F(UnsplitTablesTest, IdsOfRowsThatAreGoneAreInTheDigestsUntilTheyComeBack) {
  ASSERT_EQ(Add("logical_shards: 1 lifecycle { ttl_steps: 1 tombstones: true }"), absl::OkStatus());
  Step(0, {7});
  Step(1, {});
  VariableDigester digester("t@tombstones", 1);
  const std::vector<float> step = {std::bit_cast<float>(uint32_t{1})};
  digester.AddRow(7, step, {});
  EXPECT_EQ(Digests().at("t@tombstones").values, digester.sum().values);
  Step(2, {7});
  EXPECT_EQ(Digests().at("t@tombstones").values, 0);
}

}  // namespace
}  // namespace weir
