#include "transpiler/data_schema.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "framework/base/status_macros.h"

namespace weir {
namespace {

absl::StatusOr<std::vector<v1::VarDesc>> CriteoSchema(const v1::Criteo& m, const Setting& at) {
  for (const auto& [field, value] : {std::pair{"integers", m.integers()}, {"categoricals", m.categoricals()}}) {
    if (value < 0) return at.Error(field, absl::StrCat("must not be negative, got ", value));
    if (value > kMaxColumns) return at.Error(field, absl::StrCat("must be at most ", kMaxColumns, ", got ", value));
  }
  std::vector<v1::VarDesc> vars = {DataVariable("label", v1::DENSE, 1)};
  if (m.integers() > 0) vars.push_back(DataVariable("dense", v1::DENSE, m.integers()));
  if (m.categoricals() > 0) vars.push_back(DataVariable("cat", v1::IDS, m.categoricals()));
  return vars;
}
REGISTER_DATA_SCHEMA(criteo, v1::Criteo, CriteoSchema);

absl::Status CheckSlot(const v1::MultiSlot::Slot& slot, const std::string& path, const Setting& at) {
  if (slot.name().empty()) return at.Error(path, "needs a name");
  if (slot.dim() < 1) return at.Error(path + ".dim", absl::StrCat("must be at least 1, got ", slot.dim()));
  if (slot.dim() > kMaxColumns) {
    return at.Error(path + ".dim", absl::StrCat("must be at most ", kMaxColumns, ", got ", slot.dim()));
  }
  if (slot.type() == v1::MultiSlot::Slot::IDS && slot.has_dim()) {
    return at.Error(path + ".dim", "is for FLOAT slots; a slot of ids holds any number of them");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::VarDesc>> MultiSlotSchema(const v1::MultiSlot& m, const Setting& at) {
  std::vector<v1::VarDesc> vars;
  std::set<std::string> names;
  int64_t floats = 0;
  for (int i = 0; i < m.slot_size(); ++i) {
    const v1::MultiSlot::Slot& slot = m.slot(i);
    const std::string path = absl::StrCat("slot[", i, "]");
    RETURN_IF_ERROR(CheckSlot(slot, path, at));
    if (!names.insert(slot.name()).second) {
      return at.Error(path + ".name", absl::StrCat("'", slot.name(), "' is the name of an earlier slot"));
    }
    if (slot.skip()) continue;
    if (slot.type() == v1::MultiSlot::Slot::FLOAT) floats += slot.dim();
    if (floats > kMaxColumns) {
      return at.Error(path + ".dim", absl::StrCat("makes ", floats, " floats of all slots together; at most ", kMaxColumns,
                                                  " are possible"));
    }
    const v1::VarKind kind = slot.type() == v1::MultiSlot::Slot::FLOAT ? v1::DENSE : v1::IDS;
    const int64_t columns = kind == v1::DENSE ? slot.dim() : 1;
    const std::string output = slot.output().empty() ? slot.name() : slot.output();
    v1::VarDesc* earlier = nullptr;
    for (v1::VarDesc& var : vars) {
      if (var.name() == output) earlier = &var;
    }
    if (earlier == nullptr) {
      vars.push_back(DataVariable(output, kind, columns));
      continue;
    }
    if (earlier->kind() != kind) {
      return at.Error(path, absl::StrCat("gives ", kind == v1::DENSE ? "floats" : "ids", " to '", output,
                                         "', which earlier slots fill with ", kind == v1::DENSE ? "ids" : "floats"));
    }
    earlier->set_dims(1, earlier->dims(1) + columns);
  }
  if (vars.empty()) return at.Error("slot", "must name at least one slot that is not skipped");
  return vars;
}
REGISTER_DATA_SCHEMA(multi_slot, v1::MultiSlot, MultiSlotSchema);

}  // namespace

KindRegistry<SchemaRule>& SchemaRegistry() {
  static auto* const registry = new KindRegistry<SchemaRule>("reader");
  return *registry;
}

v1::VarDesc DataVariable(std::string_view name, v1::VarKind kind, int64_t columns) {
  v1::VarDesc var;
  var.set_name(std::string(name));
  var.set_kind(kind);
  var.set_dtype(kind == v1::IDS ? v1::INT64 : v1::FLOAT32);
  var.add_dims(-1);
  var.add_dims(columns);
  var.set_stop_gradient(true);
  return var;
}

absl::StatusOr<std::vector<v1::VarDesc>> DataSchema(const Setting& data) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(data, "reader"));
  ASSIGN_OR_RETURN(const SchemaRule* rule, SchemaRegistry().Find(kind));
  return (*rule)(kind.setting.message(), kind.setting);
}

}  // namespace weir
