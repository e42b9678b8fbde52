#include "framework/formats/example_input.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir {
namespace {

constexpr size_t kMostKnown = 12;  // names in a message

std::string Known(std::vector<std::string> names) {
  const size_t all = names.size();
  if (all > kMostKnown) {
    names.resize(kMostKnown);
    names.push_back(absl::StrCat("and ", all - kMostKnown, " more"));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<ExampleInput> FindInput(const std::vector<Column>& columns, const std::string& name,
                                       std::string_view field, const SettingErrors& errors) {
  size_t floats = 0, slots = 0;
  std::optional<ExampleInput> found;
  bool several = false;
  std::vector<std::string> known;
  const auto offer = [&](std::string offered, bool ids, size_t place) {
    if (offered == name) {
      several |= found.has_value();
      found = {name, ids, place};
    }
    known.push_back(std::move(offered));
  };
  for (const Column& column : columns) {
    const bool ids = column.kind == v1::IDS;
    size_t& next = ids ? slots : floats;
    if (column.width == 1) {
      offer(column.name, ids, next);
    } else {
      for (int64_t i = 0; i < column.width; ++i) {
        const auto at = static_cast<size_t>(i);
        offer(ids ? column.slot_names[at] : absl::StrCat(column.name, "[", i, "]"), ids, next + at);
      }
    }
    next += static_cast<size_t>(column.width);
  }
  if (several) return errors.Error(field, absl::StrCat("'", name, "' is the name of several slots of the data"));
  if (found.has_value()) return *found;
  return errors.Error(field, absl::StrCat("'", name, "' is no variable of one column, and no slot, of the data; there ",
                                          known.size() == 1 ? "is " : "are ", Known(std::move(known))));
}

absl::Status PlainSettingErrors::Error(std::string_view field, std::string_view text) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, path_.empty() || field.empty() ? "" : ".", std::string(field), " ", std::string(text)));
}

}  // namespace weir
