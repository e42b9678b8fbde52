#include "trainer/files/line_source.h"

#include <string.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "trainer/files/open_bytes.h"

namespace weir {
namespace {

// Bytes read beyond the end of a part, which suffice for the rest of most last lines.
constexpr int64_t kTail = 1024;

// Least number of bytes read behind a single line: most lines of a file are less than twice as long as the one before.
constexpr int64_t kLeastTail = 128;

// Returns the number of bytes to read at once at `offset` of a file in which the lines up to `end` are wanted: a small
// part takes little memory, and little is read of the parts of other streams.
size_t BlockFor(int64_t offset, int64_t end, int64_t tail = kTail) {
  const int64_t left = std::clamp<int64_t>(end - offset, 0, ByteSource::kBlock);
  return static_cast<size_t>(std::min<int64_t>(ByteSource::kBlock, left + tail));
}

// Returns where the lines begin that a plain file does not skip.
absl::StatusOr<int64_t> BehindSkipped(const DataFile& file) {
  if (file.rules == nullptr || file.rules->skipped == 0) return 0;
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> bytes, OpenBytes(file, 0));
  std::vector<char> block(BlockFor(0, file.bytes));
  int64_t left = file.rules->skipped, offset = 0;
  while (true) {
    ASSIGN_OR_RETURN(const size_t got, bytes->Read(block.data(), block.size()));
    if (got == 0) return offset;
    for (size_t at = 0; at < got; ++at) {
      if (block[at] == '\n' && --left == 0) return offset + static_cast<int64_t>(at) + 1;
    }
    offset += static_cast<int64_t>(got);
  }
}

}  // namespace

LineSource::LineSource(const DataFile& file, std::unique_ptr<ByteSource> bytes, int64_t offset, int64_t end)
    : file_(file),
      bytes_(std::move(bytes)),
      offset_(offset),
      end_(end),
      tail_(kTail),
      buffer_(BlockFor(offset, end) + LineParser::kPadding) {}

absl::StatusOr<std::unique_ptr<LineSource>> LineSource::Open(const DataFile& file, const Segment& segment) {
  if (file.sequential()) {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, OpenBytes(file, 0));
    std::unique_ptr<LineSource> all(new LineSource(file, std::move(bytes), 0, std::numeric_limits<int64_t>::max()));
    if (file.rules != nullptr) all->skipped_ = file.rules->skipped;
    return all;
  }
  // A line begins at 0 or behind a newline: whether one begins at `begin` shows in the byte before it.
  int64_t from = std::max<int64_t>(segment.begin - 1, 0);
  if (segment.begin > 0) {
    ASSIGN_OR_RETURN(const int64_t behind, BehindSkipped(file));
    from = std::max(from, behind - 1);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, OpenBytes(file, from));
  std::unique_ptr<LineSource> source(new LineSource(file, std::move(bytes), from, segment.end));
  if (segment.begin > 0) {
    source->PassLine();
  } else if (file.rules != nullptr) {
    source->skipped_ = file.rules->skipped;
  }
  RETURN_IF_ERROR(source->status());
  return source;
}

void LineSource::PassLine() {
  while (offset_ < end_) {
    const std::string_view text(buffer_.data() + begin_, filled_ - begin_);
    const size_t newline = text.find('\n');
    const size_t taken = newline == std::string_view::npos ? text.size() : newline + 1;
    begin_ += taken;
    offset_ += static_cast<int64_t>(taken);
    if (newline != std::string_view::npos || !Fill()) return;
  }
}

bool LineSource::Fill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    memmove(buffer_.data(), buffer_.data() + begin_, filled_ - begin_);
    filled_ -= begin_;
    begin_ = 0;
  }
  if (filled_ + LineParser::kPadding == buffer_.size()) buffer_.resize(2 * filled_ + LineParser::kPadding);
  const size_t room = buffer_.size() - LineParser::kPadding - filled_;
  const size_t wanted = std::min(room, BlockFor(offset_ + static_cast<int64_t>(filled_), end_, tail_));
  const absl::StatusOr<size_t> got = bytes_->Read(buffer_.data() + filled_, wanted);
  if (!got.ok()) {
    status_ = got.status();
    return false;
  }
  filled_ += *got;
  memset(buffer_.data() + filled_, 0, LineParser::kPadding);
  at_end_ = *got == 0;
  return !at_end_;
}

bool LineSource::Next(std::string_view* line, int64_t* offset) {
  const LineRules* const rules = file_.rules.get();
  while (NextLine(line, offset)) {
    if (rules == nullptr) return true;
    if (skipped_ > 0) {
      --skipped_;
    } else if (rules->IsRecord(*line)) {
      return true;
    }
  }
  return false;
}

bool LineSource::NextLine(std::string_view* line, int64_t* offset) {
  if (offset_ >= end_ || !status_.ok()) return false;
  size_t searched = 0;
  const char* newline = nullptr;
  while (true) {
    const size_t left = filled_ - begin_ - searched;
    newline = static_cast<const char*>(memchr(buffer_.data() + begin_ + searched, '\n', left));
    if (newline != nullptr) break;
    searched += left;
    if (static_cast<int64_t>(searched) > kMaxLine) return RefuseLine();
    if (Fill()) continue;
    if (!status_.ok() || filled_ == begin_) return false;
    break;  // the last line has no newline
  }
  const char* const text = buffer_.data() + begin_;
  const size_t length = newline != nullptr ? static_cast<size_t>(newline - text) : filled_ - begin_;
  if (static_cast<int64_t>(length) > kMaxLine) return RefuseLine();
  *line = {text, length > 0 && text[length - 1] == '\r' ? length - 1 : length};
  *offset = offset_;
  if (offset_ == 0) {
    status_ = CheckEncoding(file_, *line);
    if (!status_.ok()) return false;
    *line = WithoutByteOrderMark(*line);
    if (newline == nullptr && line->empty()) return false;  // a file of the mark alone has no line
  }
  length_ = static_cast<int64_t>(length);
  const size_t taken = length + (newline != nullptr ? 1 : 0);
  begin_ += taken;
  offset_ += static_cast<int64_t>(taken);
  return true;
}

bool LineSource::JumpTo(int64_t offset) {
  const int64_t behind = offset_ + static_cast<int64_t>(filled_ - begin_);
  if (!status_.ok() || offset < offset_) return false;
  // The lines behind it may not be wanted, so Fill reads no more than is likely to hold this one.
  end_ = offset + 1;
  tail_ = std::max(kLeastTail, 2 * length_);
  if (offset == offset_) return true;
  // The byte before it shows whether a line begins there.
  if (offset <= behind) {
    begin_ += static_cast<size_t>(offset - 1 - offset_);
  } else {
    if (!bytes_->JumpTo(offset - 1)) return false;
    begin_ = filled_ = 0;
    at_end_ = false;
  }
  offset_ = offset - 1;
  skipped_ = 0;  // the record is behind them
  if (begin_ == filled_ && !Fill()) return true;
  const bool begins = buffer_[begin_] == '\n';
  ++begin_;
  ++offset_;
  if (!begins) end_ = offset_;
  return true;
}

bool LineSource::RefuseLine() {
  const absl::StatusOr<int64_t> number = LineNumber(file_, offset_);
  status_ = number.ok() ? LineTooLong(file_, *number, offset_) : number.status();
  return false;
}

absl::Status LineTooLong(const DataFile& file, int64_t number, int64_t offset) {
  return absl::InvalidArgumentError(absl::StrCat(file.name, ":", number, ": the line at byte ", offset,
                                                 " is longer than ", LineSource::kMaxLine,
                                                 " bytes: is this a text with lines?"));
}

absl::Status CheckEncoding(const DataFile& file, std::string_view text) {
  if (!text.starts_with("\xFF\xFE") && !text.starts_with("\xFE\xFF")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.name, ": begins with the byte order mark of UTF-16, and data is text in UTF-8: write it again with ",
      "iconv -f UTF-16 -t UTF-8, or let the job do so (data.pipe)"));
}

absl::StatusOr<int64_t> LineNumber(const DataFile& file, int64_t offset) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, OpenBytes(file, 0));
  std::vector<char> block(ByteSource::kBlock);
  int64_t line = 1;
  while (offset > 0) {
    ASSIGN_OR_RETURN(const size_t got,
                     bytes->Read(block.data(), static_cast<size_t>(std::min<int64_t>(offset, ByteSource::kBlock))));
    if (got == 0) break;
    line += std::count(block.data(), block.data() + got, '\n');
    offset -= static_cast<int64_t>(got);
  }
  return line;
}

}  // namespace weir
