// Numbers of the transactions of an async job, by which tables count steps (docs/tables.md). Each transaction ends with
// a border; if transactions overlap, the one that ends last runs the borders of all of them, so that each border runs
// once. Thread-safe.
#ifndef WEIR_PSERVER_CONSISTENCY_TABLE_STEPS_H_
#define WEIR_PSERVER_CONSISTENCY_TABLE_STEPS_H_

#include <cstdint>
#include <set>

#include "framework/base/mutex.h"

namespace weir {

class TableSteps {
 public:
  // Borders of the steps [begin, end).
  struct Borders {
    int64_t begin = 0, end = 0;
  };

  // Number of transactions that have begun since the run's beginning.
  int64_t Count();
  // Returns the number of a transaction that begins to take effect.
  int64_t Begin();
  // Marks the end of a transaction. Returns the borders that the caller runs now. Requires: Begin has returned
  // `transaction`, which has not ended.
  Borders End(int64_t transaction);
  // Goes on at a count of transactions. Requires: no transaction is under way.
  void Restore(int64_t count);

 private:
  Mutex mu_;
  // Invariant: every transaction under way is in [next_border_, count_).
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int64_t> under_way_ ABSL_GUARDED_BY(mu_);
  int64_t next_border_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_TABLE_STEPS_H_
