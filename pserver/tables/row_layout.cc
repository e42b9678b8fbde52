#include "pserver/tables/row_layout.h"

#include <cstring>
#include <string>

namespace weir {

RowLayout::RowLayout(int width, const RowValues& values, const RowRule* rule, const LifecycleRules::Words& words,
                     bool on_disk)
    : width_(width), values_(values) {
  if (rule != nullptr) states_ = rule->states(width);
  for (const RowRule::State& state : states_) state_width_ += state.width;
  state_begin_ = values_.Bytes(width);
  words_begin_ = state_begin_ + 4 * int64_t{state_width_};
  for (const std::string& name : words.names) states_.push_back({name, 1});
  state_width_ += words.size;
  row_bytes_ = use_begin_ = words_begin_ + 4 * words.size;
  if (on_disk) row_bytes_ += 4;
}

const float* RowLayout::Floats(const char* row, std::vector<float>* scratch) const {
  if (values_.is_float32()) return reinterpret_cast<const float*>(row);
  const size_t width = static_cast<size_t>(width_), state = static_cast<size_t>(state_width_);
  scratch->resize(width + state);
  values_.Load(row, width_, scratch->data());
  std::memcpy(scratch->data() + width, State(row), state * sizeof(float));
  return scratch->data();
}

void RowLayout::SetFloats(const float* floats, char* row) const {
  values_.StoreNearest(floats, width_, row);
  std::memcpy(State(row), floats + width_, static_cast<size_t>(state_width_) * sizeof(float));
}

}  // namespace weir
