// Finds processes of a job that a signal (SIGSTOP) has stopped for good.
#ifndef WEIR_TOOLS_LAUNCHING_FROZEN_WATCH_H_
#define WEIR_TOOLS_LAUNCHING_FROZEN_WATCH_H_

#include <cstddef>
#include <vector>

#include "absl/time/time.h"

namespace weir {

// Used by one thread, which tells it the time.
class FrozenWatch {
 public:
  struct Options {
    // A process is frozen if it has been stopped for so long while another one of the job ran: after one lease the
    // others take it for dead.
    absl::Duration limit;
    // Limit that takes the place of `limit` while all processes are stopped and none has ended: such a job goes on when
    // they are continued.
    absl::Duration pause_limit;
    // True if Look is told of all processes of the job. If false, those it is told of never count as all.
    bool whole_job = true;
  };
  enum class State { kRuns, kStopped, kEnded };

  explicit FrozenWatch(const Options& options) : options_(options) {}

  // Takes in the states of all processes, in the same order each time; there may be more than last time. Requires:
  // called when a state has changed, and at next(). If a call comes much later than next(), this process itself has
  // been asleep, perhaps with all others, and the time until now does not count.
  void Look(const std::vector<State>& states, absl::Time now);
  // Returns the time at which Look and TakeFrozen must be called; the infinite future if no process is stopped.
  absl::Time next() const;
  // Returns the indices of processes that are frozen; each only once.
  std::vector<size_t> TakeFrozen(absl::Time now);
  // Returns the indices of all processes that are stopped, for however long.
  std::vector<size_t> Stopped() const;
  // Returns whether all processes are stopped, and none has ended.
  bool paused() const { return paused_; }

 private:
  struct Watched {
    State state = State::kRuns;
    // Since then it counts as stopped; the infinite future: it does not, or was taken.
    absl::Time since = absl::InfiniteFuture();
  };
  absl::Duration limit() const { return paused_ ? options_.pause_limit : options_.limit; }
  // Interval of Look while a process is stopped.
  absl::Duration look() const { return options_.limit / 4; }

  const Options options_;
  std::vector<Watched> watched_;
  bool paused_ = false;
  absl::Time last_look_ = absl::InfiniteFuture();
};

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_FROZEN_WATCH_H_
