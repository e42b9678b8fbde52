// Calls that cannot be answered yet, in order of arrival. Not thread-safe.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_WAITING_CALLS_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_WAITING_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <list>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace weir {

// Callbacks to run after a lock is released: no lock may be held across a callback.
using Actions = std::vector<std::function<void()>>;
inline void RunAll(Actions* actions) {
  for (std::function<void()>& action : *actions) action();
  actions->clear();
}

// `Call` has the field `trainer`: the caller. The owner of the list answers calls whose time is over.
template <typename Call>
class WaitingCalls {
 public:
  void Add(Call call) { calls_.push_back(std::move(call)); }

  bool empty() const { return calls_.empty(); }
  size_t CountOf(int trainer) const {
    return static_cast<size_t>(
        std::count_if(calls_.begin(), calls_.end(), [&](const Call& call) { return call.trainer == trainer; }));
  }
  template <typename Function>
  void ForEach(const Function& function) const {
    for (const Call& call : calls_) function(call);
  }

  // Removes the calls for which `taken(call)` returns true, in order. `taken` may move from a call that it takes.
  template <typename Taken>
  void RemoveIf(const Taken& taken) {
    for (auto call = calls_.begin(); call != calls_.end();) {
      call = taken(*call) ? calls_.erase(call) : std::next(call);
    }
  }
  std::list<Call> TakeAll() { return std::exchange(calls_, {}); }

 private:
  std::list<Call> calls_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_WAITING_CALLS_H_
