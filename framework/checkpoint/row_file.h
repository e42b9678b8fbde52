// Files of embedding rows: a table, or its changes, in checksummed chunks that can be read one by one. The format is
// described in docs/row_files.md and proto/row_file.proto.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_ROW_FILE_H_
#define WEIR_FRAMEWORK_CHECKPOINT_ROW_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/file.h"
#include "framework/checkpoint/shard.h"
#include "proto/row_file.pb.h"

namespace weir {

inline constexpr uint32_t kRowFileFormat = 1;

// Writes beside `path` and renames in Finish, so an unfinished file never replaces a good one. Not thread-safe.
class RowFileWriter {
 public:
  // Creates the file. layout.states: the state behind the values; empty without state. since_step < 0: the file holds
  // all rows.
  static absl::StatusOr<std::unique_ptr<RowFileWriter>> Create(const std::string& path, const TableLayout& layout,
                                                               const std::string& job, int64_t step,
                                                               int64_t since_step);

  // Adds rows [ids.size(), width + state_width] and ids of removed rows. Each id must occur once in a file.
  absl::Status Add(absl::Span<const int64_t> ids, absl::Span<const float> rows, absl::Span<const int64_t> removed);
  // Syncs the file to disk, renames it to `path`, syncs the directory, and returns the description of the file.
  absl::StatusOr<v1::RowFile> Finish();

 private:
  RowFileWriter(TableLayout layout, std::unique_ptr<FileWriter> file)
      : layout_(std::move(layout)), file_(std::move(file)), digester_(layout_.table, layout_.logical_shards) {}
  absl::Status WriteChunk(absl::Span<const int64_t> ids, absl::Span<const float> rows,
                          absl::Span<const int64_t> removed);

  const TableLayout layout_;
  std::unique_ptr<FileWriter> file_;
  v1::RowFile description_;
  VariableDigester digester_;
};

// Thread-safe.
class RowFileReader {
 public:
  // Opens a file. DataLoss if it is truncated, damaged, or not a row file. FailedPrecondition for a newer format.
  static absl::StatusOr<std::unique_ptr<RowFileReader>> Open(const std::string& path);

  const v1::RowFile& description() const { return description_; }
  TableLayout layout() const;

  struct Chunk {
    std::vector<int64_t> ids;
    std::vector<float> rows;  // [ids.size(), width + state_width]
    std::vector<int64_t> removed;
  };
  // Reads chunk i of description().chunks(). DataLoss if its checksum does not match.
  absl::StatusOr<Chunk> Read(int i) const;

 private:
  RowFileReader(std::string path, std::unique_ptr<FileReader> file) : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status ReadDescription();
  absl::Status CheckDescription() const;

  const std::string path_;
  const std::unique_ptr<FileReader> file_;
  v1::RowFile description_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_ROW_FILE_H_
