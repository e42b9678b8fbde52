// Shows and clicks of rows: each sample of an epoch is counted once, on any cluster, and what hangs on them has the
// same bits.
#include <bit>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

// Returns the slot job with a lifecycle of the table "vectors"; one epoch of 2000 examples.
std::string JobWith(const std::string& lifecycle, const std::string& more = "") {
  return absl::StrReplaceAll(kSlotJob,
                             {{"width: 4 is_sparse: true is_distributed: true",
                               absl::StrCat("width: 4 is_sparse: true is_distributed: true logical_shards: 16 ", more,
                                            " lifecycle { ", lifecycle, " }")},
                              {"digest_every_steps: 100", "digest_every_steps: 20"},
                              {"epochs: 8", "epochs: 1"}});
}

using Counts = std::map<int64_t, std::pair<float, float>>;

class ShowsTest : public SlotJobTest {
 protected:
  // From the newest checkpoint of a fresh run.
  static Counts CountsOf(InProcessRun run) {
    static int runs = 0;
    const std::string checkpoints = absl::StrCat(dir_, "/checkpoints", runs++);
    run.overrides.push_back(absl::StrCat("checkpoint.dir=\"", checkpoints, "\""));
    Run(std::move(run));
    Counts counts;
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(checkpoints);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return counts;
    LoadPlan plan;
    plan.tables.push_back({{.table = "vectors",
                            .width = 4,
                            .states = {{"moment", 4}, {"lifecycle.shows", 1}, {"lifecycle.clicks", 1}},
                            .logical_shards = 16},
                           [](uint32_t) { return true; },
                           [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
                             for (size_t i = 0; i < ids.size(); ++i)
                               counts[ids[i]] = {rows[i * 10 + 8], rows[i * 10 + 9]};
                             return absl::OkStatus();
                           }});
    const absl::Status loaded = LoadCheckpoint(newest->found.path, newest->manifest, plan);
    EXPECT_TRUE(loaded.ok()) << loaded;
    return counts;
  }

  static Counts Expected() {
    Counts counts;
    for (int64_t n = 0; n < 2000; ++n) {
      // "1 label 4 x x x x 1 a 1 b"
      const std::string line = SlotLine(n);
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      EXPECT_EQ(words.size(), 11u) << line;
      for (const size_t at : {8, 10}) {
        int64_t id = 0;
        EXPECT_TRUE(absl::SimpleAtoi(words[at], &id)) << line;
        counts[id].first += 1;
        counts[id].second += static_cast<float>(SlotLabel(n));
      }
    }
    return counts;
  }
};

TEST_F(ShowsTest, EachSampleOfAnEpochIsCountedOnceOnAnyCluster) {
  const Counts expected = Expected();
  ASSERT_EQ(expected.size(), 100u);
  const std::string job = JobWith("click: \"label\"");
  for (const auto& [servers, trainers, threads] :
       {std::tuple{1, 1, 1}, std::tuple{2, 1, 2}, std::tuple{1, 2, 1}, std::tuple{3, 4, 1}}) {
    EXPECT_EQ(CountsOf({.job_text = job, .servers = servers, .trainers = trainers, .threads = threads}), expected)
        << servers << " servers, " << trainers << " trainers";
  }
  EXPECT_EQ(CountsOf({.job_text = job, .overrides = {"train.accumulate_steps=3"}, .servers = 2, .trainers = 2}),
            expected);
  EXPECT_EQ(CountsOf({.job_text = job, .overrides = {"distribute.sync=false"}, .servers = 2, .trainers = 2}), expected);
  EXPECT_EQ(CountsOf({.job_text = job,
                      .overrides = {"distribute.sync=false", "distribute.half_async={}", "train.workers=2",
                                    "data.batch_size=16"},
                      .servers = 2,
                      .trainers = 2}),
            expected);
}

struct Policy {
  const char* lifecycle;
  const char* more;
};
const Policy kPolicies[] = {
    {"click: \"label\" admit_score: 3", ""},
    {"click: \"label\" decay_every_steps: 5 decay: 0.7 min_score: 0.9 tombstones: true", ""},
    {"click: \"label\" when_full: EVICT_LEAST_FREQUENT", "dict_size: 48"},
    {"click: \"label\" admit_score: 1.5 decay_every_steps: 3 decay: 0.75 min_score: 0.5 ttl_steps: 9 when_full: "
     "EVICT_LEAST_FREQUENT "
     "show_coefficient: 0.25 click_coefficient: 2",
     "dict_size: 64"},
};

TEST_F(ShowsTest, WhatHangsOnScoresHasTheSameBitsOnEveryClusterAndAfterAResume) {
  const auto count = [](const InProcessResult& result, const std::string& name) {
    int64_t sum = 0;
    for (const auto& counters : result.server_counters) sum += counters.contains(name) ? counters.at(name) : 0;
    return sum;
  };
  for (const Policy& policy : kPolicies) {
    const std::string job = JobWith(policy.lifecycle, policy.more);
    const InProcessResult alone = Run({.job_text = job});
    ASSERT_GE(alone.digests.size(), 3u);
    for (const auto& [servers, trainers, threads] : {std::tuple{2, 2, 1}, std::tuple{3, 1, 2}, std::tuple{1, 4, 3}}) {
      EXPECT_EQ(Run({.job_text = job, .servers = servers, .trainers = trainers, .threads = threads}).digests,
                alone.digests)
          << policy.lifecycle << " " << servers << " " << trainers;
    }
    // It does something here.
    EXPECT_GT(count(alone, "table.vectors.dropped") + count(alone, "table.vectors.faded") +
                  count(alone, "table.vectors.evicted"),
              10)
        << policy.lifecycle;
    const std::string checkpoints = absl::StrCat("checkpoint.dir=\"", dir_, "/resumed\"");
    std::filesystem::remove_all(dir_ + "/resumed");
    Run({.job_text = job, .overrides = {checkpoints, "train.max_steps=33"}, .servers = 2, .trainers = 2});
    const InProcessResult second = Run({.job_text = job, .overrides = {checkpoints}, .servers = 3, .resume = true});
    ASSERT_EQ(second.digests.size() + 1, alone.digests.size()) << policy.lifecycle;
    for (size_t i = 0; i < second.digests.size(); ++i)
      EXPECT_EQ(second.digests[i], alone.digests[i + 1]) << policy.lifecycle << " " << i;
  }
}

}  // namespace
}  // namespace weir
