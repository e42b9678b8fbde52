// MultiSlot text: per line, for each slot in order, a count n and n values, separated by blanks or tabs.
//
// Ids are any int64; an unsigned one from 2^63 on stands for the int64 of the same bits. An id may carry ":weight". A FLOAT
// slot has `dim` values, or 0: missing.

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "trainer/data/line_parser.h"

namespace weir {
namespace {

// Words of a line, one after the other.
class Words {
 public:
  explicit Words(std::string_view line) : p_(line.data()), end_(p_ + line.size()) {}
  // Empty at the end of the line.
  std::string_view Next() {
    while (p_ < end_ && Blank(*p_)) ++p_;
    const char* const begin = p_;
    while (p_ < end_ && !Blank(*p_)) ++p_;
    return {begin, static_cast<size_t>(p_ - begin)};
  }

 private:
  static bool Blank(char c) { return c == ' ' || c == '\t'; }
  const char* p_;
  const char* const end_;
};

template <typename T>
bool ParseWhole(std::string_view word, T* value) {
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
  return error == std::errc() && stop == word.data() + word.size();
}

bool ParseId(std::string_view word, int64_t* id) {
  if (ParseWhole(word, id)) return true;
  uint64_t bits;
  if (!ParseWhole(word, &bits)) return false;
  *id = static_cast<int64_t>(bits);
  return true;
}

bool ParseFinite(std::string_view word, float* value) { return ParseWhole(word, value) && std::isfinite(*value); }

struct Slot {
  std::string name;
  bool is_float = false;
  bool skip = false;
  int dim = 1;
  int position = 0;  // first float in Example.floats, or slot in Example.counts
};

class MultiSlotParser : public LineParser {
 public:
  MultiSlotParser(std::vector<Column> columns, std::vector<Slot> slots)
      : LineParser(std::move(columns)), in_(std::move(slots)) {
    int last = -1;
    for (const Slot& slot : in_) {
      if (slot.is_float || slot.skip) continue;
      ids_in_order_ = ids_in_order_ && slot.position > last;
      last = slot.position;
    }
  }

  absl::Status Parse(std::string_view line, Example* example) const override {
    example->ids.clear();
    example->weights.clear();
    Words words(line);
    for (const Slot& slot : in_) {
      const std::string_view word = words.Next();
      if (word.empty()) return Error(slot, "the line ends before its count");
      int64_t count;
      if (!ParseWhole(word, &count) || count < 0) return Error(slot, "count '", word, "' is not a whole number from 0 on");
      RETURN_IF_ERROR(slot.is_float ? ParseFloats(slot, count, &words, example) : ParseIds(slot, count, &words, example));
    }
    if (const std::string_view word = words.Next(); !word.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("'", Shown(word), "' is left over behind the last of ", in_.size(), " slots"));
    }
    if (!ids_in_order_) Reorder(example);
    return absl::OkStatus();
  }

 private:
  static std::string Shown(std::string_view word) { return std::string(word.substr(0, 40)); }

  template <typename... Args>
  static absl::Status Error(const Slot& slot, const char* before, std::string_view word = {}, Args... after) {
    return absl::InvalidArgumentError(absl::StrCat("slot '", slot.name, "': ", before, Shown(word), after...));
  }
  static absl::Status Ends(const Slot& slot, int64_t count, int64_t got) {
    return Error(slot, "", "", "expected ", count, count == 1 ? " value, the line ends after " : " values, the line ends after ",
                 got);
  }

  static absl::Status ParseFloats(const Slot& slot, int64_t count, Words* words, Example* example) {
    if (count != slot.dim && count != 0) {
      return Error(slot, "", "", "expected ", slot.dim, slot.dim == 1 ? " value" : " values", ", or 0 for missing, got ", count);
    }
    for (int i = 0; i < slot.dim; ++i) {
      float value = std::numeric_limits<float>::quiet_NaN();
      if (count > 0) {
        const std::string_view word = words->Next();
        if (word.empty()) return Ends(slot, count, i);
        if (!ParseFinite(word, &value)) return Error(slot, "'", word, "' is not a finite number");
      }
      if (!slot.skip) example->floats[static_cast<size_t>(slot.position + i)] = value;
    }
    return absl::OkStatus();
  }

  static absl::Status ParseIds(const Slot& slot, int64_t count, Words* words, Example* example) {
    if (count > Example::kMaxSlotIds) {
      return Error(slot, "", "", "has ", count, " values; at most ", Example::kMaxSlotIds, " are possible");
    }
    for (int64_t i = 0; i < count; ++i) {
      const std::string_view word = words->Next();
      if (word.empty()) return Ends(slot, count, i);
      const size_t colon = word.find(':');
      int64_t id;
      if (!ParseId(word.substr(0, colon), &id)) return Error(slot, "'", word, "' is not a 64-bit integer");
      float weight = 1;
      if (colon != std::string_view::npos && !ParseFinite(word.substr(colon + 1), &weight)) {
        return Error(slot, "the weight in '", word, "' is not a finite number");
      }
      if (slot.skip) continue;
      if (colon != std::string_view::npos && example->weights.empty()) example->weights.resize(example->ids.size(), 1.0f);
      example->ids.push_back(id);
      if (colon != std::string_view::npos || !example->weights.empty()) example->weights.push_back(weight);
    }
    if (!slot.skip) example->counts[static_cast<size_t>(slot.position)] = static_cast<uint16_t>(count);
    return absl::OkStatus();
  }

  // Ids were read in order of the line; columns want them in order of their slots.
  void Reorder(Example* example) const {
    std::vector<size_t> begin(example->counts.size());
    size_t at = 0;
    for (const Slot& slot : in_) {
      if (slot.is_float || slot.skip) continue;
      begin[static_cast<size_t>(slot.position)] = at;
      at += example->counts[static_cast<size_t>(slot.position)];
    }
    std::vector<int64_t> ids;
    std::vector<float> weights;
    for (size_t s = 0; s < begin.size(); ++s) {
      for (size_t i = begin[s]; i < begin[s] + example->counts[s]; ++i) {
        ids.push_back(example->ids[i]);
        if (!example->weights.empty()) weights.push_back(example->weights[i]);
      }
    }
    example->ids = std::move(ids);
    example->weights = std::move(weights);
  }

  const std::vector<Slot> in_;  // in order of the line
  bool ids_in_order_ = true;
};

absl::StatusOr<std::unique_ptr<LineParser>> MakeMultiSlotParser(const v1::MultiSlot& config) {
  std::vector<Column> columns;
  std::vector<std::vector<int>> members;  // slots of each column
  std::vector<Slot> slots;
  std::set<std::string> names;
  for (int i = 0; i < config.slot_size(); ++i) {
    const v1::MultiSlot::Slot& in = config.slot(i);
    const std::string where = absl::StrCat("data.multi_slot.slot[", i, "]: ");
    if (in.name().empty()) return absl::InvalidArgumentError(absl::StrCat(where, "name is empty"));
    if (!names.insert(in.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, "there are two slots '", in.name(), "'"));
    }
    const bool is_float = in.type() == v1::MultiSlot::Slot::FLOAT;
    if (in.dim() < 1 || (!is_float && in.dim() != 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "dim must be ", is_float ? "positive" : "left out for ids", ", got ", in.dim()));
    }
    slots.push_back({.name = in.name(), .is_float = is_float, .skip = in.skip(), .dim = in.dim()});
    if (in.skip()) continue;
    const std::string output = in.output().empty() ? in.name() : in.output();
    const v1::VarKind kind = is_float ? v1::DENSE : v1::IDS;
    size_t c = 0;
    while (c < columns.size() && columns[c].name != output) ++c;
    if (c == columns.size()) {
      columns.push_back({.name = output, .kind = kind, .width = 0});
      members.emplace_back();
    }
    if (columns[c].kind != kind) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "output '", output, "' has slots of ids and of floats; give them two names"));
    }
    columns[c].width += in.dim();
    if (!is_float) columns[c].slot_names.push_back(in.name());
    members[c].push_back(i);
  }
  if (columns.empty()) return absl::InvalidArgumentError("data.multi_slot: no slot that is not skipped");
  int floats = 0;
  int ids = 0;
  for (size_t c = 0; c < columns.size(); ++c) {
    for (const int i : members[c]) {
      Slot& slot = slots[static_cast<size_t>(i)];
      int& next = slot.is_float ? floats : ids;
      slot.position = next;
      next += slot.dim;
    }
  }
  return std::make_unique<MultiSlotParser>(std::move(columns), std::move(slots));
}

WEIR_REGISTER_LINE_PARSER(v1::MultiSlot, MakeMultiSlotParser);

}  // namespace
}  // namespace weir
