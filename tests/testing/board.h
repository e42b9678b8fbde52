// Gives the contributions of all ranks of a group to all of them, as the membership of a job does.
#ifndef WEIR_TESTS_TESTING_BOARD_H_
#define WEIR_TESTS_TESTING_BOARD_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"

namespace weir {

// Thread-safe.
class RankBoard {
 public:
  explicit RankBoard(int ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // Returns what every rank has given under the key, by rank. DeadlineExceeded names the lowest rank that has not come.
  absl::StatusOr<std::vector<std::string>> Exchange(const std::string& key, int rank, const std::string& mine,
                                                    absl::Duration deadline = absl::Seconds(20)) {
    const absl::Time end = Clock::Real()->Now() + deadline;
    MutexLock lock(&mu_);
    std::map<int, std::string>& all = keys_[key];
    all[rank] = mine;
    changed_.SignalAll();
    while (all.size() < ranks_) {
      if (Clock::Real()->Now() >= end) return NotCome(all);
      changed_.WaitWithTimeout(&mu_, end - Clock::Real()->Now());
    }
    std::vector<std::string> values;
    values.reserve(all.size());
    for (const auto& [each, value] : all) values.push_back(value);
    return values;
  }

 private:
  static absl::Status NotCome(const std::map<int, std::string>& all) {
    int missing = 0;
    while (all.contains(missing)) ++missing;
    return absl::DeadlineExceededError(absl::StrCat("trainer ", missing, " has not come"));
  }

  const size_t ranks_;
  Mutex mu_;
  CondVar changed_;
  std::map<std::string, std::map<int, std::string>> keys_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_BOARD_H_
