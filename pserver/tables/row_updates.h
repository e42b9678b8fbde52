// Rows of one stripe on their way to the update rule, a cache-full at a time. Not thread-safe: used under the stripe's
// lock.
#ifndef WEIR_PSERVER_TABLES_ROW_UPDATES_H_
#define WEIR_PSERVER_TABLES_ROW_UPDATES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "framework/runtime/row_rule.h"
#include "pserver/tables/lifecycle_rules.h"
#include "pserver/tables/lifecycle_words.h"
#include "pserver/tables/row_layout.h"

namespace weir {

class RowUpdates {
 public:
  // The gradient of a row is its sum over samples / divisor. Borrows the first three.
  RowUpdates(const RowLayout& layout, const RowRule& rule, const LifecycleRules& lifecycle, float divisor,
             float learning_rate, const RowTime& time);

  // Updates the row at once or in a later Add or Flush. `grad` [width] and `shows` [2], or null, are read then.
  void Add(int64_t id, char* row, const float* grad, const float* shows) {
    shows_[count_] = shows;
    ids_[count_] = id;
    rows_[count_] = row;
    values_[count_] = wide_ ? Widened(row) : layout_.Values(row);
    grads_[count_] = grad;
    if (++count_ == batch_) Flush();
  }
  // Updates the rows that wait. Must be called after the last Add.
  void Flush();
  // Returns an error that names the first row of which an update has made a value infinite or NaN.
  const absl::Status& status() const { return status_; }

 private:
  // Rows handed to one call of the rule: their lines are still in the first-level cache.
  static constexpr int64_t kUpdateBatch = 64;

  // Length of the values and state of the rule, as it sees them.
  int64_t RuleFloats() const { return layout_.width() + layout_.rule_state_bytes() / 4; }
  // Returns a copy of the row for the rule, for values that are no floats.
  float* Widened(const char* row) const;
  void StoreBack() const;
  void CheckValues();

  const RowLayout& layout_;
  const RowRule& rule_;
  const LifecycleWords words_;
  const bool has_words_;
  const bool wide_;
  const float divisor_, learning_rate_;
  const RowTime time_;
  int64_t batch_ = kUpdateBatch;
  int64_t count_ = 0;
  int64_t ids_[kUpdateBatch];
  char* rows_[kUpdateBatch];
  float* values_[kUpdateBatch];
  const float* grads_[kUpdateBatch];
  const float* shows_[kUpdateBatch];
  absl::Status status_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_UPDATES_H_
