// Settings of jobs that docs/coming_from.md shows are settings that a job takes: each is put into a small job, which is
// then read and checked.

#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "tests/testing/jobs/pictures.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

constexpr char kJob[] = R"(
name: "small"
data { train { files: "train.tsv" } criteo {} batch_size: 64 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "t" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "logit" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { adam { learning_rate: 0.01 } }
train { lanes: 8 }
)";
constexpr char kTable[] = R"(table { name: "t" width: 8 is_sparse: true is_distributed: true })";

// Returns the parts of a document in backquotes that are settings of a job, whole ones only.
std::vector<std::string> SettingsIn(const std::string& document) {
  static const std::regex pattern(
      R"re(`((?:data|table|optimizer|distribute|train|checkpoint|deadlines|comm) \{[^`]*\})`)re");
  std::vector<std::string> settings;
  for (std::sregex_iterator it(document.begin(), document.end(), pattern), end; it != end; ++it) {
    if (!absl::StrContains(it->str(1), "...")) settings.push_back((*it)[1]);
  }
  return settings;
}

// Returns the error of the small job with the settings, with dense parameters all-reduced if `more` says so.
absl::Status Try(const std::string& settings, const std::string& more) {
  v1::JobConfig job, added;
  for (const std::string& text : {std::string(kJob), more}) {
    google::protobuf::TextFormat::MergeFromString(text, &job);
  }
  if (!google::protobuf::TextFormat::ParseFromString(settings, &added)) {
    return absl::InvalidArgumentError("not settings of a job");
  }
  job.MergeFrom(added);
  if (job.table_size() == 0) google::protobuf::TextFormat::MergeFromString(kTable, &job);
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  return ParseJob(text, "job.textproto", {}).status();
}

absl::Status Try(const std::string& settings) {
  const absl::Status status = Try(settings, "");
  // Some say nothing unless dense parameters are all-reduced.
  return status.ok() ? status : Try(settings, "distribute { servers: 0 dense: ALL_REDUCE }");
}

TEST(ComingFromTest, EverySettingIsOneThatAJobTakes) {
  const std::vector<std::string> settings = SettingsIn(ContentsOf("docs/coming_from.md"));
  EXPECT_GT(settings.size(), 50u);
  for (const std::string& each : settings) {
    const absl::Status status = Try(each);
    EXPECT_TRUE(status.ok()) << each << "\n" << status;
  }
}

// The check above can fail.
TEST(ComingFromTest, ASettingThatNoJobTakesIsFound) {
  EXPECT_THAT(SettingsIn("`distribute { sync: false }` `a { b }` `train { ... }` train { x: 1 } `distribute.sync`"),
              ::testing::ElementsAre("distribute { sync: false }"));
  EXPECT_TRUE(Try("distribute { sync: false }").ok()) << Try("distribute { sync: false }");
  EXPECT_FALSE(Try("distribute { sink: false }").ok());
  EXPECT_FALSE(Try("distribute { mode: NCCL2 sync: false }").ok());
}

}  // namespace
}  // namespace weir
