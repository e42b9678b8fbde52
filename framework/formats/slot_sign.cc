// Logs of words "slot:sign", as recommenders of Paddle write them: words in any order, separated by blanks or tabs.
//
// Signs are ids: any int64; an unsigned number from 2^63 on stands for the int64 with the same bits. A FLOAT slot has
// `dim` words, or none if it is missing. Words at the beginning of a line may stand without a slot (`leading`).

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/numbers.h"
#include "framework/formats/schema.h"
#include "framework/formats/slot_columns.h"
#include "framework/formats/slot_schema.h"

namespace weir {
namespace {

bool Blank(char c) { return c == ' ' || c == '\t'; }
std::string Shown(std::string_view word) { return std::string(word.substr(0, 40)); }

class SlotSignParser : public LineParser {
 public:
  // `leading`: index of a slot, or -1 for a word that is ignored.
  SlotSignParser(std::vector<Column> columns, std::vector<DataSlot> slots, std::vector<int> leading, bool sign_first)
      : LineParser(std::move(columns)),
        slots_(std::move(slots)),
        leading_(std::move(leading)),
        sign_first_(sign_first) {
    for (size_t i = 0; i < slots_.size(); ++i) by_name_.emplace(slots_[i].name, static_cast<int>(i));
  }

  absl::Status Parse(std::string_view line, Example* example) const override {
    Line at(*this, example);
    const char* p = line.data();
    const char* const end = p + line.size();
    size_t words = 0;
    while (true) {
      while (p < end && Blank(*p)) ++p;
      if (p == end) break;
      const char* const begin = p;
      while (p < end && !Blank(*p)) ++p;
      const std::string_view word(begin, static_cast<size_t>(p - begin));
      if (words < leading_.size()) {
        const int slot = leading_[words++];
        if (slot >= 0) RETURN_IF_ERROR(at.Add(static_cast<size_t>(slot), word));
        continue;
      }
      // A slot's name may hold a colon, a sign may not.
      const size_t colon = sign_first_ ? word.find(':') : word.rfind(':');
      if (colon == std::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", Shown(word), "' is no word \"", sign_first_ ? "sign:slot" : "slot:sign", "\""));
      }
      const std::string_view name = sign_first_ ? word.substr(colon + 1) : word.substr(0, colon);
      const auto slot = by_name_.find(absl::string_view(name.data(), name.size()));
      if (slot == by_name_.end()) continue;
      RETURN_IF_ERROR(
          at.Add(static_cast<size_t>(slot->second), sign_first_ ? word.substr(0, colon) : word.substr(colon + 1)));
    }
    if (words < leading_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the line ends after ", words, " of ", leading_.size(), " leading words"));
    }
    return at.Finish();
  }

  std::vector<NamedInput> named_inputs() const override {
    std::vector<NamedInput> inputs = NamedInputsOf("data.slot_sign.slot", "slot", slots_);
    // A leading word is in every line.
    std::erase_if(inputs, [this](const NamedInput& input) {
      return std::any_of(leading_.begin(), leading_.end(),
                         [&](int slot) { return slot >= 0 && slots_[static_cast<size_t>(slot)].name == input.name; });
    });
    return inputs;
  }
  std::string NamesIn(std::string_view line) const override {
    std::vector<std::string_view> names;
    size_t words = 0;
    for (size_t at = 0; at < line.size();) {
      const size_t end = std::min(line.find_first_of(" \t", at), line.size());
      const std::string_view word = line.substr(at, end - at);
      at = end + 1;
      if (word.empty() || words++ < leading_.size()) continue;
      const size_t colon = sign_first_ ? word.find(':') : word.rfind(':');
      if (colon == std::string_view::npos) continue;
      names.push_back(sign_first_ ? word.substr(colon + 1) : word.substr(0, colon));
    }
    return ShownNames(names);
  }

 private:
  // A line as far as it has been read.
  class Line {
   public:
    Line(const SlotSignParser& parser, Example* example)
        : parser_(parser), example_(*example), slot_of_(example->scratch_slots), values_(example->scratch_weights) {
      example_.ids.clear();
      example_.weights.clear();
      std::fill(example_.counts.begin(), example_.counts.end(), uint16_t{0});
      std::fill(example_.floats.begin(), example_.floats.end(), std::numeric_limits<float>::quiet_NaN());
      slot_of_.clear();
      values_.assign(parser.slots_.size(), 0);
    }

    absl::Status Add(size_t index, std::string_view value) {
      const DataSlot& slot = parser_.slots_[index];
      const auto position = static_cast<size_t>(slot.position);
      if (slot.is_float) {
        float number;
        if (!ParseFinite(value, &number))
          return Error(slot, absl::StrCat("'", Shown(value), "' ", WhyNotFinite(value)));
        const auto before = static_cast<size_t>(values_[index]);
        if (before == static_cast<size_t>(slot.dim)) {
          return Error(slot, absl::StrCat("has more than ", slot.dim, slot.dim == 1 ? " value" : " values"));
        }
        example_.floats[position + before] = number;
        values_[index] += 1;
        return absl::OkStatus();
      }
      int64_t id;
      if (!ParseId(value, &id)) return Error(slot, absl::StrCat("'", Shown(value), "' is not a 64-bit integer"));
      uint16_t& count = example_.counts[position];
      if (count == Example::kMaxSlotIds) {
        return Error(slot, absl::StrCat("has more than ", Example::kMaxSlotIds, " ids"));
      }
      ++count;
      in_order_ = in_order_ && (slot_of_.empty() || slot_of_.back() <= position);
      slot_of_.push_back(static_cast<uint32_t>(position));
      example_.ids.push_back(id);
      return absl::OkStatus();
    }

    absl::Status Finish() {
      for (size_t i = 0; i < values_.size(); ++i) {
        const DataSlot& slot = parser_.slots_[i];
        const auto got = static_cast<int>(values_[i]);
        if (!slot.is_float || got == 0 || got == slot.dim) continue;
        return Error(slot, absl::StrCat("expected ", slot.dim, " values, or none for missing, got ", got));
      }
      if (!in_order_) SortIds(slot_of_, &example_);
      return absl::OkStatus();
    }

   private:
    static absl::Status Error(const DataSlot& slot, const std::string& text) {
      return absl::InvalidArgumentError(absl::StrCat("slot '", slot.name, "': ", text));
    }

    const SlotSignParser& parser_;
    Example& example_;
    std::vector<uint32_t>& slot_of_;  // of each id
    std::vector<float>& values_;      // of each slot of floats: number of its values so far
    bool in_order_ = true;
  };

  const std::vector<DataSlot> slots_;
  const std::vector<int> leading_;
  const bool sign_first_;
  absl::flat_hash_map<std::string, int> by_name_;
};

using Slot = v1::SlotSign::Slot;

absl::StatusOr<std::unique_ptr<LineParser>> MakeSlotSignParser(const v1::SlotSign& config) {
  std::vector<DataSlot> slots;
  for (const Slot& in : config.slot()) {
    slots.push_back({.name = in.name(), .output = in.output(), .is_float = in.type() == Slot::FLOAT, .dim = in.dim()});
  }
  ASSIGN_OR_RETURN(std::vector<Column> columns, LayOutSlots("data.slot_sign.slot", {}, &slots));
  std::vector<int> leading;
  for (const std::string& name : config.leading()) {
    const auto slot = std::find_if(slots.begin(), slots.end(), [&](const DataSlot& s) { return s.name == name; });
    leading.push_back(slot == slots.end() ? -1 : static_cast<int>(slot - slots.begin()));
  }
  return std::make_unique<SlotSignParser>(std::move(columns), std::move(slots), std::move(leading),
                                          config.sign_first());
}

absl::StatusOr<std::vector<v1::VarDesc>> SlotSignSchema(const v1::SlotSign& m, const SettingErrors& at) {
  SlotSchema vars("slot", at);
  for (int i = 0; i < m.slot_size(); ++i) {
    const Slot& slot = m.slot(i);
    const std::string path = absl::StrCat("slot[", i, "]");
    const bool is_float = slot.type() == Slot::FLOAT;
    RETURN_IF_ERROR(vars.Name(slot.name(), path));
    RETURN_IF_ERROR(CheckSlotDim(slot.dim(), is_float, slot.has_dim(), path,
                                 "is for FLOAT slots; a slot of ids holds any number of them", at));
    if (slot.name().find_first_of(" \t") != std::string::npos) {
      return at.Error(path + ".name", absl::StrCat("'", slot.name(), "' holds a blank, which ends a word"));
    }
    RETURN_IF_ERROR(vars.Add(slot.output().empty() ? slot.name() : slot.output(), is_float ? v1::DENSE : v1::IDS,
                             is_float ? slot.dim() : 1, path, path + ".dim"));
  }
  std::set<std::string> names;
  for (int i = 0; i < m.leading_size(); ++i) {
    const auto slot =
        std::find_if(m.slot().begin(), m.slot().end(), [&](const Slot& s) { return s.name() == m.leading(i); });
    if (slot == m.slot().end() || names.insert(m.leading(i)).second) continue;
    return at.Error(absl::StrCat("leading[", i, "]"), absl::StrCat("'", m.leading(i), "' is an earlier leading word"));
  }
  return std::move(vars).Finish("");
}

WEIR_REGISTER_DATA_SCHEMA(v1::SlotSign, SlotSignSchema);
WEIR_REGISTER_LINE_PARSER(v1::SlotSign, MakeSlotSignParser);

}  // namespace
}  // namespace weir
