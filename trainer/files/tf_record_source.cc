#include "trainer/files/tf_record_source.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "trainer/files/open_bytes.h"
#include "trainer/files/tf_record_frame.h"

namespace weir {
namespace {

constexpr size_t kHeader = TfRecordFrame::kHeader, kFooter = TfRecordFrame::kFooter;

// Bytes read beyond the end of a range, which suffice for most last records and the one behind.
constexpr int64_t kRecordTail = 4096;

// Returns the number of bytes to read at once at `offset` of a file in which the records up to `end` are wanted.
size_t BytesAtOnce(int64_t offset, int64_t end) {
  const int64_t left = std::clamp<int64_t>(end - offset, 0, ByteSource::kBlock);
  return static_cast<size_t>(std::min<int64_t>(ByteSource::kBlock, left + kRecordTail));
}

}  // namespace

TfRecordSource::TfRecordSource(const DataFile& file, std::unique_ptr<ByteSource> bytes, int64_t offset, int64_t end)
    : file_(file), bytes_(std::move(bytes)), offset_(offset), end_(end) {}

absl::StatusOr<std::unique_ptr<RecordSource>> TfRecordSource::Open(const DataFile& file, const Segment& segment) {
  const int64_t begin = file.sequential() ? 0 : segment.begin;
  const int64_t end = file.sequential() ? std::numeric_limits<int64_t>::max() : segment.end;
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, OpenBytes(file, begin));
  std::unique_ptr<TfRecordSource> source(new TfRecordSource(file, std::move(bytes), begin, end));
  if (begin > 0) RETURN_IF_ERROR(source->FindFirst());
  // Bytes that the file has got since it was looked at are of no range.
  source->checked_behind_ = source->offset_ >= end || end >= file.bytes;
  return source;
}

absl::StatusOr<size_t> TfRecordSource::Fill(size_t size) {
  while (filled_ - begin_ < size && !at_end_) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), at(), filled_ - begin_);
      filled_ -= begin_;
      begin_ = 0;
    }
    const size_t wanted = std::max(size, BytesAtOnce(offset_, end_));
    if (buffer_.size() < wanted + LineParser::kPadding) buffer_.resize(wanted + LineParser::kPadding);
    ASSIGN_OR_RETURN(const size_t got,
                     bytes_->Read(buffer_.data() + filled_, buffer_.size() - LineParser::kPadding - filled_));
    filled_ += got;
    at_end_ = got == 0;
  }
  return std::min(size, filled_ - begin_);
}

bool TfRecordSource::JumpTo(int64_t offset) {
  const int64_t behind = offset_ + static_cast<int64_t>(filled_ - begin_);
  if (!status_.ok() || offset < offset_) return false;
  if (offset <= behind) {
    begin_ += static_cast<size_t>(offset - offset_);
  } else {
    if (!bytes_->JumpTo(offset)) return false;
    begin_ = filled_ = 0;
    at_end_ = false;
  }
  offset_ = offset;
  // The records behind it may not be wanted.
  end_ = offset + 1;
  checked_behind_ = true;
  return true;
}

absl::Status TfRecordSource::FindFirst() {
  while (offset_ < end_) {
    ASSIGN_OR_RETURN(const size_t got, Fill(kHeader));
    if (got < kHeader) {
      // The rest is the end of a record that begins in front of the range; if it is not, the source of the range before
      // reports it.
      Pass(got);
      return absl::OkStatus();
    }
    const bool may_begin = TfRecordFrame::IsRight(at(), TfRecordFrame::kLength);
    const absl::StatusOr<size_t> size = may_begin ? TfRecordFrame::Length(file_, offset_, at()) : 0;
    if (may_begin && size.ok()) {
      ASSIGN_OR_RETURN(const size_t whole, Fill(kHeader + *size + kFooter));
      if (whole == kHeader + *size + kFooter && TfRecordFrame::IsRight(at() + kHeader, *size)) return absl::OkStatus();
    }
    Pass(1);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string_view>> TfRecordSource::Look(bool check) {
  ASSIGN_OR_RETURN(size_t got, Fill(kHeader));
  if (got == 0) return std::nullopt;
  if (got < kHeader) return TfRecordFrame::Cut(file_, offset_, {at(), got});
  ASSIGN_OR_RETURN(const size_t size, TfRecordFrame::Length(file_, offset_, at()));
  ASSIGN_OR_RETURN(got, Fill(kHeader + size + kFooter));
  if (got < kHeader + size + kFooter) return TfRecordFrame::Cut(file_, offset_, {at(), got});
  const std::string_view record(at() + kHeader, size);
  if (check) RETURN_IF_ERROR(TfRecordFrame::Check(file_, offset_, record));
  return record;
}

absl::StatusOr<bool> TfRecordSource::Read(std::string_view* record, int64_t* offset, bool check) {
  if (offset_ >= end_) {
    if (checked_behind_) return false;
    checked_behind_ = true;
    RETURN_IF_ERROR(Look(/*check=*/true).status());
    return false;
  }
  ASSIGN_OR_RETURN(const std::optional<std::string_view> found, Look(check));
  if (!found.has_value()) return false;
  *record = *found;
  *offset = offset_;
  Pass(kHeader + found->size() + kFooter);
  return true;
}

bool TfRecordSource::Next(std::string_view* record, int64_t* offset) {
  if (!status_.ok()) return false;
  const absl::StatusOr<bool> read = Read(record, offset, /*check=*/true);
  status_ = read.status();
  return read.ok() && *read;
}

int64_t TfRecordSource::Skip(int64_t records) {
  std::string_view record;
  int64_t offset;
  for (int64_t skipped = 0; skipped < records; ++skipped) {
    const absl::StatusOr<bool> read = status_.ok() ? Read(&record, &offset, /*check=*/false) : false;
    if (!read.ok()) status_ = read.status();
    if (!read.ok() || !*read) return skipped;
  }
  return records;
}

}  // namespace weir
