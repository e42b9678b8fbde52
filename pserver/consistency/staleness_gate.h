// Bounded staleness: decides which trainer may begin a step. Not thread-safe; ServerCore locks around it.
//
// A trainer may begin step t when every other trainer at work has finished step t - bound - 1 here. "Finished" means
// that its pushes of that step have taken effect, or were given up by a verdict. A trainer that is dead, is done or has
// no more steps is not waited for; one that has not joined yet is. So no trainer is ever more than `bound` steps ahead
// of the slowest, and what it reads for step t holds every update of the steps before t - bound.
#ifndef WEIR_PSERVER_CONSISTENCY_STALENESS_GATE_H_
#define WEIR_PSERVER_CONSISTENCY_STALENESS_GATE_H_

#include <cstdint>
#include <vector>

namespace weir {

class StalenessGate {
 public:
  // bound >= 0.
  StalenessGate(int trainers, int64_t bound);

  // Records that the trainer has finished all steps up to and including `step`; -1: none. Also called after a resume.
  void Finished(int trainer, int64_t step);
  // Leave removes the trainer from those that others wait for; Join adds it again.
  void Leave(int trainer);
  void Join(int trainer);

  bool MayBegin(int trainer, int64_t step) const;
  // Returns the ids of the trainers that this one waits for; empty if it may begin.
  std::vector<int> HeldBy(int trainer, int64_t step) const;
  // Records that the trainer has been told that it may begin the step. Returns how many steps it is ahead of the
  // slowest other trainer, at least 0. Requires: MayBegin(trainer, step).
  int64_t Begin(int trainer, int64_t step);

  // Largest value that Begin has returned. Invariant: at most bound().
  int64_t most_ahead() const { return most_ahead_; }
  int64_t bound() const { return bound_; }

 private:
  struct Trainer {
    int64_t finished = -1;
    bool left = false;
  };
  const int64_t bound_;
  std::vector<Trainer> trainers_;
  int64_t most_ahead_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_STALENESS_GATE_H_
