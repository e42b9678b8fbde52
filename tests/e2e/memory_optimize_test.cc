// distribute.memory_optimize changes memory and never a bit, on a whole cluster with dropout, tables and cut
// parameters.

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/counters.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

struct Outcome {
  std::vector<std::string> digests;
  int64_t bytes = 0;  // of trainer 0's variables
};

Outcome Train(const std::string& directory, bool optimize, int servers, int trainers, int threads) {
  const int64_t before = Counters::Process().Value("trainer.0.variables.bytes");
  const auto result =
      TrainInProcess({.job_text = kClickJob,
                      .directory = directory,
                      .overrides = {"train.max_steps=40", "train.digest_every_steps=10",
                                    absl::StrCat("distribute.memory_optimize=", optimize ? "true" : "false")},
                      .servers = servers,
                      .trainers = trainers,
                      .threads = threads});
  EXPECT_TRUE(result.ok()) << result.status();
  return {result.ok() ? result->digests : std::vector<std::string>(),
          Counters::Process().Value("trainer.0.variables.bytes") - before};
}

TEST(MemoryOptimizeTest, TheSameBitsInLessMemory) {
  const std::string directory = ::testing::TempDir() + "/memory_optimize";
  std::filesystem::create_directories(directory);
  WriteClickData(directory);
  const Outcome without = Train(directory, false, 1, 1, 1);
  ASSERT_EQ(without.digests.size(), 4u);
  for (const auto& [servers, trainers, threads] : {std::tuple{1, 1, 1}, std::tuple{2, 2, 2}, std::tuple{3, 1, 4}}) {
    const Outcome with = Train(directory, true, servers, trainers, threads);
    EXPECT_EQ(with.digests, without.digests)
        << servers << " servers, " << trainers << " trainers, " << threads << " threads";
    if (servers == 1 && trainers == 1) {
      // Two thirds of it are gradients of weights, and nothing else is as large as they are.
      EXPECT_LT(with.bytes, without.bytes * 19 / 20);
    }
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace weir
