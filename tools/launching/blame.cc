#include "tools/launching/blame.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/exit_code.h"
#include "tools/hosts/child_process.h"

namespace weir {

bool LostAPeer(const Ending& ending) { return ending.code() == kExitPeerLost && !ending.lost(); }

void Blame::Fail(absl::Status failure) {
  if (failure_.ok()) failure_ = std::move(failure);
}

bool Blame::Take(const Launcher::Member& member, bool passes) {
  const Ending& ending = *member.process->ending();
  if (!failure_.ok() || (culprit_ != nullptr && (!passes || LostAPeer(ending)))) return false;
  culprit_ = member.process;
  kill_explained_ = ending.killed() ? ExplainKill(member) : "";
  return true;
}

void Blame::TakeFrozen(const std::string& text) {
  if (culprit_ != nullptr && culprit_->ending()->code() == kExitPeerLost) culprit_ = nullptr;
  if (culprit_ == nullptr) Fail(absl::DeadlineExceededError(text));
}

std::string Blame::ExplainKill(const Launcher::Member& member) const {
  const std::string text = absl::StrCat("launch has not sent that signal to ", member.process->name(), "; ");
  if (dynamic_cast<const ChildProcess*>(member.process) == nullptr) {
    return text + "the system does that when memory is short (see dmesg on that host)";
  }
  const MemoryFigures now = ReadMemoryFigures();
  const std::string kills = text + DescribeKills(memory_at_start_, now);
  if (!MayBeShort(memory_at_start_, now)) return kills;
  return absl::StrCat(kills, member.server ? "; a server needs less with more servers, or with table.disk"
                                           : "; a trainer needs less with smaller data.shuffle_memory_mb, "
                                             "data.batch_size or train.lanes");
}

int Blame::code() const { return culprit_ != nullptr ? culprit_->ending()->code() : ExitCodeOf(failure_); }

std::string Blame::why() const {
  if (culprit_ == nullptr) return std::string(failure_.message());
  return absl::StrCat(culprit_->name(), " failed: ", culprit_->ending()->ToString());
}

void Blame::Show(bool begun, Display* display) const {
  if (culprit_ == nullptr) {
    // Repeated behind the last lines of the processes. Before any of them was started it is the last line already.
    if (!failure_.ok() && begun) display->Say(why());
    return;
  }
  display->Say(absl::StrCat(why(), "; the last lines of ", culprit_->log_file(), ":"));
  for (const std::string& line : culprit_->last_lines()) display->Say("  " + line);
  if (culprit_->last_lines().empty()) display->Say("  (it said nothing)");
  if (!kill_explained_.empty()) display->Say(kill_explained_);
}

}  // namespace weir
