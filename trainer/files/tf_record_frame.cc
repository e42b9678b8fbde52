#include "trainer/files/tf_record_frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "framework/base/crc32c.h"

namespace weir {
namespace {

template <typename T>
T Load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

absl::Status Damaged(const DataFile& file, int64_t offset, std::string_view what) {
  return absl::DataLossError(
      absl::StrCat(file.name, ", record at byte ", offset, ": ", std::string(what), "; get the file again"));
}

}  // namespace

bool TfRecordFrame::IsRight(const char* bytes, size_t size) {
  return Load<uint32_t>(bytes + size) == MaskedCrc32c(bytes, size);
}

absl::StatusOr<size_t> TfRecordFrame::Length(const DataFile& file, int64_t offset, const char* header) {
  if (!IsRight(header, kLength)) {
    return offset == 0 ? absl::InvalidArgumentError(
                             absl::StrCat(file.name,
                                          ": is no TFRecord file: it does not begin with a length and its checksum; "
                                          "data.tf_record reads TFRecord files, plain or compressed, and other files "
                                          "need their own reader"))
                       : Damaged(file, offset, "damaged: the checksum of its length is wrong");
  }
  const auto length = Load<uint64_t>(header);
  if (length <= uint64_t{kMostBytes}) return length;
  return absl::InvalidArgumentError(absl::StrCat(file.name, ", record at byte ", offset, ": has ", length,
                                                 " bytes; at most ", kMostBytes,
                                                 " are possible; write the file again with shorter records"));
}

absl::Status TfRecordFrame::Check(const DataFile& file, int64_t offset, std::string_view record) {
  if (IsRight(record.data(), record.size())) return absl::OkStatus();
  return Damaged(file, offset, "damaged: the checksum of its bytes is wrong");
}

absl::Status TfRecordFrame::Cut(const DataFile& file, int64_t offset, std::string_view got) {
  if (got.size() < kHeader) return Damaged(file, offset, "cut: the file ends in the middle of its length");
  return Damaged(file, offset,
                 absl::StrCat("cut: the file ends in the middle of its ", Load<uint64_t>(got.data()), " bytes"));
}

}  // namespace weir
