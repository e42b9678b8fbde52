// libsvm and libffm text: "label index:value ..." or "label field:index:value ...", separated by blanks or tabs.
//
// A slot takes the indexes of a range (and of a field). An index is any unsigned 64-bit number and the id of the same
// bits; a value other than 1 is its weight. A line without a label begins with a pair; its label is missing.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/formats/fields512.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/numbers.h"
#include "framework/formats/schema.h"
#include "framework/formats/slot_columns.h"
#include "framework/formats/slot_schema.h"

namespace weir {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

bool Blank(char c) { return c == ' ' || c == '\t'; }

// Reads an index whose field ends at `end`. Returns false if it is not a number.
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

// A range of indexes that one slot takes.
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

// Orders ranges: those of any field first, then by field and first index.
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

// The AVX-512 parser finds all pairs of a line before it reads them, eight at a time. It takes lines of "label
// index:value index:value ..." with one blank or tab between pairs and at most eight characters in a number.
constexpr int kMostPairs = 512;
constexpr int kNearRanges = 4;  // one in twenty features is missing in logs of clicks

// Writes where the fields of such a line end: ends[0] for the label, ends[2i + 1] and ends[2i + 2] for index and value
// of pair i. `ends` has room for 64 more than 2 * kMostPairs + 1. Returns the number of pairs, or -1 for another line.
WEIR_FOR_FIELDS512 int PairEnds(const char* line, size_t size, int32_t* ends) {
  const __m512i blank = _mm512_set1_epi8(' '), tab = _mm512_set1_epi8('\t'), colon = _mm512_set1_epi8(':');
  int found = 0;
  for (size_t at = 0; at < size; at += 64) {
    const size_t left = size - at;
    const __mmask64 there = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    const __m512i text = _mm512_maskz_loadu_epi8(there, line + at);
    const uint64_t colons = _mm512_cmpeq_epi8_mask(text, colon);
    const uint64_t marks = colons | _mm512_cmpeq_epi8_mask(text, blank) | _mm512_cmpeq_epi8_mask(text, tab);
    // A valid line alternates between a blank and a colon.
    const uint64_t expected = _pdep_u64(found % 2 == 0 ? 0xAAAAAAAAAAAAAAAAULL : 0x5555555555555555ULL, marks);
    const int count = __builtin_popcountll(marks);
    if (colons != expected || found + count > 2 * kMostPairs) return -1;
    AddPlaces(marks, static_cast<int32_t>(at), ends + found);
    found += count;
  }
  ends[found] = static_cast<int32_t>(size);
  return found % 2 == 0 ? found / 2 : -1;
}

// Reads the numbers of the pairs. Returns false if the line needs another parser. `indexes` and `values` have room for
// seven more.
WEIR_FOR_FIELDS512 bool ReadPairs(const char* line, const int32_t* ends, int pairs, uint64_t* indexes, float* values) {
  const __m512i one = _mm512_set1_epi64(1), seven = _mm512_set1_epi64(7), low = _mm512_set1_epi64(0xFFFFFFFF);
  const __m512i zeros = _mm512_set1_epi8('0'), nine = _mm512_set1_epi8(9), zero = _mm512_setzero_si512();
  const __m256 powers = _mm256_setr_ps(1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f);
  for (int i = 0; i < pairs; i += 8) {
    const __mmask8 there = static_cast<__mmask8>(pairs - i >= 8 ? 0xFF : (1 << (pairs - i)) - 1);
    // Each lane holds the end before the index and, in the upper half, the end of the index.
    const __m512i around = _mm512_maskz_loadu_epi64(there, ends + 2 * i);
    const __m512i begins = _mm512_add_epi64(_mm512_and_si512(around, low), one),
                  index_ends = _mm512_srli_epi64(around, 32);
    const __m512i value_begins = _mm512_add_epi64(index_ends, one);
    const __m512i value_ends = _mm512_and_si512(_mm512_maskz_loadu_epi64(there, ends + 2 * i + 2), low);
    const __m512i index_sizes = _mm512_sub_epi64(index_ends, begins);
    __m512i sizes = _mm512_sub_epi64(value_ends, value_begins);
    // Sizes must be 1 to 8; a size of 0 wraps around and is too large.
    if (_mm512_mask_cmpgt_epu64_mask(there, _mm512_sub_epi64(index_sizes, one), seven) != 0) return false;
    if (_mm512_mask_cmpgt_epu64_mask(there, _mm512_sub_epi64(sizes, one), seven) != 0) return false;

    const __m512i index = _mm512_mask_i64gather_epi64(zeros, there, begins, line, 1);
    const __m512i index_digits = _mm512_maskz_sllv_epi64(there, _mm512_xor_si512(index, zeros), ShiftOf(index_sizes));
    if (_mm512_cmpgt_epu8_mask(index_digits, nine) != 0) return false;
    _mm512_storeu_si512(indexes + i, CombineDigits(index_digits));

    __m512i text = _mm512_mask_i64gather_epi64(zeros, there, value_begins, line, 1);
    const __mmask8 negative =
        _mm512_mask_cmpeq_epi64_mask(there, _mm512_and_si512(text, _mm512_set1_epi64(0xFF)), _mm512_set1_epi64('-'));
    if (negative != 0) {
      sizes = _mm512_mask_sub_epi64(sizes, negative, sizes, one);
      text = _mm512_mask_srli_epi64(text, negative, text, 8);
      if (_mm512_mask_testn_epi64_mask(negative, sizes, sizes) != 0) return false;
    }
    __m512i digits = _mm512_maskz_sllv_epi64(there, _mm512_xor_si512(text, zeros), ShiftOf(sizes));
    const __m512i points = _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(digits, _mm512_set1_epi8('.' ^ '0')));
    const __mmask8 pointed = _mm512_test_epi64_mask(points, points);
    __m256 power = _mm256_set1_ps(1.0f);
    if (pointed != 0) {
      if (_mm512_mask_cmpeq_epi64_mask(pointed, sizes, one) != 0) return false;
      // The digits before the first point move up by one place. A second point stays in place and is rejected as no
      // digit.
      const __m512i lowest = _mm512_and_si512(points, _mm512_sub_epi64(zero, points));
      const __m512i before = _mm512_sub_epi64(lowest, one);
      const __m512i until = _mm512_or_si512(_mm512_slli_epi64(before, 8), _mm512_set1_epi64(0xFF));
      digits = _mm512_mask_or_epi64(digits, pointed, _mm512_slli_epi64(_mm512_and_si512(digits, before), 8),
                                    _mm512_andnot_si512(until, digits));
      const __m256i behind_point =
          _mm512_cvtepi64_epi32(_mm512_srli_epi64(_mm512_maskz_lzcnt_epi64(pointed, lowest), 3));
      power = _mm256_permutevar8x32_ps(powers, behind_point);
    }
    if (_mm512_cmpgt_epu8_mask(digits, nine) != 0) return false;
    // Rounds once: up to seven digits and their power of ten are exact floats; eight digits are divided by 1.
    const __m256 magnitudes = _mm256_div_ps(_mm512_cvtepu64_ps(CombineDigits(digits)), power);
    _mm256_storeu_ps(values + i, _mm256_mask_xor_ps(magnitudes, negative, magnitudes, _mm256_set1_ps(-0.0f)));
  }
  return true;
}

class LibSvmParser : public LineParser {
 public:
  // No two ranges have an index in common.
  LibSvmParser(std::vector<Column> columns, bool fields, std::vector<Range> ranges, std::vector<NamedInput> inputs)
      : LineParser(std::move(columns)), fields_(fields), ranges_(std::move(ranges)), inputs_(std::move(inputs)) {
    std::sort(ranges_.begin(), ranges_.end(), Before);
  }

  absl::Status Parse(std::string_view line, Example* example) const override {
    const bool fast = (HasFields512() && !fields_ && ParseAvx512(line, example)) || ParseFast(line, example);
    return fast ? absl::OkStatus() : ParsePlain(line, example);
  }
  absl::Status ParsePlain(std::string_view line, Example* example) const override;

  std::vector<NamedInput> named_inputs() const override { return inputs_; }
  std::string NamesIn(std::string_view line) const override;

 private:
  // Puts the pairs of one line into an example.
  class Filler {
   public:
    // `pairs` is an upper bound of the pairs of the line.
    Filler(const LibSvmParser& parser, size_t pairs, Example* example);
    // Returns the error of the pair, or null if it is good.
    const char* Add(const Pair& pair);
    void Finish();

   private:
    // Returns null if no slot takes the pair.
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
    const Range* near_;  // range of the pair before
  };

  bool ParseFast(std::string_view line, Example* example) const;
  // Parses a line without fields and weights whose ids are in the order of their slots. Returns false for any other.
  bool ParseAvx512(std::string_view line, Example* example) const;
  absl::Status ParsePair(std::string_view word, Pair* pair) const;

  const bool fields_;
  std::vector<Range> ranges_;  // by Before
  const std::vector<NamedInput> inputs_;
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
  // Indexes usually ascend, so the range of the pair before or the next one fits.
  if (near_->Takes(pair.field, pair.index)) return near_;
  if (near_ + 1 < ranges_.data() + ranges_.size() && near_[1].Takes(pair.field, pair.index)) return ++near_;
  return Search(pair);
}

const Range* LibSvmParser::Filler::Search(const Pair& pair) {
  // Looks for the last range that begins at or before the pair, among ranges of its field, then of any field.
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
  // Skips the label, which is the first float.
  for (size_t i = 1; i < example_.floats.size(); ++i) {
    if (std::isnan(floats_[i])) floats_[i] = 0;
  }
}

bool LibSvmParser::ParseFast(std::string_view line, Example* example) const {
  const char* p = line.data();
  const char* const end = p + line.size();
  // A pair takes at least three bytes and a blank in front.
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

bool LibSvmParser::ParseAvx512(std::string_view line, Example* example) const {
  int32_t ends[2 * kMostPairs + 1 + 64];
  uint64_t indexes[kMostPairs + 8];
  float values[kMostPairs + 8];
  if (line.size() > size_t{kMostPairs} * 64) return false;
  const int pairs = PairEnds(line.data(), line.size(), ends);
  if (pairs < 0 || !ReadPairs(line.data(), ends, pairs, indexes, values)) return false;
  float* const floats = example->floats.data();
  uint16_t* const counts = example->counts.data();
  std::fill(example->floats.begin(), example->floats.end(), kMissing);
  std::fill(example->counts.begin(), example->counts.end(), uint16_t{0});
  const char* p = line.data();
  const char* const label_end = p + ends[0];
  if (label_end - p > 1 && *p == '+' && p[1] != '-') ++p;
  if (!ReadNumber(p, label_end, &floats[0])) return false;
  example->ids.resize(static_cast<size_t>(pairs));
  example->weights.clear();
  int64_t* id = example->ids.data();
  const Range* const begin = ranges_.data();
  const Range* const end = begin + ranges_.size();
  const Range* range = begin;
  int last_slot = 0;
  for (int i = 0; i < pairs; ++i) {
    const uint64_t index = indexes[i];
    if (index < range->first || index > range->last) {
      // Indexes usually ascend with small gaps, so the next few ranges are tried before a binary search.
      const Range* next = range;
      for (int step = 0; step < kNearRanges && index > next->last && next + 1 < end; ++step) ++next;
      if (index < next->first || index > next->last) {
        next = std::upper_bound(begin, end, index, [](uint64_t of, const Range& each) { return of < each.first; });
        if (next == begin || index > (--next)->last) continue;
      }
      range = next;
    }
    if (range->is_float) {
      float& out = floats[static_cast<uint64_t>(range->position) + (index - range->first)];
      if (!std::isnan(out)) return false;
      out = values[i];
      continue;
    }
    if (values[i] != 1 || range->position < last_slot) return false;
    last_slot = range->position;
    ++counts[last_slot];
    *id++ = static_cast<int64_t>(index);
  }
  example->ids.resize(static_cast<size_t>(id - example->ids.data()));
  for (size_t i = 1; i < example->floats.size(); ++i) floats[i] = std::isnan(floats[i]) ? 0 : floats[i];
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
    if (!ParseWhole(rest.substr(0, colon), &pair->field) || pair->field < 0)
      return error("has a field that is no whole number from 0 on");
    rest.remove_prefix(colon + 1);
  }
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return error(form);
  if (!ParseWhole(rest.substr(0, colon), &pair->index)) return error("has an index that is no unsigned 64-bit number");
  const std::string_view value = rest.substr(colon + 1);
  if (ParseFinite(value, &pair->value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", Shown(word), "' has a value that ", WhyNotFinite(value)));
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
    const std::string_view label = words[next++];
    if (!ParseFinite(label, &example->floats[0])) {
      return absl::InvalidArgumentError(absl::StrCat("the label '", Shown(label), "' ", WhyNotFinite(label)));
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

std::string LibSvmParser::NamesIn(std::string_view line) const {
  std::vector<std::string_view> names;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    at = end + 1;
    // Cut the value off field:index:value or index:value.
    if (const size_t colon = word.rfind(':'); colon != std::string_view::npos) names.push_back(word.substr(0, colon));
  }
  const std::string shown = ShownNames(names);
  return shown.empty() ? "" : absl::StrCat(fields_ ? "the field:index " : "the indexes ", shown);
}

// Returns the indexes that a slot takes, for messages.
std::string TakenBy(const v1::LibSvm::Slot& slot) {
  return absl::StrCat(slot.has_field() ? absl::StrCat("field ", slot.field(), ", ") : "", "indexes ", slot.first(),
                      " to ", slot.last());
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
    if (in.last() < in.first() ||
        (is_float && in.last() - in.first() >= static_cast<uint64_t>(std::numeric_limits<int>::max()))) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.lib_svm.slot[", i, "]: has indexes from ", in.first(), " to ", in.last()));
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
  std::vector<NamedInput> inputs = NamedInputsOf("data.lib_svm.slot", "slot", slots);
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].zero_if_absent = true;
    absl::StrAppend(&inputs[i].what, " (", TakenBy(config.slot(static_cast<int>(i))), ")");
  }
  return std::make_unique<LibSvmParser>(std::move(columns), config.fields(), std::move(ranges), std::move(inputs));
}

bool Overlap(const v1::LibSvm::Slot& a, const v1::LibSvm::Slot& b) {
  return a.first() <= b.last() && b.first() <= a.last() && (!a.has_field() || !b.has_field() || a.field() == b.field());
}

absl::Status CheckLibSvmSlot(const v1::LibSvm& m, int i, const std::string& path, const SettingErrors& at) {
  const v1::LibSvm::Slot& slot = m.slot(i);
  if (slot.last() < slot.first()) {
    return at.Error(path + ".last", absl::StrCat("must be at least first, ", slot.first(), ", got ", slot.last()));
  }
  if (slot.type() == v1::LibSvm::Slot::FLOAT && slot.last() - slot.first() >= uint64_t{kMaxColumns}) {
    return at.Error(
        slot.has_last() ? path + ".last" : path,
        absl::StrCat("makes ", slot.last() - slot.first(), " + 1 columns; a FLOAT slot has at most ", kMaxColumns));
  }
  if (slot.has_field() && !m.fields()) return at.Error(path + ".field", "is for libffm text; set fields: true");
  if (slot.field() < 0) return at.Error(path + ".field", absl::StrCat("must not be negative, got ", slot.field()));
  for (int j = 0; j < i; ++j) {
    if (Overlap(slot, m.slot(j)))
      return at.Error(path, absl::StrCat("takes indexes that slot[", j, "], '", m.slot(j).name(), "', takes, too"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::VarDesc>> LibSvmSchema(const v1::LibSvm& m, const SettingErrors& at) {
  SlotSchema vars("slot", at, {DataVariable("label", v1::DENSE, 1)});
  for (int i = 0; i < m.slot_size(); ++i) {
    const v1::LibSvm::Slot& slot = m.slot(i);
    const std::string path = absl::StrCat("slot[", i, "]");
    RETURN_IF_ERROR(vars.Name(slot.name(), path));
    RETURN_IF_ERROR(CheckLibSvmSlot(m, i, path, at));
    const bool is_float = slot.type() == v1::LibSvm::Slot::FLOAT;
    RETURN_IF_ERROR(vars.Add(slot.output().empty() ? slot.name() : slot.output(), is_float ? v1::DENSE : v1::IDS,
                             is_float ? static_cast<int64_t>(slot.last() - slot.first() + 1) : 1, path, path));
  }
  return std::move(vars).Finish("");
}

WEIR_REGISTER_DATA_SCHEMA(v1::LibSvm, LibSvmSchema);
WEIR_REGISTER_LINE_PARSER(v1::LibSvm, MakeLibSvmParser);

}  // namespace
}  // namespace weir
