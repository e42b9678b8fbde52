// Times `checkpoint report` beside `checkpoint verify` on a checkpoint that it makes: rows of Adagrad or Adam with the
// words of an eviction, on as many servers as asked for. Checks the report against sums of the rows it has written.
//
//   bazel run -c opt //tests/bench:report_bench -- --dir=/tmp/report_bench --rows=10000000 --turns=5
//
// The checkpoint stays in --dir, where `checkpoint report` finds it; a second run uses it again.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/shard.h"
#include "glog/logging.h"
#include "tools/reporting/report.h"

ABSL_FLAG(std::string, dir, "", "directory of checkpoints to make and to keep");
ABSL_FLAG(int64_t, rows, 10'000'000, "rows of the table");
ABSL_FLAG(int, width, 16, "floats of values");
ABSL_FLAG(bool, adam, false, "state of Adam instead of Adagrad");
ABSL_FLAG(int, servers, 2, "shard files");
ABSL_FLAG(int, turns, 5, "measurements of each");

namespace weir {
namespace {

constexpr int64_t kSteps = 1000;
constexpr int kLogicalShards = 4096;

// Bits that look random, of row i and number j.
uint64_t Bits(int64_t i, int j) { return MixId(static_cast<uint64_t>(i) * 64 + static_cast<uint64_t>(j)); }
float Signed(uint64_t bits) { return static_cast<float>(static_cast<int32_t>(bits >> 32)) * 0x1p-31f; }

// A count that falls with the number of the row, as in clicks: few rows have most of it.
uint32_t CountOf(int64_t i) { return static_cast<uint32_t>(1 + kSteps / (1 + i / 16)); }

TableLayout Layout() {
  const int width = absl::GetFlag(FLAGS_width);
  TableLayout layout{.table = "vectors", .width = width, .logical_shards = kLogicalShards};
  if (absl::GetFlag(FLAGS_adam)) {
    layout.states = {{"moment1", width}, {"moment2", width}, {"step", 1}};
  } else {
    layout.states = {{"moment", width}};
  }
  layout.states.emplace_back("lifecycle.count", 1);
  layout.states.emplace_back("lifecycle.step", 1);
  return layout;
}

std::string JobText() {
  return absl::StrCat("name: \"bench\" optimizer { ", absl::GetFlag(FLAGS_adam) ? "adam" : "adagrad",
                      " {} } table { name: \"vectors\" width: ", absl::GetFlag(FLAGS_width),
                      " is_sparse: true is_distributed: true dict_size: ", 2 * absl::GetFlag(FLAGS_rows),
                      " lifecycle { when_full: EVICT_LEAST_FREQUENT } }");
}

void SetRow(int64_t i, const TableLayout& layout, std::vector<float>* row) {
  row->clear();
  for (int c = 0; c < layout.width; ++c) row->push_back(Signed(Bits(i, c)) * 0.25f);
  int j = layout.width;
  for (const auto& [name, width] : layout.states) {
    for (int c = 0; c < width; ++c, ++j) {
      if (name == "lifecycle.count") {
        row->push_back(std::bit_cast<float>(CountOf(i)));
      } else if (name == "lifecycle.step") {
        row->push_back(std::bit_cast<float>(static_cast<uint32_t>(Bits(i, j) % kSteps)));
      } else if (name == "step") {
        row->push_back(static_cast<float>(CountOf(i)));
      } else {
        row->push_back(std::fabs(Signed(Bits(i, j))));
      }
    }
  }
}

absl::Status Make(const std::string& dir) {
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  const int servers = absl::GetFlag(FLAGS_servers);
  const TableLayout layout = Layout();
  // In the order of logical shards, as servers write them.
  std::vector<std::pair<uint64_t, int64_t>> order;
  order.reserve(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) order.emplace_back(MixId(static_cast<uint64_t>(i)), i);
  std::sort(order.begin(), order.end());
  ASSIGN_OR_RETURN(const std::string temporary, BeginCheckpoint(dir, kSteps));
  v1::CheckpointManifest manifest;
  manifest.set_job("bench");
  manifest.set_job_text(JobText());
  manifest.set_step(kSteps);
  std::vector<float> row;
  size_t next = 0;
  for (int s = 0; s < servers; ++s) {
    ASSIGN_OR_RETURN(const std::unique_ptr<ShardWriter> writer,
                     ShardWriter::Create(absl::StrCat(dir, "/", temporary, "/", ShardFileName(s))));
    RETURN_IF_ERROR(writer->BeginTable(layout));
    for (; next < order.size(); ++next) {
      const int64_t id = order[next].second;
      if (ShardServer(LogicalShard(id, kLogicalShards), kLogicalShards, servers) != s) break;
      SetRow(id, layout, &row);
      RETURN_IF_ERROR(writer->AddRow(id, row));
    }
    RETURN_IF_ERROR(writer->EndTable());
    ASSIGN_OR_RETURN(*manifest.add_shards(), writer->Finish());
  }
  return PublishCheckpoint(dir, temporary, std::move(manifest)).status();
}

// Compares the report with the rows themselves.
void Check(const v1::CheckpointReport& report) {
  CHECK_EQ(report.table_size(), 1);
  const v1::TableReport& table = report.table(0);
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  const TableLayout layout = Layout();
  std::vector<float> row;
  double norms = 0, counts = 0;
  int64_t once = 0;
  for (int64_t i = 0; i < rows; ++i) {
    SetRow(i, layout, &row);
    double squares = 0;
    for (int c = 0; c < layout.width; ++c)
      squares += static_cast<double>(row[static_cast<size_t>(c)]) * row[static_cast<size_t>(c)];
    norms += std::sqrt(squares);
    counts += CountOf(i);
    once += CountOf(i) <= 1 ? 1 : 0;
  }
  CHECK_EQ(table.rows(), rows);
  CHECK_EQ(table.training().at_most_once(), once);
  CHECK_EQ(table.hottest().counts(), counts);
  CHECK_LT(std::fabs(table.norm().mean() - norms / static_cast<double>(rows)), 1e-7);
}

absl::Status Run(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/", StepDirectoryName(kSteps));
  if (!PathExists(path)) RETURN_IF_ERROR(Make(dir));
  ThreadPool pool("report", UsableCores() - 1);
  std::vector<double> verifies, reports;
  for (int turn = 0; turn < absl::GetFlag(FLAGS_turns); ++turn) {
    const absl::Time begin = Clock::Real()->Now();
    ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, VerifyCheckpoint(path));
    ASSIGN_OR_RETURN(const DigestTable digests, CheckpointDigests(path, manifest));
    CHECK_EQ(Total(digests).values, manifest.values_digest());
    const absl::Time middle = Clock::Real()->Now();
    ASSIGN_OR_RETURN(v1::CheckpointManifest sized, VerifyCheckpoint(path, /*sizes_only=*/true));
    const NewestCheckpoint opened = {.found = {.path = path}, .manifest = std::move(sized)};
    ASSIGN_OR_RETURN(const v1::CheckpointReport report, ReportOn(opened, {.check_sums = true, .pool = &pool}));
    const absl::Time end = Clock::Real()->Now();
    if (turn == 0) Check(report);
    verifies.push_back(absl::ToDoubleSeconds(middle - begin));
    reports.push_back(absl::ToDoubleSeconds(end - middle));
    std::printf("verify %.2f s, report %.2f s, ratio %.2f\n", verifies.back(), reports.back(),
                reports.back() / verifies.back());
  }
  std::sort(verifies.begin(), verifies.end());
  std::sort(reports.begin(), reports.end());
  if (!reports.empty()) {
    std::printf("median: verify %.2f s, report %.2f s, ratio %.2f, on %d cores\n", verifies[verifies.size() / 2],
                reports[reports.size() / 2], reports[reports.size() / 2] / verifies[verifies.size() / 2],
                UsableCores());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const std::string dir = absl::GetFlag(FLAGS_dir);
  if (dir.empty()) LOG(FATAL) << "--dir names a directory with room for the checkpoint";
  const absl::Status status = weir::Run(dir);
  if (!status.ok()) std::fprintf(stderr, "report_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
