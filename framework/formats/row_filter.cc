#include "framework/formats/row_filter.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"

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
    if (in_range && !(rule.from < rule.below)) {
      return errors.Error(config.has_below() ? at + ".below" : at + ".from",
                          absl::StrCat("leaves no number: from ", rule.from, ", below ", rule.below));
    }
    for (int v = 0; v < config.value_size(); ++v) {
      const std::string& value = config.value(v);
      float number = 0;
      if (rule.input.ids) {
        if (AddIds(rule.input.id_kind, value, &rule.ids)) continue;
        return errors.Error(
            absl::StrCat(at, ".value[", v, "]"),
            absl::StrCat("is no ", rule.input.id_kind == IdKind::kHex ? "hexadecimal number" : "integer",
                         ", as the ids of '", config.of(), "' are; got '", value, "'"));
      } else if (absl::SimpleAtof(value, &number) && !std::isnan(number)) {
        rule.floats.insert(number);
      } else {
        return errors.Error(absl::StrCat(at, ".value[", v, "]"),
                            absl::StrCat("is no number, got '", value, "'; '", config.of(), "' is a float"));
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
  const auto x = static_cast<double>(id);
  return rule.from <= x && x < rule.below;
}

bool RowFilter::HoldsForFloat(const Rule& rule, float x) {
  if (std::isnan(x) || (rule.has_value && rule.floats.count(x) == 0)) return false;
  return rule.from <= x && x < rule.below;
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
