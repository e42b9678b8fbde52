// Compares tables with most rows on disk with tables in memory: where a row lies must not change its bits.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/tables/cold_rows.h"
#include "pserver/tables/sparse_table.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// State: number of updates. Values: value - rate * gradient / divisor.
class CountingSgd : public RowRule {
 public:
  std::vector<State> states(int) const override { return {{"count", 1}}; }
  void InitState(int, float* state) const override { *state = 0; }
  void Update(int width, float rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    for (int64_t i = 0; i < n; ++i) {
      for (int j = 0; j < width; ++j) rows[i][j] -= rate * (grads[i][j] / divisor);
      rows[i][width] += 1;
    }
  }
};

// Implements ColdRows with a map.
class RowsInAMap : public ColdRows {
 public:
  explicit RowsInAMap(int64_t row_bytes) : bytes_(static_cast<size_t>(row_bytes)) {}

  absl::Status Get(absl::Span<const int64_t> ids, char* rows, uint8_t* found) const override {
    {
      MutexLock lock(&mu_);
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto at = rows_.find(MixId(static_cast<uint64_t>(ids[i])));
        found[i] = at != rows_.end();
        if (found[i]) std::memcpy(rows + i * bytes_, at->second.second.data(), bytes_);
      }
    }
    if (after_get) after_get();
    return get_status;
  }
  absl::Status Put(absl::Span<const int64_t> ids, const char* rows) override {
    if (!put_status.ok()) return put_status;
    if (before_put) before_put(ids);
    MutexLock lock(&mu_);
    for (size_t i = 0; i < ids.size(); ++i) {
      rows_[MixId(static_cast<uint64_t>(ids[i]))] = {ids[i], std::string(rows + i * bytes_, bytes_)};
    }
    return absl::OkStatus();
  }
  absl::Status Delete(absl::Span<const int64_t> ids) override {
    MutexLock lock(&mu_);
    for (int64_t id : ids) rows_.erase(MixId(static_cast<uint64_t>(id)));
    return absl::OkStatus();
  }
  absl::Status Visit(uint64_t first, uint64_t last,
                     const std::function<void(int64_t, const char*)>& fn) const override {
    std::vector<std::pair<int64_t, std::string>> now;
    {
      MutexLock lock(&mu_);
      for (auto at = rows_.lower_bound(first); at != rows_.end() && at->first <= last; ++at) now.push_back(at->second);
    }
    for (const auto& [id, row] : now) fn(id, row.data());
    return absl::OkStatus();
  }
  absl::Status Clear() override {
    MutexLock lock(&mu_);
    rows_.clear();
    return absl::OkStatus();
  }
  Counts counts() const override { return {}; }

  // Called when Get has its result and before it returns. Set only while no call runs.
  std::function<void()> after_get;
  // Called when the rows to be written have been copied.
  std::function<void(absl::Span<const int64_t>)> before_put;
  absl::Status get_status, put_status;

 private:
  const size_t bytes_;
  mutable Mutex mu_;
  std::map<uint64_t, std::pair<int64_t, std::string>> rows_ ABSL_GUARDED_BY(mu_);
};

enum class Disk { kNone, kMap, kRocksDb };

struct TableCase {
  std::string name;
  v1::Lifecycle lifecycle = {};
  int64_t capacity = 0;
  Disk disk = Disk::kMap;
  v1::DType values = v1::FLOAT32;
};

class DiskTables : public ::testing::Test {
 protected:
  DiskTables() : directory_(absl::StrCat(::testing::TempDir(), "/disk_tier.", getpid())) {}
  ~DiskTables() override { std::filesystem::remove_all(directory_); }

  // Makes a table of width 3 that keeps some 40 rows in memory.
  std::unique_ptr<SparseTable> MakeTable(const TableCase& setup, Disk disk, int stripes = 4) {
    v1::Initializer uniform;
    uniform.mutable_uniform()->set_min(-1);
    uniform.mutable_uniform()->set_max(1);
    SparseTableOptions options{.name = "t",
                               .width = 3,
                               .logical_shards = 64,
                               .shard_end = 64,
                               .capacity = setup.capacity,
                               .stripes = stripes,
                               .values = setup.values,
                               .initializer = RowInitializer(uniform, 1, "t", setup.values),
                               .rule = std::make_unique<CountingSgd>(),
                               .lifecycle = setup.lifecycle};
    options.disk.memory_bytes = 44 * (setup.values == v1::FLOAT32 ? 34 : 30);
    if (disk == Disk::kMap) {
      options.disk.open = [this](int64_t row_bytes) -> absl::StatusOr<std::unique_ptr<ColdRows>> {
        auto rows = std::make_unique<RowsInAMap>(row_bytes);
        map_ = rows.get();
        return rows;
      };
    } else if (disk == Disk::kRocksDb) {
      options.disk.open = [this](int64_t row_bytes) {
        return OpenColdRows({.table = "t", .directory = directory_, .row_bytes = row_bytes, .memory_bytes = 1 << 20});
      };
    }
    auto table = SparseTable::Create(std::move(options));
    EXPECT_TRUE(table.ok()) << table.status();
    return *std::move(table);
  }

  const std::string directory_;
  RowsInAMap* map_ = nullptr;  // of the table made last
};

// Returns floats as bits, so that comparisons are exact.
std::vector<uint32_t> Bits(const std::vector<float>& floats) {
  std::vector<uint32_t> bits(floats.size());
  if (!floats.empty()) std::memcpy(bits.data(), floats.data(), floats.size() * sizeof(float));
  return bits;
}
struct Content {
  std::vector<int64_t> ids;
  std::vector<uint32_t> rows;
  bool operator==(const Content& other) const { return ids == other.ids && rows == other.rows; }
};
Content All(const SparseTable& table) {
  Content all;
  for (int s = 0; s < table.stripes(); ++s) {
    std::vector<int64_t> ids;
    std::vector<float> rows;
    EXPECT_TRUE(table.CopyStripe(s, &ids, &rows).ok());
    all.ids.insert(all.ids.end(), ids.begin(), ids.end());
    const std::vector<uint32_t> bits = Bits(rows);
    all.rows.insert(all.rows.end(), bits.begin(), bits.end());
  }
  return all;
}
Content Visited(const SparseTable& table) {
  std::map<int64_t, std::vector<float>> rows;
  const size_t floats = static_cast<size_t>(table.width()) + static_cast<size_t>(table.state_width());
  for (int s = 0; s < table.stripes(); ++s) {
    EXPECT_TRUE(table
                    .VisitStripe(s,
                                 [&](int64_t id, const float* row) {
                                   EXPECT_TRUE(rows.emplace(id, std::vector<float>(row, row + floats)).second) << id;
                                 })
                    .ok());
  }
  Content all;
  for (const auto& [id, row] : rows) {
    all.ids.push_back(id);
    const std::vector<uint32_t> bits = Bits(row);
    all.rows.insert(all.rows.end(), bits.begin(), bits.end());
  }
  return all;
}
Content Remembered(const SparseTable& table, SparseTable::Memory memory) {
  Content all;
  if (table.words(memory).empty()) return all;
  for (int s = 0; s < table.stripes(); ++s) {
    std::vector<int64_t> ids;
    std::vector<float> words;
    table.CopyMemory(memory, s, &ids, &words);
    all.ids.insert(all.ids.end(), ids.begin(), ids.end());
    const std::vector<uint32_t> bits = Bits(words);
    all.rows.insert(all.rows.end(), bits.begin(), bits.end());
  }
  return all;
}

class DiskTierTest : public DiskTables, public ::testing::WithParamInterface<TableCase> {};

TEST_P(DiskTierTest, RandomOperationsGiveTheBitsOfATableInMemory) {
  const auto memory = MakeTable(GetParam(), Disk::kNone);
  const auto disk = MakeTable(GetParam(), GetParam().disk);
  ThreadPool pool("test", 2);
  std::mt19937_64 random(3);
  const int rounds = GetParam().disk == Disk::kMap ? 1500 : 600;
  for (int64_t step = 0; step < rounds; ++step) {
    SCOPED_TRACE(absl::StrCat("step ", step));
    std::vector<int64_t> ids(random() % 20 == 0 ? 5000 : random() % 200);
    // Some ids come often, some seldom.
    const uint64_t range = random() % 2 == 0 ? 50 : 2000;
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % range) - 25;
    const uint64_t what = random() % 8;
    if (what >= 3) {
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      std::shuffle(ids.begin(), ids.end(), random);
    }
    const RowTime time{.step = step};
    ThreadPool* const maybe_pool = random() % 2 == 0 ? &pool : nullptr;
    if (what < 3) {
      const bool create = what == 0;
      std::vector<float> a(ids.size() * 3), b(ids.size() * 3);
      ASSERT_TRUE(memory->Pull(ids, create, a.data(), maybe_pool).ok());
      ASSERT_TRUE(disk->Pull(ids, create, b.data(), maybe_pool).ok());
      ASSERT_EQ(Bits(a), Bits(b));
    } else if (what < 6) {
      std::vector<float> grads(ids.size() * 3);
      for (float& g : grads) g = static_cast<float>(random() % 1000) / 100;
      std::vector<float> shows(ids.size() * 2);
      for (size_t i = 0; i < shows.size(); i += 2) {
        shows[i] = static_cast<float>(1 + random() % 4);
        shows[i + 1] = static_cast<float>(random() % 2);
      }
      const float* const shown = GetParam().lifecycle.has_click() ? shows.data() : nullptr;
      ASSERT_TRUE(memory->Update(ids, grads.data(), 3, 0.1f, maybe_pool, time, shown).ok());
      ASSERT_TRUE(disk->Update(ids, grads.data(), 3, 0.1f, maybe_pool, time, shown).ok());
    } else if (what == 6) {
      const std::vector<float> changes(ids.size() * 3, 0.25f);
      ASSERT_EQ(memory->AddToValues(ids, changes.data()).code(), disk->AddToValues(ids, changes.data()).code());
    } else {
      std::vector<float> rows(ids.size() * static_cast<size_t>(3 + memory->state_width()));
      for (float& v : rows) v = static_cast<float>(random() % 50);
      ASSERT_TRUE(memory->SetRows(ids, rows.data()).ok());
      ASSERT_TRUE(disk->SetRows(ids, rows.data()).ok());
    }
    for (int s = 0; s < memory->stripes(); ++s) {
      ASSERT_TRUE(memory->EndStep(s, time).ok());
      ASSERT_TRUE(disk->EndStep(s, time).ok());
    }
    if (step == rounds / 2) {
      ASSERT_TRUE(memory->Clear().ok());
      ASSERT_TRUE(disk->Clear().ok());
      ASSERT_EQ(All(*disk).ids.size(), 0u);
    }
    ASSERT_EQ(memory->size(), disk->size());
    if (step % 25 != 0) continue;
    ASSERT_TRUE(All(*memory) == All(*disk));
    ASSERT_TRUE(Visited(*memory) == Visited(*disk));
    for (SparseTable::Memory kind : {SparseTable::kCandidates, SparseTable::kTombstones}) {
      ASSERT_TRUE(Remembered(*memory, kind) == Remembered(*disk, kind));
    }
    const SparseTable::Counts a = memory->counts(), b = disk->counts();
    ASSERT_EQ(a.rows, b.rows);
    ASSERT_EQ(a.made, b.made);
    ASSERT_EQ(a.expired, b.expired);
    ASSERT_EQ(a.evicted, b.evicted);
    ASSERT_EQ(a.faded, b.faded);
    ASSERT_EQ(a.dropped, b.dropped);
    ASSERT_LE(b.in_memory, 44);
  }
  // The disk has been used: otherwise the comparison would prove nothing.
  const SparseTable::Counts counts = disk->counts();
  EXPECT_GT(counts.read, 10000);
  EXPECT_GT(counts.written, 1000);
  EXPECT_GT(counts.rows, 200);
  EXPECT_EQ(counts.expired > 100, GetParam().lifecycle.ttl_steps() > 0);
  EXPECT_EQ(counts.evicted > 100, GetParam().capacity > 0);
  EXPECT_EQ(counts.faded > 100, GetParam().lifecycle.decay_every_steps() > 0);
}

v1::Lifecycle Lived(int64_t admit_after, int64_t ttl, v1::Lifecycle::WhenFull when_full, bool tombstones) {
  v1::Lifecycle lifecycle;
  if (admit_after > 0) lifecycle.set_admit_after(admit_after);
  lifecycle.set_ttl_steps(ttl);
  lifecycle.set_when_full(when_full);
  lifecycle.set_tombstones(tombstones);
  return lifecycle;
}

v1::Lifecycle Scored() {
  v1::Lifecycle lifecycle;
  lifecycle.set_click("click");
  lifecycle.set_admit_score(1.0);
  lifecycle.set_decay_every_steps(30);
  lifecycle.set_decay(0.5);
  lifecycle.set_min_score(0.2);
  return lifecycle;
}

INSTANTIATE_TEST_SUITE_P(
    Lifecycles, DiskTierTest,
    ::testing::Values(
        TableCase{.name = "Plain"},
        TableCase{.name = "AdmitExpire", .lifecycle = Lived(2, 40, v1::Lifecycle::REFUSE, true)},
        TableCase{.name = "Scores", .lifecycle = Scored()}, TableCase{.name = "Float16", .values = v1::FLOAT16},
        TableCase{
            .name = "BFloat16Expire", .lifecycle = Lived(0, 40, v1::Lifecycle::REFUSE, true), .values = v1::BFLOAT16},
        TableCase{
            .name = "LeastRecent", .lifecycle = Lived(0, 0, v1::Lifecycle::EVICT_LEAST_RECENT, true), .capacity = 640},
        TableCase{.name = "AllTogether",
                  .lifecycle = Lived(2, 60, v1::Lifecycle::EVICT_LEAST_FREQUENT, false),
                  .capacity = 960}),
    [](const auto& setup) { return setup.param.name; });

#ifndef WEIR_TSAN  // ThreadSanitizer does not see RocksDB's locks
INSTANTIATE_TEST_SUITE_P(RocksDb, DiskTierTest,
                         ::testing::Values(TableCase{.name = "Plain", .disk = Disk::kRocksDb},
                                           TableCase{
                                               .name = "AllTogether",
                                               .lifecycle = Lived(2, 60, v1::Lifecycle::EVICT_LEAST_FREQUENT, true),
                                               .capacity = 960,
                                               .disk = Disk::kRocksDb}),
                         [](const auto& setup) { return setup.param.name; });
#endif

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> ids;
  for (int64_t id = begin; id < end; ++id) ids.push_back(id);
  return ids;
}

class DiskTierRacesTest : public DiskTables {};

TEST_F(DiskTierRacesTest, RowsThatAreNewAreNotLookedFor) {
  const auto table = MakeTable({}, Disk::kMap, /*stripes=*/1);
  int gets = 0;
  map_->after_get = [&] { ++gets; };
  std::vector<float> rows(400 * 4);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  ASSERT_TRUE(table->AddRows(Range(0, 200), rows.data()).ok());
  ASSERT_TRUE(table->AddRows(Range(200, 400), rows.data() + 200 * 4).ok());
  EXPECT_EQ(gets, 0);
  EXPECT_EQ(table->size(), 400);
  EXPECT_LT(table->counts().in_memory, 400);
  std::vector<float> out(400 * 3);
  ASSERT_TRUE(table->Pull(Range(0, 400), false, out.data(), nullptr).ok());
  EXPECT_GT(gets, 0);
  for (size_t i = 0; i < 400; ++i) {
    for (size_t j = 0; j < 3; ++j) ASSERT_EQ(out[i * 3 + j], rows[i * 4 + j]);
  }
}

// After a reader has read an old row from the disk and before it locks the stripe again, another thread reads the row,
// changes it and writes it back.
TEST_F(DiskTierRacesTest, ARowThatCameAndLeftMeanwhileIsReadAgain) {
  const auto table = MakeTable({}, Disk::kMap, /*stripes=*/1);
  const std::vector<float> rows(200 * 4, 1.0f);
  ASSERT_TRUE(table->SetRows(Range(0, 200), rows.data()).ok());
  std::vector<float> out(200 * 3);
  ASSERT_TRUE(table->Pull(Range(100, 200), false, out.data(), nullptr).ok());  // row 7 is out
  int calls = 0;
  map_->after_get = [&] {
    if (++calls != 1) return;
    std::thread([&] {
      const float grads[3] = {-1, -2, -3};
      EXPECT_TRUE(table->Update({7}, grads, 1, 1, nullptr).ok());
      std::vector<float> others(100 * 3);
      EXPECT_TRUE(table->Pull(Range(100, 200), false, others.data(), nullptr).ok());  // row 7 is out again
    }).join();
  };
  std::vector<float> row(3);
  ASSERT_TRUE(table->Pull({7}, false, row.data(), nullptr).ok());
  EXPECT_THAT(row, ElementsAre(2, 3, 4));
  EXPECT_GE(calls, 4);
}

// Does the same for a row that the reader was told does not exist.
TEST_F(DiskTierRacesTest, ARowThatWasMadeMeanwhileIsNotMadeAgain) {
  const auto table = MakeTable({}, Disk::kMap, /*stripes=*/1);
  const std::vector<float> rows(200 * 4, 1.0f);
  ASSERT_TRUE(table->SetRows(Range(0, 200), rows.data()).ok());
  int calls = 0;
  map_->after_get = [&] {
    if (++calls != 1) return;
    std::thread([&] {
      EXPECT_TRUE(table->SetRows({1000}, std::vector<float>{5, 6, 7, 8}.data()).ok());
      std::vector<float> others(100 * 3);
      EXPECT_TRUE(table->Pull(Range(100, 200), false, others.data(), nullptr).ok());
    }).join();
  };
  std::vector<float> row(3);
  ASSERT_TRUE(table->Pull({1000}, /*create=*/true, row.data(), nullptr).ok());
  EXPECT_THAT(row, ElementsAre(5, 6, 7));
  EXPECT_EQ(table->size(), 201);
}

TEST_F(DiskTierRacesTest, ARowThatChangesWhileItIsWrittenStaysInMemoryAsItIs) {
  const auto table = MakeTable({}, Disk::kMap, /*stripes=*/1);
  int64_t changed = -1;
  std::thread updater;
  map_->before_put = [&](absl::Span<const int64_t> ids) {
    if (changed >= 0) return;
    changed = ids[0];
    const int64_t used = table->counts().used;
    updater = std::thread([&] {
      const float grads[3] = {-1, -2, -3};
      EXPECT_TRUE(table->Update({changed}, grads, 1, 1, nullptr).ok());
    });
    // The row is in memory, so it is used and changed under one lock. Then the updater waits to make room until the
    // caller of this returns.
    while (table->counts().used == used) std::this_thread::yield();
  };
  const std::vector<float> rows(200 * 4, 1.0f);
  ASSERT_TRUE(table->SetRows(Range(0, 200), rows.data()).ok());
  ASSERT_GE(changed, 0);
  updater.join();
  std::vector<float> row(3);
  ASSERT_TRUE(table->Pull({changed}, false, row.data(), nullptr).ok());
  EXPECT_THAT(row, ElementsAre(2, 3, 4));
}

TEST_F(DiskTierRacesTest, NoUpdateIsLostWhileRowsComeAndGo) {
  const auto table = MakeTable({}, Disk::kMap, /*stripes=*/1);
  constexpr int kThreads = 3, kRounds = 200;
  const std::vector<float> zeros(300 * 4, 0.0f);
  ASSERT_TRUE(table->SetRows(Range(0, 300), zeros.data()).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int i = 0; i < kRounds; ++i) {
        const int64_t begin = static_cast<int64_t>(random() % 6) * 50;
        const std::vector<float> grads(50 * 3, -1.0f);
        ASSERT_TRUE(table->Update(Range(begin, begin + 50), grads.data(), 1, 1, nullptr).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  double values = 0, updates = 0;
  ASSERT_TRUE(table
                  ->VisitStripe(0,
                                [&](int64_t, const float* row) {
                                  EXPECT_EQ(row[0], row[3]);
                                  values += row[0] + row[1] + row[2];
                                  updates += row[3];
                                })
                  .ok());
  EXPECT_EQ(updates, kThreads * kRounds * 50);
  EXPECT_EQ(values, 3 * updates);
  EXPECT_GT(table->counts().written, 1000);
}

TEST_F(DiskTierRacesTest, ADiskThatRefusesIsTheCallersErrorAndRowsInMemoryStay) {
  const auto table = MakeTable({}, Disk::kMap);
  map_->put_status = absl::ResourceExhaustedError("table t: the disk is full");
  std::vector<float> grads(500 * 3, 1.0f);
  const absl::Status full = table->Update(Range(0, 500), grads.data(), 1, 1, nullptr);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("the disk is full"));
  int64_t rows = 0;
  for (int s = 0; s < table->stripes(); ++s) {
    ASSERT_TRUE(table->VisitStripe(s, [&](int64_t, const float* row) { rows += row[3] == 1; }).ok());
  }
  EXPECT_EQ(rows, table->size());
  // The disk works again: rows that could not be written are written now.
  map_->put_status = absl::OkStatus();
  std::vector<float> out(500 * 3);
  ASSERT_TRUE(table->Pull(Range(0, 500), true, out.data(), nullptr).ok());
  EXPECT_GT(table->counts().written, 300);
  map_->get_status = absl::DataLossError("table t: not what was written");
  EXPECT_EQ(table->Pull(Range(0, 500), true, out.data(), nullptr).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weir
