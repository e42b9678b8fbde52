#include "pserver/consistency/staleness_gate.h"

#include <algorithm>

#include "glog/logging.h"

namespace weir {

StalenessGate::StalenessGate(int trainers, int64_t bound) : bound_(bound), trainers_(static_cast<size_t>(trainers)) {
  CHECK_GE(bound, 0);
}

void StalenessGate::Finished(int trainer, int64_t step) { trainers_[static_cast<size_t>(trainer)].finished = step; }
void StalenessGate::Leave(int trainer) { trainers_[static_cast<size_t>(trainer)].left = true; }
void StalenessGate::Join(int trainer) { trainers_[static_cast<size_t>(trainer)].left = false; }

std::vector<int> StalenessGate::HeldBy(int trainer, int64_t step) const {
  std::vector<int> held;
  for (size_t t = 0; t < trainers_.size(); ++t) {
    if (static_cast<int>(t) == trainer || trainers_[t].left) continue;
    // Written so that no step number overflows.
    if (trainers_[t].finished < step - 1 - bound_) held.push_back(static_cast<int>(t));
  }
  return held;
}

bool StalenessGate::MayBegin(int trainer, int64_t step) const { return HeldBy(trainer, step).empty(); }

int64_t StalenessGate::Begin(int trainer, int64_t step) {
  int64_t ahead = 0;
  for (size_t t = 0; t < trainers_.size(); ++t) {
    if (static_cast<int>(t) == trainer || trainers_[t].left) continue;
    ahead = std::max(ahead, step - 1 - trainers_[t].finished);
  }
  most_ahead_ = std::max(most_ahead_, ahead);
  return ahead;
}

}  // namespace weir
