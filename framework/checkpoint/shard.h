// Shard files: what one server owns, as bytes on disk. Names, elements and rows only; no operator, no server.
//
// A file is a header of 64 bytes, then dense pieces and chunks of table rows, each at a multiple of 64 bytes,
// little-endian. Where each stands is told by CheckpointShard (proto/checkpoint.proto) in the MANIFEST, with size and
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

// A piece of a dense variable or of its optimizer state.
struct DensePiece {
  // The whole parameter: "fc_0.w", never a block's name.
  std::string variable;
  std::vector<int64_t> whole_dims;
  // Of the whole parameter, row-major. For a scalar: where the owner's block begins.
  int64_t element_begin = 0;
  // Empty for values; "moment1" for optimizer state.
  std::string state_name;
  // State that every owner of a block keeps, equal in all (a count, a power): any number of floats, bits as they are
  // (so an int64 may be given as two).
  bool scalar = false;
};

struct TableLayout {
  std::string table;
  int width = 0;
  // Names and widths of the state behind the values of a row, in order.
  std::vector<std::pair<std::string, int>> states;
  int logical_shards = 4096;

  int state_width() const;
};

// Writes one shard file. Not thread-safe. A file that was not finished is removed by the destructor.
class ShardWriter {
 public:
  // Creates the file, or empties it. Unavailable names the file and what the system said.
  static absl::StatusOr<std::unique_ptr<ShardWriter>> Create(const std::string& path);
  virtual ~ShardWriter() = default;

  // InvalidArgument when the piece does not fit in whole_dims.
  virtual absl::Status AddDense(const DensePiece& piece, absl::Span<const float> values) = 0;

  // Rows stream: any number of AddRows between BeginTable and EndTable; memory stays bounded. Each id once. Rows given
  // in order of their logical shard make loading on other numbers of servers cheaper, any order is right.
  virtual absl::Status BeginTable(const TableLayout& layout) = 0;
  // rows [ids.size(), width + state_width]
  virtual absl::Status AddRows(absl::Span<const int64_t> ids, absl::Span<const float> rows) = 0;
  // row [width + state_width]
  virtual absl::Status AddRow(int64_t id, absl::Span<const float> row) = 0;
  virtual absl::Status EndTable() = 0;

  // Everything is on disk (fsync) when this returns. The description's file name is the last part of the path.
  virtual absl::StatusOr<v1::CheckpointShard> Finish() = 0;

  // Of what was written.
  virtual const DigestTable& digests() const = 0;
};

// Reads one shard file by its description. Every read is checked against the file; DataLoss names the file.
// Thread-safe.
class ShardReader {
 public:
  // DataLoss when the file is missing, has another size, another checksum (read once through, unless check is false),
  // or when the description does not make sense. FailedPrecondition for a newer format.
  static absl::StatusOr<std::unique_ptr<ShardReader>> Open(const std::string& directory,
                                                           const v1::CheckpointShard& shard, bool check_sum = true);
  virtual ~ShardReader() = default;

  virtual const v1::CheckpointShard& shard() const = 0;
  // `out` gets elements [begin, begin + out.size()) of the entry, counted from the entry's own first element.
  virtual absl::Status ReadDense(int entry, int64_t begin, absl::Span<float> out) const = 0;
  // Rows of shard().tables(entry) in runs of at most a few MiB: ids [n], rows [n, width + state_width]. Stops at the
  // first error of `visit` and returns it.
  using RowVisitor = std::function<absl::Status(absl::Span<const int64_t> ids, absl::Span<const float> rows)>;
  virtual absl::Status ReadTable(int entry, const RowVisitor& visit) const = 0;
};

// Name of the file of server i in a checkpoint: "shard-00001".
std::string ShardFileName(int server);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_SHARD_H_
