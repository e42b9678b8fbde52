// Tables whose values lie in 16 bits: the same bits on every cluster, after a resume and on disk, and an AUC in every
// mode.

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/table_reader.h"
#include "framework/tensor/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

// More of both tables; 20 steps of an epoch of 63 a digest.
std::string JobWith(const std::string& settings) {
  return absl::StrReplaceAll(
      kSlotJob, {{"is_distributed: true", absl::StrCat("is_distributed: true logical_shards: 64 ", settings)},
                 {"digest_every_steps: 100", "digest_every_steps: 20"},
                 {"epochs: 8", "epochs: 1"}});
}

class StorageTest : public SlotJobTest {
 protected:
  // Values of the rows of "vectors" in the newest checkpoint of `name`, by id.
  static std::map<int64_t, std::vector<float>> RowsIn(const std::string& name) {
    std::map<int64_t, std::vector<float>> all;
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir_ + "/" + name);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return all;
    const absl::StatusOr<TableReader> reader = TableReader::Open(newest->found.path, newest->manifest, "vectors");
    EXPECT_TRUE(reader.ok()) << reader.status();
    if (!reader.ok()) return all;
    const absl::StatusOr<TableRowsRead> read = reader->Read(0, 64);
    EXPECT_TRUE(read.ok()) << read.status();
    for (size_t i = 0; read.ok() && i < read->ids.size(); ++i) {
      const float* const row = read->rows.data() + i * static_cast<size_t>(4 + reader->layout().state_width());
      all[read->ids[i]].assign(row, row + 4);
    }
    return all;
  }
};

TEST_F(StorageTest, SameBitsOnEveryCluster) {
  const InProcessResult float32 = Run({.job_text = JobWith("")});
  ASSERT_EQ(float32.digests.size(), 3u);
  std::vector<std::string> others = float32.digests;
  for (const std::string settings : {"storage: FLOAT16", "storage: BFLOAT16",
                                     "storage: FLOAT16 min_value: -0.3 max_value: 0.3 bad_gradient: SKIP_ROW "
                                     "lifecycle { admit_after: 3 ttl_steps: 9 tombstones: true }"}) {
    const InProcessResult alone = Run({.job_text = JobWith(settings)});
    ASSERT_EQ(alone.digests.size(), 3u);
    for (const std::string& digest : alone.digests) EXPECT_THAT(others, ::testing::Not(::testing::Contains(digest)));
    others.insert(others.end(), alone.digests.begin(), alone.digests.end());
    for (int servers : {1, 2, 3}) {
      for (int trainers : {1, 2}) {
        for (int threads : {1, 2}) {
          if (servers * trainers * threads == 1) continue;
          EXPECT_EQ(Run({.job_text = JobWith(settings), .servers = servers, .trainers = trainers, .threads = threads})
                        .digests,
                    alone.digests)
              << settings << ": " << servers << " servers, " << trainers << " trainers, " << threads << " threads";
        }
      }
    }
  }
}

TEST_F(StorageTest, AResumeOnAnotherClusterGoesOnWithTheBits) {
  for (const std::string type : {"FLOAT16", "BFLOAT16"}) {
    const std::string job = JobWith("storage: " + type);
    const std::string checkpoints = CheckpointIn("resume." + type);
    const InProcessResult whole = Run({.job_text = job});
    const InProcessResult first =
        Run({.job_text = job, .overrides = {checkpoints, "train.max_steps=33"}, .servers = 2, .trainers = 2});
    const InProcessResult second =
        Run({.job_text = job, .overrides = {checkpoints}, .servers = 3, .trainers = 1, .resume = true});
    ASSERT_EQ(second.digests.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(second.digests[i], whole.digests[i + 1]) << type << " " << i;
  }
}

TEST_F(StorageTest, CheckpointsHoldTheValuesAndLoadIntoEveryStorage) {
  const auto train = [&](const std::string& settings, const std::string& name, int64_t steps, bool resume) {
    return Run({.job_text = JobWith(settings),
                .overrides = {CheckpointIn(name), absl::StrCat("train.max_steps=", steps)},
                .servers = 2,
                .resume = resume});
  };
  train("storage: FLOAT16", "half", 20, false);
  train("", "float", 20, false);
  int others = 0;
  for (const auto& [id, row] : RowsIn("half")) {
    for (float value : row) EXPECT_EQ(ToNearest(v1::FLOAT16, value), value) << id;
  }
  for (const auto& [id, row] : RowsIn("float")) {
    for (float value : row) others += ToNearest(v1::FLOAT16, value) != value;
  }
  EXPECT_GT(others, 100);
  // A step further: the rows that the step leaves alone are those of the checkpoint, to the nearest where they must be.
  const auto half = RowsIn("half"), whole = RowsIn("float");
  train("", "half", 21, true);
  train("storage: FLOAT16", "float", 21, true);
  int same = 0, near = 0;
  for (const auto& [id, row] : RowsIn("half")) same += row == half.at(id);
  for (const auto& [id, row] : RowsIn("float")) {
    std::vector<float> nearest = whole.at(id);
    for (float& value : nearest) value = ToNearest(v1::FLOAT16, value);
    near += row == nearest;
  }
  EXPECT_GT(same, 20);
  EXPECT_GT(near, 20);
}

// Rows that fill the least memory would take minutes: here servers keep a row a stripe in memory, and all others on
// disk.
void KeepNothing(int, Programs* programs) {
  for (v1::VarDesc& var : *programs->main.mutable_blocks(0)->mutable_vars()) {
    if (var.has_disk()) var.mutable_disk()->set_memory_mb(0);
  }
}

TEST_F(StorageTest, OnDiskTheyAreWhatTheyAreInMemory) {
  for (const std::string type : {"FLOAT16", "BFLOAT16"}) {
    const InProcessResult memory = Run({.job_text = JobWith("storage: " + type)});
    const InProcessResult disk = Run({.job_text = JobWith("disk { dir: \"rows\" memory_mb: 64 } storage: " + type),
                                      .servers = 2,
                                      .trainers = 2,
                                      .edit = KeepNothing});
    EXPECT_EQ(disk.digests, memory.digests);
    EXPECT_GT(Count(disk, "table.vectors.read_from_disk"), 100);
    EXPECT_GT(Count(disk, "table.vectors.written_to_disk"), 100);
  }
}

// The values themselves travel: in sync, where formats that lose bits are refused.
TEST_F(StorageTest, AWireOfTheSameTypeLosesNothing) {
  for (const std::string type : {"FLOAT16", "BFLOAT16"}) {
    const InProcessResult wide = Run({.job_text = JobWith("storage: " + type), .servers = 2, .trainers = 2});
    const InProcessResult narrow =
        Run({.job_text = JobWith(absl::StrCat("wire { pull: WIRE_", type, " } storage: ", type)),
             .servers = 2,
             .trainers = 2});
    EXPECT_EQ(narrow.digests, wide.digests);
    EXPECT_LT(narrow.counters[0].bytes_received, wide.counters[0].bytes_received);
  }
}

TEST_F(StorageTest, EveryModeComesToItsAuc) {
  const std::pair<const char*, std::vector<std::string>> modes[] = {
      {"sync", {}},
      {"async", {"distribute.sync=false"}},
      {"eager", {"distribute.sync=false", "distribute.async_apply=EAGER"}},
      {"delay compensation", {"distribute.sync=false", "distribute.delay_compensation.lambda=0.1"}},
      {"bounded", {"distribute.sync=false", "distribute.bounded_staleness.steps=2"}},
      {"half-async", {"distribute.sync=false", "distribute.half_async={}", "train.workers=2"}},
      {"async tables", {"distribute.async_tables=true", "distribute.reproducible=false"}}};
  const std::string job = absl::StrReplaceAll(JobWith("storage: FLOAT16"), {{"epochs: 1", "epochs: 8"}});
  for (const auto& [name, overrides] : modes) {
    const InProcessResult result = Run({.job_text = job, .overrides = overrides, .servers = 2, .trainers = 2});
    ASSERT_TRUE(result.summary.eval.has_value()) << name;
    EXPECT_GE(result.summary.eval->Measure("auc"), kSlotJobAuc) << name;
    EXPECT_EQ(Count(result, "table.vectors.rows"), 100) << name;
    EXPECT_GT(Count(result, "table.vectors.bytes"), 0) << name;
  }
}

}  // namespace
}  // namespace weir
