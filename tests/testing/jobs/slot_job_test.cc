#include "tests/testing/jobs/slot_job_test.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/testing/jobs/slot_job.h"

namespace weir {

void SlotJobTest::SetUpTestSuite() {
  dir_ = ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_suite()->name();
  std::filesystem::remove_all(dir_);
  std::filesystem::create_directories(dir_);
  WriteSlotData(dir_);
}

void SlotJobTest::TearDownTestSuite() { std::filesystem::remove_all(dir_); }

absl::StatusOr<InProcessResult> SlotJobTest::TryRun(InProcessRun run) {
  if (run.job_text.empty()) run.job_text = kSlotJob;
  run.directory = dir_;
  return TrainInProcess(run);
}

InProcessResult SlotJobTest::Run(InProcessRun run) {
  absl::StatusOr<InProcessResult> result = TryRun(std::move(run));
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : InProcessResult();
}

int64_t SlotJobTest::Count(const InProcessResult& result, const std::string& name) {
  int64_t sum = 0;
  for (const auto& counters : result.server_counters) {
    const auto found = counters.find(name);
    EXPECT_TRUE(found != counters.end()) << name;
    if (found != counters.end()) sum += found->second;
  }
  return sum;
}

std::vector<std::string> SlotJobTest::EvalLines(const InProcessResult& result) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(result.output, '\n')) {
    if (absl::StartsWith(line, "eval ")) lines.emplace_back(line);
  }
  return lines;
}

std::map<std::string, double> SlotJobTest::Figures(const std::string& line) {
  std::map<std::string, double> figures;
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    const size_t equal = word.rfind('=');
    double value = 0;
    if (equal != absl::string_view::npos && absl::SimpleAtod(word.substr(equal + 1), &value)) {
      figures[std::string(word.substr(0, equal))] = value;
    }
  }
  return figures;
}

}  // namespace weir
