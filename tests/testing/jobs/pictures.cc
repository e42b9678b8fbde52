#include "tests/testing/jobs/pictures.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// Leaves the first examples of an IDX file: their number stands big-endian behind the magic number.
bool Cut(const std::string& file, size_t header, size_t example, size_t examples) {
  std::string bytes = ContentsOf(file);
  EXPECT_GE(bytes.size(), header + examples * example) << file;
  if (bytes.size() < header + examples * example) return false;
  bytes.resize(header + examples * example);
  for (size_t i = 0; i < 4; ++i) bytes[4 + i] = static_cast<char>(examples >> (24 - 8 * i) & 255);
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  return out.good();
}

}  // namespace

bool FashionMnistIsThere() {
  const char* data = std::getenv("WEIR_DATA_DIR");
  return data != nullptr && std::filesystem::exists(absl::StrCat(data, "/fashion-mnist/train-images-idx3-ubyte.gz"));
}

bool PrepareFashionMnist(const std::string& dir, int train, int eval) {
  std::filesystem::create_directories(dir);
  const std::string prepare = absl::StrCat("examples/fashion_mnist/prepare --output=", dir, "/data > /dev/null");
  const int ended = std::system(prepare.c_str());
  EXPECT_EQ(ended, 0) << prepare;
  if (ended != 0) return false;
  const auto cut = [&](const std::string& part, int examples) {
    if (examples == 0) return true;
    const size_t n = static_cast<size_t>(examples);
    return Cut(absl::StrCat(dir, "/data/", part, "-images-idx3-ubyte"), 16, 784, n) &&
           Cut(absl::StrCat(dir, "/data/", part, "-labels-idx1-ubyte"), 8, 1, n);
  };
  return cut("train", train) && cut("t10k", eval);
}

std::string ContentsOf(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace weir
