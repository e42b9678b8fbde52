// Which gradients travel together among trainers.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/verify/verify_plan.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

// Bytes of the dense parameters, in the order of their gradients: out.b 4, out.w 256, deep.1.b 256, deep.1.w 8192,
// deep.0.b 128, deep.0.w 4096. The rows of `held` come last.
constexpr char kJob[] = R"(name: "buckets"
data {
  criteo { integers: 28 categoricals: 2 }
  ids { shared: "cat" }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "held" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" mlp { input: "input" sizes: [32, 64] } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "held" width: 4 is_sparse: true dict_size: 2000 }
optimizer { sgd { learning_rate: 0.1 } }
distribute { servers: 1 trainers: 2 dense: ALL_REDUCE }
)";

// The job with a tower of a hundred layers of 8.
std::string Deep() {
  std::string sizes = "8";
  for (int i = 1; i < 100; ++i) sizes += ", 8";
  return Replaced(kJob, "sizes: [32, 64]", absl::StrCat("sizes: [", sizes, "]"));
}

// The all_reduce ops of the trainer's program, in order: "out.w 0".
std::vector<std::string> Buckets(const std::string& job, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> buckets;
  const Transpiled t = TranspiledOf(JobOf(job, overrides));
  for (const v1::OpDesc& op : t.trainer().main.blocks(0).ops()) {
    if (op.type() != "all_reduce") continue;
    buckets.push_back(absl::StrCat(FindAttr(op, "block")->s(), " ", IntOr(op, "bucket", -1)));
  }
  return buckets;
}

// Layers of 2080, 16640, 16640, 8448 and 4224 bytes, behind one of 36. The bias of 2 would fit to 3, and must not: it
// comes with the matrix of 2, later.
TEST(AssignBucketsTest, ABucketTakesWholeLayersThatFit) {
  EXPECT_THAT(Buckets(Replaced(kJob, "sizes: [32, 64]", "sizes: [32, 64, 64, 64, 8]"),
                      {"distribute.all_reduce={first_bucket_bytes: 4096 bucket_bytes: 17000}"}),
              ElementsAre("out.b 0", "out.w 0", "deep.4.b 0", "deep.4.w 0", "deep.3.b 1", "deep.3.w 1", "deep.2.b 2",
                          "deep.2.w 2", "deep.1.b 3", "deep.1.w 3", "deep.0.b 3", "deep.0.w 3", "held 3"));
}

// Matrices are cut into a piece for each of the two trainers; their biases come at the same time.
TEST(AssignBucketsTest, PiecesOfAMatrixComeWithItsBias) {
  EXPECT_THAT(Buckets(Replaced(kJob, "sizes: [32, 64]", "sizes: [32, 64, 64, 64, 8]"),
                      {"distribute.all_reduce={first_bucket_bytes: 4096 bucket_bytes: 17000}",
                       "distribute.update=SHARDED", "table[0].is_distributed=true"}),
              ElementsAre("out.b 0", "out.w 0", "deep.4.b 0", "deep.4.w 0", "deep.3.b 1", "deep.3.w.block0 1",
                          "deep.3.w.block1 1", "deep.2.b 2", "deep.2.w.block0 2", "deep.2.w.block1 2", "deep.1.b 3",
                          "deep.1.w.block0 3", "deep.1.w.block1 3", "deep.0.b 3", "deep.0.w 3"));
}

TEST(AssignBucketsTest, SizesAreHalvedUntilThereAreFourBuckets) {
  // Layers of 4100, 263168, 263168, 263168 and 30720 bytes. 1 MiB and 25 MiB are halved to 64 and 400 KiB.
  EXPECT_THAT(Buckets(Replaced(kJob, "sizes: [32, 64]", "sizes: [256, 256, 256, 256]")),
              ElementsAre("out.b 0", "out.w 0", "deep.3.b 1", "deep.3.w 1", "deep.2.b 2", "deep.2.w 2", "deep.1.b 3",
                          "deep.1.w 3", "deep.0.b 3", "deep.0.w 3", "held 3"));
}

TEST(AssignBucketsTest, JobsOfFewBytesHaveOneBucket) {
  EXPECT_THAT(Buckets(kJob),
              ElementsAre("out.b 0", "out.w 0", "deep.1.b 0", "deep.1.w 0", "deep.0.b 0", "deep.0.w 0", "held 0"));
}

TEST(AssignBucketsTest, SmallerSizesOfTheJobStay) {
  EXPECT_THAT(Buckets(kJob, {"distribute.all_reduce={first_bucket_bytes: 4096 bucket_bytes: 4096}"}),
              ElementsAre("out.b 0", "out.w 0", "deep.1.b 1", "deep.1.w 1", "deep.0.b 2", "deep.0.w 2", "held 2"));
}

TEST(AssignBucketsTest, RowsTravelByThemselves) {
  const Transpiled t = TranspiledOf(JobOf(kJob));
  EXPECT_THAT(ProgramText(t.trainer().main), HasSubstr("all_reduce(X=held@GRAD) block=\"held\" width=4 bucket=0 @RPC"));
}

TEST(AssignBucketsTest, ABucketHasNoMoreParametersThanOneExchangeCarries) {
  const Transpiled t = TranspiledOf(JobOf(Deep(), {"distribute.all_reduce={first_bucket_bytes: 4096}"}));
  std::vector<int> members;
  for (const v1::OpDesc& op : t.trainer().main.blocks(0).ops()) {
    if (op.type() != "all_reduce" || IntOr(op, "width", 0) > 0) continue;
    members.resize(static_cast<size_t>(IntOr(op, "bucket", -1)) + 1);
    ++members.back();
  }
  EXPECT_THAT(members, Each(Le(64)));
  EXPECT_THAT(members, ::testing::Contains(64));
  EXPECT_THAT(members.size(), Ge(4u));
}

TEST(AssignBucketsTest, JobsWithServersHaveNone) {
  const Transpiled t = TranspiledOf(JobOf(Replaced(kJob, " dense: ALL_REDUCE", "")));
  EXPECT_FALSE(absl::StrContains(ProgramText(t.trainer().main), "bucket="));
}

// --------------------------------------------------------------------------------------------- the rule of the
// verifier

absl::Status VerifiedWith(const std::string& from, const std::string& to) {
  Programs trainer =
      TranspiledOf(JobOf(kJob, {"distribute.all_reduce={first_bucket_bytes: 4096 bucket_bytes: 4096}"})).trainer();
  const auto parsed = ParseProgramText(Replaced(ProgramText(trainer.main), from, to), "edited.program");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (parsed.ok()) trainer.main = *parsed;
  return VerifyTrainer(trainer);
}

TEST(AssignBucketsTest, BucketsThatDescendAreRefused) {
  EXPECT_TRUE(VerifiedWith("block=\"deep.0.w\" width=0 bucket=2", "block=\"deep.0.w\" width=0 bucket=2").ok());
  EXPECT_THAT(
      std::string(VerifiedWith("block=\"deep.0.w\" width=0 bucket=2", "block=\"deep.0.w\" width=0 bucket=1").message()),
      HasSubstr("buckets: all_reduce of 'deep.0.w' has bucket 1 behind bucket 2; buckets ascend"));
}

TEST(AssignBucketsTest, ABucketThatNoExchangeCarriesIsRefused) {
  Programs trainer = TranspiledOf(JobOf(Deep())).trainer();
  ASSERT_TRUE(VerifyTrainer(trainer).ok());
  for (v1::OpDesc& op : *trainer.main.mutable_blocks(0)->mutable_ops()) {
    for (v1::OpAttr& attr : *op.mutable_attrs()) {
      if (attr.name() == "bucket") attr.set_i(7);
    }
  }
  EXPECT_THAT(std::string(VerifyTrainer(trainer).message()),
              HasSubstr("is the 65th of bucket 7; at most 64 travel together"));
}

}  // namespace
}  // namespace weir
