#include "pserver/cluster/environment.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weir {

MaybeSourced ReadVariable(const Environment& environment, std::string_view name) {
  std::optional<std::string> value = environment(name);
  if (!value.has_value() || value->empty()) return std::nullopt;
  return Sourced{*std::move(value), std::string(name)};
}

absl::StatusOr<MaybeSourced> OneOf(MaybeSourced a, MaybeSourced b, bool ignore_case, std::string_view way_out) {
  if (!a.has_value()) return b;
  if (!b.has_value()) return a;
  const bool same = ignore_case ? absl::EqualsIgnoreCase(a->value, b->value) : a->value == b->value;
  if (same) return a;
  return absl::InvalidArgumentError(
      absl::StrCat(a->source, " is ", a->value, " but ", b->source, " is ", b->value, ": ", std::string(way_out)));
}

absl::StatusOr<int> Number(const Sourced& setting, std::string_view what) {
  int32_t number = 0;
  if (!absl::SimpleAtoi(setting.value, &number) || number < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(setting.source, " is '", setting.value, "', must be ", std::string(what)));
  }
  return number;
}

}  // namespace weir
