// Convolutions, pooling and batch normalisation on real pictures: the job of the fashion_mnist example that has them,
// on a sixth of the pictures and three of its epochs, comes to an accuracy that one hidden layer needs all of them for.

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/jobs/pictures.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr int kPictures = 10000;

TEST(FashionMnistCnnTest, ComesCloseOnASixthOfThePictures) {
  if (!FashionMnistIsThere()) GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (fashion-mnist)";
  const std::string dir = ::testing::TempDir() + "/fashion_mnist_cnn";
  ASSERT_TRUE(PrepareFashionMnist(dir, kPictures));

  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = ContentsOf("examples/fashion_mnist/cnn.textproto"),
                      .directory = dir,
                      .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0", "train.epochs=3",
                                    "optimizer.schedule.cosine.decay_steps=120"},
                      .servers = 1,
                      .trainers = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->summary.examples + result->summary.left_out, 3 * kPictures);
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 10000);
  EXPECT_GE(result->summary.eval->Measure("accuracy"), 0.85);
  // Upper bound, the accuracy after training on all pictures: more would mean that labels have leaked into the input.
  EXPECT_LE(result->summary.eval->Measure("accuracy"), 0.91);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace weir
