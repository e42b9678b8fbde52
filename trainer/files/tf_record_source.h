// Records of a TFRecord file, or of a range of a plain one.
//
// Both checksums of a record (trainer/files/tf_record_frame.h) are checked. A range begins at the first place from its
// beginning on where both are right: bytes inside of a record pass for one with a probability of 2^-64, unless the
// record holds a TFRecord file itself. A range therefore cannot tell a damaged record at its front from the inside of a
// record. The range before can: its last record ends where that one begins. So a source checks one record more than it
// gives, and of all sources of a file at least one names a damaged record, wherever the file is cut.
#ifndef WEIR_TRAINER_FILES_TF_RECORD_SOURCE_H_
#define WEIR_TRAINER_FILES_TF_RECORD_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/data_file.h"
#include "trainer/files/record_source.h"

namespace weir {

class TfRecordSource : public RecordSource {
 public:
  // Opens the records that begin in the range of `segment` (plain), or all (compressed). `file` must outlive the
  // source. Reading gives DataLoss, which names the file and the place, for a file that is cut or damaged.
  static absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Segment& segment);

  bool Next(std::string_view* record, int64_t* offset) override;
  // Checks no checksums of the records' bytes.
  int64_t Skip(int64_t records) override;
  bool JumpTo(int64_t offset) override;

 private:
  TfRecordSource(const DataFile& file, std::unique_ptr<ByteSource> bytes, int64_t offset, int64_t end);

  // Reads until `size` bytes are in the buffer. Returns how many there are, fewer only at the end of the file.
  absl::StatusOr<size_t> Fill(size_t size);
  const char* at() const { return buffer_.data() + begin_; }
  void Pass(size_t bytes) {
    begin_ += bytes;
    offset_ += static_cast<int64_t>(bytes);
  }
  // Moves to the first record from the beginning of the range on.
  absl::Status FindFirst();
  // Returns the bytes of the record at the place; nullopt: the file ends. `check`: their checksum, too.
  absl::StatusOr<std::optional<std::string_view>> Look(bool check);
  absl::StatusOr<bool> Read(std::string_view* record, int64_t* offset, bool check);

  const DataFile& file_;
  std::unique_ptr<ByteSource> bytes_;
  int64_t offset_;  // of at() in the file
  int64_t end_;     // records begin before it
  // True if the record behind the range has been checked, or there is none to check.
  bool checked_behind_ = false;
  std::vector<char> buffer_;
  size_t begin_ = 0;
  size_t filled_ = 0;
  bool at_end_ = false;  // of the file
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_TF_RECORD_SOURCE_H_
