// Batches of one example, for operators that compute across the examples of a batch.
#include "trainer/loop/lone_examples.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::ProgramDesc ProgramOf(const std::string& block) {
  v1::ProgramDesc program;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(block, program.add_blocks())) << block;
  return program;
}

constexpr char kBlock[] = R"(
  vars { name: "x" dims: -1 dims: 6 }
  vars { name: "picture" dims: -1 dims: 3 dims: 8 dims: 8 }
  vars { name: "sequence" dims: -1 dims: 5 dims: 4 }
  ops { type: "fc" inputs { name: "X" vars: "x" } outputs { name: "Out" vars: "h" } }
  ops { type: "batch_norm" inputs { name: "X" vars: "x" } outputs { name: "Out" vars: "norm" } }
  ops { type: "batch_norm" inputs { name: "X" vars: "picture" } outputs { name: "Out" vars: "pictures" } }
  ops { type: "dice" inputs { name: "X" vars: "x" } outputs { name: "Out" vars: "act" } }
  ops { type: "dice" inputs { name: "X" vars: "sequence" } outputs { name: "Out" vars: "acts" } }
  ops { type: "in_batch_softmax" inputs { name: "Query" vars: "x" } outputs { name: "Out" vars: "l.loss" } }
)";

std::vector<std::vector<LaneBatch>> Batches(const std::vector<int64_t>& examples) {
  std::vector<std::vector<LaneBatch>> batches(1);
  for (const int64_t n : examples) batches[0].emplace_back().examples = n;
  return batches;
}

TEST(LoneExamplesTest, OperatorsThatAverageOverExamplesAreFound) {
  EXPECT_THAT(AcrossExamples(ProgramOf(kBlock)),
              ElementsAre("'norm' (batch_norm)", "'act' (dice)", "'l.loss' (in_batch_softmax)"));
  EXPECT_THAT(AcrossExamples(v1::ProgramDesc()), IsEmpty());
}

TEST(LoneExamplesTest, TheFirstRoundWithOneIsWarnedOf) {
  LoneExamples lone(ProgramOf(kBlock));
  EXPECT_EQ(lone.Look(0, Batches({2, 3})), "");
  EXPECT_EQ(lone.Look(1, Batches({2, 0})), "");
  EXPECT_THAT(lone.Look(7, Batches({1, 2, 1})),
              AllOf(HasSubstr("step 7: the batches of 2 of 3 lanes have a single example"), HasSubstr("'act' (dice)")));
  EXPECT_EQ(lone.Look(8, Batches({1, 1, 1})), "");
}

TEST(LoneExamplesTest, OtherProgramsDoNotMind) {
  LoneExamples lone(ProgramOf(R"(ops { type: "fc" outputs { name: "Out" vars: "h" } })"));
  EXPECT_EQ(lone.Look(0, Batches({1})), "");
}

}  // namespace
}  // namespace weir
