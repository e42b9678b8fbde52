#include "trainer/files/block_reader.h"

#include <string.h>

#include <algorithm>

#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "trainer/files/line_source.h"
#include "trainer/files/open_bytes.h"
#include "trainer/files/tf_record_frame.h"

namespace weir {

absl::StatusOr<bool> BlockReader::Read(BlockOfRecords* block) {
  block->ends.clear();
  block->begins.clear();
  block->offset = offset_;
  if (bytes_ == nullptr) {
    ASSIGN_OR_RETURN(bytes_, OpenBytes(file_, offset_));
  }
  std::vector<char>& bytes = block->bytes;
  size_t filled = rest_.size(), whole = 0;
  // Make room for what the block before has left over, too, so that memory of blocks is allocated once.
  const auto make_room = [&] {
    const size_t needed = filled + block_ + LineParser::kPadding;
    if (bytes.size() < needed) bytes.resize(needed + block_ / 8);
  };
  make_room();
  std::copy(rest_.begin(), rest_.end(), bytes.begin());
  rest_.clear();
  absl::Status status;
  bool at_end = false;
  while (whole == 0 && !at_end && status.ok()) {
    if (file_.lines() && static_cast<int64_t>(filled) > LineSource::kMaxLine) return TooLong(offset_);
    make_room();
    const size_t searched = filled;
    for (const size_t full = filled + block_; filled < full && !at_end;) {
      const absl::StatusOr<size_t> got = bytes_->Read(bytes.data() + filled, full - filled);
      status = got.status();
      if (!got.ok()) break;  // the records before it are still given
      filled += *got;
      at_end = *got == 0;
    }
    if (file_.lines()) {
      whole = FindLines(filled, searched, block);
    } else {
      const absl::StatusOr<size_t> found = FindRecords(filled, block);
      if (!found.ok()) return found.status();
      whole = *found;
    }
  }
  if (file_.lines()) {
    RETURN_IF_ERROR(EndLines(filled, whole, at_end, block));
  } else if (at_end && whole < filled) {
    status = TfRecordFrame::Cut(file_, offset_ + static_cast<int64_t>(whole), {bytes.data() + whole, filled - whole});
  }
  RETURN_IF_ERROR(status);
  rest_.assign(bytes.begin() + static_cast<ptrdiff_t>(whole), bytes.begin() + static_cast<ptrdiff_t>(filled));
  offset_ += static_cast<int64_t>(whole);
  records_ += static_cast<int64_t>(block->ends.size());
  return !at_end;
}

absl::Status BlockReader::TooLong(int64_t offset) const {
  if (file_.rules == nullptr) return LineTooLong(file_, records_ + 1, offset);
  ASSIGN_OR_RETURN(const int64_t number, LineNumber(file_, offset));
  return LineTooLong(file_, number, offset);
}

void BlockReader::AddLine(size_t begin, size_t end, BlockOfRecords* block) {
  if (skipped_ > 0) {
    --skipped_;
    return;
  }
  std::string_view line(block->bytes.data() + begin, end - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (block->offset == 0 && begin == 0) line = WithoutByteOrderMark(line);
  if (!file_.rules->IsRecord(line)) return;
  block->begins.push_back(static_cast<uint32_t>(begin));
  block->ends.push_back(static_cast<uint32_t>(end));
}

size_t BlockReader::FindLines(size_t filled, size_t searched, BlockOfRecords* block) {
  const char* const text = block->bytes.data();
  if (file_.rules != nullptr) {
    size_t begin = 0;
    while (const void* const newline = memchr(text + searched, '\n', filled - searched)) {
      const auto end = static_cast<size_t>(static_cast<const char*>(newline) - text);
      AddLine(begin, end, block);
      begin = searched = end + 1;
    }
    return begin;
  }
  while (const void* const newline = memchr(text + searched, '\n', filled - searched)) {
    searched = static_cast<size_t>(static_cast<const char*>(newline) - text);
    block->ends.push_back(static_cast<uint32_t>(searched++));
  }
  return block->ends.empty() ? 0 : size_t{block->ends.back()} + 1;
}

absl::Status BlockReader::EndLines(size_t filled, size_t whole, bool at_end, BlockOfRecords* block) {
  const std::string_view text(block->bytes.data(), filled);
  // Lines behind the first one are shorter than what is read at once.
  absl::Status unfit;
  const size_t first = file_.rules == nullptr && !block->ends.empty() ? block->ends[0] : text.find('\n');
  if (whole > 0 && static_cast<int64_t>(first) > LineSource::kMaxLine) {
    unfit = TooLong(block->offset);
  } else if (block->offset == 0) {
    unfit = CheckEncoding(file_, text);
  }
  if (!unfit.ok()) {
    block->ends.clear();
    block->begins.clear();
  }
  RETURN_IF_ERROR(unfit);
  // A file of the mark alone has no line.
  const bool only_mark = block->offset == 0 && WithoutByteOrderMark(text).empty();
  if (!at_end || whole == filled || only_mark) return absl::OkStatus();
  if (file_.rules != nullptr) {
    AddLine(whole, filled, block);
  } else {
    block->ends.push_back(static_cast<uint32_t>(filled));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> BlockReader::FindRecords(size_t filled, BlockOfRecords* block) const {
  constexpr size_t kHeader = TfRecordFrame::kHeader, kFooter = TfRecordFrame::kFooter;
  size_t at = 0;
  while (filled - at >= kHeader) {
    ASSIGN_OR_RETURN(const size_t length,
                     TfRecordFrame::Length(file_, block->offset + static_cast<int64_t>(at), block->bytes.data() + at));
    if (filled - at < kHeader + length + kFooter) break;
    block->ends.push_back(static_cast<uint32_t>(at + kHeader + length));
    at += kHeader + length + kFooter;
  }
  return at;
}

absl::Status BlockReader::Give(const DataFile& file, const BlockOfRecords& block, size_t i, std::string_view* record,
                               int64_t* offset) {
  const char* const bytes = block.bytes.data();
  const size_t end = block.ends[i];
  if (!file.lines()) {
    const size_t begin = i == 0 ? 0 : size_t{block.ends[i - 1]} + TfRecordFrame::kFooter;
    *offset = block.offset + static_cast<int64_t>(begin);
    *record = {bytes + begin + TfRecordFrame::kHeader, end - begin - TfRecordFrame::kHeader};
    return TfRecordFrame::Check(file, *offset, *record);
  }
  const size_t begin = !block.begins.empty() ? block.begins[i] : i == 0 ? 0 : size_t{block.ends[i - 1]} + 1;
  *offset = block.offset + static_cast<int64_t>(begin);
  *record = {bytes + begin, end > begin && bytes[end - 1] == '\r' ? end - begin - 1 : end - begin};
  if (*offset == 0) *record = WithoutByteOrderMark(*record);
  return absl::OkStatus();
}

}  // namespace weir
