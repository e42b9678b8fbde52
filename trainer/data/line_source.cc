#include "trainer/data/line_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/data/line_parser.h"

namespace weir {
namespace {

constexpr size_t kBlock = 1 << 18;  // bytes read at once; fits into the second-level cache with what is made of it

absl::Status OsError(const DataFile& file, const char* what) {
  const int error = errno;
  const std::string text = absl::StrCat(file.name, ": cannot ", what, ": ", ::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES) return absl::PermissionDeniedError(text);
  return absl::DataLossError(text);
}

class File {
 public:
  explicit File(const DataFile& file) : file_(file), fd_(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool is_open() const { return fd_ >= 0; }

  // Up to `size` bytes at `offset`; fewer only at the end of the file.
  absl::StatusOr<size_t> ReadAt(int64_t offset, char* out, size_t size) {
    size_t got = 0;
    while (got < size) {
      const ssize_t n = ::pread(fd_, out + got, size - got, offset + static_cast<int64_t>(got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return OsError(file_, "read");
      if (n == 0) break;
      got += static_cast<size_t>(n);
    }
    return got;
  }

 private:
  const DataFile& file_;
  const int fd_;
};

class PlainSource : public ByteSource {
 public:
  PlainSource(const DataFile& file, int64_t begin) : info_(file), file_(file), at_(begin) {}
  bool is_open() const { return file_.is_open(); }

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    // What was appended since the files were listed belongs to no stream.
    size = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(size), info_.bytes - at_));
    if (size == 0) return 0;
    ASSIGN_OR_RETURN(const size_t got, file_.ReadAt(at_, out, size));
    at_ += static_cast<int64_t>(got);
    if (got < size) {
      return absl::DataLossError(
          absl::StrCat(info_.name, ": ends at byte ", at_, ", had ", info_.bytes, " bytes when the job started"));
    }
    return got;
  }

 private:
  const DataFile& info_;
  File file_;
  int64_t at_;
};

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(const DataFile& file) : info_(file), file_(file), input_(kBlock) {
    // 16: a gzip header and trailer, nothing else.
    CHECK_EQ(inflateInit2(&zlib_, 16 + MAX_WBITS), Z_OK);
  }
  ~GzipSource() override { inflateEnd(&zlib_); }
  bool is_open() const { return file_.is_open(); }

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    zlib_.next_out = reinterpret_cast<Bytef*>(out);
    zlib_.avail_out = static_cast<uInt>(std::min<size_t>(size, std::numeric_limits<uInt>::max()));
    const uInt wanted = zlib_.avail_out;
    while (zlib_.avail_out == wanted) {
      if (zlib_.avail_in == 0) {
        ASSIGN_OR_RETURN(const size_t got, file_.ReadAt(read_, reinterpret_cast<char*>(input_.data()), input_.size()));
        read_ += static_cast<int64_t>(got);
        zlib_.next_in = input_.data();
        zlib_.avail_in = static_cast<uInt>(got);
        if (got == 0) {
          if (between_members_) return 0;
          return absl::DataLossError(absl::StrCat(info_.name, ": cut: the compressed data ends at byte ", read_,
                                                  " in the middle of a stream; get the file again"));
        }
      }
      if (between_members_) {  // gzip files may be concatenated
        inflateReset(&zlib_);
        between_members_ = false;
      }
      const int result = inflate(&zlib_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        between_members_ = true;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return absl::DataLossError(absl::StrCat(info_.name, ": damaged gzip at byte ", read_ - zlib_.avail_in, ": ",
                                                zlib_.msg == nullptr ? "bad data" : zlib_.msg, "; get the file again"));
      }
    }
    return wanted - zlib_.avail_out;
  }

 private:
  const DataFile& info_;
  File file_;
  int64_t read_ = 0;  // compressed bytes
  std::vector<Bytef> input_;
  z_stream zlib_ = {};
  bool between_members_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const DataFile& file, int64_t begin) {
  if (file.gzip) {
    CHECK_EQ(begin, 0) << file.name;
    auto source = std::make_unique<GzipSource>(file);
    if (!source->is_open()) return OsError(file, "open");
    return source;
  }
  auto source = std::make_unique<PlainSource>(file, begin);
  if (!source->is_open()) return OsError(file, "open");
  return source;
}

LineSource::LineSource(const DataFile& file, std::unique_ptr<ByteSource> bytes, int64_t offset, int64_t end)
    : file_(file), bytes_(std::move(bytes)), offset_(offset), end_(end), buffer_(kBlock + LineParser::kPadding) {}

absl::StatusOr<std::unique_ptr<LineSource>> LineSource::Open(const DataFile& file, const Segment& segment) {
  if (file.gzip) {
    ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, ByteSource::Open(file, 0));
    return std::unique_ptr<LineSource>(
        new LineSource(file, std::move(bytes), 0, std::numeric_limits<int64_t>::max()));
  }
  // A line begins at 0 or behind a newline: whether one begins at `begin` shows in the byte before it.
  const int64_t from = std::max<int64_t>(segment.begin - 1, 0);
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, ByteSource::Open(file, from));
  std::unique_ptr<LineSource> source(new LineSource(file, std::move(bytes), from, segment.end));
  if (segment.begin > 0) {
    std::string_view line;
    int64_t offset;
    if (!source->Next(&line, &offset)) RETURN_IF_ERROR(source->status());
  }
  return source;
}

bool LineSource::Fill() {
  if (at_end_) return false;
  if (begin_ > 0) {
    memmove(buffer_.data(), buffer_.data() + begin_, filled_ - begin_);
    filled_ -= begin_;
    begin_ = 0;
  }
  if (filled_ + LineParser::kPadding == buffer_.size()) {
    if (static_cast<int64_t>(filled_) >= kMaxLine) {
      status_ = absl::InvalidArgumentError(absl::StrCat(file_.name, ": the line at byte ", offset_, " is longer than ",
                                                        kMaxLine, " bytes"));
      return false;
    }
    buffer_.resize(2 * filled_ + LineParser::kPadding);
  }
  const absl::StatusOr<size_t> got =
      bytes_->Read(buffer_.data() + filled_, buffer_.size() - LineParser::kPadding - filled_);
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
  if (offset_ >= end_ || !status_.ok()) return false;
  size_t searched = 0;
  const char* newline = nullptr;
  while (true) {
    const size_t left = filled_ - begin_ - searched;
    newline = static_cast<const char*>(memchr(buffer_.data() + begin_ + searched, '\n', left));
    if (newline != nullptr) break;
    searched += left;
    if (Fill()) continue;
    if (!status_.ok() || filled_ == begin_) return false;
    break;  // the last line has no newline
  }
  const char* const text = buffer_.data() + begin_;
  const size_t length = newline != nullptr ? static_cast<size_t>(newline - text) : filled_ - begin_;
  *line = {text, length > 0 && text[length - 1] == '\r' ? length - 1 : length};
  *offset = offset_;
  const size_t taken = length + (newline != nullptr ? 1 : 0);
  begin_ += taken;
  offset_ += static_cast<int64_t>(taken);
  return true;
}

absl::StatusOr<int64_t> LineNumber(const DataFile& file, int64_t offset) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> bytes, ByteSource::Open(file, 0));
  std::vector<char> block(kBlock);
  int64_t line = 1;
  while (offset > 0) {
    ASSIGN_OR_RETURN(const size_t got,
                     bytes->Read(block.data(), static_cast<size_t>(std::min<int64_t>(offset, kBlock))));
    if (got == 0) break;
    line += std::count(block.data(), block.data() + got, '\n');
    offset -= static_cast<int64_t>(got);
  }
  return line;
}

}  // namespace weir
