#include "framework/checkpoint/owner.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/directory_lock.h"
#include "framework/checkpoint/file.h"
#include "framework/checkpoint/process_identity.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

constexpr char kName[] = "OWNER";
constexpr char kHead[] = "# The run that writes into this directory. While it lives it changes this file.\n";
// Size to which marks are padded: a mark is overwritten in one call, and must not be shorter than the one before.
constexpr size_t kBytes = 1024;
constexpr uint64_t kMostBytes = uint64_t{1} << 16;

std::string TextOf(const v1::DirectoryOwner& owner) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(owner, &text);
  text.insert(0, kHead);
  if (text.size() < kBytes) text.resize(kBytes, '\n');
  return text;
}

// Parses a mark. An invalid one is taken for that of an unknown owner, and is watched like any other.
v1::DirectoryOwner Parse(const std::string& text) {
  v1::DirectoryOwner owner;
  if (!ParseForeignText(text, &owner, nullptr)) owner.Clear();
  return owner;
}

std::string NameOf(const v1::DirectoryOwner& owner) {
  if (!owner.has_job()) return "a process unknown";
  return absl::StrCat("job '", owner.job(), "' (", owner.process().name(), ")");
}

}  // namespace

struct DirectoryOwner::Mark {
  const int fd;
  const v1::DirectoryOwner owner;  // its first beat
  std::atomic<uint64_t> beats{0};

  Mark(int f, v1::DirectoryOwner o) : fd(f), owner(std::move(o)) {}
  ~Mark() { ::close(fd); }
};

DirectoryOwner::DirectoryOwner(OwnerOptions options) : options_(std::move(options)) {}

DirectoryOwner::~DirectoryOwner() {
  if (thread_.joinable()) {
    (void)eventfd_write(stop_, 1);
    thread_.join();
  }
  if (stop_ >= 0) ::close(stop_);
  if (IsMine()) ::unlink(path().c_str());
}

std::string DirectoryOwner::path() const { return absl::StrCat(options_.dir, "/", kName); }

std::shared_ptr<DirectoryOwner::Mark> DirectoryOwner::mark() const {
  MutexLock lock(&mu_);
  return mark_;
}

bool DirectoryOwner::IsMine() const {
  const std::shared_ptr<Mark> mark = this->mark();
  struct stat own, there;
  return mark != nullptr && ::fstat(mark->fd, &own) == 0 && ::lstat(path().c_str(), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

absl::Status DirectoryOwner::Write() {
  if (options_.thread && stop_ < 0) {
    // Before the mark: one without a thread that renews it would pass for that of a dead process.
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    if (stop_ < 0) return FileError("cannot make an eventfd for", path(), errno);
  }
  v1::DirectoryOwner owner;
  owner.set_job(options_.job);
  owner.set_run(options_.run);
  *owner.mutable_process() = ThisProcess();
  owner.set_lease_s(absl::ToDoubleSeconds(options_.lease));
  // Like other temporary names it is removed by the next save if its writer dies here.
  const std::string temporary = absl::StrCat(options_.dir, "/", TemporaryMarkName());
  const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("cannot create", temporary, errno);
  auto mark = std::make_shared<Mark>(fd, owner);
  const std::string text = TextOf(owner);
  const ssize_t written = ::pwrite(fd, text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size()) || ::rename(temporary.c_str(), path().c_str()) != 0) {
    const int error = written >= 0 && written < static_cast<ssize_t>(text.size()) ? ENOSPC : errno;
    ::unlink(temporary.c_str());
    return FileError("cannot write", path(), error);
  }
  {
    MutexLock lock(&mu_);
    mark_ = std::move(mark);
  }
  if (options_.thread && !thread_.joinable()) thread_ = StartThread("weir-owner", [this] { Beats(); });
  return absl::OkStatus();
}

absl::StatusOr<bool> DirectoryOwner::Watch(const v1::DirectoryOwner& found, const std::string& text,
                                           std::string* holder) {
  *holder = absl::StrCat(NameOf(found), " has marked ", options_.dir, " as its checkpoint directory");
  if (HasEnded(found.process())) {
    LOG(INFO) << *holder << " and has ended without removing its mark";
    return true;
  }
  const absl::Time now = options_.clock->Now();
  if (!watched_.empty() && watched_ != text) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint.dir ", options_.dir, " belongs to ", NameOf(found),
                     ", which is running: give this job another directory, or end that one"));
  }
  const absl::Duration lease = std::max(options_.lease, std::min(absl::Seconds(found.lease_s()), absl::Hours(1)));
  if (watched_.empty()) {
    watched_ = text;
    unchanged_ = absl::ZeroDuration();
  } else {
    // Count a quarter of the lease at most per look: after a suspension of the machine the owner needs time to renew.
    unchanged_ += std::min(now - last_look_, lease / 4);
  }
  last_look_ = now;
  if (unchanged_ < lease) return false;
  LOG(WARNING) << *holder << " and has not changed the mark for " << absl::FormatDuration(unchanged_)
               << ": it is assumed dead";
  return true;
}

absl::StatusOr<bool> DirectoryOwner::Take(std::string* holder) {
  holder->clear();
  RETURN_IF_ERROR(MakeCheckpointDirectory(options_.dir));
  // The lock makes two processes that start on one host take turns. Across hosts, or where directories cannot be
  // locked, both may replace a dead owner's mark at the same moment; the one whose mark was replaced notices it before
  // it changes anything (Check).
  const auto lock = DirectoryLock::Take(options_.dir);
  const absl::StatusOr<std::string> text = ReadRegularFile(path(), kMostBytes, Links::kRefuse);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  if (text.ok()) {
    const v1::DirectoryOwner found = Parse(*text);
    if (found.has_run() && found.run() == options_.run) {
      if (IsMine() || (!options_.publishes && !HasEnded(found.process()))) return true;
    } else {
      ASSIGN_OR_RETURN(const bool free, Watch(found, *text, holder));
      if (!free) return false;
    }
  }
  RETURN_IF_ERROR(Write());
  watched_.clear();
  holder->clear();
  return true;
}

absl::Status DirectoryOwner::Check(bool* of_this_run) {
  if (of_this_run != nullptr) *of_this_run = false;
  if (IsMine()) return absl::OkStatus();
  const absl::StatusOr<std::string> text = ReadRegularFile(path(), kMostBytes, Links::kRefuse);
  if (absl::IsNotFound(text.status())) {
    const bool whole = !PathExists(options_.dir);
    std::string holder;
    ASSIGN_OR_RETURN(const bool taken, Take(&holder));
    if (!taken)
      return absl::FailedPreconditionError(absl::StrCat(path(), " was removed while the job ran, and ", holder));
    if (whole) {
      LOG(WARNING) << "the checkpoint directory " << options_.dir
                   << " was removed while the job ran, with every checkpoint in it; it is created again";
    } else {
      LOG(WARNING)
          << path()
          << " was removed while the job ran; it is created again; check whether its checkpoints are still there";
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(text.status());
  const v1::DirectoryOwner found = Parse(*text);
  if (found.has_run() && found.run() == options_.run) {
    if (!options_.publishes) {
      std::string holder;
      return Take(&holder).status();  // of one that has ended
    }
    if (of_this_run != nullptr) *of_this_run = true;
    return absl::FailedPreconditionError(absl::StrCat("another process of this run, ", found.process().name(),
                                                      ", publishes in ", options_.dir, " now; this one cannot go on"));
  }
  return absl::FailedPreconditionError(absl::StrCat("checkpoint.dir ", options_.dir, " has passed to ", NameOf(found),
                                                    ", since this run had not changed ", kName,
                                                    " in it for its lease; nothing is written there any more"));
}

void DirectoryOwner::Renew() {
  const std::shared_ptr<Mark> mark = this->mark();
  if (mark == nullptr) return;
  v1::DirectoryOwner owner = mark->owner;
  owner.set_beat(++mark->beats);
  const std::string text = TextOf(owner);
  // Check notices a mark that could not be renewed.
  (void)!::pwrite(mark->fd, text.data(), text.size(), 0);
}

void DirectoryOwner::Beats() {
  const int period = static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(options_.beat), 10, 3'600'000));
  pollfd stop{.fd = stop_, .events = POLLIN, .revents = 0};
  // poll measures its timeout by the steady clock.
  while (true) {
    const int ready = ::poll(&stop, 1, period);
    if (ready > 0) return;
    if (ready == 0) Renew();
  }
}

}  // namespace weir
