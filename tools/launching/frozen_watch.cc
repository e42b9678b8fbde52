#include "tools/launching/frozen_watch.h"

#include <algorithm>

namespace weir {

void FrozenWatch::Look(const std::vector<State>& states, absl::Time now) {
  const bool overslept = next() != absl::InfiniteFuture() && now > last_look_ + 2 * look();
  last_look_ = now;
  const bool paused = options_.whole_job && !states.empty() &&
                      std::all_of(states.begin(), states.end(), [](State state) { return state == State::kStopped; });
  // While a whole job is continued, one process after the other, some have been stopped for long.
  const bool anew = overslept || (paused_ && !paused);
  paused_ = paused;
  watched_.resize(states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    Watched& watched = watched_[i];
    if (states[i] != State::kStopped) {
      watched.since = absl::InfiniteFuture();
    } else if (watched.state != State::kStopped || (anew && watched.since != absl::InfiniteFuture())) {
      watched.since = now;
    }
    watched.state = states[i];
  }
}

absl::Time FrozenWatch::next() const {
  absl::Time first = absl::InfiniteFuture();
  for (const Watched& watched : watched_) first = std::min(first, watched.since + limit());
  return first == absl::InfiniteFuture() ? first : std::min(first, last_look_ + look());
}

std::vector<size_t> FrozenWatch::TakeFrozen(absl::Time now) {
  std::vector<size_t> frozen;
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (now < watched_[i].since + limit()) continue;
    watched_[i].since = absl::InfiniteFuture();
    frozen.push_back(i);
  }
  return frozen;
}

std::vector<size_t> FrozenWatch::Stopped() const {
  std::vector<size_t> stopped;
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i].state == State::kStopped) stopped.push_back(i);
  }
  return stopped;
}

}  // namespace weir
