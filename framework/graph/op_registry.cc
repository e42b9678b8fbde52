#include "framework/graph/op_registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/textproto.h"
#include "glog/logging.h"

namespace weir {
namespace {

int SlotIndex(const std::vector<SlotDef>& slots, std::string_view name) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

AttrDef NamedDef(v1::OpAttr attr) {
  AttrDef def;
  def.name = attr.name();
  def.default_value = std::move(attr);
  return def;
}

v1::OpAttr Named(std::string_view name) {
  v1::OpAttr attr;
  attr.set_name(name.data(), name.size());
  return attr;
}

}  // namespace

AttrDef BoolAttr(std::string_view name, bool default_value) { return NamedDef(AttrB(name, default_value)); }
AttrDef IntAttr(std::string_view name, int64_t default_value) { return NamedDef(AttrI(name, default_value)); }
AttrDef FloatAttr(std::string_view name, double default_value) { return NamedDef(AttrF(name, default_value)); }
AttrDef StringAttr(std::string_view name, std::string_view default_value) {
  return NamedDef(AttrS(name, default_value));
}
AttrDef IntsAttr(std::string_view name) { return NamedDef(AttrInts(name, {})); }
AttrDef FloatsAttr(std::string_view name) { return NamedDef(AttrFloats(name, {})); }
AttrDef StringsAttr(std::string_view name) { return NamedDef(AttrStrings(name, {})); }
AttrDef BlockAttr(std::string_view name) { return NamedDef(AttrBlock(name, 0)); }
AttrDef BlocksAttr(std::string_view name) { return NamedDef(AttrBlocks(name, {})); }
AttrDef DTypeAttr(std::string_view name, DType default_value) { return NamedDef(AttrType(name, default_value)); }
AttrDef Required(AttrDef def) {
  def.required = true;
  return def;
}

const v1::OpAttr& AttrReader::Find(std::string_view name) const {
  for (const v1::OpAttr& attr : op_.attrs()) {
    if (attr.name() == name) return attr;
  }
  for (const AttrDef& def : def_.attrs) {
    if (def.name != name) continue;
    CHECK(!def.required) << op_.type() << " lacks its attribute " << name;
    return def.default_value;
  }
  LOG(FATAL) << def_.type << " has no attribute " << name;
}

bool AttrReader::Has(std::string_view name) const {
  return std::any_of(op_.attrs().begin(), op_.attrs().end(),
                     [&](const v1::OpAttr& attr) { return attr.name() == name; });
}

bool AttrReader::Bool(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_b()) << op_.type() << "." << name;
  return attr.b();
}

int64_t AttrReader::Int(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_i()) << op_.type() << "." << name;
  return attr.i();
}

double AttrReader::Float(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_f()) << op_.type() << "." << name;
  return attr.f();
}

const std::string& AttrReader::String(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_s()) << op_.type() << "." << name;
  return attr.s();
}

std::vector<int64_t> AttrReader::Ints(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_ints()) << op_.type() << "." << name;
  return {attr.ints().v().begin(), attr.ints().v().end()};
}

std::vector<double> AttrReader::Floats(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_floats()) << op_.type() << "." << name;
  return {attr.floats().v().begin(), attr.floats().v().end()};
}

std::vector<std::string> AttrReader::Strings(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_strings()) << op_.type() << "." << name;
  return {attr.strings().v().begin(), attr.strings().v().end()};
}

std::vector<int32_t> AttrReader::Blocks(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  if (attr.has_block()) return {attr.block()};
  CHECK(attr.has_blocks()) << op_.type() << "." << name;
  return {attr.blocks().v().begin(), attr.blocks().v().end()};
}

DType AttrReader::Type(std::string_view name) const {
  const v1::OpAttr& attr = Find(name);
  CHECK(attr.has_dtype()) << op_.type() << "." << name;
  return attr.dtype();
}

Shape InferContext::InputShape(std::string_view slot, int i) const {
  const v1::VarDesc& var = Input(slot, i);
  return Shape(var.dims().begin(), var.dims().end());
}

void InferContext::SetOutput(std::string_view slot, absl::Span<const int64_t> dims, DType dtype, int i) {
  v1::VarDesc* var = Output(slot, i);
  var->set_kind(v1::DENSE);
  var->set_dtype(dtype);
  var->mutable_dims()->Assign(dims.begin(), dims.end());
}

absl::Status InferContext::Error(std::string_view text) const {
  return absl::InvalidArgumentError(absl::StrCat(op().type(), ": ", absl::string_view(text.data(), text.size())));
}

int OpDef::InputIndex(std::string_view slot) const { return SlotIndex(inputs, slot); }
int OpDef::OutputIndex(std::string_view slot) const { return SlotIndex(outputs, slot); }

OpRegistry& OpRegistry::Global() {
  static OpRegistry* const registry = new OpRegistry();
  return *registry;
}

void OpRegistry::Register(OpDef def) {
  CHECK(!def.type.empty()) << "an operator without a type";
  auto at = std::lower_bound(ops_.begin(), ops_.end(), def.type,
                             [](const auto& entry, const std::string& type) { return entry.first < type; });
  CHECK(at == ops_.end() || at->first != def.type) << "operator " << def.type << " is registered twice";
  const auto optional = [](const SlotDef& slot) { return slot.optional; };
  CHECK(def.apart.empty() ||
        (def.OutputIndex(def.apart) >= 0 && std::all_of(def.outputs.begin(), def.outputs.end(), optional)))
      << "operator " << def.type << ": an output that is computed apart, and all others, are optional";
  std::string type = def.type;
  ops_.insert(at, {std::move(type), new OpDef(std::move(def))});
}

const OpDef* OpRegistry::Find(std::string_view type) const {
  auto at = std::lower_bound(ops_.begin(), ops_.end(), type,
                             [](const auto& entry, std::string_view t) { return entry.first < t; });
  return at == ops_.end() || at->first != type ? nullptr : at->second;
}

absl::StatusOr<const OpDef*> OpRegistry::Get(std::string_view type) const {
  if (const OpDef* def = Find(type)) return def;
  const std::string near = NearestName(type, Types());
  return absl::NotFoundError(absl::StrCat("unknown operator '", absl::string_view(type.data(), type.size()), "'",
                                          near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)")));
}

std::vector<std::string> OpRegistry::Types() const {
  std::vector<std::string> types;
  for (const auto& entry : ops_) types.push_back(entry.first);
  return types;
}

// NOLINTBEGIN(performance-unnecessary-value-param): structured bindings move from both
v1::OpDesc MakeOp(std::string_view type, std::vector<std::pair<std::string, std::vector<std::string>>> inputs,
                  std::vector<std::pair<std::string, std::vector<std::string>>> outputs,
                  std::vector<v1::OpAttr> attrs) {
  // NOLINTEND(performance-unnecessary-value-param)
  v1::OpDesc op;
  op.set_type(type.data(), type.size());
  for (auto& [name, vars] : inputs) {
    v1::OpSlot* slot = op.add_inputs();
    slot->set_name(std::move(name));
    for (std::string& var : vars) slot->add_vars(std::move(var));
  }
  for (auto& [name, vars] : outputs) {
    v1::OpSlot* slot = op.add_outputs();
    slot->set_name(std::move(name));
    for (std::string& var : vars) slot->add_vars(std::move(var));
  }
  for (v1::OpAttr& attr : attrs) *op.add_attrs() = std::move(attr);
  return op;
}

v1::OpAttr AttrB(std::string_view name, bool v) {
  v1::OpAttr attr = Named(name);
  attr.set_b(v);
  return attr;
}
v1::OpAttr AttrI(std::string_view name, int64_t v) {
  v1::OpAttr attr = Named(name);
  attr.set_i(v);
  return attr;
}
v1::OpAttr AttrF(std::string_view name, double v) {
  v1::OpAttr attr = Named(name);
  attr.set_f(v);
  return attr;
}
v1::OpAttr AttrS(std::string_view name, std::string_view v) {
  v1::OpAttr attr = Named(name);
  attr.set_s(v.data(), v.size());
  return attr;
}
v1::OpAttr AttrInts(std::string_view name, absl::Span<const int64_t> v) {
  v1::OpAttr attr = Named(name);
  attr.mutable_ints()->mutable_v()->Assign(v.begin(), v.end());
  return attr;
}
v1::OpAttr AttrFloats(std::string_view name, absl::Span<const double> v) {
  v1::OpAttr attr = Named(name);
  attr.mutable_floats()->mutable_v()->Assign(v.begin(), v.end());
  return attr;
}
v1::OpAttr AttrStrings(std::string_view name, absl::Span<const std::string> v) {
  v1::OpAttr attr = Named(name);
  attr.mutable_strings();
  for (const std::string& s : v) attr.mutable_strings()->add_v(s);
  return attr;
}
v1::OpAttr AttrBlock(std::string_view name, int32_t v) {
  v1::OpAttr attr = Named(name);
  attr.set_block(v);
  return attr;
}
v1::OpAttr AttrBlocks(std::string_view name, absl::Span<const int32_t> v) {
  v1::OpAttr attr = Named(name);
  attr.mutable_blocks()->mutable_v()->Assign(v.begin(), v.end());
  return attr;
}
v1::OpAttr AttrType(std::string_view name, DType v) {
  v1::OpAttr attr = Named(name);
  attr.set_dtype(v);
  return attr;
}

std::string GradName(std::string_view var) { return std::string(var) + "@GRAD"; }

}  // namespace weir
