#include "framework/formats/slot_schema.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {

SlotSchema::SlotSchema(std::string_view what, const SettingErrors& errors, std::vector<v1::VarDesc> own)
    : what_(what), errors_(errors), own_(own.size()), vars_(std::move(own)) {
  for (const v1::VarDesc& var : vars_) floats_ += var.kind() == v1::DENSE ? var.dims(1) : 0;
}

absl::Status SlotSchema::Name(const std::string& name, const std::string& path) {
  if (name.empty()) return errors_.Error(path, "needs a name");
  if (names_.insert(name).second) return absl::OkStatus();
  return errors_.Error(path + ".name", absl::StrCat("'", name, "' is the name of an earlier ", what_));
}

absl::Status SlotSchema::Add(const std::string& output, v1::VarKind kind, int64_t columns, const std::string& path,
                             const std::string& field) {
  if (kind == v1::DENSE) floats_ += columns;
  if (floats_ > kMaxColumns) {
    return errors_.Error(field, absl::StrCat("makes ", floats_, " floats of all ", what_, "s together; at most ",
                                             kMaxColumns, " are possible"));
  }
  size_t i = 0;
  while (i < vars_.size() && vars_[i].name() != output) ++i;
  if (i < own_) {
    return errors_.Error(path,
                         absl::StrCat("gives '", output, "', which the format itself does; it needs another output"));
  }
  if (i == vars_.size()) {
    vars_.push_back(DataVariable(output, kind, columns));
    return absl::OkStatus();
  }
  if (vars_[i].kind() != kind) {
    return errors_.Error(
        path, absl::StrCat("gives ", kind == v1::DENSE ? "floats" : "ids", " to '", output, "', which earlier ", what_,
                           "s fill with ", kind == v1::DENSE ? "ids" : "floats"));
  }
  vars_[i].set_dims(1, vars_[i].dims(1) + columns);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::VarDesc>> SlotSchema::Finish(std::string_view unless) && {
  if (vars_.size() == own_)
    return errors_.Error(what_, absl::StrCat("must name at least one ", what_, std::string(unless)));
  return std::move(vars_);
}

absl::Status CheckSlotDim(int64_t dim, bool is_float, bool is_set, const std::string& path, std::string_view for_ids,
                          const SettingErrors& errors) {
  const std::string field = path + ".dim";
  if (dim < 1) return errors.Error(field, absl::StrCat("must be at least 1, got ", dim));
  if (dim > kMaxColumns) return errors.Error(field, absl::StrCat("must be at most ", kMaxColumns, ", got ", dim));
  if (!is_float && is_set) return errors.Error(field, for_ids);
  return absl::OkStatus();
}

}  // namespace weir
