// Tables whose rows lie on the servers' disks: the bits of tables in memory, whatever the cluster, after a resume, and
// in async.

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Both tables; 100 ids of which a batch has some 50.
std::string JobWith(const std::string& settings) {
  return absl::StrReplaceAll(
      kSlotJob, {{"is_distributed: true", absl::StrCat("is_distributed: true logical_shards: 64 ", settings)},
                 {"digest_every_steps: 100", "digest_every_steps: 20"},
                 {"epochs: 8", "epochs: 2"}});
}
constexpr char kDisk[] = " disk { dir: \"rows\" memory_mb: 64 }";

// Rows that fill the least memory would take minutes: here servers keep a row a stripe in memory, and all others on
// disk.
void KeepNothing(int, Programs* programs) {
  for (v1::VarDesc& var : *programs->main.mutable_blocks(0)->mutable_vars()) {
    if (var.has_disk()) var.mutable_disk()->set_memory_mb(0);
  }
}

class RowsOnDiskTest : public SlotJobTest {
 protected:
  static InProcessResult Run(InProcessRun run) {
    run.edit = KeepNothing;
    return SlotJobTest::Run(std::move(run));
  }
};

TEST_F(RowsOnDiskTest, BitsAreThoseOfRowsInMemoryOnEveryCluster) {
  for (const std::string settings :
       {"", "lifecycle { admit_after: 3 ttl_steps: 9 tombstones: true }",
        "dict_size: 64 lifecycle { when_full: EVICT_LEAST_FREQUENT admit_after: 2 ttl_steps: 7 }"}) {
    const InProcessResult memory = Run({.job_text = JobWith(settings)});
    ASSERT_EQ(memory.digests.size(), 6u);
    for (const auto& [servers, trainers, threads] : {std::tuple{1, 1, 1}, std::tuple{2, 2, 2}, std::tuple{3, 4, 1}}) {
      const InProcessResult disk =
          Run({.job_text = JobWith(settings + kDisk), .servers = servers, .trainers = trainers, .threads = threads});
      EXPECT_EQ(disk.digests, memory.digests) << settings << " " << servers << " " << trainers;
      EXPECT_GT(Count(disk, "table.vectors.read_from_disk"), 100);
      EXPECT_GT(Count(disk, "table.vectors.written_to_disk"), 100);
      // A stripe is a shard or more.
      EXPECT_LE(Count(disk, "table.vectors.in_memory"), 64);
    }
  }
}

TEST_F(RowsOnDiskTest, AResumeOnAnotherClusterGoesOnWithTheBits) {
  const std::string job = JobWith(kDisk);
  const InProcessResult whole = Run({.job_text = JobWith("")});
  const std::string checkpoints = absl::StrCat("checkpoint.dir=\"", dir_, "/checkpoints\"");
  const InProcessResult first =
      Run({.job_text = job, .overrides = {checkpoints, "train.max_steps=47"}, .servers = 2, .trainers = 2});
  ASSERT_EQ(first.digests.size(), 2u);
  const InProcessResult second =
      Run({.job_text = job, .overrides = {checkpoints}, .servers = 3, .trainers = 1, .resume = true});
  ASSERT_EQ(second.digests.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(second.digests[i], whole.digests[i + 2]) << i;
}

TEST_F(RowsOnDiskTest, AsyncReachesItsRows) {
  const InProcessResult result =
      Run({.job_text = JobWith(kDisk), .overrides = {"distribute.sync=false"}, .servers = 2, .trainers = 3});
  EXPECT_EQ(Count(result, "table.vectors.rows"), 100);
  EXPECT_GT(Count(result, "table.vectors.written_to_disk"), 100);
}

TEST_F(RowsOnDiskTest, ADirectoryThatCannotBeMadeEndsTheJobAndIsNamed) {
  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = JobWith(" disk { dir: \"train.txt/rows\" }"), .directory = dir_});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(dir_ + "/train.txt/rows"));
}

}  // namespace
}  // namespace weir
