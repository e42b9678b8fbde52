#include "pserver/rendezvous/file_meeting.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "pserver/rendezvous/file_board.h"
#include "pserver/rendezvous/gathering.h"
#include "pserver/rendezvous/waiting.h"

namespace weir {
namespace {

// Time between two looks at the directory.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(100);
// Time for members to read that the meeting has failed.
constexpr absl::Duration kFailedLinger = absl::Seconds(1);

class Host {
 public:
  Host(const RendezvousOptions& options, const v1::RendezvousGreeting& own, const Cancellation& cancellation,
       FileBoard* board)
      : options_(options), own_(own), cancellation_(cancellation), board_(board), gathering_(own) {}

  absl::StatusOr<v1::RendezvousAnswer> Run() {
    absl::StatusOr<v1::RendezvousAnswer> answer = Gather();
    // The others belong to the trainer 0 that stays.
    if (gives_up_) return answer;
    const v1::RendezvousAnswer told = answer.ok() ? *answer : AnswerOf(v1::RendezvousAnswer::FAILED, answer.status());
    for (const auto& [name, greeting] : there_) LogIfWrong(board_->Reply(greeting, told));
    Linger(answer.ok() ? options_.lease : kFailedLinger);
    return answer;
  }

 private:
  absl::StatusOr<v1::RendezvousAnswer> Gather() {
    Waiting waiting(options_.slow_warning, options_.connect_deadline);
    while (!gathering_.complete()) {
      RETURN_IF_ERROR(waiting.Check([this] { return WaitsFor(); }, cancellation_));
      RETURN_IF_ERROR(board_->Beat());
      RETURN_IF_ERROR(board_->Look());
      RETURN_IF_ERROR(Compare());
      if (!gathering_.complete()) (void)cancellation_.WaitFor(std::min(kBetweenLooks, waiting.Next()));
    }
    return gathering_.Answer();
  }

  std::string WaitsFor() const {
    const auto [there, all] = gathering_.Counts();
    return absl::StrCat("in ", options_.method.directory, " for ", gathering_.Missing(), "; ", there, " of ", all,
                        " are there", refused_.empty() ? "" : "; refused: ", refused_);
  }

  // Takes in who is new, and out who has gone.
  absl::Status Compare() {
    for (auto member = there_.begin(); member != there_.end();) {
      const auto post = board_->posts().find(member->first);
      if (post != board_->posts().end() && post->second.alive) {
        ++member;
        continue;
      }
      LOG(WARNING) << "rendezvous: " << NameOf(member->second) << " has left before all were there";
      gathering_.Remove(member->second);
      member = there_.erase(member);
    }
    for (const auto& [name, post] : board_->posts()) {
      if (post.stale) {
        CleanUp(name, post);
      } else if (post.alive && !there_.contains(name)) {
        RETURN_IF_ERROR(Welcome(name, post.greeting));
      }
    }
    return absl::OkStatus();
  }

  // A file that an earlier run has left. Files of other jobs are not ours to remove.
  void CleanUp(const std::string& name, const FileBoard::Post& post) {
    if (!known_.insert(name).second && post.greeting.job_name() != own_.job_name()) return;
    LOG(WARNING) << "rendezvous: " << name << " is left by " << NameOf(post.greeting)
                 << ", which is gone: it has not changed for " << absl::FormatDuration(options_.lease);
    if (post.greeting.job_name() == own_.job_name()) board_->Remove(post.greeting);
  }

  absl::Status Welcome(const std::string& name, const v1::RendezvousGreeting& greeting) {
    if (const absl::Status run = gathering_.CheckRun(greeting); !run.ok()) {
      // Several jobs and runs may meet in one directory.
      if (known_.insert(name).second) LOG(INFO) << "rendezvous: " << name << " is not for this run: " << run.message();
      return absl::OkStatus();
    }
    if (!greeting.server() && greeting.id() == 0) return MeetAnotherHost(greeting);
    if (const absl::Status taken = gathering_.Add(greeting); !taken.ok()) {
      if (!known_.insert(name).second) return absl::OkStatus();
      LOG(WARNING) << "rendezvous: refuses " << name << ": " << taken.message();
      refused_ = std::string(taken.message());
      LogIfWrong(board_->Reply(greeting, AnswerOf(v1::RendezvousAnswer::REFUSED, taken)));
      return absl::OkStatus();
    }
    LOG(INFO) << "rendezvous: " << NameOf(greeting) << " is there"
              << (greeting.endpoint().empty() ? "" : " and serves at ") << Printable(greeting.endpoint());
    there_[name] = greeting;
    return absl::OkStatus();
  }

  // Two processes that are trainer 0 of one run: both see the same, and one of them gives up.
  absl::Status MeetAnotherHost(const v1::RendezvousGreeting& other) {
    if (other.incarnation() > own_.incarnation()) return absl::OkStatus();
    gives_up_ = true;
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(own_), " comes to ", options_.method.directory, ", but ", NameOf(other),
                     " is there already; start each id once, or give each run a --run_id or a directory of its own"));
  }

  // Waits until all have taken their answers, and removes the files of those that have not.
  void Linger(absl::Duration limit) {
    const absl::Time until = Clock::Real()->Now() + limit;
    while (Clock::Real()->Now() < until && !cancellation_.WaitFor(kBetweenLooks)) {
      if (!board_->Look().ok()) break;
      // One that comes now with the id of another is told so.
      for (const auto& [name, post] : board_->posts()) {
        if (post.alive && !there_.contains(name) && !Welcome(name, post.greeting).ok()) break;
      }
      const bool waits = std::any_of(there_.begin(), there_.end(),
                                     [this](const auto& member) { return board_->posts().contains(member.first); });
      if (!waits) return;
    }
    if (cancellation_.cancelled()) return;
    for (const auto& [name, greeting] : there_) board_->Remove(greeting);
  }

  static void LogIfWrong(const absl::Status& status) {
    if (!status.ok()) LOG(WARNING) << "rendezvous: " << status.message();
  }

  const RendezvousOptions& options_;
  const v1::RendezvousGreeting& own_;
  const Cancellation& cancellation_;
  FileBoard* const board_;
  Gathering gathering_;
  // Members that the gathering has taken, by the name of their file.
  std::map<std::string, v1::RendezvousGreeting> there_;
  // Files about which the log says something already.
  std::set<std::string> known_;
  std::string refused_;
  // True if another process is trainer 0.
  bool gives_up_ = false;
};

class Member {
 public:
  Member(const RendezvousOptions& options, const v1::RendezvousGreeting& own, const Cancellation& cancellation,
         FileBoard* board)
      : options_(options), own_(own), cancellation_(cancellation), board_(board) {}

  absl::StatusOr<v1::RendezvousAnswer> Run() {
    Waiting waiting(options_.slow_warning, options_.connect_deadline);
    while (true) {
      RETURN_IF_ERROR(waiting.Check([this] { return WaitsFor(); }, cancellation_));
      RETURN_IF_ERROR(board_->Beat());
      RETURN_IF_ERROR(board_->Look());
      ASSIGN_OR_RETURN(const std::optional<v1::RendezvousAnswer> answer, board_->Answer());
      if (answer.has_value() && answer->state() == v1::RendezvousAnswer::COMPLETE) return *answer;
      if (answer.has_value()) return ErrorIn(*answer, absl::StrCat("in ", options_.method.directory));
      (void)cancellation_.WaitFor(std::min(kBetweenLooks, waiting.Next()));
    }
  }

 private:
  // Says who is missing by the greetings that change, and why others do not count.
  std::string WaitsFor() const {
    Gathering view(own_);
    std::string other;
    for (const auto& [name, post] : board_->posts()) {
      const absl::Status run = view.CheckRun(post.greeting);
      if (!run.ok()) {
        other = std::string(run.message());
      } else if (post.alive) {
        (void)view.Add(post.greeting);
      }
    }
    const std::string missing = view.Missing();
    return absl::StrCat("in ", options_.method.directory, " for ",
                        missing.empty() ? "the answer of trainer 0" : missing,
                        other.empty() ? "" : "; not of this run: ", other);
  }

  const RendezvousOptions& options_;
  const v1::RendezvousGreeting& own_;
  const Cancellation& cancellation_;
  FileBoard* const board_;
};

absl::StatusOr<std::unique_ptr<FileBoard>> OpenBoard(const RendezvousOptions& options,
                                                     const v1::RendezvousGreeting& own) {
  absl::StatusOr<std::unique_ptr<FileBoard>> board = FileBoard::Open(options.method.directory, own, options.lease);
  if (board.ok()) return board;
  return absl::Status(board.status().code(), absl::StrCat(options.method.source, ": ", board.status().message()));
}

}  // namespace

absl::StatusOr<v1::RendezvousAnswer> HostFileMeeting(const RendezvousOptions& options,
                                                     const v1::RendezvousGreeting& own,
                                                     const Cancellation& cancellation) {
  ASSIGN_OR_RETURN(const std::unique_ptr<FileBoard> board, OpenBoard(options, own));
  return Host(options, own, cancellation, board.get()).Run();
}

absl::StatusOr<v1::RendezvousAnswer> AttendFileMeeting(const RendezvousOptions& options,
                                                       const v1::RendezvousGreeting& own,
                                                       const Cancellation& cancellation) {
  ASSIGN_OR_RETURN(const std::unique_ptr<FileBoard> board, OpenBoard(options, own));
  return Member(options, own, cancellation, board.get()).Run();
}

}  // namespace weir
