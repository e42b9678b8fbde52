// Embedding tables in process, through the calls that a server makes (Pull without making rows, UpdateStripe):
// look-ups, Adagrad updates, one thread and two, uniform and Zipf 1.05 ids; and, with --fill, how memory and pauses go
// while a table grows. Each measure checks its result first, and has its ceiling beside it: a gather of rows of the
// same size at random places, and a copy of memory.
//
//   bazel run //tests/bench:embedding_bench
//   bazel run //tests/bench:embedding_bench -- --fill=100000000
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/row_rule.h"
#include "glog/logging.h"
#include "pserver/tables/sparse_table.h"

ABSL_FLAG(int64_t, fill, 0, "Rows of the fill test; 0 leaves it out. 100 million need 5 GB.");
ABSL_FLAG(int, repetitions, 60, "Of each measure; the median is printed.");
ABSL_FLAG(bool, ten_million, true, "Also with tables of 10 million rows, which need 1.5 GB.");
ABSL_FLAG(bool, two_threads, true, "Also with two threads.");
ABSL_FLAG(bool, only_ten, false, "Only with tables of 10 million rows.");
ABSL_FLAG(int, stripes, 64, "Of the tables.");

namespace weir {
namespace {

constexpr int kWidth = 16;
// 26 ids of 2048 examples.
constexpr size_t kIds = 26 * 2048;
constexpr size_t kBatches = 32;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double Median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

int64_t ResidentBytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

v1::Initializer Uniform() {
  v1::Initializer init;
  init.mutable_uniform()->set_min(-1);
  init.mutable_uniform()->set_max(1);
  return init;
}

// "adagrad", or "adagrad_per_row": one accumulator for the whole row.
std::unique_ptr<RowRule> Adagrad(const char* type) {
  auto rule = RowRuleRegistry::Global().Make(
      MakeOp(type, {{"Param", {"t"}}, {"Grad", {"t@GRAD"}}, {"LearningRate", {"lr"}}, {"Moment", {"t.moment"}}},
             {{"ParamOut", {"t"}}, {"MomentOut", {"t.moment"}}}));
  CHECK(rule.ok()) << rule.status();
  return *std::move(rule);
}

std::unique_ptr<SparseTable> MakeTable(int width, std::unique_ptr<RowRule> rule) {
  auto table = SparseTable::Create({.name = "t",
                                    .width = width,
                                    .stripes = absl::GetFlag(FLAGS_stripes),
                                    .initializer = RowInitializer(Uniform(), 1, "t"),
                                    .rule = std::move(rule)});
  CHECK(table.ok()) << table.status();
  return *std::move(table);
}

bool ByMix(int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); }

// Distinct, in the order in which clients send them.
std::vector<int64_t> Sorted(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end(), ByMix);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Zipf over [0, n) by inversion of a table of sums.
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

using Batches = std::vector<std::vector<int64_t>>;
Batches MakeBatches(const std::function<int64_t()>& next) {
  Batches batches;
  for (size_t b = 0; b < kBatches; ++b) {
    std::vector<int64_t> ids(kIds);
    for (int64_t& id : ids) id = next();
    batches.push_back(Sorted(std::move(ids)));
  }
  return batches;
}

// One thing to measure: a rate of ids, on `ceiling`'s right.
struct Measure {
  std::string name;
  const Batches* batches;
  std::function<void(const std::vector<int64_t>&)> run;
  int ceiling = -1;  // the measure that cannot be beaten
  int threads = 1;
  std::vector<double> wall, cpu;  // million ids a second
};

double ThreadSeconds() {
  timespec t;
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// All measures in turn, ten repetitions at a time, so that what else the machine does meets them alike and none begins
// with another's cache. Printed: medians by the wall clock and, of one thread, by its processor time; the best; and the
// share of the ceiling's median (processor time).
void Run(std::vector<Measure>* measures) {
  const int rounds = (std::max(1, absl::GetFlag(FLAGS_repetitions)) + 9) / 10;
  for (int round = 0; round < rounds; ++round) {
    for (Measure& m : *measures) {
      for (int r = -2; r < 10; ++r) {
        const std::vector<int64_t>& ids = (*m.batches)[static_cast<size_t>(10 * round + r + 2) % m.batches->size()];
        const double n = 1e-6 * static_cast<double>(ids.size());
        const double start = Now(), cpu = ThreadSeconds();
        m.run(ids);
        if (r < 0) continue;
        m.cpu.push_back(n / (ThreadSeconds() - cpu));
        m.wall.push_back(n / (Now() - start));
      }
    }
  }
  for (const Measure& m : *measures) {
    std::printf("%-50s %6.1f M/s  best %6.1f", m.name.c_str(), Median(m.wall),
                *std::max_element(m.wall.begin(), m.wall.end()));
    if (m.threads == 1) std::printf("  of processor time %6.1f", Median(m.cpu));
    if (m.ceiling >= 0) {
      const double ceiling = Median((*measures)[static_cast<size_t>(m.ceiling)].cpu) * m.threads;
      std::printf("  %3.0f %% of the ceiling", 100 * (m.threads == 1 ? Median(m.cpu) : Median(m.wall)) / ceiling);
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

// Measures the memory alone: rows of `bytes` at random places of an array of `rows`, the used part of each prefetched
// and copied out (or, for writes, changed in place).
class Gather {
 public:
  Gather(int64_t rows, int64_t bytes)
      : bytes_(bytes),
        size_((static_cast<size_t>(rows * bytes) + (2 << 20)) >> 21 << 21),
        memory_(static_cast<char*>(std::aligned_alloc(2 << 20, size_))),
        out_(kIds * static_cast<size_t>(bytes)) {
    (void)madvise(memory_.get(), size_, MADV_HUGEPAGE);
    std::memset(memory_.get(), 0, size_);
  }
  void Run(const std::vector<int64_t>& ids, int64_t used, bool write) {
    constexpr size_t kAhead = 16;
    for (size_t i = 0; i < ids.size() + kAhead; ++i) {
      if (i < ids.size()) {
        const char* const row = memory_.get() + ids[i] * bytes_;
        for (int64_t at = 0; at < used; at += 64) __builtin_prefetch(row + at);
        __builtin_prefetch(row + used - 1);
      }
      if (i < kAhead) continue;
      char* const row = memory_.get() + ids[i - kAhead] * bytes_;
      if (write) {
        auto* const floats = reinterpret_cast<float*>(row);
        for (int64_t j = 0; j < used / 4; ++j) floats[j] += 1;
      } else {
        std::memcpy(out_.data() + (i - kAhead) * static_cast<size_t>(used), row, static_cast<size_t>(used));
      }
    }
  }

 private:
  struct Release {
    void operator()(char* memory) const { std::free(memory); }
  };
  const int64_t bytes_;
  const size_t size_;
  std::unique_ptr<char, Release> memory_;
  std::vector<char> out_;
};

double CopyGigabytes() {
  std::vector<char> from(size_t{256} << 20, 1), to(from.size());
  std::vector<double> all;
  for (int r = 0; r < 10; ++r) {
    const double start = Now();
    std::memcpy(to.data(), from.data(), from.size());
    all.push_back(static_cast<double>(from.size()) / (Now() - start) * 1e-9);
  }
  CHECK_EQ(to[12345], 1);
  return Median(all);
}

// Updates rows like ServerParams::ApplyStripe: the distinct ids of each stripe, a pointer to each gradient.
class Updater {
 public:
  explicit Updater(SparseTable* table) : table_(table), grads_(kIds * kWidth, 0.01f) {
    for (size_t i = 0; i < kIds; ++i) pointers_.push_back(grads_.data() + i * kWidth);
  }
  void Run(const std::vector<int64_t>& ids, ThreadPool* pool) {
    const auto begin = [&](int stripe) {
      if (stripe == table_->stripes()) return ids.size();
      const uint64_t first = table_->StripeBegin(stripe);
      return static_cast<size_t>(
          std::partition_point(ids.begin(), ids.end(),
                               [&](int64_t id) { return MixId(static_cast<uint64_t>(id)) < first; }) -
          ids.begin());
    };
    const auto run = [&](int64_t s) {
      const size_t from = begin(static_cast<int>(s)), to = begin(static_cast<int>(s) + 1);
      CHECK(table_
                ->UpdateStripe(static_cast<int>(s), absl::MakeConstSpan(ids).subspan(from, to - from),
                               pointers_.data() + from, 1, 0.1f)
                .ok());
    };
    if (pool != nullptr) return pool->ParallelFor(table_->stripes(), run);
    for (int s = 0; s < table_->stripes(); ++s) run(s);
  }

 private:
  SparseTable* const table_;
  std::vector<float> grads_;
  std::vector<const float*> pointers_;
};

void Rates(int64_t rows) {
  const std::unique_ptr<SparseTable> table = MakeTable(kWidth, Adagrad("adagrad"));
  std::vector<float> out(kIds * kWidth);
  {
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < rows; ++id) {
      ids.push_back(id);
      if (ids.size() < kIds && id + 1 < rows) continue;
      CHECK(table->Pull(ids, /*create=*/true, out.data(), nullptr).ok());
      ids.clear();
    }
  }
  CHECK_EQ(table->size(), rows);
  // A row is what the initializer says, an update what Adagrad says.
  Updater updater(table.get());
  std::vector<float> before(kWidth), after(kWidth);
  const std::vector<int64_t> probe = {rows / 3};
  CHECK(table->Pull(probe, false, before.data(), nullptr).ok());
  RowInitializer(Uniform(), 1, "t").Fill(probe[0], absl::MakeSpan(after));
  CHECK(before == after);
  updater.Run(probe, nullptr);
  CHECK(table->Pull(probe, false, after.data(), nullptr).ok());
  for (int j = 0; j < kWidth; ++j) CHECK_LT(std::abs(after[j] - (before[j] - 0.1f)), 1e-4f);

  std::mt19937_64 random(7);
  const Batches uniform = MakeBatches([&] { return static_cast<int64_t>(random() % static_cast<uint64_t>(rows)); });
  const Zipf zipf(rows, 1.05);
  const Batches skewed = MakeBatches([&] { return zipf(random); });
  const int64_t row_bytes = 8 + 2 * kWidth * 4;
  std::printf(
      "\n%.0f M rows of %d + %d floats, %.1f bytes a row of %ld; distinct ids of a batch: uniform %zu, Zipf %zu\n",
      static_cast<double>(rows) * 1e-6, kWidth, kWidth, static_cast<double>(table->bytes()) / static_cast<double>(rows),
      row_bytes, uniform[0].size(), skewed[0].size());
  Gather gather(rows, row_bytes - 8);
  ThreadPool two("bench", 1);
  const auto pull = [&](ThreadPool* pool) {
    return [&, pool](const std::vector<int64_t>& ids) { CHECK(table->Pull(ids, false, out.data(), pool).ok()); };
  };
  const auto update = [&](ThreadPool* pool) {
    return [&, pool](const std::vector<int64_t>& ids) { updater.Run(ids, pool); };
  };
  std::vector<Measure> measures;
  measures.push_back({"ceiling: gather of rows, the part of a look-up", &uniform,
                      [&](const std::vector<int64_t>& ids) { gather.Run(ids, kWidth * 4, false); }});
  measures.push_back({"ceiling: change of rows in place", &uniform,
                      [&](const std::vector<int64_t>& ids) { gather.Run(ids, row_bytes - 8, true); }});
  const size_t one_thread = measures.size();
  measures.push_back({"look-ups, uniform", &uniform, pull(nullptr), 0});
  measures.push_back({"Adagrad updates, uniform", &uniform, update(nullptr), 1});
  measures.push_back({"look-ups and Adagrad updates, uniform", &uniform, [&](const std::vector<int64_t>& ids) {
                        pull(nullptr)(ids);
                        update(nullptr)(ids);
                      }});
  measures.push_back({"look-ups, Zipf 1.05 (distinct)", &skewed, pull(nullptr)});
  measures.push_back({"Adagrad updates, Zipf 1.05 (distinct)", &skewed, update(nullptr)});
  const size_t two_threads = measures.size();
  if (absl::GetFlag(FLAGS_two_threads)) {
    measures.push_back({"look-ups, uniform, 2 threads", &uniform, pull(&two), 0, 2});
    measures.push_back({"Adagrad updates, uniform, 2 threads", &uniform, update(&two), 1, 2});
  }
  Run(&measures);
  if (absl::GetFlag(FLAGS_two_threads)) {
    std::printf("1 -> 2 threads: look-ups x %.2f, updates x %.2f\n",
                Median(measures[two_threads].wall) / Median(measures[one_thread].wall),
                Median(measures[two_threads + 1].wall) / Median(measures[one_thread + 1].wall));
  }
}

// Width 8 and one accumulator a row, ids from 10^11.
void Fill(int64_t rows) {
  constexpr int kFillWidth = 8;
  constexpr double kPayload = 8 + 4 * (kFillWidth + 1);
  const int64_t resident_before = ResidentBytes();
  const std::unique_ptr<SparseTable> table = MakeTable(kFillWidth, Adagrad("adagrad_per_row"));
  std::mt19937_64 random(9);
  std::vector<float> out(kIds * kFillWidth);
  std::vector<double> batch_ms, cpu_ms, rates;
  double worst = 0, at_worst = 0, inside = 0, cpu_inside = 0;
  int64_t asked = 0, next_report = 10'000'000;
  std::printf("\nfill: width 8 + 1, ids from 10^11, payload %.0f bytes a row\n", kPayload);
  while (table->size() < rows) {
    std::vector<int64_t> ids(kIds);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % 100'000'000'000u);
    ids = Sorted(std::move(ids));
    const int64_t before = table->size();
    const double start = Now(), cpu = ThreadSeconds();
    CHECK(table->Pull(ids, /*create=*/true, out.data(), nullptr).ok());
    const double seconds = Now() - start;
    inside += seconds;
    cpu_inside += ThreadSeconds() - cpu;
    cpu_ms.push_back(1000 * (ThreadSeconds() - cpu));
    asked += static_cast<int64_t>(ids.size());
    batch_ms.push_back(1000 * seconds);
    rates.push_back(static_cast<double>(table->size() - before) / seconds * 1e-6);
    if (table->size() >= 10'000'000) {
      const double ratio = static_cast<double>(table->bytes()) / (kPayload * static_cast<double>(table->size()));
      if (ratio > worst) {
        worst = ratio;
        at_worst = static_cast<double>(table->size());
      }
    }
    if (table->size() >= next_report || table->size() >= rows) {
      const double n = static_cast<double>(table->size());
      std::printf("  %5.0f M rows: %.3f x payload counted, %.3f x resident\n", n * 1e-6,
                  static_cast<double>(table->bytes()) / (kPayload * n),
                  static_cast<double>(ResidentBytes() - resident_before) / (kPayload * n));
      std::fflush(stdout);
      next_report += std::max<int64_t>(10'000'000, rows / 10);
    }
  }
  // Check that the created rows have the values of the initializer.
  std::vector<float> expected(kFillWidth), got(kFillWidth);
  std::mt19937_64 again(9);
  for (int i = 0; i < 1000; ++i) {
    const int64_t id = static_cast<int64_t>(again() % 100'000'000'000u);
    CHECK(table->Pull({id}, false, got.data(), nullptr).ok());
    RowInitializer(Uniform(), 1, "t").Fill(id, absl::MakeSpan(expected));
    CHECK(expected == got);
  }
  std::printf("  worst from 10 M on: %.3f x payload at %.1f M rows\n", worst, at_worst * 1e-6);
  std::printf("  %.2f M inserts/s, median of batches %.2f; %.2f by processor time\n",
              static_cast<double>(table->size()) / inside * 1e-6, Median(rates),
              static_cast<double>(table->size()) / cpu_inside * 1e-6);
  for (auto& [what, ms] : {std::pair{"clock", &batch_ms}, std::pair{"processor time", &cpu_ms}}) {
    std::sort(ms->begin(), ms->end());
    const size_t p999 = std::min(ms->size() - 1, static_cast<size_t>(0.999 * static_cast<double>(ms->size())));
    std::printf("  batch of %zu, %s: p50 %.1f ms, p99.9 %.1f ms, most %.1f ms\n", kIds, what, (*ms)[ms->size() / 2],
                (*ms)[p999], ms->back());
  }
  CHECK_GE(asked, table->size());
}

int Main() {
  std::printf("memory copy %.1f GB/s\n", CopyGigabytes());
  if (const int64_t rows = absl::GetFlag(FLAGS_fill); rows > 0) {
    Fill(rows);
    return 0;
  }
  if (!absl::GetFlag(FLAGS_only_ten)) Rates(1'000'000);
  if (absl::GetFlag(FLAGS_ten_million)) Rates(10'000'000);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return weir::Main();
}
