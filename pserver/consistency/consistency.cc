#include "pserver/consistency/consistency.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {

Consistency::Consistency(Options options, StepBook book)
    : options_(std::move(options)),
      book_(std::move(book)),
      pushes_applied_(options_.counters->Get("push.applied", "steps")),
      pushes_skipped_(options_.counters->Get("push.skipped", "steps")) {}

absl::Status Consistency::CheckTakesMerged(const std::string& what) const {
  if (facts().takes_merged && !options_.average_by_trainers) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, ": it holds gradients of several trainers, added; ", options_.self, " needs those of each: ",
                   facts().takes_merged ? "the job averages BY_TRAINERS" : absl::StrCat("its mode is ", options_.mode),
                   "; set distribute.merge_hosts: false"));
}

bool Consistency::WaitsForOthers(int trainer, const std::vector<int64_t>&) const {
  return !book_.of(trainer).IsDue() && !OwesNorms(trainer);
}

bool Consistency::MayRead(const v1::PullRequest& request) const {
  return !HoldsUpdates(request) || (running_ == 0 && !update_due_);
}

void Consistency::Restore(int64_t step, const std::vector<int64_t>& steps) {
  version_ = VersionInfo{.version = step};
  // Another number of trainers goes on from where all of them had come at least: trainers read on there, too.
  const bool same = steps.size() == static_cast<size_t>(book_.trainers());
  const int64_t least = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
  for (int t = 0; t < book_.trainers(); ++t) RestoreSteps(t, same ? steps[static_cast<size_t>(t)] : least);
}

}  // namespace weir
