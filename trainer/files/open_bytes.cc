#include "trainer/files/open_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <isa-l/igzip_lib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define ZSTD_STATIC_LINKING_ONLY  // for memory of ours
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/counters.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/files/column_text.h"
#include "trainer/files/piped_command.h"

namespace weir {
namespace {

absl::Status OsError(const DataFile& file, const char* what) {
  const int error = errno;
  const std::string text = absl::StrCat(file.name, ": cannot ", what, ": ", ::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  switch (error) {
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EMFILE:
      return absl::ResourceExhaustedError(absl::StrCat(text, " (", DescriptorLimitText(), ")"));
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(text);
    // Errors of a network file system whose server is away.
    case ESTALE:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case ENOTCONN:
      return absl::UnavailableError(text);
    // The bytes exist and cannot be read.
    case EIO:
    case EBADMSG:
    case EUCLEAN:
      return absl::DataLossError(text);
    default:
      return absl::FailedPreconditionError(text);
  }
}

// Bytes as a file holds them or a command writes them, before decompression.
class RawBytes {
 public:
  virtual ~RawBytes() = default;
  // Reads up to `size` bytes and returns their number; 0 at the end.
  virtual absl::StatusOr<size_t> Read(char* out, size_t size) = 0;
  // Implements ByteSource::JumpTo.
  virtual bool JumpTo(int64_t /*offset*/) { return false; }
};

class FileBytes : public RawBytes {
 public:
  FileBytes(const DataFile& file, int64_t begin)
      : file_(file), fd_(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), at_(begin) {}
  ~FileBytes() override {
    if (fd_ >= 0) ::close(fd_);
  }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  bool is_open() const { return fd_ >= 0; }

  // Fewer bytes than asked for only at the end of the file.
  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    size_t got = 0;
    while (got < size) {
      const ssize_t n = ::pread(fd_, out + got, size - got, at_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return OsError(file_, "read");
      if (n == 0) break;
      got += static_cast<size_t>(n);
      at_ += n;
    }
    static Counter* const read = Counters::Process().Get("data.read", "bytes");
    read->Add(static_cast<int64_t>(got));
    return got;
  }

  bool JumpTo(int64_t offset) override {
    at_ = offset;
    return true;
  }

 private:
  const DataFile& file_;
  const int fd_;
  int64_t at_;
};

class CommandBytes : public RawBytes {
 public:
  // `begin`: bytes that have been read from `command` already.
  CommandBytes(std::unique_ptr<PipedCommand> command, std::string begin)
      : command_(std::move(command)), begin_(std::move(begin)) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    if (given_ == begin_.size()) return command_->Read(out, size);
    const size_t some = std::min(size, begin_.size() - given_);
    std::memcpy(out, begin_.data() + given_, some);
    given_ += some;
    return some;
  }

 private:
  const std::unique_ptr<PipedCommand> command_;
  const std::string begin_;
  size_t given_ = 0;  // of begin_
};

class PlainSource : public ByteSource {
 public:
  PlainSource(const DataFile& file, std::unique_ptr<RawBytes> raw, int64_t begin)
      : info_(file), raw_(std::move(raw)), at_(begin) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    // Bytes that were appended after the files were listed belong to no stream.
    size = static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(size), info_.bytes - at_));
    if (size == 0) return 0;
    ASSIGN_OR_RETURN(const size_t got, raw_->Read(out, size));
    at_ += static_cast<int64_t>(got);
    if (got < size) {
      return absl::DataLossError(
          absl::StrCat(info_.name, ": ends at byte ", at_, ", had ", info_.bytes, " bytes when the job started"));
    }
    return got;
  }

  bool JumpTo(int64_t offset) override {
    if (!raw_->JumpTo(offset)) return false;
    at_ = offset;
    return true;
  }

 private:
  const DataFile& info_;
  const std::unique_ptr<RawBytes> raw_;
  int64_t at_;
};

// Source of the bytes that a command writes, uncompressed.
class WrittenSource : public ByteSource {
 public:
  explicit WrittenSource(std::unique_ptr<RawBytes> raw) : raw_(std::move(raw)) {}
  absl::StatusOr<size_t> Read(char* out, size_t size) override { return raw_->Read(out, size); }

 private:
  const std::unique_ptr<RawBytes> raw_;
};

absl::Status Cut(const DataFile& file, int64_t at) {
  return absl::DataLossError(absl::StrCat(file.name, ": cut: the compressed data ends at byte ", at,
                                          " in the middle of a stream; get the file again"));
}

class GzipSource : public ByteSource {
 public:
  GzipSource(const DataFile& file, std::unique_ptr<RawBytes> raw) : info_(file), raw_(std::move(raw)), input_(kBlock) {
    StartMember();
  }

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    isal_.next_out = reinterpret_cast<uint8_t*>(out);
    isal_.avail_out = static_cast<uint32_t>(std::min<size_t>(size, std::numeric_limits<uint32_t>::max()));
    const uint32_t wanted = isal_.avail_out;
    while (isal_.avail_out == wanted) {
      if (isal_.avail_in == 0 && (between_members_ || drained_)) {
        ASSIGN_OR_RETURN(const size_t got, raw_->Read(reinterpret_cast<char*>(input_.data()), input_.size()));
        read_ += static_cast<int64_t>(got);
        isal_.next_in = input_.data();
        isal_.avail_in = static_cast<uint32_t>(got);
        if (got == 0) {
          if (between_members_) return 0;
          return Cut(info_, read_);
        }
      }
      if (between_members_) StartMember();  // gzip files may be concatenated
      const uint32_t left = isal_.avail_in;
      const int result = isal_inflate(&isal_);
      const bool stuck = left > 0 && isal_.avail_in == left && isal_.avail_out == wanted;
      if (result < 0 || stuck) return Damaged(result);
      between_members_ = isal_.block_state == ISAL_BLOCK_FINISH;
      // It keeps some input to itself, which may be the rest of a member.
      drained_ = isal_.avail_out == wanted;
    }
    return wanted - isal_.avail_out;
  }

 private:
  void StartMember() {
    uint8_t* const next_in = isal_.next_in;
    const uint32_t avail_in = isal_.avail_in, avail_out = isal_.avail_out;
    uint8_t* const next_out = isal_.next_out;
    isal_inflate_init(&isal_);
    isal_.crc_flag = ISAL_GZIP;  // with its header and its checksum
    isal_.next_in = next_in;
    isal_.avail_in = avail_in;
    isal_.next_out = next_out;
    isal_.avail_out = avail_out;
  }

  absl::Status Damaged(int result) const {
    const auto why = [&] {
      switch (result) {
        case ISAL_INVALID_WRAPPER:
          return "wrong header";
        case ISAL_UNSUPPORTED_METHOD:
          return "unknown method of compression";
        case ISAL_INCORRECT_CHECKSUM:
          return "wrong checksum";
        default:
          return "bad data";
      }
    };
    return absl::DataLossError(absl::StrCat(info_.name, ": damaged gzip at byte ", read_ - isal_.avail_in, ": ", why(),
                                            "; get the file again"));
  }

  const DataFile& info_;
  const std::unique_ptr<RawBytes> raw_;
  int64_t read_ = 0;  // compressed bytes
  std::vector<uint8_t> input_;
  inflate_state isal_ = {};
  bool between_members_ = false;
  bool drained_ = true;  // all decompressed bytes have been returned
};

// zstd accesses its window in random order. Large pages need a few TLB entries for each stream instead of hundreds.
// Only a hint: the kernel may ignore it.
void* TakeLargePages(void*, size_t bytes) {
  constexpr size_t kPage = size_t{1} << 21;
  if (bytes < kPage) return std::malloc(bytes);
  void* memory = nullptr;
  if (::posix_memalign(&memory, kPage, bytes) != 0) return nullptr;
  (void)::madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);
  return memory;
}
void GiveBack(void*, void* memory) { std::free(memory); }

// Decompressors that are not in use. The system takes about as long to clear fresh memory as zstd to fill it, so the
// next file reuses one of these.
class IdleStreams {
 public:
  static IdleStreams& Global() {
    static auto* const streams = new IdleStreams();
    return *streams;
  }

  // Never null.
  ZSTD_DStream* Take() {
    {
      MutexLock lock(&mu_);
      if (!idle_.empty()) {
        ZSTD_DStream* const taken = idle_.back();
        idle_.pop_back();
        return taken;
      }
    }
    ZSTD_DStream* const made = ZSTD_createDStream_advanced({TakeLargePages, GiveBack, nullptr});
    CHECK(made != nullptr);
    return made;
  }

  void Give(ZSTD_DStream* stream) {
    ZSTD_DCtx_reset(stream, ZSTD_reset_session_only);
    if (ZSTD_sizeof_DStream(stream) <= kLargest) {
      MutexLock lock(&mu_);
      if (idle_.size() < kMost) {
        idle_.push_back(stream);
        return;
      }
    }
    ZSTD_freeDStream(stream);
  }

 private:
  static constexpr size_t kMost = 8;                   // the default number of lanes
  static constexpr size_t kLargest = size_t{4} << 20;  // bytes; level 3 looks back 2 MiB

  Mutex mu_;
  std::vector<ZSTD_DStream*> idle_ ABSL_GUARDED_BY(mu_);
};

class ZstdSource : public ByteSource {
 public:
  ZstdSource(const DataFile& file, std::unique_ptr<RawBytes> raw)
      : info_(file), raw_(std::move(raw)), input_(kBlock), zstd_(IdleStreams::Global().Take()) {}
  ~ZstdSource() override { IdleStreams::Global().Give(zstd_); }

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    ZSTD_outBuffer output = {out, size, 0};
    while (output.pos == 0) {
      if (in_.pos == in_.size && (between_frames_ || drained_)) {
        ASSIGN_OR_RETURN(const size_t got, raw_->Read(input_.data(), input_.size()));
        read_ += static_cast<int64_t>(got);
        in_ = {input_.data(), got, 0};
        if (got == 0) {
          if (between_frames_) return 0;
          return Cut(info_, read_);
        }
      }
      const size_t result = ZSTD_decompressStream(zstd_, &output, &in_);
      if (ZSTD_isError(result)) return Damaged(result);
      // Frames may be concatenated.
      between_frames_ = result == 0;
      drained_ = output.pos < output.size;
    }
    return output.pos;
  }

 private:
  absl::Status Damaged(size_t result) const {
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      return absl::InvalidArgumentError(absl::StrCat(info_.name,
                                                     ": was compressed with a window of more than 128 MiB, which every "
                                                     "stream would need; compress it again without --long or --ultra"));
    }
    return absl::DataLossError(absl::StrCat(info_.name, ": damaged zstd at byte ",
                                            read_ - static_cast<int64_t>(in_.size - in_.pos), ": ",
                                            ZSTD_getErrorName(result), "; get the file again"));
  }

  const DataFile& info_;
  const std::unique_ptr<RawBytes> raw_;
  int64_t read_ = 0;  // compressed bytes
  std::vector<char> input_;
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  ZSTD_DStream* const zstd_;
  bool between_frames_ = true;
  bool drained_ = true;  // all decompressed bytes have been returned
};

// Source of what the file's command makes of it; the first bytes tell whether that is compressed. The first Read starts
// the command.
class PipedSource : public ByteSource {
 public:
  explicit PipedSource(const DataFile& file) : file_(file) {}

  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    if (source_ == nullptr) {
      ASSIGN_OR_RETURN(source_, Start());
    }
    return source_->Read(out, size);
  }

 private:
  absl::StatusOr<std::unique_ptr<ByteSource>> Start() const {
    ASSIGN_OR_RETURN(std::unique_ptr<PipedCommand> command,
                     PipedCommand::Start({.command = CommandFor(file_.pipe->command, file_.path),
                                          .name = file_.name,
                                          .deadline = file_.pipe->deadline}));
    std::string begin;
    while (begin.size() < kColumnsBegin.size()) {
      char more[kColumnsBegin.size()];
      const absl::StatusOr<size_t> got = command->Read(more, kColumnsBegin.size() - begin.size());
      if (!got.ok() && begin.empty()) return got.status();
      // Give the bytes that came before the error; the next Read returns the error.
      if (!got.ok() || *got == 0) break;
      begin.append(more, *got);
    }
    const Compression compression = CompressionOf(begin);
    const bool columns = begin == kColumnsBegin, examples = begin == kExampleFileBegin;
    auto raw = std::make_unique<CommandBytes>(std::move(command), std::move(begin));
    if (compression == Compression::kGzip) return std::make_unique<GzipSource>(file_, std::move(raw));
    if (compression == Compression::kZstd) return std::make_unique<ZstdSource>(file_, std::move(raw));
    if (examples) {
      return absl::InvalidArgumentError(absl::StrCat(
          file_.name,
          ": the command of data.pipe writes an example file, which is read at many places at once; let it "
          "write the file to the disk, and name that without data.pipe"));
    }
    auto written = std::make_unique<WrittenSource>(std::move(raw));
    if (!columns) return written;
    if (!file_.pipe->unfit.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_.name, ": the command of data.pipe writes columns, which have no dialect of text: take ",
                       file_.pipe->unfit, " out of the job, or let it write lines (weir parquet --format=csv)"));
    }
    if (!file_.pipe->form.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_.name,
                       ": the command of data.pipe writes columns, which only data.csv and data.criteo take; let it "
                       "write lines (weir parquet --format=csv)"));
    }
    return MakeColumnText(std::move(written), file_.name, *file_.pipe->form);
  }

  const DataFile& file_;
  std::unique_ptr<ByteSource> source_;
};

}  // namespace

Compression CompressionOf(std::string_view begin) {
  const auto at = [&](size_t i) { return i < begin.size() ? static_cast<unsigned char>(begin[i]) : 0; };
  if (at(0) == 0x1f && at(1) == 0x8b) return Compression::kGzip;
  const bool frame = at(0) == 0x28 && at(1) == 0xb5 && at(2) == 0x2f && at(3) == 0xfd;
  // Some compressors begin with a skippable frame.
  const bool skipped = (at(0) & 0xf0) == 0x50 && at(1) == 0x2a && at(2) == 0x4d && at(3) == 0x18;
  return frame || skipped ? Compression::kZstd : Compression::kNone;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenBytes(const DataFile& file, int64_t begin) {
  CHECK(begin == 0 || !file.sequential()) << file.name;
  if (file.pipe != nullptr) return std::make_unique<PipedSource>(file);
  auto raw = std::make_unique<FileBytes>(file, begin);
  if (!raw->is_open()) return OsError(file, "open");
  switch (file.compression) {
    case Compression::kGzip:
      return std::make_unique<GzipSource>(file, std::move(raw));
    case Compression::kZstd:
      return std::make_unique<ZstdSource>(file, std::move(raw));
    case Compression::kNone:
      break;
  }
  return std::make_unique<PlainSource>(file, std::move(raw), begin);
}

}  // namespace weir
