#include "framework/formats/slot_columns.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

absl::Status CheckSlot(const DataSlot& slot, const std::string& where, std::set<std::string>* names) {
  if (slot.name.empty()) return absl::InvalidArgumentError(absl::StrCat(where, "name is empty"));
  if (!names->insert(slot.name).second) {
    return absl::InvalidArgumentError(absl::StrCat(where, "there are two slots '", slot.name, "'"));
  }
  if (slot.dim < 1 || (!slot.is_float && slot.dim != 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "dim must be ", slot.is_float ? "positive" : "left out for ids", ", got ", slot.dim));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Column>> LayOutSlots(std::string_view field, std::vector<Column> before,
                                                std::vector<DataSlot>* slots) {
  std::vector<Column> columns = std::move(before);
  std::vector<std::vector<DataSlot*>> members(columns.size());  // slots of each column
  const size_t own = columns.size();
  std::set<std::string> names;
  for (size_t i = 0; i < slots->size(); ++i) {
    DataSlot& slot = (*slots)[i];
    const std::string where = absl::StrCat(std::string(field), "[", i, "]: ");
    if (absl::Status status = CheckSlot(slot, where, &names); !status.ok()) return status;
    if (slot.skip) continue;
    const std::string& output = slot.output.empty() ? slot.name : slot.output;
    const v1::VarKind kind = slot.is_float ? v1::DENSE : v1::IDS;
    size_t c = 0;
    while (c < columns.size() && columns[c].name != output) ++c;
    if (c < own) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "'", output, "' is a variable of the format itself; give it another output"));
    }
    if (c == columns.size()) {
      columns.push_back({.name = output, .kind = kind, .width = 0});
      members.emplace_back();
    }
    if (columns[c].kind != kind) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "output '", output, "' has slots of ids and of floats; give them two names"));
    }
    columns[c].width += slot.dim;
    if (slot.is_float) {
      for (int i = 0; i < slot.dim; ++i) {
        columns[c].value_names.push_back(slot.dim == 1 ? slot.name : absl::StrCat(slot.name, "[", i, "]"));
      }
    } else {
      columns[c].slot_names.push_back(slot.name);
      columns[c].id_kinds.push_back(slot.id_kind);
    }
    members[c].push_back(&slot);
  }
  if (columns.size() == own) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(field.substr(0, field.rfind('.'))), ": no ",
                                                   std::string(field.substr(field.rfind('.') + 1)),
                                                   " that is not skipped"));
  }
  int floats = 0;
  int ids = 0;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (c < own) (columns[c].kind == v1::DENSE ? floats : ids) += static_cast<int>(columns[c].width);
    for (DataSlot* slot : members[c]) {
      int& next = slot->is_float ? floats : ids;
      slot->position = next;
      next += slot->dim;
    }
  }
  return columns;
}

std::vector<NamedInput> NamedInputsOf(std::string_view field, std::string_view kind,
                                      const std::vector<DataSlot>& slots) {
  std::vector<NamedInput> inputs;
  for (size_t i = 0; i < slots.size(); ++i) {
    const DataSlot& slot = slots[i];
    if (slot.skip) continue;
    inputs.push_back({.name = slot.name,
                      .path = absl::StrCat(std::string(field), "[", i, "]"),
                      .what = absl::StrCat(std::string(kind), " '", slot.name, "'"),
                      .ids = !slot.is_float,
                      .place = static_cast<size_t>(slot.position),
                      .width = static_cast<size_t>(slot.dim)});
  }
  return inputs;
}

std::string ShownNames(const std::vector<std::string_view>& names) {
  constexpr size_t kMost = 12, kLongest = 40;  // names, and bytes of one
  std::set<std::string_view> seen;
  std::string text;
  for (const std::string_view name : names) {
    if (!seen.insert(name).second) continue;
    if (seen.size() > kMost) return text + ", ...";
    absl::StrAppend(&text, text.empty() ? "" : ", ", std::string(name.substr(0, kLongest)));
  }
  return text;
}

void OrderIds(const std::vector<int>& order, Example* example) {
  std::vector<uint32_t>& begin = example->scratch_slots;
  begin.resize(example->counts.size());
  uint32_t at = 0;
  for (const int slot : order) {
    begin[static_cast<size_t>(slot)] = at;
    at += example->counts[static_cast<size_t>(slot)];
  }
  example->scratch_ids.swap(example->ids);
  example->scratch_weights.swap(example->weights);
  example->ids.clear();
  example->weights.clear();
  for (size_t s = 0; s < begin.size(); ++s) {
    const auto from = static_cast<ptrdiff_t>(begin[s]), to = from + example->counts[s];
    example->ids.insert(example->ids.end(), example->scratch_ids.begin() + from, example->scratch_ids.begin() + to);
    if (example->scratch_weights.empty()) continue;
    example->weights.insert(example->weights.end(), example->scratch_weights.begin() + from,
                            example->scratch_weights.begin() + to);
  }
}

void SortIds(const std::vector<uint32_t>& slots, Example* example) {
  std::vector<uint32_t> next(example->counts.size());
  uint32_t at = 0;
  for (size_t s = 0; s < next.size(); ++s) {
    next[s] = at;
    at += example->counts[s];
  }
  example->scratch_ids = example->ids;
  example->scratch_weights = example->weights;
  for (size_t i = 0; i < example->ids.size(); ++i) {
    const uint32_t to = next[slots[i]]++;
    example->ids[to] = example->scratch_ids[i];
    if (!example->weights.empty()) example->weights[to] = example->scratch_weights[i];
  }
}

}  // namespace weir
