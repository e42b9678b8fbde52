// Rows of one table that one server keeps on disk: a map from ids to rows of equal size in bytes. Thread-safe.
//
// The store extends the memory of a process and lasts as long as the process: opening it removes what an earlier
// process left, and nothing is written for recovery after a crash. Recovery is the task of checkpoints, which hold the
// rows themselves.
//
// If two concurrent calls name the same id and at least one of them is a Put or a Delete, either may take effect first.
#ifndef WEIR_PSERVER_TABLES_COLD_ROWS_H_
#define WEIR_PSERVER_TABLES_COLD_ROWS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace rocksdb {
class Env;
}

namespace weir {

class ColdRows {
 public:
  virtual ~ColdRows() = default;

  // Copies the row of ids[i] to rows + i * row_bytes and sets found[i] to 1; if there is no row, sets found[i] to 0 and
  // leaves the destination unchanged. rows [ids.size(), row_bytes], found [ids.size()]. Ids sorted by MixId are
  // fastest.
  virtual absl::Status Get(absl::Span<const int64_t> ids, char* rows, uint8_t* found) const = 0;
  // Sets rows [ids.size(), row_bytes]; all of them or none.
  virtual absl::Status Put(absl::Span<const int64_t> ids, const char* rows) = 0;
  // Deletes rows. Ids without a row are allowed.
  virtual absl::Status Delete(absl::Span<const int64_t> ids) = 0;
  // Calls fn(id, row) for every row whose MixId lies in [first, last], in order of MixId. All rows are as they were at
  // one moment of the call.
  virtual absl::Status Visit(uint64_t first, uint64_t last,
                             const std::function<void(int64_t, const char*)>& fn) const = 0;
  // Deletes every row. Only Get may run concurrently.
  virtual absl::Status Clear() = 0;

  struct Counts {
    int64_t asked = 0;         // ids given to Get
    int64_t found = 0;         // ids of Get that had a row
    int64_t put = 0;           // rows put
    int64_t deleted = 0;       // ids given to Delete
    int64_t disk_bytes = 0;    // size of the files
    int64_t memory_bytes = 0;  // buffers of rows, and metadata of the files
    // Bytes that compaction read and wrote, and bytes that flushes of memory wrote. Excludes what Get read.
    int64_t rewritten_bytes = 0;
    // Time that Put waited for the disk.
    double stalled_s = 0;
  };
  virtual Counts counts() const = 0;
};

struct ColdRowsOptions {
  // Name in messages.
  std::string table;
  // Created if missing, with its parents. Must hold nothing else: opening and closing delete the files in it.
  std::string directory;
  // Size of a row, above 0.
  int64_t row_bytes = 0;
  // Budget for rows on their way to disk (three buffers, each a fourth of it, from 1 to 64 MiB) and for metadata of the
  // files, which is counted but not bounded. The system also caches files in memory that nothing else uses, unless
  // direct_io is set: then every row is read from the disk.
  int64_t memory_bytes = int64_t{64} << 20;
  bool direct_io = false;
  // Longest wait for another process that has the directory: one that was killed may still be ending.
  absl::Duration lock_wait = absl::ZeroDuration();
  // Borrowed; null: the system's. Tests use it to inject failures.
  rocksdb::Env* env = nullptr;
};

// Opens the store, on RocksDB. Every error, here and later, names table, directory and what to do. InvalidArgument:
// row_bytes is 0. Unavailable: another process has had the directory for lock_wait; it is named as far as it is known,
// and in the log while it is waited for. ResourceExhausted: the disk is full. DataLoss: the data read differs from the
// data written. FailedPrecondition: this process has the directory already, or the system refuses (permissions, a
// failing disk). After an error of Put or Delete the rows may be of any age, and later calls may fail as well.
absl::StatusOr<std::unique_ptr<ColdRows>> OpenColdRows(const ColdRowsOptions& options);

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_COLD_ROWS_H_
