#include "pserver/consistency/table_steps.h"

namespace weir {

int64_t TableSteps::Count() {
  MutexLock lock(&mu_);
  return count_;
}

int64_t TableSteps::Begin() {
  MutexLock lock(&mu_);
  under_way_.insert(count_);
  return count_++;
}

TableSteps::Borders TableSteps::End(int64_t transaction) {
  MutexLock lock(&mu_);
  under_way_.erase(transaction);
  const int64_t begin = next_border_;
  next_border_ = under_way_.empty() ? count_ : *under_way_.begin();
  return {begin, next_border_};
}

void TableSteps::Restore(int64_t count) {
  MutexLock lock(&mu_);
  count_ = next_border_ = count;
}

}  // namespace weir
