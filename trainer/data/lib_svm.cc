// libsvm and libffm text: "label index:value ..." or "label field:index:value ...", separated by blanks or tabs.
//
// A slot takes the indexes of a range (and of a field). An index is any unsigned 64-bit number and the id of the same bits; a value
// other than 1 is its weight. A line without a label begins with a pair; its label is missing.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "trainer/data/line_parser.h"
#include "trainer/data/numbers.h"
#include "trainer/data/slot_columns.h"

namespace weir {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

bool Blank(char c) { return c == ' ' || c == '\t'; }

// Fields whose ends are known; false leaves the line to the plain way.
WEIR_INLINE bool ReadIndex(const char* p, const char* end, uint64_t* index) {
  if (end - p < 1 || end - p > 8) return p < end && ReadUnsigned(p, end, index) == end;
  bool bad = false;
  *index = ShortUnsigned(p, end - p, &bad);
  return !bad;
}

WEIR_INLINE bool ReadNumber(const char* p, const char* end, float* value) {
  if (end - p < 1 || end - p > 8) return p < end && ReadFloat(p, end, value) == end;
  bool bad = false;
  *value = ShortFloat(p, end - p, &bad);
  return !bad;
}

// Indexes of one slot.
struct Range {
  bool any_field = true;
  int64_t field = 0;
  uint64_t first = 0;
  uint64_t last = 0;
  bool is_float = false;
  int position = 0;

  bool Takes(int64_t of_field, uint64_t index) const {
    return first <= index && index <= last && (any_field || field == of_field);
  }
};

// The order of ranges.
bool Before(const Range& a, const Range& b) {
  if (a.any_field != b.any_field) return a.any_field;
  if (a.field != b.field) return a.field < b.field;
  return a.first < b.first;
}

struct Pair {
  int64_t field = 0;
  uint64_t index = 0;
  float value = 1;
};

class LibSvmParser : public LineParser {
 public:
  // No two ranges have an index in common.
  LibSvmParser(std::vector<Column> columns, bool fields, std::vector<Range> ranges)
      : LineParser(std::move(columns)), fields_(fields), ranges_(std::move(ranges)) {
    std::sort(ranges_.begin(), ranges_.end(), Before);
  }

  absl::Status Parse(std::string_view line, Example* example) const override {
    return ParseFast(line, example) ? absl::OkStatus() : ParsePlain(line, example);
  }
  absl::Status ParsePlain(std::string_view line, Example* example) const override;

 private:
  // Puts the pairs of one line into an example.
  class Filler {
   public:
    // The line has at most `pairs` of them.
    Filler(const LibSvmParser& parser, size_t pairs, Example* example);
    // What is wrong with it, or null.
    const char* Add(const Pair& pair);
    void Finish();

   private:
    // Null: no slot takes it.
    const Range* Find(const Pair& pair);
    const Range* Search(const Pair& pair);

    const std::vector<Range>& ranges_;
    Example& example_;
    float* const floats_;
    uint16_t* const counts_;
    int64_t* const ids_;
    uint32_t* const slots_;
    float* weights_ = nullptr;
    size_t added_ = 0;
    uint32_t last_slot_ = 0;
    bool in_order_ = true;
    const Range* near_;  // of the pair before
  };

  bool ParseFast(std::string_view line, Example* example) const;
  absl::Status ParsePair(std::string_view word, Pair* pair) const;

  const bool fields_;
  std::vector<Range> ranges_;  // by Before
};

LibSvmParser::Filler::Filler(const LibSvmParser& parser, size_t pairs, Example* example)
    : ranges_(parser.ranges_),
      example_(*example),
      floats_(example->floats.data()),
      counts_(example->counts.data()),
      ids_((example->ids.resize(pairs), example->ids.data())),
      slots_((example->scratch_slots.resize(pairs), example->scratch_slots.data())),
      near_(ranges_.data()) {
  std::fill(example->floats.begin(), example->floats.end(), kMissing);
  std::fill(example->counts.begin(), example->counts.end(), uint16_t{0});
  example->weights.clear();
}

inline __attribute__((always_inline)) const Range* LibSvmParser::Filler::Find(const Pair& pair) {
  // Lines ascend as a rule: the range of the pair before, or the next.
  if (near_->Takes(pair.field, pair.index)) return near_;
  if (near_ + 1 < ranges_.data() + ranges_.size() && near_[1].Takes(pair.field, pair.index)) return ++near_;
  return Search(pair);
}

const Range* LibSvmParser::Filler::Search(const Pair& pair) {
  // The last range that does not begin behind the pair: of its field, or of any.
  for (const Range& sought : {Range{.any_field = false, .field = pair.field, .first = pair.index},
                              Range{.any_field = true, .first = pair.index}}) {
    const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), sought, Before);
    if (behind == ranges_.begin() || !(behind - 1)->Takes(pair.field, pair.index)) continue;
    near_ = &*(behind - 1);
    return near_;
  }
  return nullptr;
}

inline __attribute__((always_inline)) const char* LibSvmParser::Filler::Add(const Pair& pair) {
  const Range* const range = Find(pair);
  if (range == nullptr) return nullptr;
  if (range->is_float) {
    float& out = floats_[static_cast<size_t>(range->position) + (pair.index - range->first)];
    if (!std::isnan(out)) return "is there twice";
    out = pair.value;
    return nullptr;
  }
  const uint32_t slot = static_cast<uint32_t>(range->position);
  if (counts_[slot] == Example::kMaxSlotIds) return "is one too many: a slot has at most 65535 ids";
  ++counts_[slot];
  in_order_ = in_order_ && slot >= last_slot_;
  last_slot_ = slot;
  if (pair.value != 1 && weights_ == nullptr) {
    example_.weights.resize(example_.ids.size());
    weights_ = example_.weights.data();
    std::fill_n(weights_, added_, 1.0f);
  }
  if (weights_ != nullptr) weights_[added_] = pair.value;
  ids_[added_] = static_cast<int64_t>(pair.index);
  slots_[added_] = slot;
  ++added_;
  return nullptr;
}

void LibSvmParser::Filler::Finish() {
  example_.ids.resize(added_);
  if (weights_ != nullptr) example_.weights.resize(added_);
  if (!in_order_) SortIds(example_.scratch_slots, &example_);
  // All but the label, which is the first.
  for (size_t i = 1; i < example_.floats.size(); ++i) {
    if (std::isnan(floats_[i])) floats_[i] = 0;
  }
}

bool LibSvmParser::ParseFast(std::string_view line, Example* example) const {
  const char* p = line.data();
  const char* const end = p + line.size();
  // A pair takes three bytes and a blank in front.
  Filler filler(*this, line.size() / 4 + 1, example);
  Marks marks(p, end, ' ', '\t', ':');
  const char* mark = marks.Next();
  if (mark - p > 1 && *p == '+' && p[1] != '-') ++p;
  if (!ReadNumber(p, mark, &example->floats[0]) || (mark < end && *mark == ':')) return false;
  for (p = mark + 1; p < end; p = mark + 1) {
    Pair pair;
    mark = marks.Next();
    if (fields_) {
      uint64_t field;
      if (mark == end || *mark != ':' || !ReadIndex(p, mark, &field)) return false;
      pair.field = static_cast<int64_t>(field);
      p = mark + 1;
      mark = marks.Next();
    }
    if (mark == end || *mark != ':' || !ReadIndex(p, mark, &pair.index)) return false;
    p = mark + 1;
    mark = marks.Next();
    if (mark < end && *mark == ':') return false;
    if ((mark - p != 1 || *p != '1') && !ReadNumber(p, mark, &pair.value)) return false;
    if (filler.Add(pair) != nullptr) return false;
  }
  filler.Finish();
  return true;
}

std::string Shown(std::string_view text) { return std::string(text.substr(0, 40)); }

absl::Status LibSvmParser::ParsePair(std::string_view word, Pair* pair) const {
  const auto error = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("'", Shown(word), "' ", what));
  };
  const char* const form = fields_ ? "is not field:index:value" : "is not index:value";
  std::string_view rest = word;
  if (fields_) {
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos) return error(form);
    if (!ParseWhole(rest.substr(0, colon), &pair->field) || pair->field < 0) return error("has a field that is no whole number from 0 on");
    rest.remove_prefix(colon + 1);
  }
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return error(form);
  if (!ParseWhole(rest.substr(0, colon), &pair->index)) return error("has an index that is no unsigned 64-bit number");
  if (!ParseFinite(rest.substr(colon + 1), &pair->value)) return error("has a value that is not a finite number");
  return absl::OkStatus();
}

absl::Status LibSvmParser::ParsePlain(std::string_view line, Example* example) const {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    if (Blank(line[at])) {
      ++at;
      continue;
    }
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  Filler filler(*this, words.size(), example);
  size_t next = 0;
  if (!words.empty() && words[0].find(':') == std::string_view::npos) {
    std::string_view label = words[next++];
    if (label.starts_with('+') && !label.starts_with("+-")) label.remove_prefix(1);
    if (!ParseFinite(label, &example->floats[0])) {
      return absl::InvalidArgumentError(absl::StrCat("the label '", Shown(words[0]), "' is not a finite number"));
    }
  }
  for (; next < words.size(); ++next) {
    Pair pair;
    RETURN_IF_ERROR(ParsePair(words[next], &pair));
    if (const char* what = filler.Add(pair); what != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("'", Shown(words[next]), "' ", what));
    }
  }
  filler.Finish();
  return absl::OkStatus();
}

absl::Status CheckApart(const v1::LibSvm& config, const std::vector<Range>& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::string where = absl::StrCat("data.lib_svm.slot[", i, "]");
    if (!config.fields() && config.slot(static_cast<int>(i)).has_field()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".field: is for libffm; set data.lib_svm.fields"));
    }
    for (size_t j = 0; j < i; ++j) {
      const Range &a = ranges[i], &b = ranges[j];
      if (a.first > b.last || b.first > a.last || (!a.any_field && !b.any_field && a.field != b.field)) continue;
      return absl::InvalidArgumentError(absl::StrCat(where, ": takes indexes that slot[", j, "] takes, too"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeLibSvmParser(const v1::LibSvm& config) {
  std::vector<DataSlot> slots;
  for (int i = 0; i < config.slot_size(); ++i) {
    const v1::LibSvm::Slot& in = config.slot(i);
    const bool is_float = in.type() == v1::LibSvm::Slot::FLOAT;
    if (in.last() < in.first() || (is_float && in.last() - in.first() >= static_cast<uint64_t>(std::numeric_limits<int>::max()))) {
      return absl::InvalidArgumentError(absl::StrCat("data.lib_svm.slot[", i, "]: has indexes from ", in.first(), " to ", in.last()));
    }
    slots.push_back({.name = in.name(),
                     .output = in.output(),
                     .is_float = is_float,
                     .dim = is_float ? static_cast<int>(in.last() - in.first() + 1) : 1});
  }
  ASSIGN_OR_RETURN(std::vector<Column> columns, LayOutSlots("data.lib_svm.slot", {{.name = "label"}}, &slots));
  std::vector<Range> ranges;
  for (size_t i = 0; i < slots.size(); ++i) {
    const v1::LibSvm::Slot& in = config.slot(static_cast<int>(i));
    ranges.push_back({.any_field = !in.has_field(),
                      .field = in.field(),
                      .first = in.first(),
                      .last = in.last(),
                      .is_float = slots[i].is_float,
                      .position = slots[i].position});
  }
  RETURN_IF_ERROR(CheckApart(config, ranges));
  return std::make_unique<LibSvmParser>(std::move(columns), config.fields(), std::move(ranges));
}

WEIR_REGISTER_LINE_PARSER(v1::LibSvm, MakeLibSvmParser);

}  // namespace
}  // namespace weir
