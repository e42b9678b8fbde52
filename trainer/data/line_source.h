// The lines of a plain or gzip file, or of a range of a plain one. One thread at a time.
#ifndef WEIR_TRAINER_DATA_LINE_SOURCE_H_
#define WEIR_TRAINER_DATA_LINE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/data_set.h"

namespace weir {

// Uncompressed bytes of a file, in order.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `size` bytes; 0 at the end. DataLoss names the file and the place.
  virtual absl::StatusOr<size_t> Read(char* out, size_t size) = 0;

  // From byte `begin` of a plain file; gzip from its start. NotFound, DataLoss.
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const DataFile& file, int64_t begin);
};

class LineSource {
 public:
  // Lines that begin in the range of `segment` (plain), or all lines (gzip). `file` must outlive the source.
  static absl::StatusOr<std::unique_ptr<LineSource>> Open(const DataFile& file, const Segment& segment);

  // False at the end and on an error; then look at status(). `line` has neither \n nor \r\n, lives until the next call and
  // has LineParser::kPadding readable bytes behind it. `offset` is where it begins in the uncompressed file.
  bool Next(std::string_view* line, int64_t* offset);
  const absl::Status& status() const { return status_; }

  static constexpr int64_t kMaxLine = 16 << 20;  // bytes; more is no text of examples

 private:
  LineSource(const DataFile& file, std::unique_ptr<ByteSource> bytes, int64_t offset, int64_t end);
  // More bytes behind the ones there are. False at the end of the file or on an error.
  bool Fill();

  const DataFile& file_;
  std::unique_ptr<ByteSource> bytes_;
  int64_t offset_;     // of buffer_[begin_] in the file
  const int64_t end_;  // lines begin before it
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t filled_ = 0;
  bool at_end_ = false;  // of the file
  absl::Status status_;
};

// Number, from 1, of the line that holds byte `offset` of the uncompressed file. Reads the file up to there: for messages.
absl::StatusOr<int64_t> LineNumber(const DataFile& file, int64_t offset);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LINE_SOURCE_H_
