// MultiSlot text: per line, for each slot in order, a count n and n values, separated by blanks or tabs.
//
// Ids are any int64; an unsigned number from 2^63 on stands for the int64 with the same bits. An id may carry
// ":weight". A FLOAT slot has `dim` values, or 0 values if it is missing.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// Splits a line into words.
class Words {
 public:
  explicit Words(std::string_view line) : p_(line.data()), end_(p_ + line.size()) {}
  // Returns an empty word at the end of the line.
  std::string_view Next() {
    while (p_ < end_ && Blank(*p_)) ++p_;
    const char* const begin = p_;
    while (p_ < end_ && !Blank(*p_)) ++p_;
    return {begin, static_cast<size_t>(p_ - begin)};
  }

 private:
  const char* p_;
  const char* const end_;
};

class MultiSlotParser : public LineParser {
 public:
  MultiSlotParser(std::vector<Column> columns, std::vector<DataSlot> slots)
      : LineParser(std::move(columns)), in_(std::move(slots)) {
    int last = -1;
    for (const DataSlot& slot : in_) {
      if (slot.is_float || slot.skip) continue;
      ids_in_order_ = ids_in_order_ && slot.position > last;
      last = slot.position;
      order_.push_back(slot.position);
    }
  }

  absl::Status Parse(std::string_view line, Example* example) const override {
    return ParseFast(line, example) ? absl::OkStatus() : ParsePlain(line, example);
  }

  absl::Status ParsePlain(std::string_view line, Example* example) const override {
    example->ids.clear();
    example->weights.clear();
    Words words(line);
    for (const DataSlot& slot : in_) {
      const std::string_view word = words.Next();
      if (word.empty()) return Error(slot, "the line ends before its count");
      int64_t count;
      if (!ParseWhole(word, &count) || count < 0)
        return Error(slot, "count '", word, "' is not a whole number from 0 on");
      RETURN_IF_ERROR(slot.is_float ? ParseFloats(slot, count, &words, example)
                                    : ParseIds(slot, count, &words, example));
    }
    if (const std::string_view word = words.Next(); !word.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Shown(word), "' is left over behind the last of ", in_.size(), " slots"));
    }
    if (!ids_in_order_) OrderIds(order_, example);
    return absl::OkStatus();
  }

 private:
  // Splits a line into words that are separated by exactly one blank. Returns an empty word at the end of the line and
  // at a second blank, where ParseFast gives up.
  class ShortWords {
   public:
    explicit ShortWords(std::string_view line)
        : p_(line.data()), end_(p_ + line.size()), blanks_(p_, end_, ' ', '\t', ' ') {}
    WEIR_INLINE_MEMBER std::string_view Next() {
      const char* const begin = p_;
      if (begin >= end_) return {};
      const char* const blank = blanks_.Next();
      p_ = blank + 1;
      return {begin, static_cast<size_t>(blank - begin)};
    }
    bool at_end() const { return p_ >= end_; }

   private:
    const char* p_;
    const char* const end_;
    Marks blanks_;
  };

  // Parses a line in the common layout: one blank between words and no weights. Returns false for any other line, which
  // ParsePlain then parses or explains.
  bool ParseFast(std::string_view line, Example* example) const {
    ShortWords words(line);
    bool bad = false;
    // An id takes two bytes at least.
    example->ids.resize(line.size() / 2 + 1);
    example->weights.clear();
    int64_t* id = example->ids.data();
    for (const DataSlot& slot : in_) {
      const std::string_view word = words.Next();
      if (word.empty() || word.size() > 8) return false;
      const uint64_t count = word.size() == 1 && word[0] == '1'
                                 ? 1
                                 : ShortUnsigned(word.data(), static_cast<ptrdiff_t>(word.size()), &bad);
      if (bad || count > Example::kMaxSlotIds) return false;
      if (slot.is_float) {
        if (!ReadFloats(slot, count, &words, example)) return false;
        continue;
      }
      // Stays within `ids` whatever `count` says: ids has room for every word of the line.
      for (uint64_t i = 0; i < count; ++i) {
        if (!ReadWordAsId(words.Next(), id, &bad)) return false;
        id += !slot.skip;
      }
      if (!slot.skip) example->counts[static_cast<size_t>(slot.position)] = static_cast<uint16_t>(count);
    }
    if (bad || !words.at_end()) return false;
    example->ids.resize(static_cast<size_t>(id - example->ids.data()));
    if (!ids_in_order_) OrderIds(order_, example);
    return true;
  }

  WEIR_INLINE_MEMBER static bool ReadWordAsId(std::string_view word, int64_t* id, bool* bad) {
    if (word.empty()) return false;
    if (word.size() <= 8 && word[0] != '-') {
      *id = static_cast<int64_t>(ShortUnsigned(word.data(), static_cast<ptrdiff_t>(word.size()), bad));
      return true;
    }
    const char* const end = word.data() + word.size();
    return ReadId(word.data(), end, id) == end;
  }

  static bool ReadFloats(const DataSlot& slot, uint64_t count, ShortWords* words, Example* example) {
    float* out = example->floats.data() + slot.position;
    if (count == 0) {
      if (!slot.skip) std::fill_n(out, slot.dim, std::numeric_limits<float>::quiet_NaN());
      return true;
    }
    if (count != static_cast<uint64_t>(slot.dim)) return false;
    bool bad = false;
    for (uint64_t i = 0; i < count; ++i) {
      const std::string_view word = words->Next();
      if (word.empty()) return false;
      float value;
      if (word.size() <= 8) {
        value = ShortFloat(word.data(), static_cast<ptrdiff_t>(word.size()), &bad);
      } else {
        const char* const end = word.data() + word.size();
        if (ReadFloat(word.data(), end, &value) != end) return false;
      }
      if (!slot.skip) *out++ = value;
    }
    return !bad;
  }

  static std::string Shown(std::string_view word) { return std::string(word.substr(0, 40)); }

  template <typename... Args>
  static absl::Status Error(const DataSlot& slot, const char* before, std::string_view word = {}, Args... after) {
    return absl::InvalidArgumentError(absl::StrCat("slot '", slot.name, "': ", before, Shown(word), after...));
  }
  static absl::Status Ends(const DataSlot& slot, int64_t count, int64_t got) {
    return Error(slot, "", "", "expected ", count,
                 count == 1 ? " value, the line ends after " : " values, the line ends after ", got);
  }

  static absl::Status ParseFloats(const DataSlot& slot, int64_t count, Words* words, Example* example) {
    if (count != slot.dim && count != 0) {
      return Error(slot, "", "", "expected ", slot.dim, slot.dim == 1 ? " value" : " values",
                   ", or 0 for missing, got ", count);
    }
    for (int i = 0; i < slot.dim; ++i) {
      float value = std::numeric_limits<float>::quiet_NaN();
      if (count > 0) {
        const std::string_view word = words->Next();
        if (word.empty()) return Ends(slot, count, i);
        if (!ParseFinite(word, &value)) return Error(slot, "'", word, "' ", WhyNotFinite(word));
      }
      if (!slot.skip) example->floats[static_cast<size_t>(slot.position) + static_cast<size_t>(i)] = value;
    }
    return absl::OkStatus();
  }

  static absl::Status ParseIds(const DataSlot& slot, int64_t count, Words* words, Example* example) {
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
        return Error(slot, "the weight in '", word, "' ", WhyNotFinite(word.substr(colon + 1)));
      }
      if (slot.skip) continue;
      if (colon != std::string_view::npos && example->weights.empty())
        example->weights.resize(example->ids.size(), 1.0f);
      example->ids.push_back(id);
      if (colon != std::string_view::npos || !example->weights.empty()) example->weights.push_back(weight);
    }
    if (!slot.skip) example->counts[static_cast<size_t>(slot.position)] = static_cast<uint16_t>(count);
    return absl::OkStatus();
  }

  const std::vector<DataSlot> in_;  // in the order of the line
  std::vector<int> order_;          // slots of ids in the order of the line
  bool ids_in_order_ = true;
};

absl::StatusOr<std::unique_ptr<LineParser>> MakeMultiSlotParser(const v1::MultiSlot& config) {
  std::vector<DataSlot> slots;
  for (const v1::MultiSlot::Slot& in : config.slot()) {
    slots.push_back({.name = in.name(),
                     .output = in.output(),
                     .is_float = in.type() == v1::MultiSlot::Slot::FLOAT,
                     .skip = in.skip(),
                     .dim = in.dim()});
  }
  ASSIGN_OR_RETURN(std::vector<Column> columns, LayOutSlots("data.multi_slot.slot", {}, &slots));
  return std::make_unique<MultiSlotParser>(std::move(columns), std::move(slots));
}

absl::StatusOr<std::vector<v1::VarDesc>> MultiSlotSchema(const v1::MultiSlot& m, const SettingErrors& at) {
  SlotSchema vars("slot", at);
  for (int i = 0; i < m.slot_size(); ++i) {
    const v1::MultiSlot::Slot& slot = m.slot(i);
    const std::string path = absl::StrCat("slot[", i, "]");
    const bool is_float = slot.type() == v1::MultiSlot::Slot::FLOAT;
    if (slot.name().empty()) return at.Error(path, "needs a name");
    RETURN_IF_ERROR(CheckSlotDim(slot.dim(), is_float, slot.has_dim(), path,
                                 "is for FLOAT slots; a slot of ids holds any number of them", at));
    RETURN_IF_ERROR(vars.Name(slot.name(), path));
    if (slot.skip()) continue;
    RETURN_IF_ERROR(vars.Add(slot.output().empty() ? slot.name() : slot.output(), is_float ? v1::DENSE : v1::IDS,
                             is_float ? slot.dim() : 1, path, path + ".dim"));
  }
  return std::move(vars).Finish(" that is not skipped");
}

WEIR_REGISTER_DATA_SCHEMA(v1::MultiSlot, MultiSlotSchema);
WEIR_REGISTER_LINE_PARSER(v1::MultiSlot, MakeMultiSlotParser);

}  // namespace
}  // namespace weir
