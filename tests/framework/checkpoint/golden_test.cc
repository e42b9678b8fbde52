// Checkpoints written by the first version, and by the first with each later format of MANIFEST. They must load for
// ever: when this test fails, the code is wrong, not the files.

#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

constexpr char kGolden[] = "tests/framework/checkpoint/testdata/golden/step-000000000042";
constexpr char kGoldenOfFormat2[] = "tests/framework/checkpoint/testdata/golden_2/step-000000000042";

v1::TrainerState GoldenState() {
  v1::TrainerState state;
  state.mutable_loss_scale()->set_scale(1024);
  state.mutable_loss_scale()->set_good_steps(3);
  state.set_first_step_examples(64);
  state.set_stream_scheme(4);
  state.mutable_early_stop()->set_metric("auc");
  state.mutable_early_stop()->set_best(0.75);
  state.mutable_early_stop()->set_evaluations(2);
  state.mutable_early_stop()->set_step(40);
  state.mutable_follow()->set_last_file("part-7");
  state.mutable_follow()->add_streams()->set_given(1344);
  return state;
}

// How the newest one was made; run with WEIR_WRITE_GOLDEN=<directory> to make one of a new format beside it. That of
// format 1 has no state of the trainers.
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
  *manifest.mutable_trainers() = GoldenState();
  return manifest;
}

TEST(GoldenCheckpointTest, LoadsForEver) {
  if (const char* where = getenv("WEIR_WRITE_GOLDEN"))
    ASSERT_OK(ToyModel::Make().Save(where, 42, 3, GoldenManifest()).status());
  for (const char* const golden : {kGolden, kGoldenOfFormat2}) {
    const auto manifest = VerifyCheckpoint(golden);
    ASSERT_OK(manifest.status());
    EXPECT_EQ(manifest->format_version(), kManifestFormat);
    EXPECT_EQ(manifest->step(), 42);
    EXPECT_EQ(manifest->job(), "toy");
    EXPECT_EQ(manifest->data().trainer_steps_size(), 2);
    EXPECT_EQ(manifest->eval_auc(), 0.75);
    ToyModel back = ToyModel::Empty();
    for (int s = 0; s < 2; ++s) ASSERT_OK(ToyModel::LoadShare(golden, *manifest, s, 2, &back));
    EXPECT_TRUE(back == ToyModel::Make());
  }
  EXPECT_EQ(ReadManifest(kGoldenOfFormat2)->trainers().DebugString(), GoldenState().DebugString());
}

TEST(GoldenCheckpointTest, ItsDigestsNeverChange) {
  for (const char* const golden : {kGolden, kGoldenOfFormat2}) {
    const auto manifest = ReadManifest(golden);
    ASSERT_OK(manifest.status());
    const auto digests = CheckpointDigests(golden, *manifest);
    ASSERT_OK(digests.status());
    EXPECT_EQ(DigestHex(Total(*digests).values), "e668949ec9d4ffdb");
    EXPECT_EQ(DigestHex(Total(*digests).state), "f86ef3c561bdffed");
    EXPECT_EQ(Total(*digests).values, manifest->values_digest());
    EXPECT_EQ(Total(*digests).state, manifest->state_digest());
  }
}

}  // namespace
}  // namespace weir
