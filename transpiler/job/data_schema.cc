#include "transpiler/job/data_schema.h"

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

// Variables of named slots, of which those with one output stand side by side in one.
class SlotVariables {
 public:
  // `what`: what the format calls one ("slot"). `own`: variables of the format itself.
  SlotVariables(std::string_view what, const Setting& at, std::vector<v1::VarDesc> own = {})
      : what_(what), at_(at), own_(own.size()), vars_(std::move(own)) {
    for (const v1::VarDesc& var : vars_) floats_ += var.kind() == v1::DENSE ? var.dims(1) : 0;
  }

  absl::Status Name(const std::string& name, const std::string& path) {
    if (name.empty()) return at_.Error(path, "needs a name");
    if (names_.insert(name).second) return absl::OkStatus();
    return at_.Error(path + ".name", absl::StrCat("'", name, "' is the name of an earlier ", what_));
  }

  // `columns`: values of a float slot, 1 for ids; `field` is where they stand.
  absl::Status Add(const std::string& output, v1::VarKind kind, int64_t columns, const std::string& path,
                   const std::string& field) {
    if (kind == v1::DENSE) floats_ += columns;
    if (floats_ > kMaxColumns) {
      return at_.Error(field, absl::StrCat("makes ", floats_, " floats of all ", what_, "s together; at most ",
                                           kMaxColumns, " are possible"));
    }
    size_t i = 0;
    while (i < vars_.size() && vars_[i].name() != output) ++i;
    if (i < own_)
      return at_.Error(path,
                       absl::StrCat("gives '", output, "', which the format itself does; it needs another output"));
    if (i == vars_.size()) {
      vars_.push_back(DataVariable(output, kind, columns));
      return absl::OkStatus();
    }
    if (vars_[i].kind() != kind) {
      return at_.Error(
          path, absl::StrCat("gives ", kind == v1::DENSE ? "floats" : "ids", " to '", output, "', which earlier ",
                             what_, "s fill with ", kind == v1::DENSE ? "ids" : "floats"));
    }
    vars_[i].set_dims(1, vars_[i].dims(1) + columns);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<v1::VarDesc>> Finish(std::string_view unless) && {
    if (vars_.size() == own_) return at_.Error(what_, absl::StrCat("must name at least one ", what_, Absl(unless)));
    return std::move(vars_);
  }

 private:
  static absl::string_view Absl(std::string_view s) { return {s.data(), s.size()}; }
  const std::string what_;
  const Setting& at_;
  const size_t own_;
  std::vector<v1::VarDesc> vars_;
  std::set<std::string> names_;
  int64_t floats_ = 0;
};

absl::Status CheckDim(int64_t dim, bool is_float, bool is_set, const std::string& path, std::string_view for_ids,
                      const Setting& at) {
  if (dim < 1) return at.Error(path + ".dim", absl::StrCat("must be at least 1, got ", dim));
  if (dim > kMaxColumns) return at.Error(path + ".dim", absl::StrCat("must be at most ", kMaxColumns, ", got ", dim));
  if (!is_float && is_set) return at.Error(path + ".dim", for_ids);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::VarDesc>> MultiSlotSchema(const v1::MultiSlot& m, const Setting& at) {
  SlotVariables vars("slot", at);
  for (int i = 0; i < m.slot_size(); ++i) {
    const v1::MultiSlot::Slot& slot = m.slot(i);
    const std::string path = absl::StrCat("slot[", i, "]");
    const bool is_float = slot.type() == v1::MultiSlot::Slot::FLOAT;
    if (slot.name().empty()) return at.Error(path, "needs a name");
    RETURN_IF_ERROR(CheckDim(slot.dim(), is_float, slot.has_dim(), path,
                             "is for FLOAT slots; a slot of ids holds any number of them", at));
    RETURN_IF_ERROR(vars.Name(slot.name(), path));
    if (slot.skip()) continue;
    RETURN_IF_ERROR(vars.Add(slot.output().empty() ? slot.name() : slot.output(), is_float ? v1::DENSE : v1::IDS,
                             is_float ? slot.dim() : 1, path, path + ".dim"));
  }
  return std::move(vars).Finish(" that is not skipped");
}
REGISTER_DATA_SCHEMA(multi_slot, v1::MultiSlot, MultiSlotSchema);

// A character that separates something; `beside_numbers`: from numbers.
absl::Status CheckCharacter(const std::string& text, bool beside_numbers, const std::string& field, const Setting& at) {
  if (text.size() != 1) return at.Error(field, absl::StrCat("must be one character, got '", text, "'"));
  if (text == "\"" || text == "\n" || text == "\r") return at.Error(field, "must be no quote and no end of line");
  if (!beside_numbers || std::string_view("0123456789+-.eE").find(text[0]) == std::string_view::npos)
    return absl::OkStatus();
  return at.Error(field, absl::StrCat("'", text, "' may stand in a number"));
}

absl::Status CheckCsvColumn(const v1::Csv::Column& column, const std::string& path, const Setting& at) {
  using Column = v1::Csv::Column;
  const bool is_float = column.type() == Column::FLOAT;
  if (column.has_list())
    RETURN_IF_ERROR(CheckCharacter(column.list(), column.type() != Column::TEXT, path + ".list", at));
  RETURN_IF_ERROR(CheckDim(column.dim(), is_float, column.has_dim(), path,
                           "is for FLOAT columns; a list of ids holds any number of them", at));
  if (column.has_dim() && !column.has_list())
    return at.Error(path + ".dim", "is for a list; say which character separates its values");
  if (!column.has_weight()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckCharacter(column.weight(), column.type() != Column::TEXT, path + ".weight", at));
  if (is_float) return at.Error(path + ".weight", "is for ID and TEXT columns");
  if (!column.has_list()) return at.Error(path + ".weight", "is for a list; say which character separates its values");
  if (column.weight() == column.list()) return at.Error(path + ".weight", "must differ from list");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::VarDesc>> CsvSchema(const v1::Csv& m, const Setting& at) {
  RETURN_IF_ERROR(CheckCharacter(m.separator(), /*beside_numbers=*/true, "separator", at));
  SlotVariables vars("column", at);
  for (int i = 0; i < m.column_size(); ++i) {
    const v1::Csv::Column& column = m.column(i);
    const std::string path = absl::StrCat("column[", i, "]");
    if (column.type() == v1::Csv::Column::SKIP) continue;
    RETURN_IF_ERROR(vars.Name(column.name(), path));
    RETURN_IF_ERROR(CheckCsvColumn(column, path, at));
    const bool is_float = column.type() == v1::Csv::Column::FLOAT;
    RETURN_IF_ERROR(vars.Add(column.output().empty() ? column.name() : column.output(), is_float ? v1::DENSE : v1::IDS,
                             is_float ? column.dim() : 1, path, path + ".dim"));
  }
  return std::move(vars).Finish(" that is not skipped");
}
REGISTER_DATA_SCHEMA(csv, v1::Csv, CsvSchema);

bool Overlap(const v1::LibSvm::Slot& a, const v1::LibSvm::Slot& b) {
  return a.first() <= b.last() && b.first() <= a.last() && (!a.has_field() || !b.has_field() || a.field() == b.field());
}

absl::Status CheckLibSvmSlot(const v1::LibSvm& m, int i, const std::string& path, const Setting& at) {
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

absl::StatusOr<std::vector<v1::VarDesc>> LibSvmSchema(const v1::LibSvm& m, const Setting& at) {
  SlotVariables vars("slot", at, {DataVariable("label", v1::DENSE, 1)});
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
REGISTER_DATA_SCHEMA(lib_svm, v1::LibSvm, LibSvmSchema);

absl::StatusOr<std::vector<v1::VarDesc>> IdxSchema(const v1::Idx& m, const Setting& at) {
  // With the label beside them.
  if (m.values() < 1 || m.values() >= kMaxColumns) {
    return at.Error("values", absl::StrCat("must be at least 1 and below ", kMaxColumns, ", got ", m.values()));
  }
  if (m.output().empty() || m.output() == "label") {
    return at.Error("output", absl::StrCat("must be a name, and not 'label', which the format itself gives; got '",
                                           m.output(), "'"));
  }
  return std::vector<v1::VarDesc>{DataVariable("label", v1::DENSE, 1), DataVariable(m.output(), v1::DENSE, m.values())};
}
REGISTER_DATA_SCHEMA(idx, v1::Idx, IdxSchema);

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
