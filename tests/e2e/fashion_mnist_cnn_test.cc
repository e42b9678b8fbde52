// Convolutions, pooling and batch normalisation on real pictures: the job of the fashion_mnist example that has them, on a sixth of
// the pictures and three of its epochs, comes to an accuracy that one hidden layer needs all of them for.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr int kPictures = 10000;

std::string Contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Leaves the first examples of an IDX file: their number stands big-endian behind the magic number.
void Cut(const std::string& file, size_t header, size_t example) {
  std::string bytes = Contents(file);
  ASSERT_GE(bytes.size(), header + kPictures * example) << file;
  bytes.resize(header + kPictures * example);
  for (size_t i = 0; i < 4; ++i) bytes[4 + i] = static_cast<char>(kPictures >> (24 - 8 * i) & 255);
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST(FashionMnistCnnTest, ComesCloseOnASixthOfThePictures) {
  const char* data = std::getenv("WEIR_DATA_DIR");
  if (data == nullptr || !std::filesystem::exists(absl::StrCat(data, "/fashion-mnist/train-images-idx3-ubyte.gz"))) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (fashion-mnist)";
  }
  const std::string dir = ::testing::TempDir() + "/fashion_mnist_cnn";
  std::filesystem::create_directories(dir);
  const std::string prepare = absl::StrCat("examples/fashion_mnist/prepare --output=", dir, "/data > /dev/null");
  ASSERT_EQ(std::system(prepare.c_str()), 0) << prepare;
  Cut(dir + "/data/train-images-idx3-ubyte", 16, 784);
  Cut(dir + "/data/train-labels-idx1-ubyte", 8, 1);

  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = Contents("examples/fashion_mnist/cnn.textproto"),
                      .directory = dir,
                      .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0", "train.epochs=3",
                                    "optimizer.schedule.cosine.decay_steps=120"},
                      .servers = 1,
                      .trainers = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->summary.examples, 3 * kPictures);
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 10000);
  EXPECT_GE(result->summary.eval->accuracy, 0.85);
  // As far as it comes on all pictures: labels would have leaked into the input.
  EXPECT_LE(result->summary.eval->accuracy, 0.91);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace weir
