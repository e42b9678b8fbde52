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
  const auto offer = [&](std::string offered, IdKind id_kind, bool ids, size_t place, bool learned) {
    if (offered == name) {
      several |= found.has_value();
      found = {name, ids, id_kind, place, learned};
    }
    known.push_back(std::move(offered));
  };
  for (const Column& column : columns) {
    const bool ids = column.kind == v1::IDS;
    size_t& next = ids ? slots : floats;
    for (int64_t i = 0; i < column.width; ++i) {
      const auto at = static_cast<size_t>(i);
      const IdKind id_kind = column.id_kinds.empty() ? IdKind::kUnknown : column.id_kinds[at];
      offer(column.width == 1 ? column.name
            : ids             ? column.slot_names[at]
                              : absl::StrCat(column.name, "[", i, "]"),
            id_kind, ids, next + at, column.learned);
    }
    next += static_cast<size_t>(column.width);
  }
  if (several) return errors.Error(field, absl::StrCat("'", name, "' is the name of several slots of the data"));
  if (found.has_value()) return *found;
  return errors.Error(field, absl::StrCat("'", name, "' is no variable of one column, and no slot, of the data; there ",
                                          known.size() == 1 ? "is " : "are ", Known(std::move(known))));
}

absl::Status ExpectNumber(const ExampleInput& input, std::string_view field, const SettingErrors& errors) {
  if (input.id_kind != IdKind::kText) return absl::OkStatus();
  return errors.Error(field, absl::StrCat("'", input.name,
                                          "' is texts, whose ids are hashes: there is no number in them; "
                                          "read the column as ids or floats"));
}

absl::Status PlainSettingErrors::Error(std::string_view field, std::string_view text) const {
  return absl::InvalidArgumentError(
      absl::StrCat(path_, path_.empty() || field.empty() ? "" : ".", std::string(field), " ", std::string(text)));
}

}  // namespace weir
