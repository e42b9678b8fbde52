// Shard files: the parameters, state and rows of one server on disk. Knows names, elements and rows, but no operators
// and no servers.
//
// A file is a header of 64 bytes, then dense pieces and chunks of table rows, each at a multiple of 64 bytes,
// little-endian. CheckpointShard (proto/checkpoint.proto) in the MANIFEST holds the offset of each, and size and
// checksum of the file. See docs/checkpoint_format.md.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_SHARD_H_
#define WEIR_FRAMEWORK_CHECKPOINT_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/checkpoint/digest.h"
#include "proto/checkpoint.pb.h"

namespace weir {

// Piece of a dense variable or of its optimizer state.
struct DensePiece {
  // Name of the whole parameter: "fc_0.w", never a block's name.
  std::string variable;
  std::vector<int64_t> whole_dims;
  // First element of the piece in the whole parameter, row-major. For a scalar: the first element of the owner's block.
  int64_t element_begin = 0;
  // Empty for values; "moment1" for optimizer state.
  std::string state_name;
  // True for state that every owner of a block keeps with equal value (a count, a power): any number of floats, stored
  // bit by bit (so an int64 may be passed as two).
  bool scalar = false;
  // Text for messages that names what a checkpoint without the variable lacks, if the variable is not one of the
  // program's: "the steps of a learning-rate schedule".
  std::string meaning = {};
};

struct TableLayout {
  std::string table;
  int width = 0;
  // Names and widths of the state behind the values of a row, in order.
  std::vector<std::pair<std::string, int>> states;
  int logical_shards = 4096;
  // Columns [zero_begin, zero_end) of an id without a row are 0, and not what the table's initializer gives.
  int zero_begin = 0, zero_end = 0;

  int state_width() const;
};

// Writes one shard file. Not thread-safe. The destructor removes a file that was not finished.
class ShardWriter {
 public:
  // Creates the file, or empties it. Errors are those of FileError (framework/checkpoint/file.h).
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(const std::string& path);
  virtual ~ShardWriter() = default;

  // Adds a dense piece. InvalidArgument if it does not fit in whole_dims.
  virtual absl::Status AddDense(const DensePiece& piece, absl::Span<const float> values) = 0;

  // Begins a table: any number of AddRows may follow until EndTable, in bounded memory. Each id must occur once, which
  // is not checked. Rows may come in any order; order by logical shard makes loading on other numbers of servers
  // cheaper. FailedPrecondition while a table is open; InvalidArgument for widths or shards below 1.
  virtual absl::Status BeginTable(const TableLayout& layout) = 0;
  // Adds rows [ids.size(), width + state_width]. An error without an open table, or for another number of floats.
  virtual absl::Status AddRows(absl::Span<const int64_t> ids, absl::Span<const float> rows) = 0;
  // Adds row [width + state_width].
  virtual absl::Status AddRow(int64_t id, absl::Span<const float> row) = 0;
  // Ends the table. One without rows leaves an entry as well. FailedPrecondition without an open table.
  virtual absl::Status EndTable() = 0;

  // Syncs the file to disk (fsync) and returns its description, whose file name is the last part of the path. Requires:
  // no table is open; the last call.
  virtual absl::StatusOr<v1::CheckpointShard> Finish() = 0;

  // Digests of everything written.
  virtual const DigestTable& digests() const = 0;
};

// Reads one shard file by its description, whose numbers Open checks. A file that ends early is DataLoss; errors name
// the file. Thread-safe.
class ShardReader {
 public:
  // Opens a shard file. DataLoss if the file is missing, has another size or another checksum (not computed if
  // check_sum is false; computing it reads the whole file), or if the description is inconsistent. FailedPrecondition
  // for a newer format.
  static absl::StatusOr<std::unique_ptr<ShardReader>> Open(const std::string& directory,
                                                           const v1::CheckpointShard& shard, bool check_sum = true);
  virtual ~ShardReader() = default;

  virtual const v1::CheckpointShard& shard() const = 0;
  // Reads elements [begin, begin + out.size()) of the entry, counted from the entry's own first element, into `out`.
  // OutOfRange if there is no such entry or element.
  virtual absl::Status ReadDense(int entry, int64_t begin, absl::Span<float> out) const = 0;
  // Passes the rows of shard().tables(entry) to `visit` in runs of at most a few MiB: ids [n], rows [n, width +
  // state_width]. Stops at the first error of `visit` and returns it. OutOfRange if there is no such entry.
  using RowVisitor = std::function<absl::Status(absl::Span<const int64_t> ids, absl::Span<const float> rows)>;
  virtual absl::Status ReadTable(int entry, const RowVisitor& visit) const = 0;
};

// Returns the file name of server i in a checkpoint: "shard-00001".
std::string ShardFileName(int server);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_SHARD_H_
