#include "framework/formats/row_filter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/float_bound.h"
#include "framework/formats/numbers.h"

namespace weir {
namespace {

uint64_t Remainder(int64_t id, uint64_t modulo) {
  const auto by = static_cast<int64_t>(modulo);
  return static_cast<uint64_t>(id % by < 0 ? id % by + by : id % by);
}

// Adds the ids of a value as it stands in the data. Returns false if it cannot be in such a slot.
bool AddIds(IdKind kind, const std::string& value, std::set<int64_t>* ids) {
  uint64_t id = 0;
  int64_t negative = 0;
  const bool hex = kind == IdKind::kHex;
  bool number = hex ? absl::SimpleHexAtoi(value, &id) : absl::SimpleAtoi(value, &id);
  if (!hex && !number && absl::SimpleAtoi(value, &negative)) {
    id = static_cast<uint64_t>(negative);
    number = true;
  }
  if (number && kind != IdKind::kText) ids->insert(static_cast<int64_t>(id));
  if (kind == IdKind::kText || kind == IdKind::kUnknown) {
    ids->insert(static_cast<int64_t>(StableHash(value)));
    return true;
  }
  return number;
}

// Returns the error of a number at `field` that a column of floats has like `other`; OK if there is no such one.
absl::Status ExpectTold(std::optional<int64_t> other, const ExampleInput& input, const std::string& field,
                        const SettingErrors& errors) {
  if (!other.has_value()) return absl::OkStatus();
  return errors.Error(field, absl::StrCat("cannot be told from ", *other, ": '", input.name,
                                          "' is a float, and float32 has one value for both; read the column as ids, "
                                          "which are compared exactly"));
}

// Returns a value of a column of floats as the data have it.
absl::StatusOr<float> FloatOf(const std::string& value, const ExampleInput& input, const std::string& field,
                              const SettingErrors& errors) {
  const absl::string_view text = absl::StripAsciiWhitespace(value);
  const std::string_view word(text.data(), text.size());
  float number = 0;
  if (!ParseFinite(word, &number)) {
    const char* const why = WhyNotFinite(word);
    return errors.Error(field, absl::StrCat(why == kNotFinite ? "is no number" : why, ", got '", value, "'; '",
                                            input.name, "' is a float"));
  }
  double exact = 0;
  if (!absl::SimpleAtod(text, &exact)) exact = number;
  RETURN_IF_ERROR(ExpectTold(SameFloatBelow(exact), input, field, errors));
  RETURN_IF_ERROR(ExpectTold(SameFloatAbove(exact), input, field, errors));
  return number;
}

}  // namespace

absl::StatusOr<RowFilter> RowFilter::Create(const std::vector<Column>& columns, const RowRules& rules,
                                            std::string_view path, const SettingErrors& errors) {
  RowFilter filter;
  for (int i = 0; i < rules.size(); ++i) {
    const v1::RowRule& config = rules[i];
    const std::string at = absl::StrCat(std::string(path), "[", i, "]");
    Rule rule = {.hashed = config.hashed(), .has_value = config.value_size() > 0, .invert = config.invert()};
    ASSIGN_OR_RETURN(rule.input, FindInput(columns, config.of(), at + ".of", errors));
    if (rule.input.learned) {
      return errors.Error(at + ".of",
                          absl::StrCat("'", config.of(), "' is learned from the examples that the rules of ",
                                       "data.train keep, or made of what is: no rule can use it"));
    }
    const bool in_range = config.has_from() || config.has_below();
    if (!config.has_modulo() && !in_range && !rule.has_value) {
      return errors.Error(at, "needs modulo, from, below or value: without them it leaves nothing out");
    }
    if (config.has_modulo()) {
      if (!rule.input.ids) {
        return errors.Error(at + ".modulo", absl::StrCat("is for ids; '", config.of(), "' is a float"));
      }
      if (config.modulo() < 2) {
        return errors.Error(at + ".modulo", absl::StrCat("must be at least 2, got ", config.modulo()));
      }
      rule.modulo = static_cast<uint64_t>(config.modulo());
      if (config.remainder_size() == 0) return errors.Error(at + ".modulo", "needs a remainder");
    } else if (config.remainder_size() > 0 || config.hashed()) {
      return errors.Error(at + (config.hashed() ? ".hashed" : ".remainder"), "is for a modulo, which is not set");
    }
    for (int r = 0; r < config.remainder_size(); ++r) {
      if (config.remainder(r) < 0 || config.remainder(r) >= config.modulo()) {
        return errors.Error(absl::StrCat(at, ".remainder[", r, "]"),
                            absl::StrCat("must be from 0 to ", config.modulo() - 1, ", got ", config.remainder(r)));
      }
      rule.remainders.insert(static_cast<uint64_t>(config.remainder(r)));
    }
    if (in_range) RETURN_IF_ERROR(ExpectNumber(rule.input, at + ".of", errors));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    rule.from = config.has_from() ? config.from() : -kInfinity;
    rule.below = config.has_below() ? config.below() : kInfinity;
    rule.from_float = NearestFloat(rule.from);
    rule.below_float = NearestFloat(rule.below);
    if (in_range && !rule.input.ids) {
      RETURN_IF_ERROR(ExpectTold(SameFloatBelow(rule.from), rule.input, at + ".from", errors));
      RETURN_IF_ERROR(ExpectTold(SameFloatBelow(rule.below), rule.input, at + ".below", errors));
    }
    const bool any = rule.input.ids ? rule.from < rule.below : rule.from_float < rule.below_float;
    if (in_range && !any) {
      return errors.Error(config.has_below() ? at + ".below" : at + ".from",
                          absl::StrCat("leaves no number", rule.input.ids ? "" : " of float32", ": from ", rule.from,
                                       ", below ", rule.below));
    }
    for (int v = 0; v < config.value_size(); ++v) {
      const std::string& value = config.value(v);
      const std::string field = absl::StrCat(at, ".value[", v, "]");
      if (!rule.input.ids) {
        ASSIGN_OR_RETURN(const float number, FloatOf(value, rule.input, field, errors));
        rule.floats.insert(number);
      } else if (!AddIds(rule.input.id_kind, value, &rule.ids)) {
        return errors.Error(
            field, absl::StrCat("is no ", rule.input.id_kind == IdKind::kHex ? "hexadecimal number" : "integer",
                                ", as the ids of '", config.of(), "' are; got '", value, "'"));
      }
    }
    filter.rules_.push_back(std::move(rule));
  }
  return filter;
}

bool RowFilter::HoldsForId(const Rule& rule, int64_t id) {
  if (rule.modulo > 0) {
    const uint64_t rest = rule.hashed ? StableHash(&id, sizeof(id)) % rule.modulo : Remainder(id, rule.modulo);
    if (rule.remainders.count(rest) == 0) return false;
  }
  if (rule.has_value && rule.ids.count(id) == 0) return false;
  return IsFrom(id, rule.from) && !IsFrom(id, rule.below);
}

bool RowFilter::HoldsForFloat(const Rule& rule, float x) {
  if (std::isnan(x) || (rule.has_value && rule.floats.count(x) == 0)) return false;
  return rule.from_float <= x && x < rule.below_float;
}

bool RowFilter::Keeps(const Example& example) const {
  for (const Rule& rule : rules_) {
    bool holds = false;
    if (rule.input.ids) {
      const auto counts = example.counts.begin();
      const auto slot = static_cast<std::ptrdiff_t>(rule.input.place);
      const auto first = example.ids.begin() + std::accumulate(counts, counts + slot, std::ptrdiff_t{0});
      holds = std::any_of(first, first + counts[slot], [&](int64_t id) { return HoldsForId(rule, id); });
    } else {
      holds = HoldsForFloat(rule, example.floats[rule.input.place]);
    }
    if (holds == rule.invert) return false;
  }
  return true;
}

}  // namespace weir
