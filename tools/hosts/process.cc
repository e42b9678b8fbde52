#include "tools/hosts/process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "framework/base/exhausted.h"
#include "framework/base/exit_code.h"
#include "glog/logging.h"

namespace weir {

Ending Ending::Lost(std::string why) {
  Ending ending(0);
  ending.lost_ = std::move(why);
  return ending;
}

bool Ending::ok() const { return !lost() && WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

bool Ending::killed() const { return !lost() && WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL; }

int Ending::code() const {
  if (lost()) return kExitPeerLost;
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

std::string Ending::ToString() const {
  if (lost()) return *lost_;
  if (!WIFSIGNALED(status_)) return absl::StrCat("exit code ", WEXITSTATUS(status_));
  return absl::StrCat("killed by signal ", WTERMSIG(status_), " (", strsignal(WTERMSIG(status_)), ")");
}

Process::~Process() {
  if (log_ >= 0) close(log_);
}

absl::Status Process::OpenLog() {
  if (log_file_.empty()) return absl::OkStatus();
  log_ = open(log_file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (log_ >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot write ", log_file_, ": ", strerror(errno)));
}

void Process::Keep(std::string_view line) {
  if (last_lines_.size() == kLastLines) last_lines_.pop_front();
  last_lines_.emplace_back(line);
  std::string logged(line);
  logged.push_back('\n');
  size_t written = 0;
  while (log_ >= 0 && written < logged.size()) {
    const ssize_t n = write(log_, logged.data() + written, logged.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      // A full disk must not end the training.
      LOG(ERROR) << "cannot write " << log_file_ << ": " << strerror(error) << FileSizeLimitText(error) << "; " << name_
                 << " is shown here only";
      close(log_);
      log_ = -1;
      break;
    }
    written += static_cast<size_t>(n);
  }
}

}  // namespace weir
