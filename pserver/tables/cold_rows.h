// Rows of one table that one server keeps on disk: ids to rows of equally many bytes. Thread-safe.
//
// It is the overflow of a process's memory and lasts as long as the process: opening empties what an earlier one left
// behind, and nothing is brought to disk for the sake of a crash. What outlives a process are checkpoints, which hold
// the rows themselves.
//
// Of two calls at the same time that name the same id, at least one of them a Put or a Delete, either may be the first.
#ifndef WEIR_PSERVER_TABLES_COLD_ROWS_H_
#define WEIR_PSERVER_TABLES_COLD_ROWS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace rocksdb {
class Env;
}

namespace weir {

class ColdRows {
 public:
  virtual ~ColdRows() = default;

  // Row of ids[i] to rows + i * row_bytes, and found[i] = 1; 0 when there is none, and the row stays as it was. Ids
  // sorted by MixId are fastest.
  virtual absl::Status Get(absl::Span<const int64_t> ids, char* rows, uint8_t* found) const = 0;
  // Sets rows [ids.size(), row_bytes]. All of them or none.
  virtual absl::Status Put(absl::Span<const int64_t> ids, const char* rows) = 0;
  // Ids without a row are welcome.
  virtual absl::Status Delete(absl::Span<const int64_t> ids) = 0;
  // fn(id, row) for every row whose MixId lies in [first, last], by MixId, as they all were at one moment of the call.
  virtual absl::Status Visit(uint64_t first, uint64_t last,
                             const std::function<void(int64_t, const char*)>& fn) const = 0;
  // No row is left. No other call meanwhile but Get.
  virtual absl::Status Clear() = 0;

  struct Counts {
    int64_t asked = 0;    // ids of Get
    int64_t found = 0;    // of them
    int64_t put = 0;      // rows
    int64_t deleted = 0;  // ids
    int64_t disk_bytes = 0;
    int64_t memory_bytes = 0;
    // To disk, and from it beside what Get read: by rewriting files.
    int64_t rewritten_bytes = 0;
    // Put waited for the disk.
    double stalled_s = 0;
  };
  virtual Counts counts() const = 0;
};

struct ColdRowsOptions {
  // For messages.
  std::string table;
  // Made if need be; its parent too. Holds nothing else.
  std::string directory;
  int64_t row_bytes = 0;
  // For rows on their way to disk and what is known of the files. The system keeps files in memory that nobody else
  // wants, unless direct_io: then every row is read from the disk.
  int64_t memory_bytes = int64_t{64} << 20;
  bool direct_io = false;
  // Borrowed; null: the system's. Tests make it fail.
  rocksdb::Env* env = nullptr;
};

// On RocksDB. Every error, here and later, names table, directory and what to do: ResourceExhausted: the disk is full.
// DataLoss: what is read is not what was written. FailedPrecondition: another process has the directory, or the system
// refuses (permissions, a failing disk). After an error of Put or Delete the rows may be of any age, and later calls
// may fail as well.
absl::StatusOr<std::unique_ptr<ColdRows>> OpenColdRows(const ColdRowsOptions& options);

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_COLD_ROWS_H_
