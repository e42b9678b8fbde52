// Look-ups written where they are joined change no bit: a cluster whose trainers run the program that the pass has
// fused, beside one whose trainers run it as it was.

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/job/load_job.h"
#include "transpiler/passes/passes.h"

namespace weir {
namespace {

// The click job without its factorisation machine: fields, means and sums of two tables, joined with the dense values.
// (With it something else reads the fields, and its gradient is added to that of the joined matrix.)
std::string JoinedJob() {
  return absl::StrReplaceAll(
      kClickJob,
      {{"layer { name: \"fm\" fm_interaction { input: \"fields\" } }",
        "layer { name: \"means\" embedding { ids: \"cat\" table: \"field_vectors\" pooling: MEAN } }\n"
        "  layer { name: \"sums\" embedding { ids: \"cat\" table: \"field_weights\" pooling: SUM } }"},
       {"input: \"fields\" input: \"dense\"", "input: \"sums\" input: \"fields\" input: \"dense\" input: \"means\""},
       {"input: \"wide\" input: \"fm\"", "input: \"wide\""}});
}

int Fused(const Programs& programs) {
  const auto& ops = programs.main.blocks(0).ops();
  return static_cast<int>(std::count_if(ops.begin(), ops.end(), [](const v1::OpDesc& op) {
    return op.type() == "lookup_concat" || op.type() == "lookup_concat_grad";
  }));
}

std::vector<std::string> Digests(const std::string& directory, const std::string& job_text, bool fused, int servers,
                                 int trainers, int threads, const std::vector<std::string>& more) {
  std::vector<std::string> overrides = {"train.max_steps=40", "train.digest_every_steps=10"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const auto edit = [&](int server, Programs* programs) {
    if (server >= 0) return;
    EXPECT_EQ(Fused(*programs), 2);
    if (fused) return;
    std::vector<std::string> all = overrides;
    all.push_back(absl::StrCat("distribute.servers=", servers));
    all.push_back(absl::StrCat("distribute.trainers=", trainers));
    const absl::StatusOr<Job> job = ParseJob(job_text, directory + "/job.textproto", all);
    ASSERT_TRUE(job.ok()) << job.status();
    std::vector<Pass> passes = TrainerPasses();
    std::erase_if(passes, [](const Pass& pass) { return std::string_view(pass.name) == "fuse_lookups"; });
    Programs plain;
    for (const std::vector<Pass>& list : {SingleMachinePasses(), PlacementPasses(), passes}) {
      const absl::Status ran = RunPasses(list, *job, &plain);
      ASSERT_TRUE(ran.ok()) << ran;
    }
    EXPECT_EQ(Fused(plain), 0);
    // The plan and all else of the trainer's program stay.
    *programs->main.mutable_blocks() = plain.main.blocks();
  };
  const auto result = TrainInProcess({.job_text = job_text,
                                      .directory = directory,
                                      .overrides = overrides,
                                      .servers = servers,
                                      .trainers = trainers,
                                      .threads = threads,
                                      .edit = edit});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->digests : std::vector<std::string>();
}

TEST(FuseLookupsTest, TheDigestsAreThoseOfTheProgramBeforeThePass) {
  const std::string directory = ::testing::TempDir() + "/fuse_lookups";
  std::filesystem::create_directories(directory);
  WriteClickData(directory);
  for (const std::string& job : {JoinedJob(), std::string(kClickJob)}) {
    const auto digests = [&](bool fused, int servers, int trainers, int threads, const std::vector<std::string>& more) {
      return Digests(directory, job, fused, servers, trainers, threads, more);
    };
    const std::vector<std::string> plain = digests(/*fused=*/false, 1, 1, 1, {});
    ASSERT_EQ(plain.size(), 4u);
    EXPECT_EQ(digests(/*fused=*/true, 1, 1, 1, {}), plain);
    EXPECT_EQ(digests(/*fused=*/true, 2, 2, 2, {}), plain);
    EXPECT_EQ(digests(/*fused=*/true, 3, 1, 4, {"distribute.memory_optimize=true"}), plain);
    EXPECT_EQ(digests(/*fused=*/false, 2, 1, 2, {"distribute.memory_optimize=true"}), plain);
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace weir
