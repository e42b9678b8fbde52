// Numbers of the transactions of an async job, by which tables count steps (docs/tables.md). After each transaction
// comes a border, which runs once: when that transaction and all with smaller numbers have ended. The call of End by
// which that becomes true returns it. Thread-safe.
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

  // Returns the number of transactions that have begun, including those before a resume (Restore).
  int64_t Count();
  // Returns the number of a transaction that begins to take effect.
  int64_t Begin();
  // Marks the end of a transaction. Returns the borders that the caller runs now. Requires: Begin has returned
  // `transaction`, which has not ended.
  Borders End(int64_t transaction);
  // Continues with this count, which a checkpoint has. Requires: no transaction is under way.
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
