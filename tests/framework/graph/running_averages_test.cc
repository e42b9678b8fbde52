#include "framework/graph/running_averages.h"

#include <map>
#include <string>

#include "framework/graph/op_registry.h"
#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::IsEmpty;

// Keeps the averages Mean and Scale of X.
REGISTER_OP(measure)
({.type = "measure",
  .inputs = {{"X"}, {"Mean"}, {.name = "Scale", .variadic = true}},
  .outputs = {{"Out"}},
  .attrs = {FloatAttr("decay", 0.75)}});
REGISTER_RUNNING_AVERAGES(measure)({.op = "measure", .inputs = {"Mean", "Scale"}, .momentum = "decay"});

absl::StatusOr<std::map<std::string, RunningAverage>> Of(const std::string& ops) {
  const auto program = ParseProgramText("weir program\nblock 0 parent -1 {\n" + ops + "}\n", "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  return RunningAveragesOf(*program);
}

TEST(RunningAveragesOfTest, AveragesHaveTheMomentumAndTheNameOfTheirOperator) {
  const auto averages = Of("  Out=y <- measure(X=x, Mean=m, Scale=s) decay=0.5 @FORWARD\n");
  ASSERT_TRUE(averages.ok()) << averages.status();
  ASSERT_EQ(averages->size(), 2);
  EXPECT_EQ(averages->at("m").momentum, 0.5);
  EXPECT_EQ(averages->at("m").op, "measure");
  EXPECT_EQ(averages->at("s").momentum, 0.5);
}

TEST(RunningAveragesOfTest, AMomentumThatIsNotWrittenIsThatOfTheSignature) {
  const auto averages = Of("  Out=y <- measure(X=x, Mean=m, Scale=s) @FORWARD\n");
  ASSERT_TRUE(averages.ok()) << averages.status();
  EXPECT_EQ(averages->at("m").momentum, 0.75);
}

TEST(RunningAveragesOfTest, AnAverageWithTwoForwardReadersIsRefused) {
  const std::string measured = "  Out=y <- measure(X=x, Mean=m, Scale=s) @FORWARD\n";
  EXPECT_EQ(Of(measured + "  Out=z <- copy(X=m) @LOSS\n").status(),
            absl::InvalidArgumentError("'m' is a running average of measure and read 2 times: give each its own"));
  EXPECT_TRUE(Of(measured + "  Out=z <- copy(X=m) @OPTIMIZE\n").ok());
}

TEST(RunningAveragesOfTest, OperatorsAfterTheForwardPassHaveNone) {
  const auto averages = Of("  Out=y <- measure(X=x, Mean=m, Scale=s) @BACKWARD\n");
  ASSERT_TRUE(averages.ok()) << averages.status();
  EXPECT_THAT(*averages, IsEmpty());
}

TEST(RunningAveragesOfTest, ASlotWithSeveralVariablesIsNoAverage) {
  const auto averages = Of("  Out=y <- measure(X=x, Mean=m, Scale=[s, t]) @FORWARD\n");
  ASSERT_TRUE(averages.ok()) << averages.status();
  EXPECT_TRUE(averages->contains("m"));
  EXPECT_EQ(averages->size(), 1);
}

TEST(RunningAveragesOfTest, AProgramWithoutBlocksHasNone) {
  const auto averages = RunningAveragesOf(v1::ProgramDesc());
  ASSERT_TRUE(averages.ok()) << averages.status();
  EXPECT_THAT(*averages, IsEmpty());
}

}  // namespace
}  // namespace weir
