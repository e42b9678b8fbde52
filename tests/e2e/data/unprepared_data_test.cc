// Data in an order, or with values, that nobody has prepared: what could ruin a model without a word does not.

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

constexpr int kLines = 4096, kTestLines = 2000;

class UnpreparedDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/unprepared";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  InProcessResult Run(const std::string& job, InProcessRun run) {
    run.job_text = job;
    run.directory = dir_;
    const absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : InProcessResult();
  }
  double Auc(const std::string& job, InProcessRun run) {
    const InProcessResult result = Run(job, std::move(run));
    return result.summary.eval.has_value() ? result.summary.eval->Measure("auc") : 0;
  }

  std::string dir_;
};

// ------------------------------------------------------------------------------------------------ order of the lines

constexpr char kNormed[] = R"(
name: "alternating"
data {
  train { files: "$FILE" }
  eval { files: "test" }
  csv { header: false column { name: "label" } column { name: "x" } column { name: "z" } }
  shuffle: ALL
  batch_size: 256
}
model {
  layer { name: "in" concat { input: "x" input: "z" } }
  layer { name: "h" fc { input: "in" size: 8 } }
  layer { name: "n" $NORM }
  layer { name: "logit" fc { input: "n" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { adam { learning_rate: 0.01 } }
train { seed: 1 epochs: 12 lanes: 8 }
)";

// A negative line behind each positive: with every eighth line a lane would have one label, and its normalisation would
// take the signal away.
TEST_F(UnpreparedDataTest, LinesThatAlternateTrainAsMixedOnes) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  const auto line = [&](int label) {
    const float x = normal(random) + static_cast<float>(label);
    return absl::StrFormat("%d,%.3f,%.3f\n", label, x, normal(random));
  };
  std::vector<std::string> lines;
  for (int i = 0; i < kLines; ++i) lines.push_back(line(1 - i % 2));
  const auto text = [&] {
    std::string all;
    for (const std::string& each : lines) all += each;
    return all;
  };
  Write("plain", text());
  Write("packed.gz", Gzip(text()));
  std::shuffle(lines.begin(), lines.end(), random);
  Write("mixed", text());
  std::string test;
  for (int i = 0; i < kTestLines; ++i) test += line(i % 2);
  Write("test", test);
  for (const char* norm : {"batch_norm { input: \"h\" activation: RELU }", "dice { input: \"h\" }"}) {
    const auto auc = [&](const char* file) {
      return Auc(absl::StrReplaceAll(kNormed, {{"$FILE", file}, {"$NORM", norm}}), {});
    };
    const double mixed = auc("mixed");
    EXPECT_GT(mixed, 0.74) << norm;
    EXPECT_GT(auc("plain"), mixed - 0.01) << norm;
    EXPECT_GT(auc("packed.gz"), mixed - 0.01) << norm;
  }
}

}  // namespace
}  // namespace weir
