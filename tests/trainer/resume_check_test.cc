// Settings that may change between a run and its resume, and settings that may not.

#include "trainer/checkpoints/resume_check.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "trainer/files/stream_rule.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::JobConfig JobOf(const std::string& data) {
  v1::JobConfig job;
  job.set_name("j");
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(data, job.mutable_data())) << data;
  return job;
}

v1::Plan PlanOf(uint64_t seed, int lanes, uint32_t scheme) {
  v1::Plan plan;
  plan.set_seed(seed);
  plan.set_lanes(lanes);
  plan.set_scheme_version(scheme);
  return plan;
}

constexpr char kData[] = "train { files: 'a' files: 'b*' } criteo {} batch_size: 64 ";

// Files that a run may have cut by rule 2 or by the present one.
TrainFiles FilesOf(const std::string& description) {
  return {.description = description, .cuts_by = [](int scheme) { return scheme == 2 || scheme == kStreamScheme; }};
}

v1::CheckpointManifest Manifest() {
  v1::CheckpointManifest manifest;
  manifest.set_seed(5);
  manifest.set_lanes(8);
  manifest.set_scheme_version(1);
  manifest.set_step(7);
  manifest.mutable_trainers()->set_stream_scheme(2);
  google::protobuf::TextFormat::PrintToString(JobOf(kData), manifest.mutable_job_text());
  return manifest;
}

absl::Status Check(const std::string& data, const v1::Plan& plan, const v1::CheckpointManifest& manifest = Manifest()) {
  return CheckResumable("dir/step-1", manifest, JobOf(data), plan, FilesOf(""));
}

TEST(ResumeCheckTest, WhatDecidesTheBitsMustBeAsItWas) {
  const v1::Plan plan = PlanOf(5, 8, 1);
  EXPECT_TRUE(Check(kData, plan).ok());
  const std::pair<absl::Status, const char*> wrong[] = {
      {Check(kData, PlanOf(6, 8, 1)), "train.seed 5, the job says 6"},
      {Check(kData, PlanOf(5, 16, 1)), "train.lanes 8, the job says 16"},
      {Check(kData, PlanOf(5, 8, 2)), "the placement scheme 1, the job says 2"},
      {Check("train { files: 'a' files: 'b*' } criteo {} batch_size: 128", plan),
       "data.batch_size 64, the job says 128"},
      {Check(std::string(kData) + "shuffle: NO_SHUFFLE", plan), "data.shuffle ALL, the job says NO_SHUFFLE"},
      {Check(std::string(kData) + "shuffle_memory_mb: 1", plan), "data.shuffle_memory_mb 2048, the job says 1"},
      {Check(std::string(kData) + "shuffle_window: 9", plan), "data.shuffle_window 0, the job says 9"},
      {Check(std::string(kData) + "drop_last: true", plan), "data.drop_last false, the job says true"},
      {Check(std::string(kData) + "dense { transform: LOG1P }", plan), "data.dense.transform NONE, the job says LOG1P"},
      {Check(std::string(kData) + "ids { shared: 'cat' }", plan), "data.ids.shared[0] not set, the job says \"cat\""},
      {Check("train { files: 'a' files: 'b*' where { of: 'C1' value: '7' } } criteo {} batch_size: 64", plan),
       "data.train.where[0].of not set, the job says \"C1\""},
      {Check(std::string(kData) + "derived { name: 'x' hash { of: 'C1' } }", plan), "data.derived[0]"},
      {Check(std::string(kData) + "ids { min_count: 3 }", plan), "data.ids.min_count 0, the job says 3"},
      {Check("train { files: 'a' files: 'b*' } criteo { integers: 4 } batch_size: 64", plan),
       "data.criteo.integers 13, the job says 4"},
      {Check("train { files: 'a' files: 'b*' } multi_slot {} batch_size: 64", plan),
       "data.criteo set, the job says not set"},
      {Check("train { files: 'a' } criteo {} batch_size: 64", plan), "data.train.files [a, b*], the job says [a]"}};
  v1::JobConfig accumulating = JobOf(kData);
  accumulating.mutable_train()->set_accumulate_steps(4);
  EXPECT_THAT(std::string(CheckResumable("dir/step-1", Manifest(), accumulating, plan, FilesOf("")).message()),
              HasSubstr("train.accumulate_steps 1, the job says 4"));
  v1::JobConfig working = JobOf(kData);
  working.mutable_train()->set_workers(2);
  EXPECT_THAT(std::string(CheckResumable("dir/step-1", Manifest(), working, plan, FilesOf("")).message()),
              HasSubstr("train.workers 1, the job says 2"));
  v1::JobConfig async = JobOf(kData);
  async.mutable_distribute()->set_sync(false);
  EXPECT_THAT(std::string(CheckResumable("dir/step-1", Manifest(), async, plan, FilesOf("")).message()),
              HasSubstr("distribute.sync true, the job says false"));
  for (const auto& [status, text] : wrong) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(text), HasSubstr("dir/step-1"), HasSubstr("without --resume")));
  }
}

TEST(ResumeCheckTest, ARunGoesOnOnlyByTheRuleThatCutItsStreams) {
  v1::CheckpointManifest manifest = Manifest();
  manifest.mutable_trainers()->set_stream_scheme(1);
  const absl::Status status = Check(kData, PlanOf(5, 8, 1), manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("dir/step-1"),
                    HasSubstr("streams by rule 1, which this one does not know for them; it has rule 4"),
                    HasSubstr("without --resume")));
  // Of other files it is said that they are others.
  const auto check = [&](int was, const std::string& now) {
    v1::CheckpointManifest of = Manifest();
    of.mutable_trainers()->set_stream_scheme(was);
    of.set_train_data("a: 10 bytes, xxh3 0000000000000001\n");
    return std::string(CheckResumable("dir/step-1", of, JobOf(kData), PlanOf(5, 8, 1), FilesOf(now)).message());
  };
  const std::string same = "a: 10 bytes, xxh3 0000000000000001\n", other = "a: 10 bytes, xxh3 0000000000000002\n";
  EXPECT_EQ(check(2, same), "");
  EXPECT_EQ(check(4, same), "");
  EXPECT_THAT(check(3, same), HasSubstr("streams by rule 3, which this one does not know for them"));
  EXPECT_THAT(check(5, same), HasSubstr("streams by rule 5"));
  EXPECT_THAT(check(3, other), HasSubstr("was trained on other files"));
  // Before the first step no data has been read.
  manifest.set_step(0);
  EXPECT_TRUE(Check(kData, PlanOf(5, 8, 1), manifest).ok());
}

TEST(ResumeCheckTest, FilesAreComparedByWhatIsInThemAndNotByTheirNames) {
  const v1::Plan plan = PlanOf(5, 8, 1);
  v1::CheckpointManifest manifest = Manifest();
  manifest.set_train_data("a: 10 bytes, xxh3 0000000000000001\nb1: 20 bytes, xxh3 0000000000000002\n");
  const auto check = [&](const std::string& now) {
    return CheckResumable("dir/step-1", manifest, JobOf("train { files: 'elsewhere/*' } criteo {} batch_size: 64"),
                          plan, FilesOf(now));
  };
  EXPECT_TRUE(
      check("elsewhere/a: 10 bytes, xxh3 0000000000000001\nelsewhere/b: 20 bytes, xxh3 0000000000000002\n").ok());
  for (const auto& [now, text] :
       {std::pair{"a: 10 bytes, xxh3 0000000000000001\n", "1 files here, 2 there; 'b1' is only there"},
        std::pair{"a: 10 bytes, xxh3 0000000000000001\nb1: 21 bytes, xxh3 0000000000000002\n",
                  "'b1' has 21 bytes here, 20 bytes there"},
        std::pair{"a: 10 bytes, gzip, xxh3 0000000000000001\nb1: 20 bytes, xxh3 0000000000000002\n",
                  "'a' has 10 bytes, gzip here, 10 bytes there"},
        std::pair{"a: 10 bytes, xxh3 0000000000000001\nb1: 20 bytes, xxh3 0000000000000003\n",
                  "'b1' here and there have 20 bytes each and other contents"}}) {
    EXPECT_EQ(check(now).code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(check(now).message()),
                AllOf(HasSubstr(text), HasSubstr("dir/step-1"), HasSubstr("table.load")));
  }
}

TEST(ResumeCheckTest, WhatDoesNotMayChange) {
  EXPECT_TRUE(
      Check(std::string(kData) + "prefetch_batches: 7 bad_line: SKIP eval { files: 'c' }", PlanOf(5, 8, 1)).ok());
  // The job of another build may have fields that this build does not know.
  v1::CheckpointManifest manifest = Manifest();
  manifest.mutable_job_text()->append("nothing_we_know: 3\n");
  EXPECT_TRUE(Check(kData, PlanOf(5, 8, 1), manifest).ok());
  EXPECT_FALSE(Check("train { files: 'a' } criteo {}", PlanOf(5, 8, 1), manifest).ok());
}

}  // namespace
}  // namespace weir
