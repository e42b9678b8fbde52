#include "framework/checkpoint/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weir {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

absl::Status WriteAll(int fd, const char* data, size_t size, std::string_view path) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError("cannot write", path, errno);
    }
    data += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status NotRegular(std::string_view path, uint32_t mode) {
  return absl::FailedPreconditionError(
      absl::StrCat(Av(path), " is ", Av(KindOfFile(mode)), "; a regular file was expected"));
}

}  // namespace

absl::Status FileError(std::string_view what, std::string_view path, int error) {
  const std::string text = absl::StrCat(Av(what), " ", Av(path), ": ", strerror(error), FileSizeLimitText(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case EIO:
    case EAGAIN:
    case EBUSY:
    case EINTR:
    case ENOLCK:
    case ESTALE:
    case ETIMEDOUT:
      return absl::UnavailableError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

struct FileWriter::Sum {
  XXH3_state_t state;
};

FileWriter::FileWriter(std::string path) : path_(std::move(path)), sum_(std::make_unique<Sum>()) {
  XXH3_64bits_reset(&sum_->state);
  buffer_.reserve(kBufferBytes);
}

absl::StatusOr<std::unique_ptr<FileWriter>> FileWriter::Create(const std::string& path) {
  std::unique_ptr<FileWriter> writer(new FileWriter(path));
  // Truncated below, when it is known to be a regular file. O_NONBLOCK: a FIFO must not wait for its reader.
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("cannot create", path, errno);
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return NotRegular(path, info.st_mode);
  }
  writer->fd_ = fd;
  if (::ftruncate(fd, 0) != 0) return FileError("cannot empty", path, errno);
  return writer;
}

absl::StatusOr<std::unique_ptr<FileWriter>> FileWriter::CreateAtomically(const std::string& path, bool patched) {
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  struct stat info = {};
  // Any place of /dev/null can be written, but no place of a pipe, and in a descriptor it is unknown where we began.
  if (patched && file->direct() &&
      (::fstat(file->fd(), &info) != 0 || !S_ISCHR(info.st_mode) || ::lseek(file->fd(), 0, SEEK_SET) < 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be written at any place, which this format needs; name a file"));
  }
  std::unique_ptr<FileWriter> writer(new FileWriter(file->path()));
  writer->fd_ = file->fd();
  writer->atomic_ = std::move(file);
  return writer;
}

FileWriter::~FileWriter() {
  if (fd_ < 0 || atomic_ != nullptr) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

absl::Status FileWriter::Append(const void* data, size_t size) {
  XXH3_64bits_update(&sum_->state, data, size);
  size_ += static_cast<int64_t>(size);
  if (buffer_.size() + size <= kBufferBytes) {
    buffer_.append(static_cast<const char*>(data), size);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Flush());
  if (size >= kBufferBytes) return WriteAll(fd_, static_cast<const char*>(data), size, path_);
  buffer_.append(static_cast<const char*>(data), size);
  return absl::OkStatus();
}

absl::Status FileWriter::AlignTo(size_t alignment) {
  const size_t past = static_cast<size_t>(size_) % alignment;
  if (past == 0) return absl::OkStatus();
  const std::string zeros(alignment - past, '\0');
  return Append(zeros.data(), zeros.size());
}

absl::Status FileWriter::Patch(int64_t offset, std::string_view bytes) {
  RETURN_IF_ERROR(Flush());
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("cannot write", path_, errno);
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Flush() {
  absl::Status status = WriteAll(fd_, buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
  return status;
}

absl::Status FileWriter::Close() {
  RETURN_IF_ERROR(Flush());
  if (atomic_ != nullptr) {
    fd_ = -1;
    return atomic_->Commit();
  }
  if (::fsync(fd_) != 0) return FileError("cannot sync", path_, errno);
  // A file system may report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0) return FileError("cannot close", path_, errno);
  return absl::OkStatus();
}

uint64_t FileWriter::checksum() const { return XXH3_64bits_digest(&sum_->state); }

absl::StatusOr<std::unique_ptr<FileReader>> FileReader::Open(const std::string& path) {
  const int fd = OpenForReading(path);
  if (fd < 0) return FileError("cannot open", path, errno);
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    if (S_ISDIR(info.st_mode)) return FileError("cannot read", path, EISDIR);
    return NotRegular(path, info.st_mode);
  }
  return std::unique_ptr<FileReader>(new FileReader(path, fd, info.st_size));
}

FileReader::~FileReader() { ::close(fd_); }

absl::Status FileReader::Read(int64_t offset, void* data, size_t size) const {
  char* out = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::pread(fd_, out, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("cannot read", path_, errno);
    if (n == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, " ends at byte ", offset, "; ", size, " more bytes belong to it: the file was cut"));
    }
    out += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FileReader::Checksum() const {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::vector<char> buffer(kBufferBytes);
  for (int64_t at = 0; at < size_;) {
    const size_t n = std::min<int64_t>(size_ - at, kBufferBytes);
    RETURN_IF_ERROR(Read(at, buffer.data(), n));
    XXH3_64bits_update(&state, buffer.data(), n);
    at += static_cast<int64_t>(n);
  }
  return XXH3_64bits_digest(&state);
}

absl::Status CheckFile(const FileReader& file, const std::string& path, const v1::CheckpointFile& expected,
                       bool check_sum) {
  if (file.size() != expected.bytes()) {
    return absl::DataLossError(absl::StrCat(path, " has ", file.size(), " bytes, the manifest says ", expected.bytes(),
                                            ": the file was cut or changed"));
  }
  if (!check_sum) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint64_t sum, file.Checksum());
  if (sum == expected.checksum()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " has checksum ", absl::Hex(sum, absl::kZeroPad16),
                                          ", the manifest says ", absl::Hex(expected.checksum(), absl::kZeroPad16),
                                          ": bytes of it have changed"));
}

absl::Status CheckFileName(const std::string& name) {
  const bool plain = name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
  if (!name.empty() && plain && name[0] != '.') return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the manifest names a file '", name, "'; a plain name was expected"));
}

}  // namespace weir
