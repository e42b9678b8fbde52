// Bytes of one table's rows: [values | state of the update rule | words of the lifecycle | word of use]. Immutable.
//
// The word of use exists in a table that keeps rows on disk, and stays in memory: rows on disk are stored_bytes() long.
// It holds the number of the call that last used the row and, in the top bit, whether the row may differ from its copy
// on disk.
#ifndef WEIR_PSERVER_TABLES_ROW_LAYOUT_H_
#define WEIR_PSERVER_TABLES_ROW_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "framework/runtime/row_rule.h"
#include "framework/runtime/row_values.h"
#include "pserver/tables/lifecycle_rules.h"
#include "pserver/tables/row_words.h"

namespace weir {

class RowLayout {
 public:
  // `rule` may be null: no state. `words`: the lifecycle's.
  RowLayout(int width, const RowValues& values, const RowRule* rule, const LifecycleRules::Words& words, bool on_disk);

  int width() const { return width_; }
  const RowValues& values() const { return values_; }
  // State of the update rule, followed by the words of the lifecycle (as bits).
  const std::vector<RowRule::State>& states() const { return states_; }
  int state_width() const { return state_width_; }
  // Length of a row as floats.
  int64_t floats() const { return int64_t{width_} + state_width_; }

  int64_t row_bytes() const { return row_bytes_; }
  int64_t stored_bytes() const { return use_begin_; }
  int64_t value_bytes() const { return state_begin_; }
  int64_t rule_state_bytes() const { return words_begin_ - state_begin_; }

  // Returns the values, followed by the state, of a row with FLOAT32 values.
  float* Values(char* row) const { return reinterpret_cast<float*>(row); }
  char* State(char* row) const { return row + state_begin_; }
  const char* State(const char* row) const { return row + state_begin_; }
  char* Words(char* row) const { return row + words_begin_; }
  const char* Words(const char* row) const { return row + words_begin_; }

  // Returns a row as floats() floats; uses `scratch` if the row is not stored in that form.
  const float* Floats(const char* row, std::vector<float>* scratch) const;
  // Sets a row from floats() floats, with values rounded to the nearest that can be stored.
  void SetFloats(const float* floats, char* row) const;

  // The word of use. SetUse keeps the mark of a change; all of them need a table that keeps rows on disk, but for
  // MarkChanged, which does nothing in others.
  bool has_use() const { return use_begin_ != row_bytes_; }
  static constexpr uint32_t kChanged = uint32_t{1} << 31;
  uint32_t Use(const char* row) const { return Word(row + use_begin_, 0) & ~kChanged; }
  bool Changed(const char* row) const { return (Word(row + use_begin_, 0) & kChanged) != 0; }
  void SetUse(char* row, uint32_t call) const {
    SetWord(row + use_begin_, 0, (Word(row + use_begin_, 0) & kChanged) | call);
  }
  void MarkChanged(char* row) const {
    if (has_use()) SetWord(row + use_begin_, 0, Word(row + use_begin_, 0) | kChanged);
  }
  void MarkUnchanged(char* row) const { SetWord(row + use_begin_, 0, Use(row)); }
  // Sets the word of a row that was just read from the disk.
  void ClearUse(char* row) const { SetWord(row + use_begin_, 0, 0); }

 private:
  const int width_;
  const RowValues values_;
  std::vector<RowRule::State> states_;
  int state_width_ = 0;
  int64_t state_begin_ = 0;  // offsets in a row
  int64_t words_begin_ = 0;
  int64_t use_begin_ = 0;
  int64_t row_bytes_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_LAYOUT_H_
