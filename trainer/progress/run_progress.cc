#include "trainer/progress/run_progress.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/atomic_file.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

constexpr absl::Duration kBetweenWrites = absl::Milliseconds(100);
constexpr uint64_t kMostBytes = 4096;

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

RunProgress::RunProgress(const std::string& dir, const std::string& run, Clock* clock)
    : clock_(clock), path_(JoinPath(dir, kFile)) {
  const absl::StatusOr<std::string> text = ReadRegularFile(path_, kMostBytes);
  if (text.ok() && !google::protobuf::TextFormat::ParseFromString(*text, &before_)) {
    LOG(WARNING) << path_ << ": is not what a run writes there; how much an earlier one has lost is not known";
    before_.Clear();
  }
  if (!run.empty()) now_.set_run(run);
}

RunProgress::~RunProgress() {
  if (fd_ >= 0) ::close(fd_);
}

void RunProgress::Begin(int64_t step, bool resumed, int64_t restarts) {
  // Without a checkpoint only the name shows that an earlier process was of this run.
  const bool same = resumed || (!now_.run().empty() && now_.run() == before_.run());
  const bool broken = same && before_.has_time() && !before_.ended();
  if (same) {
    now_.set_restarts(before_.restarts() + broken);
    now_.set_lost_seconds(std::max(0.0, before_.lost_seconds()));
    repeated_ = broken ? std::max<int64_t>(0, before_.step() - step) : 0;
    now_.set_repeated_steps(before_.repeated_steps() + repeated_);
    now_.set_seconds(std::max(0.0, before_.seconds()));
  }
  now_.set_first_step(same && before_.has_first_step() ? before_.first_step() : step);
  counted_to_ = broken ? before_.time() : Seconds(clock_->Now());
  if (restarts > now_.restarts()) now_.set_restarts(restarts);
  if (broken) {
    lost_since_ = before_.time();
    LOG(INFO) << "an earlier process of this run had done " << before_.step() << " steps; it goes on at step " << step
              << ", restart " << now_.restarts() << ", steps done again so far: " << now_.repeated_steps();
  }
  now_.set_step(step);
  // O_NONBLOCK: a FIFO must not wait for its reader.
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  struct stat info = {};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) Close();
  now_.set_time(broken ? lost_since_ : Seconds(clock_->Now()));
  Write();
}

void RunProgress::Step(int64_t step) {
  const absl::Time time = clock_->Now();
  // A clock may have been set back.
  now_.set_seconds(now_.seconds() + std::max(0.0, Seconds(time) - counted_to_));
  counted_to_ = Seconds(time);
  if (lost_since_ > 0) {
    const double lost = std::max(0.0, Seconds(time) - lost_since_);
    now_.set_lost_seconds(now_.lost_seconds() + lost);
    lost_since_ = 0;
    LOG(INFO) << absl::StrFormat(
        "the restart has cost %.1f s from the last step before it to this one, and %d steps "
        "to do again; goodput of the run so far: %.4f",
        lost, repeated_, Goodput());
  }
  now_.set_step(step);
  now_.set_time(Seconds(time));
  if (time - written_ < kBetweenWrites) return;
  Write();
}

double RunProgress::Goodput() const {
  const double steps = static_cast<double>(now_.step() - now_.first_step());
  const double repeated = static_cast<double>(now_.repeated_steps());
  if (now_.seconds() <= 0 || steps <= 0) return 1;
  return std::clamp(1 - now_.lost_seconds() / now_.seconds(), 0.0, 1.0) * steps / (steps + repeated);
}

void RunProgress::End() {
  now_.set_ended(true);
  Write();
}

void RunProgress::Write() {
  if (fd_ < 0) return;
  written_ = clock_->Now();
  std::string text;
  google::protobuf::TextFormat::PrintToString(now_, &text);
  // A shorter text must not end in the rest of a longer one.
  const bool whole = ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                     ::ftruncate(fd_, static_cast<off_t>(text.size())) == 0;
  if (whole) return;
  Close();
}

void RunProgress::Close() {
  LOG(WARNING) << path_ << ": cannot be written; what a restart costs will not be known";
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace weir
