#include "pserver/rendezvous/file_board.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "pserver/rendezvous/meeting_frame.h"

namespace weir {
namespace {

constexpr char kHere[] = ".here";
constexpr char kAnswer[] = ".answer";
// Time between two writes of a greeting; half of the shortest silence.
constexpr absl::Duration kBeat = absl::Milliseconds(500);
constexpr absl::Duration kShortestSilence = absl::Seconds(1);
// Beside the message, of a file.
constexpr uint64_t kFrame = 16;

absl::Status CannotUse(const std::string& what, const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

}  // namespace

FileBoard::FileBoard(std::string directory, v1::RendezvousGreeting own, absl::Duration silence)
    : directory_(std::move(directory)), own_(std::move(own)), silence_(std::max(silence, kShortestSilence)) {}

absl::StatusOr<std::unique_ptr<FileBoard>> FileBoard::Open(const std::string& directory,
                                                           const v1::RendezvousGreeting& own, absl::Duration silence) {
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST) return CannotUse("make the directory", directory);
  struct stat info = {};
  if (::stat(directory.c_str(), &info) != 0) return CannotUse("look at", directory);
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " is a file; processes meet in a directory: name another path, or remove the file"));
  }
  std::unique_ptr<FileBoard> board(new FileBoard(directory, own, silence));
  RETURN_IF_ERROR(board->Beat());
  return board;
}

FileBoard::~FileBoard() { Remove(own_); }

std::string FileBoard::PathOf(const v1::RendezvousGreeting& greeting, const char* ending) const {
  return JoinPath(directory_, absl::StrCat(greeting.server() ? "server." : "trainer.", greeting.id(), ".",
                                           absl::Hex(greeting.incarnation(), absl::kZeroPad16), ending));
}

// Readers see the whole content or the former one. It need not outlive a crash, so nothing is synced.
absl::Status FileBoard::Write(const std::string& path, const std::string& bytes) const {
  const std::string temporary = absl::StrCat(path, ".new.", absl::Hex(own_.incarnation(), absl::kZeroPad16));
  // Others may write into the directory. O_EXCL follows no link that one of them has put there; what an earlier attempt
  // of this process has left is in the way, too.
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  int fd = ::open(temporary.c_str(), flags, 0666);
  if (fd < 0 && errno == EEXIST && ::unlink(temporary.c_str()) == 0) fd = ::open(temporary.c_str(), flags, 0666);
  if (fd < 0) return CannotUse("write", temporary);
  const bool written = ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  absl::Status status = written ? absl::OkStatus() : CannotUse("write", temporary);
  ::close(fd);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = CannotUse("rename to", path);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

absl::Status FileBoard::Beat() {
  const absl::Time now = Clock::Real()->Now();
  if (now < next_beat_) return absl::OkStatus();
  next_beat_ = now + kBeat;
  own_.set_beat(own_.beat() + 1);
  return Write(PathOf(own_, kHere), EncodeMeetingFrame(own_));
}

absl::Status FileBoard::Look() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory_));
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (!absl::EndsWith(name, kHere)) continue;
    const absl::StatusOr<std::string> bytes =
        ReadRegularFile(JoinPath(directory_, name), kLargestGreeting + kFrame, Links::kRefuse);
    if (!bytes.ok()) continue;
    const absl::StatusOr<v1::RendezvousGreeting> greeting = DecodeGreeting(*bytes);
    if (!greeting.ok() || greeting->incarnation() == own_.incarnation()) continue;
    if (PathOf(*greeting, kHere) != JoinPath(directory_, name)) continue;
    seen.insert(name);
    LookAt(name, *greeting);
  }
  std::erase_if(posts_, [&seen](const auto& post) { return !seen.contains(post.first); });
  return absl::OkStatus();
}

void FileBoard::LookAt(const std::string& name, const v1::RendezvousGreeting& greeting) {
  const absl::Time now = Clock::Real()->Now();
  const auto [place, is_new] = posts_.try_emplace(name, Post{.greeting = greeting, .changed = now});
  Post& post = place->second;
  if (is_new) return;
  if (post.greeting.beat() != greeting.beat()) {
    post = {.greeting = greeting, .changed = now, .alive = true};
  } else if (now - post.changed > silence_) {
    post.alive = false;
    post.stale = true;
  }
}

absl::StatusOr<std::optional<v1::RendezvousAnswer>> FileBoard::Answer() const {
  const absl::StatusOr<std::string> bytes =
      ReadRegularFile(PathOf(own_, kAnswer), kLargestAnswer + kFrame, Links::kRefuse);
  // It is not there yet, or not to be read for now.
  if (!bytes.ok()) return std::optional<v1::RendezvousAnswer>();
  ASSIGN_OR_RETURN(v1::RendezvousAnswer answer, DecodeAnswer(*bytes));
  return std::optional<v1::RendezvousAnswer>(std::move(answer));
}

absl::Status FileBoard::Reply(const v1::RendezvousGreeting& to, const v1::RendezvousAnswer& answer) const {
  return Write(PathOf(to, kAnswer), EncodeMeetingFrame(answer));
}

void FileBoard::Remove(const v1::RendezvousGreeting& of) const {
  ::unlink(PathOf(of, kHere).c_str());
  ::unlink(PathOf(of, kAnswer).c_str());
}

}  // namespace weir
