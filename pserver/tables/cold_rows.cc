#include "pserver/tables/cold_rows.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/process/lock_holder.h"
#include "glog/logging.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/statistics.h"
#include "rocksdb/table.h"
#include "rocksdb/write_batch.h"

namespace weir {

namespace {

constexpr int64_t kLeastBuffer = 1 << 20;
constexpr int64_t kMostBuffer = 64 << 20;
// Keys of one call of MultiGet: their blocks are pinned until it returns.
constexpr size_t kGetBatch = 512;
// Time between two tries to take the directory from a process that is ending, and between two log lines about it.
constexpr absl::Duration kLockPause = absl::Milliseconds(50);
constexpr absl::Duration kLockReport = absl::Seconds(5);

// Inverse of MixId.
uint64_t UnmixId(uint64_t x) {
  x ^= x >> 31 ^ x >> 62;
  x *= 0x319642b2d24d8ec3ULL;
  x ^= x >> 27 ^ x >> 54;
  x *= 0x96de1b173f119089ULL;
  x ^= x >> 30 ^ x >> 60;
  return x - 0x9e3779b97f4a7c15ULL;
}

// MixId with the highest byte first, so that keys compare as numbers: in order of logical shards.
struct Key {
  explicit Key(uint64_t mixed) : bytes(__builtin_bswap64(mixed)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): RocksDB's calls take keys as slices
  operator rocksdb::Slice() const { return {reinterpret_cast<const char*>(&bytes), sizeof(bytes)}; }
  uint64_t bytes;
};
static_assert(std::endian::native == std::endian::little);

uint64_t MixedOf(const rocksdb::Slice& key) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, key.data(), std::min(sizeof(bytes), key.size()));
  return __builtin_bswap64(bytes);
}

class RocksDbRows : public ColdRows {
 public:
  explicit RocksDbRows(const ColdRowsOptions& options)
      : table_(options.table),
        directory_(options.directory),
        row_bytes_(static_cast<size_t>(options.row_bytes)),
        lock_wait_(options.lock_wait) {
    options_.create_if_missing = true;
    if (options.env != nullptr) options_.env = options.env;
    // Use three buffers, each a fourth of the budget: one fills while two are written to disk. The last fourth is for
    // metadata of the files (where blocks begin), 0.6 % of the bytes on disk; it grows with them and is counted, not
    // bounded.
    options_.write_buffer_size = static_cast<size_t>(std::clamp(options.memory_bytes / 4, kLeastBuffer, kMostBuffer));
    options_.max_write_buffer_number = 3;
    options_.memtable_whole_key_filtering = true;
    options_.memtable_prefix_bloom_size_ratio = 0.05;
    // Rows arrive in an order that no file has, so compaction rewrites a file together with all others of its level.
    // Universal compaction rewrites a row a fourth less often than leveled compaction, and reads are as fast (4 M rows
    // of 128 bytes).
    options_.compaction_style = rocksdb::kCompactionStyleUniversal;
    options_.max_background_jobs = 2;
    // lz4 does not shrink mantissas, and makes reads a fifth slower.
    options_.compression = rocksdb::kNoCompression;
    options_.use_direct_reads = options.direct_io;
    options_.use_direct_io_for_flush_and_compaction = options.direct_io;
    // Few calls name an id without a row, since only new ids have none. So the lowest run has no filters. The upper
    // runs have filters of 1.25 bytes a row, because a row of the lowest run is searched there in vain.
    options_.optimize_filters_for_hits = true;
    options_.max_bgerror_resume_count = 0;
    options_.keep_log_file_num = 1;
    options_.max_log_file_size = 1 << 20;
    options_.info_log_level = rocksdb::WARN_LEVEL;
    options_.stats_dump_period_sec = 0;
    options_.stats_persist_period_sec = 0;
    options_.statistics = rocksdb::CreateDBStatistics();
    options_.statistics->set_stats_level(rocksdb::kExceptDetailedTimers);

    rocksdb::BlockBasedTableOptions table;
    // The rows of a batch are scattered, so a block is read for one row. Blocks are not cached: the caller keeps the
    // row.
    table.block_size = 4096;
    table.no_block_cache = true;
    table.format_version = 5;
    table.checksum = rocksdb::kXXH3;
    table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
    table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    options_.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    // Write no log ahead: after a crash the rows come from a checkpoint.
    write_.disableWAL = true;
  }
  ~RocksDbRows() override {
    if (db_ == nullptr) return;
    rocksdb::Status status = db_->Close();
    db_.reset();
    if (status.ok()) status = rocksdb::DestroyDB(directory_, options_);
    if (!status.ok()) LOG(WARNING) << Error("closing", status).message();
  }

  absl::Status Open() {
    if (row_bytes_ == 0) return absl::InvalidArgumentError(absl::StrCat("table ", table_, ": rows of no bytes"));
    const absl::Time begun = Clock::Real()->Now();
    absl::Time report = begun;
    while (true) {
      const absl::Status status = TryToOpen();
      if (!absl::IsUnavailable(status)) return status;
      const absl::Time now = Clock::Real()->Now();
      if (now >= begun + lock_wait_) return status;
      if (now >= report) {
        LOG(WARNING) << Where() << ": waits for " << LockFile() << ", held by " << LockHolder(LockFile()) << ", for "
                     << absl::FormatDuration(absl::Trunc(now - begun, absl::Seconds(1))) << " of "
                     << absl::FormatDuration(lock_wait_);
        report = now + kLockReport;
      }
      absl::SleepFor(kLockPause);
    }
  }

  absl::Status Get(absl::Span<const int64_t> ids, char* rows, uint8_t* found) const override {
    // Kept between calls so that a step allocates nothing.
    struct Kept {
      std::vector<Key> keys;
      std::vector<rocksdb::Slice> slices;
      std::vector<uint32_t> order;
      std::vector<rocksdb::PinnableSlice> values;
      std::vector<rocksdb::Status> statuses;
    };
    static thread_local Kept kept;
    kept.keys.clear();
    bool sorted = true;
    uint64_t last = 0;
    for (int64_t id : ids) {
      const uint64_t mixed = MixId(static_cast<uint64_t>(id));
      kept.keys.emplace_back(mixed);
      sorted &= mixed >= last;
      last = mixed;
    }
    kept.order.resize(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) kept.order[i] = static_cast<uint32_t>(i);
    if (!sorted) {
      std::sort(kept.order.begin(), kept.order.end(), [](uint32_t a, uint32_t b) {
        return __builtin_bswap64(kept.keys[a].bytes) < __builtin_bswap64(kept.keys[b].bytes);
      });
    }
    kept.values.resize(std::max(kept.values.size(), std::min(ids.size(), kGetBatch)));
    kept.statuses.resize(kept.values.size());
    int64_t there = 0;
    for (size_t begin = 0; begin < ids.size(); begin += kGetBatch) {
      const size_t n = std::min(kGetBatch, ids.size() - begin);
      kept.slices.clear();
      for (size_t i = 0; i < n; ++i) kept.slices.push_back(kept.keys[kept.order[begin + i]]);
      db_->MultiGet(read_, db_->DefaultColumnFamily(), n, kept.slices.data(), kept.values.data(), kept.statuses.data(),
                    /*sorted_input=*/true);
      absl::Status status;
      for (size_t i = 0; i < n; ++i) {
        const size_t at = kept.order[begin + i];
        const rocksdb::PinnableSlice& value = kept.values[i];
        found[at] = kept.statuses[i].ok();
        if (kept.statuses[i].ok() && value.size() == row_bytes_) {
          std::memcpy(rows + at * row_bytes_, value.data(), row_bytes_);
          ++there;
        } else if (kept.statuses[i].ok()) {
          status.Update(WrongSize(ids[at], value.size()));
        } else if (!kept.statuses[i].IsNotFound()) {
          status.Update(Error(absl::StrCat("reading row ", ids[at]), kept.statuses[i]));
        }
        kept.values[i].Reset();
      }
      RETURN_IF_ERROR(status);
    }
    asked_.fetch_add(static_cast<int64_t>(ids.size()), std::memory_order_relaxed);
    found_.fetch_add(there, std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::Status Put(absl::Span<const int64_t> ids, const char* rows) override {
    rocksdb::WriteBatch batch(ids.size() * (row_bytes_ + 16));
    for (size_t i = 0; i < ids.size(); ++i) {
      batch.Put(Key(MixId(static_cast<uint64_t>(ids[i]))), rocksdb::Slice(rows + i * row_bytes_, row_bytes_));
    }
    RETURN_IF_ERROR(Write(&batch));
    put_.fetch_add(static_cast<int64_t>(ids.size()), std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::Status Delete(absl::Span<const int64_t> ids) override {
    rocksdb::WriteBatch batch;
    for (int64_t id : ids) batch.Delete(Key(MixId(static_cast<uint64_t>(id))));
    RETURN_IF_ERROR(Write(&batch));
    deleted_.fetch_add(static_cast<int64_t>(ids.size()), std::memory_order_relaxed);
    return absl::OkStatus();
  }

  absl::Status Visit(uint64_t first, uint64_t last,
                     const std::function<void(int64_t, const char*)>& fn) const override {
    rocksdb::ReadOptions read = read_;
    read.readahead_size = 1 << 20;
    const std::unique_ptr<rocksdb::Iterator> rows(db_->NewIterator(read));
    for (rows->Seek(Key(first)); rows->Valid(); rows->Next()) {
      const uint64_t mixed = MixedOf(rows->key());
      if (mixed > last) break;
      const auto id = static_cast<int64_t>(UnmixId(mixed));
      if (rows->value().size() != row_bytes_) return WrongSize(id, rows->value().size());
      fn(id, rows->value().data());
    }
    return rows->status().ok() ? absl::OkStatus() : Error("going through the rows", rows->status());
  }

  absl::Status Clear() override {
    rocksdb::ColumnFamilyHandle* const all = db_->DefaultColumnFamily();
    const Key first(0);
    // One behind the last key.
    const std::string end(sizeof(uint64_t) + 1, '\xff');
    const rocksdb::Slice begin_slice = first, end_slice = end;
    // Delete whole files first, which reads nothing; then the rows in memory and in the files that remain.
    rocksdb::Status status = rocksdb::DeleteFilesInRange(db_.get(), all, nullptr, nullptr);
    if (status.ok()) status = db_->DeleteRange(write_, all, begin_slice, end_slice);
    if (status.ok()) status = db_->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr);
    return status.ok() ? absl::OkStatus() : Error("emptying", status);
  }

  Counts counts() const override {
    Counts counts;
    counts.asked = asked_.load(std::memory_order_relaxed);
    counts.found = found_.load(std::memory_order_relaxed);
    counts.put = put_.load(std::memory_order_relaxed);
    counts.deleted = deleted_.load(std::memory_order_relaxed);
    const auto number = [&](const std::string& property) {
      uint64_t value = 0;
      return db_->GetIntProperty(property, &value) ? static_cast<int64_t>(value) : 0;
    };
    counts.disk_bytes = number(rocksdb::DB::Properties::kTotalSstFilesSize);
    counts.memory_bytes =
        number(rocksdb::DB::Properties::kSizeAllMemTables) + number(rocksdb::DB::Properties::kEstimateTableReadersMem);
    const rocksdb::Statistics& statistics = *options_.statistics;
    counts.rewritten_bytes = static_cast<int64_t>(statistics.getTickerCount(rocksdb::COMPACT_READ_BYTES) +
                                                  statistics.getTickerCount(rocksdb::COMPACT_WRITE_BYTES) +
                                                  statistics.getTickerCount(rocksdb::FLUSH_WRITE_BYTES));
    counts.stalled_s = 1e-6 * static_cast<double>(statistics.getTickerCount(rocksdb::STALL_MICROS));
    return counts;
  }

 private:
  // Unavailable if another process has the directory.
  absl::Status TryToOpen() {
    RETURN_IF_ERROR(CreateDirectories(directory_));
    const rocksdb::Status emptied = rocksdb::DestroyDB(directory_, options_);
    if (!emptied.ok()) return Error("emptying", emptied);
    rocksdb::DB* db = nullptr;
    const rocksdb::Status opened = rocksdb::DB::Open(options_, directory_, &db);
    if (!opened.ok()) return Error("opening", opened);
    db_.reset(db);
    return absl::OkStatus();
  }

  absl::Status Write(rocksdb::WriteBatch* batch) {
    const rocksdb::Status status = db_->Write(write_, batch);
    return status.ok() ? absl::OkStatus() : Error("writing rows", status);
  }

  absl::Status WrongSize(int64_t id, size_t bytes) const {
    return absl::DataLossError(
        absl::StrCat(Where(), ": row ", id, " has ", bytes, " bytes, expected ", row_bytes_, kStartAgain));
  }

  std::string LockFile() const { return absl::StrCat(directory_, "/LOCK"); }

  std::string Where() const { return absl::StrCat("table ", table_, ", rows on disk in ", directory_); }

  absl::Status Error(std::string_view doing, const rocksdb::Status& status) const {
    const std::string said = status.ToString();
    const std::string text = absl::StrCat(Where(), ": ", absl::string_view(doing.data(), doing.size()), ": ", said);
    // A write behind one that found the disk full is Incomplete, with the words of that one.
    if (status.IsNoSpace() || said.find("No space left on device") != std::string::npos) {
      return absl::ResourceExhaustedError(absl::StrCat(text,
                                                       "; the disk is full: free some of it or set disk.dir of the "
                                                       "table to a larger one, and start again with --resume"));
    }
    if (status.IsCorruption()) return absl::DataLossError(absl::StrCat(text, kStartAgain));
    if (said.find(LockFile()) != std::string::npos) {
      // The lock of another process, or a directory that one has removed at its end. A lock of this process, and a file
      // that may not be written, have other texts.
      if (said.find(std::strerror(EAGAIN)) != std::string::npos ||
          said.find(std::strerror(ENOENT)) != std::string::npos) {
        return absl::UnavailableError(absl::StrCat(
            text, "; after ", absl::FormatDuration(lock_wait_), " it is still held by ", LockHolder(LockFile()),
            ": end that server and start again with --resume, or set another disk.dir of the table"));
      }
      return absl::FailedPreconditionError(absl::StrCat(
          text, "; see that this process may write the file, and set another disk.dir for a second table"));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        text, "; see that the directory can be written and that its disk works, and start again with --resume"));
  }

  static constexpr char kStartAgain[] =
      "; the disk does not give back what was written: set disk.dir of the table to another one, and start again with "
      "--resume";

  const std::string table_;
  const std::string directory_;
  const size_t row_bytes_;
  const absl::Duration lock_wait_;
  rocksdb::Options options_;
  rocksdb::ReadOptions read_;
  rocksdb::WriteOptions write_;
  std::unique_ptr<rocksdb::DB> db_;
  // Atomic: several threads count, and nothing else depends on the sums.
  mutable std::atomic<int64_t> asked_{0}, found_{0};
  std::atomic<int64_t> put_{0}, deleted_{0};
};

}  // namespace

absl::StatusOr<std::unique_ptr<ColdRows>> OpenColdRows(const ColdRowsOptions& options) {
  auto rows = std::make_unique<RocksDbRows>(options);
  RETURN_IF_ERROR(rows->Open());
  return rows;
}

}  // namespace weir
