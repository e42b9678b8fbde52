#include <cmath>

#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Saved by one number of servers, loaded by another: nothing is lost, nothing comes twice.
TEST(LoadTest, AnyNumberOfServersReadsWhatAnyOtherNumberWrote) {
  const ToyModel model = ToyModel::Make();
  uint64_t values = 0, state = 0;
  for (int saved : {1, 2, 3, 5}) {
    const std::string dir = FreshDir("load_any");
    const auto path = model.Save(dir, 10, saved);
    ASSERT_OK(path.status());
    const auto manifest = ReadManifest(*path);
    ASSERT_OK(manifest.status());
    if (saved == 1) values = manifest->values_digest(), state = manifest->state_digest();
    EXPECT_EQ(manifest->values_digest(), values) << saved;
    EXPECT_EQ(manifest->state_digest(), state) << saved;
    for (int loaded : {1, 2, 4, 5}) {
      ToyModel back = ToyModel::Empty();
      for (int s = 0; s < loaded; ++s) ASSERT_OK(ToyModel::LoadShare(*path, *manifest, s, loaded, &back));
      EXPECT_TRUE(back == model) << saved << " to " << loaded;
      EXPECT_TRUE(std::signbit(back.b[0]));
    }
  }
}

class LoadMismatchTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = ToyModel::Make().Save(FreshDir("load_mismatch"), 10, 2);
    ASSERT_OK(path.status());
    path_ = *path;
    manifest_ = *ReadManifest(path_);
  }
  std::string Refusal(const LoadPlan& plan) {
    const absl::Status status = LoadCheckpoint(path_, manifest_, plan);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  }
  std::string path_;
  v1::CheckpointManifest manifest_;
  std::vector<float> out_ = std::vector<float>(24);
};

TEST_F(LoadMismatchTest, OtherDimsAreRefusedWithBoth) {
  EXPECT_THAT(Refusal({.dense = {{{.variable = "w", .whole_dims = {4, 6}}, absl::MakeSpan(out_)}}}),
              HasSubstr("'w' is [4, 6] in this job and [6, 4] in checkpoint " + path_));
}

TEST_F(LoadMismatchTest, AnUnknownVariableIsRefusedWithThoseThatExist) {
  EXPECT_THAT(Refusal({.dense = {{{.variable = "v", .whole_dims = {6, 4}}, absl::MakeSpan(out_)}}}),
              HasSubstr("has no variable 'v'; it has: b, w"));
}

TEST_F(LoadMismatchTest, StateThatIsOfNoVariableIsNamedByItsMeaning) {
  const DensePiece rates = {.variable = "@LR", .whole_dims = {6}, .scalar = true, .meaning = "the state of a schedule"};
  EXPECT_THAT(Refusal({.dense = {{rates, absl::MakeSpan(out_)}}}),
              AllOf(HasSubstr("does not have the state of a schedule: it was written by a job without one"),
                    Not(HasSubstr("@LR"))));
}

TEST_F(LoadMismatchTest, StateOfAnotherOptimizerIsRefusedBothWays) {
  EXPECT_THAT(Refusal({.dense = {{ToyModel::W(0), absl::MakeSpan(out_)},
                                 {ToyModel::W(0, "velocity"), absl::MakeSpan(out_)},
                                 {ToyModel::W(0, "moment1"), absl::MakeSpan(out_)},
                                 {ToyModel::W(0, "step", true), absl::MakeSpan(out_).first(1)}}}),
              HasSubstr("has no state 'velocity' of 'w': it was written with another optimizer"));
  EXPECT_THAT(Refusal({.dense = {{ToyModel::W(0), absl::MakeSpan(out_)}}}),
              HasSubstr("holds state 'moment1' of 'w', which the optimizer of this job does not have"));
}

TEST_F(LoadMismatchTest, AnotherTableWidthIsRefusedWithBoth) {
  TableLayout layout = ToyModel::Layout();
  layout.width = 3;
  EXPECT_THAT(Refusal({.tables = {{.layout = layout, .wants = [](uint32_t) { return true; }}}}),
              HasSubstr("table 't' has width 3, 16 logical shards, state moment[2] in this job and width 2, 16 logical "
                        "shards, state moment[2] in checkpoint"));
}

TEST_F(LoadMismatchTest, ElementsThatNoShardHoldsAreNamed) {
  manifest_.mutable_shards()->DeleteSubrange(1, 1);
  EXPECT_THAT(Refusal({.dense = {{ToyModel::W(0), absl::MakeSpan(out_)},
                                 {ToyModel::W(0, "moment1"), absl::MakeSpan(out_)},
                                 {ToyModel::W(0, "step", true), absl::MakeSpan(out_).first(1)}}}),
              HasSubstr("has no elements [12, 24) of 'w'"));
}

TEST_F(LoadMismatchTest, ElementsThatAreMissingInFrontOfOthersAreNamed) {
  manifest_.mutable_shards()->DeleteSubrange(0, 1);
  EXPECT_THAT(Refusal({.dense = {{ToyModel::W(0), absl::MakeSpan(out_)},
                                 {ToyModel::W(0, "moment1"), absl::MakeSpan(out_)},
                                 {ToyModel::W(0, "step", true), absl::MakeSpan(out_).first(1)}}}),
              HasSubstr("has no elements [0, 24) of 'w'"));
}

TEST_F(LoadMismatchTest, DamageIsFoundBeforeAnythingIsWritten) {
  FlipBit(path_ + "/shard-00001", 70);
  ToyModel back = ToyModel::Empty();
  const absl::Status status = ToyModel::LoadShare(path_, manifest_, 0, 1, &back);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("shard-00001"));
  EXPECT_TRUE(std::isnan(back.w[0]));
  EXPECT_TRUE(back.rows.empty());
}

TEST_F(LoadMismatchTest, DigestsComputedAgainAreThoseOfTheManifest) {
  const auto digests = CheckpointDigests(path_, manifest_);
  ASSERT_OK(digests.status());
  EXPECT_EQ(Total(*digests).values, manifest_.values_digest());
  EXPECT_EQ(Total(*digests).state, manifest_.state_digest());
  EXPECT_EQ(digests->size(), 3u);
}

TEST_F(LoadMismatchTest, AWholeVariableIsPutTogetherFromItsShards) {
  const auto w = ReadWhole(path_, manifest_, "w", "");
  ASSERT_OK(w.status());
  EXPECT_EQ(w->dims, (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(w->values, ToyModel::Make().w);
  EXPECT_TRUE(absl::IsNotFound(ReadWhole(path_, manifest_, "w", "nothing").status()));
}

}  // namespace
}  // namespace weir
