// A checkpoint written by the first version. It must load for ever: when this test fails, the code is wrong, not the
// file.

#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

constexpr char kGolden[] = "tests/framework/checkpoint/testdata/golden/step-000000000042";

// How the golden one was made; run with WEIR_WRITE_GOLDEN=<directory> to make one of a new format beside it.
v1::CheckpointManifest GoldenManifest() {
  v1::CheckpointManifest manifest;
  manifest.set_build("golden");
  manifest.set_seed(1);
  manifest.set_lanes(8);
  manifest.set_scheme_version(1);
  manifest.mutable_data()->set_trainers(2);
  manifest.mutable_data()->add_trainer_steps(42);
  manifest.mutable_data()->add_trainer_steps(42);
  manifest.set_eval_auc(0.75);
  return manifest;
}

TEST(GoldenCheckpointTest, LoadsForEver) {
  if (const char* where = getenv("WEIR_WRITE_GOLDEN"))
    ASSERT_OK(ToyModel::Make().Save(where, 42, 3, GoldenManifest()).status());
  const auto manifest = VerifyCheckpoint(kGolden);
  ASSERT_OK(manifest.status());
  EXPECT_EQ(manifest->format_version(), 1u);
  EXPECT_EQ(manifest->step(), 42);
  EXPECT_EQ(manifest->job(), "toy");
  EXPECT_EQ(manifest->data().trainer_steps_size(), 2);
  EXPECT_EQ(manifest->eval_auc(), 0.75);
  ToyModel back = ToyModel::Empty();
  for (int s = 0; s < 2; ++s) ASSERT_OK(ToyModel::LoadShare(kGolden, *manifest, s, 2, &back));
  EXPECT_TRUE(back == ToyModel::Make());
}

TEST(GoldenCheckpointTest, ItsDigestsNeverChange) {
  const auto manifest = ReadManifest(kGolden);
  ASSERT_OK(manifest.status());
  const auto digests = CheckpointDigests(kGolden, *manifest);
  ASSERT_OK(digests.status());
  EXPECT_EQ(DigestHex(Total(*digests).values), "e668949ec9d4ffdb");
  EXPECT_EQ(DigestHex(Total(*digests).state), "f86ef3c561bdffed");
  EXPECT_EQ(Total(*digests).values, manifest->values_digest());
  EXPECT_EQ(Total(*digests).state, manifest->state_digest());
}

}  // namespace
}  // namespace weir
