// Bounded staleness: who may begin a step. Not thread-safe; ServerCore locks around it.
//
// A trainer may begin step t when every other one that is still at work has finished step t - bound - 1 here.
// "Finished": its pushes of that step have taken effect, or were given up by a verdict. Who has died, is done or has no
// more steps is not waited for; who has not come yet is. So no trainer is ever more than `bound` steps ahead of the
// slowest, and what it reads for step t holds every update of the steps before t - bound.
#ifndef WEIR_PSERVER_SERVER_STALENESS_GATE_H_
#define WEIR_PSERVER_SERVER_STALENESS_GATE_H_

#include <cstdint>
#include <vector>

namespace weir {

class StalenessGate {
 public:
  // bound >= 0.
  StalenessGate(int trainers, int64_t bound);

  // The trainer has done all steps up to and with `step`; -1: none. Also after a resume.
  void Finished(int trainer, int64_t step);
  // It is not waited for any more; Join undoes that.
  void Leave(int trainer);
  void Join(int trainer);

  bool MayBegin(int trainer, int64_t step) const;
  // Whom the trainer waits for, by id. Empty when it may begin.
  std::vector<int> HeldBy(int trainer, int64_t step) const;
  // The trainer has been told that it may begin the step. Returns how many steps it is ahead of the slowest other, at
  // least 0.
  int64_t Begin(int trainer, int64_t step);

  // The most that Begin has returned.
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

#endif  // WEIR_PSERVER_SERVER_STALENESS_GATE_H_
