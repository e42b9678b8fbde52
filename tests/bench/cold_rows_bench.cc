// A table ten times its memory: rows of 16 floats with Adagrad's 16 beside them, Zipf 1.05 ids, the rest on disk.
// Distinct rows a second of a pull, and of a pull with the update behind it, through the calls that a server makes;
// beside them the same with all rows in memory. Values are checked in every pull.
//
//   bazel run //tests/bench:cold_rows_bench -- --dir=/where/the/disk/is
//
// With --direct_io the system caches nothing: every row that is not in the table's memory is read from the disk.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/row_rule.h"
#include "glog/logging.h"
#include "pserver/tables/cold_rows.h"
#include "pserver/tables/sparse_table.h"

ABSL_FLAG(std::string, dir, "/tmp", "For a directory of rows, which goes at the end.");
ABSL_FLAG(int64_t, rows, 10'000'000, "Of the table.");
ABSL_FLAG(double, times, 10, "The table is so many times its memory.");
ABSL_FLAG(int, ids, 4096 * 26, "Drawn for a batch; distinct ones are pulled.");
ABSL_FLAG(int, repetitions, 60, "Of each measure.");
ABSL_FLAG(int, threads, 2, "");
ABSL_FLAG(bool, direct_io, false, "Read past the system's cache.");
ABSL_FLAG(bool, memory, true, "Also with all rows in memory.");

namespace weir {
namespace {

constexpr int kWidth = 16;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool ByMix(int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); }

// Gradients are zero, so a row keeps its values, which say whose they are.
float ValueOf(int64_t id, int column) { return static_cast<float>((id * 31 + column * 7) % 1000003); }

std::unique_ptr<SparseTable> MakeTable(int64_t memory_bytes) {
  auto rule = RowRuleRegistry::Global().Make(
      MakeOp("adagrad", {{"Param", {"t"}}, {"Grad", {"t@GRAD"}}, {"LearningRate", {"lr"}}, {"Moment", {"t.moment"}}},
             {{"ParamOut", {"t"}}, {"MomentOut", {"t.moment"}}}));
  CHECK(rule.ok()) << rule.status();
  v1::Initializer zero;
  zero.mutable_constant()->set_value(0);
  SparseTableOptions options{.name = "t", .width = kWidth, .stripes = 16, .initializer = RowInitializer(zero, 1, "t")};
  options.rule = *std::move(rule);
  if (memory_bytes > 0) {
    options.disk.memory_bytes = memory_bytes;
    options.disk.open = [memory_bytes](int64_t row_bytes) {
      return OpenColdRows({.table = "t",
                           .directory = absl::StrCat(absl::GetFlag(FLAGS_dir), "/cold_rows_bench.", getpid()),
                           .row_bytes = row_bytes,
                           .memory_bytes = memory_bytes / 8,
                           .direct_io = absl::GetFlag(FLAGS_direct_io)});
    };
  }
  auto table = SparseTable::Create(std::move(options));
  CHECK(table.ok()) << table.status();
  return *std::move(table);
}

void Fill(SparseTable* table, int64_t rows) {
  const double begin = Now();
  std::vector<int64_t> ids;
  std::vector<float> values;
  constexpr int64_t kRun = 20'000;
  for (int64_t first = 0; first < rows; first += kRun) {
    ids.clear();
    for (int64_t id = first; id < std::min(rows, first + kRun); ++id) ids.push_back(id);
    std::sort(ids.begin(), ids.end(), ByMix);
    values.assign(ids.size() * 2 * kWidth, 0.1f);
    for (size_t i = 0; i < ids.size(); ++i) {
      for (int j = 0; j < kWidth; ++j) values[i * 2 * kWidth + static_cast<size_t>(j)] = ValueOf(ids[i], j);
    }
    const absl::Status set = table->AddRows(ids, values.data());
    CHECK(set.ok()) << set;
  }
  std::printf("  filled with %.0f M rows, %.2f M rows/s\n", 1e-6 * static_cast<double>(rows),
              1e-6 * static_cast<double>(rows) / (Now() - begin));
}

class Zipf {
 public:
  Zipf(int64_t n, double s) {
    double sum = 0;
    for (int64_t i = 1; i <= n; ++i) sums_.push_back(sum += std::pow(static_cast<double>(i), -s));
  }
  int64_t operator()(std::mt19937_64& random) const {
    const double u = std::uniform_real_distribution<double>(0, sums_.back())(random);
    return std::lower_bound(sums_.begin(), sums_.end(), u) - sums_.begin();
  }

 private:
  std::vector<double> sums_;
};

void Measure(SparseTable* table, const Zipf& zipf, bool update, ThreadPool* pool) {
  std::mt19937_64 random(update ? 2 : 1);
  std::vector<float> out, grads;
  std::vector<double> seconds, rates;
  int64_t rows = 0;
  double sum = 0;
  SparseTable::Counts before;
  ColdRows::Counts disk_before;
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  // The first half of the repetitions is not timed: it fills memory with the most frequent rows.
  for (int r = -repetitions; r < repetitions; ++r) {
    if (r == 0) {
      before = table->counts();
      if (table->disk() != nullptr) disk_before = table->disk()->counts();
    }
    std::vector<int64_t> ids(static_cast<size_t>(absl::GetFlag(FLAGS_ids)));
    for (int64_t& id : ids) id = zipf(random);
    std::sort(ids.begin(), ids.end(), ByMix);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    out.resize(ids.size() * kWidth);
    grads.assign(ids.size() * kWidth, 0.0f);
    const double begin = Now();
    const absl::Status pulled = table->Pull(ids, /*create=*/false, out.data(), pool);
    const double end = Now();
    CHECK(pulled.ok()) << pulled;
    for (size_t i = 0; i < ids.size(); ++i) {
      for (int j = 0; j < kWidth; ++j) CHECK_EQ(out[i * kWidth + static_cast<size_t>(j)], ValueOf(ids[i], j)) << ids[i];
    }
    double took = end - begin;
    if (update) {
      const double again = Now();
      const absl::Status updated = table->Update(ids, grads.data(), 1, 0.1f, pool);
      took += Now() - again;
      CHECK(updated.ok()) << updated;
    }
    if (r < 0) continue;
    rows += static_cast<int64_t>(ids.size());
    sum += took;
    seconds.push_back(took);
    rates.push_back(static_cast<double>(ids.size()) / took);
  }
  std::sort(rates.begin(), rates.end());
  std::sort(seconds.begin(), seconds.end());
  std::printf("  %-13s %8.0f distinct rows a batch: median %5.2f M rows/s, mean %5.2f; p50 %.1f ms, worst %.1f ms\n",
              update ? "pull, update" : "pull", static_cast<double>(rows) / repetitions, 1e-6 * rates[rates.size() / 2],
              1e-6 * static_cast<double>(rows) / sum, 1e3 * seconds[seconds.size() / 2], 1e3 * seconds.back());
  if (table->disk() == nullptr) return;
  const SparseTable::Counts after = table->counts();
  const ColdRows::Counts disk = table->disk()->counts();
  std::printf(
      "    %.1f %% of the rows were in memory (%lld of %lld); a batch read %.0f rows from disk and wrote %.0f back\n",
      100 - 100 * static_cast<double>(after.read - before.read) / static_cast<double>(rows),
      static_cast<long long>(after.in_memory), static_cast<long long>(after.rows),
      static_cast<double>(after.read - before.read) / repetitions,
      static_cast<double>(after.written - before.written) / repetitions);
  std::printf("    disk: %.0f MB of files, %.0f MB of memory, %.0f MB rewritten, %.1f s of stalls\n",
              1e-6 * static_cast<double>(disk.disk_bytes), 1e-6 * static_cast<double>(disk.memory_bytes),
              1e-6 * static_cast<double>(disk.rewritten_bytes - disk_before.rewritten_bytes),
              disk.stalled_s - disk_before.stalled_s);
}

void Run() {
  const int64_t rows = absl::GetFlag(FLAGS_rows);
  // Id, values, state, index.
  const double bytes = static_cast<double>(rows) * (8 + 2 * kWidth * 4 + 6);
  const Zipf zipf(rows, 1.05);
  ThreadPool pool("bench", absl::GetFlag(FLAGS_threads) - 1);
  for (const bool disk : {false, true}) {
    if (!disk && !absl::GetFlag(FLAGS_memory)) continue;
    const auto memory = static_cast<int64_t>(bytes / absl::GetFlag(FLAGS_times));
    std::printf("%s\n", disk ? absl::StrCat(memory >> 20, " MiB of memory, the rest on disk",
                                            absl::GetFlag(FLAGS_direct_io) ? ", past the system's cache" : "")
                                   .c_str()
                             : "all in memory");
    const std::unique_ptr<SparseTable> table = MakeTable(disk ? memory : 0);
    Fill(table.get(), rows);
    for (const bool update : {false, true}) Measure(table.get(), zipf, update, &pool);
    std::printf("  memory of the table: %.0f MB\n", 1e-6 * static_cast<double>(table->bytes()));
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  weir::Run();
}
