// Lines of a plain or compressed file, or of a range of a plain one: those that are records (DataFile.rules). The byte
// order mark of UTF-8 at the start of a file is no part of its first line.
#ifndef WEIR_TRAINER_FILES_LINE_SOURCE_H_
#define WEIR_TRAINER_FILES_LINE_SOURCE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/data_file.h"
#include "trainer/files/record_source.h"

namespace weir {

class LineSource : public RecordSource {
 public:
  // Opens the lines that begin in the range of `segment` (plain), or all lines (compressed). The lines that a file
  // skips belong to it, and not to the range: none of them is in any. `file` must outlive the source.
  static absl::StatusOr<std::unique_ptr<LineSource>> Open(const DataFile& file, const Segment& segment);

  // Reads the next line, without its \n or \r\n. InvalidArgument: a line of more than kMaxLine bytes, a file in UTF-16.
  bool Next(std::string_view* line, int64_t* offset) override;
  bool JumpTo(int64_t offset) override;

  static constexpr int64_t kMaxLine = 16 << 20;  // bytes; a longer line is not a text of examples

 private:
  LineSource(const DataFile& file, std::unique_ptr<ByteSource> bytes, int64_t offset, int64_t end);
  // Reads the next line, whether it is a record or not.
  bool NextLine(std::string_view* line, int64_t* offset);
  // Reads more bytes into the buffer. Returns false at the end of the file or on an error.
  bool Fill();
  // Moves behind the line that has begun before the range. Reads no further than to the end of the range.
  void PassLine();
  // Sets the error of the present line, which is too long. Returns false.
  bool RefuseLine();

  const DataFile& file_;
  std::unique_ptr<ByteSource> bytes_;
  int64_t offset_;       // of buffer_[begin_] in the file
  int64_t end_;          // lines begin before it
  int64_t tail_;         // bytes read beyond it
  int64_t length_ = 0;   // of the last line
  int64_t skipped_ = 0;  // lines to come that the file skips
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t filled_ = 0;
  bool at_end_ = false;  // of the file
};

// Returns the range of a file in which its first record is found.
inline Segment ToFirstRecord(const DataFile& file) {
  return {.begin = 0, .end = file.rules == nullptr ? 1 : std::numeric_limits<int64_t>::max()};
}

// Returns the error of a line of more than LineSource::kMaxLine bytes. `number`: from 1.
absl::Status LineTooLong(const DataFile& file, int64_t number, int64_t offset);

// Returns InvalidArgument if `text`, the start of a file, has the byte order mark of UTF-16.
absl::Status CheckEncoding(const DataFile& file, std::string_view text);

// Returns the number, from 1, of the line that holds byte `offset` of the uncompressed file. Reads the file up to
// there; for messages.
absl::StatusOr<int64_t> LineNumber(const DataFile& file, int64_t offset);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_LINE_SOURCE_H_
