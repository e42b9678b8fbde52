// Rows that come and go: the same bits, of rows, state, candidates and tombstones, whatever the cluster and after a
// resume, and as the unsplit program has them; and what the servers count of it.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

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
std::string JobWith(const std::string& lifecycle, const std::string& more = "") {
  return absl::StrReplaceAll(
      kSlotJob, {{"is_distributed: true",
                  absl::StrCat("is_distributed: true logical_shards: 16 ", more, " lifecycle { ", lifecycle, " }")},
                 {"digest_every_steps: 100", "digest_every_steps: 20"},
                 {"epochs: 8", "epochs: 2"}});
}

struct Policy {
  const char* lifecycle;
  const char* more;
};
const Policy kPolicies[] = {
    {"admit_after: 12", ""},
    {"admit_probability: 0.1", ""},
    {"ttl_steps: 4 tombstones: true", ""},
    {"admit_after: 3 ttl_steps: 9", ""},
    {"when_full: EVICT_LEAST_RECENT tombstones: true", "dict_size: 32"},
    {"when_full: EVICT_LEAST_FREQUENT", "dict_size: 40"},
    {"when_full: EVICT_LEAST_FREQUENT admit_after: 2 ttl_steps: 7 tombstones: true", "dict_size: 48"},
};

class TableLifecycleTest : public SlotJobTest {};

TEST_F(TableLifecycleTest, EveryPolicyGivesTheSameBitsOnEveryCluster) {
  for (const Policy& policy : kPolicies) {
    const std::string job = JobWith(policy.lifecycle, policy.more);
    const InProcessResult alone = Run({.job_text = job});
    ASSERT_EQ(alone.digests.size(), 6u);
    for (const auto& [servers, trainers, threads] : {std::tuple{2, 2, 1}, std::tuple{3, 1, 2}, std::tuple{1, 4, 3}}) {
      const InProcessResult other =
          Run({.job_text = job, .servers = servers, .trainers = trainers, .threads = threads});
      EXPECT_EQ(other.digests, alone.digests) << policy.lifecycle << " " << servers << " " << trainers;
      for (const char* what : {"made", "expired", "evicted", "dropped", "candidates", "tombstones", "rows"}) {
        const std::string name = absl::StrCat("table.vectors.", what);
        EXPECT_EQ(Count(other, name), Count(alone, name)) << policy.lifecycle << " " << servers << ": " << name;
      }
    }
  }
}

TEST_F(TableLifecycleTest, EveryPolicyGivesTheSameBitsAfterAResumeOnAnotherCluster) {
  for (const Policy& policy : kPolicies) {
    const std::string job = JobWith(policy.lifecycle, policy.more);
    const InProcessResult whole = Run({.job_text = job});
    const std::string checkpoints = absl::StrCat("checkpoint.dir=\"", dir_, "/checkpoints\"");
    std::filesystem::remove_all(dir_ + "/checkpoints");
    const InProcessResult first =
        Run({.job_text = job, .overrides = {checkpoints, "train.max_steps=47"}, .servers = 2, .trainers = 2});
    ASSERT_EQ(first.digests.size(), 2u);
    const InProcessResult second =
        Run({.job_text = job, .overrides = {checkpoints}, .servers = 3, .trainers = 1, .resume = true});
    ASSERT_EQ(second.digests.size(), 4u);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(second.digests[i], whole.digests[i + 2]) << policy.lifecycle << " " << i;
  }
}

// Each policy does something in this job, or the equalities above would say nothing.
TEST_F(TableLifecycleTest, PoliciesDoWhatTheyAreFor) {
  const auto run = [](const Policy& policy) {
    return Run({.job_text = JobWith(policy.lifecycle, policy.more), .servers = 2});
  };
  const InProcessResult counted = run(kPolicies[0]);
  EXPECT_GT(Count(counted, "table.vectors.dropped"), 100 * 5);
  EXPECT_LE(Count(counted, "table.vectors.rows") + Count(counted, "table.vectors.candidates"), 100);
  EXPECT_GT(Count(run(kPolicies[1]), "table.vectors.dropped"), 100);
  const InProcessResult expired = run(kPolicies[2]);
  EXPECT_GT(Count(expired, "table.vectors.expired"), 10);
  EXPECT_GT(Count(expired, "table.vectors.made"), 100);
  EXPECT_EQ(Count(expired, "table.vectors.made") - Count(expired, "table.vectors.expired"),
            Count(expired, "table.vectors.rows"));
  EXPECT_LE(Count(expired, "table.vectors.rows") + Count(expired, "table.vectors.tombstones"), 100);
  for (int i : {4, 5, 6}) {
    const InProcessResult evicted = run(kPolicies[i]);
    EXPECT_GT(Count(evicted, "table.vectors.evicted"), 10) << i;
    EXPECT_LE(Count(evicted, "table.vectors.rows"), 48) << i;
  }
}

TEST_F(TableLifecycleTest, ARefusedRowFailsTheJobWithTableLimitAndTheWayOut) {
  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = JobWith("when_full: REFUSE", "dict_size: 20"), .directory = dir_});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("table vectors is full"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("lifecycle.when_full"));
}

TEST_F(TableLifecycleTest, AsyncCountsItsVersions) {
  for (const char* mode : {"distribute.async_apply=TRANSACTION", "distribute.async_apply=EAGER"}) {
    const InProcessResult result =
        Run({.job_text = JobWith("admit_after: 2 ttl_steps: 6 when_full: EVICT_LEAST_RECENT", "dict_size: 64"),
             .overrides = {"distribute.sync=false", mode},
             .servers = 2,
             .trainers = 3});
    EXPECT_GT(Count(result, "table.vectors.expired"), 0) << mode;
    EXPECT_GT(Count(result, "table.vectors.dropped"), 0) << mode;
    EXPECT_LE(Count(result, "table.vectors.rows"), 64) << mode;
  }
}

TEST_F(TableLifecycleTest, RowsThatExpireByTheClockStayWhileItHardlyMoves) {
  const InProcessResult result =
      Run({.job_text = JobWith("ttl_seconds: 100000"), .overrides = {"distribute.reproducible=false"}, .servers = 2});
  EXPECT_EQ(Count(result, "table.vectors.expired"), 0);
  EXPECT_EQ(Count(result, "table.vectors.rows"), 100);
}

}  // namespace
}  // namespace weir
