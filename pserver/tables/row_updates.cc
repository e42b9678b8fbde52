#include "pserver/tables/row_updates.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "pserver/tables/finite_values.h"

namespace weir {

namespace {

// Copies of rows that a call of the rule works on, of rows wider than 1024 fewer than kUpdateBatch.
constexpr int64_t kScratchFloats = int64_t{1} << 16;

// Copies of rows as floats. Kept between calls so that a step allocates nothing; the rule does not come back here.
std::vector<float>& GetScratch() {
  static thread_local std::vector<float> scratch;
  return scratch;
}

}  // namespace

RowUpdates::RowUpdates(const RowLayout& layout, const RowRule& rule, const LifecycleRules& lifecycle, float divisor,
                       float learning_rate, const RowTime& time)
    : layout_(layout),
      rule_(rule),
      words_(lifecycle, lifecycle.row_words()),
      has_words_(lifecycle.row_words().size > 0),
      wide_(!layout.values().is_float32()),
      divisor_(divisor),
      learning_rate_(learning_rate),
      time_(time) {
  if (!wide_) return;
  batch_ = std::clamp<int64_t>(kScratchFloats / RuleFloats(), 1, kUpdateBatch);
  GetScratch().resize(static_cast<size_t>(batch_ * RuleFloats()));
}

void RowUpdates::Flush() {
  if (count_ == 0) return;
  rule_.UpdateIds(ids_, layout_.width(), learning_rate_, divisor_, count_, values_, grads_);
  CheckValues();
  if (wide_) StoreBack();
  if (layout_.has_use()) {
    for (int64_t i = 0; i < count_; ++i) layout_.MarkChanged(rows_[i]);
  }
  if (has_words_) {
    for (int64_t i = 0; i < count_; ++i) words_.Stamp(layout_.Words(rows_[i]), time_, shows_[i]);
  }
  count_ = 0;
}

float* RowUpdates::Widened(const char* row) const {
  const int width = layout_.width();
  float* const floats = GetScratch().data() + count_ * RuleFloats();
  layout_.values().Load(row, width, floats);
  std::memcpy(floats + width, layout_.State(row), static_cast<size_t>(layout_.rule_state_bytes()));
  return floats;
}

void RowUpdates::CheckValues() {
  const int width = layout_.width();
  AllFinite finite;
  for (int64_t i = 0; i < count_; ++i) finite.Add(values_[i], width);
  for (int64_t i = 0; i < count_ && !finite.value(); ++i) {
    const int64_t bad = FirstNotFinite(values_[i], width);
    if (bad < width && status_.ok()) status_ = NotFinite(absl::StrCat("row ", ids_[i]), values_[i][bad]);
  }
}

void RowUpdates::StoreBack() const {
  for (int64_t i = 0; i < count_; ++i) {
    std::memcpy(layout_.State(rows_[i]), values_[i] + layout_.width(), static_cast<size_t>(layout_.rule_state_bytes()));
  }
  layout_.values().Store(time_.step, count_, ids_, layout_.width(), values_, rows_);
}

}  // namespace weir
