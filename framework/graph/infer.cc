#include "framework/graph/infer.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "glog/logging.h"

namespace weir {
namespace {

std::string DidYouMean(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = NearestName(name, known);
  return near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)");
}

std::string KindName(v1::VarKind kind) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(v1::VarKind_Name(kind)), {{"_", " "}});
}

std::string DTypeText(DType dtype) { return absl::AsciiStrToLower(v1::DType_Name(dtype)); }

const v1::OpSlot* FindSlot(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return &slot;
  }
  return nullptr;
}

// The update op of a table: its state lives in the rows.
bool UpdatesTable(const v1::OpDesc& op, const OpDef& def, const VarLookup& find) {
  if (!def.is_optimizer) return false;
  const v1::OpSlot* param = FindSlot(op.inputs(), "Param");
  if (param == nullptr || param->vars_size() != 1) return false;
  const v1::VarDesc* var = find(param->vars(0));
  return var != nullptr && var->kind() == v1::TABLE;
}

bool IsStateSlot(const OpDef& def, const std::string& name) {
  return std::any_of(def.state.begin(), def.state.end(),
                     [&](const StateDef& s) { return name == s.slot || name == s.slot + "Out"; });
}

class Inference : public InferContext {
 public:
  // `batch` replaces -1 when it is not negative.
  Inference(const v1::OpDesc& op, const OpDef& def, const VarLookup& find, int64_t batch) : op_(op), def_(def) {
    Fill(op.inputs(), find, batch, &inputs_);
    Fill(op.outputs(), find, batch, &outputs_);
  }

  const v1::OpDesc& op() const override { return op_; }
  AttrReader attrs() const override { return AttrReader(op_, def_); }
  int InputCount(std::string_view slot) const override { return Count(inputs_, slot); }
  int OutputCount(std::string_view slot) const override { return Count(outputs_, slot); }
  const v1::VarDesc& Input(std::string_view slot, int i) const override {
    return *const_cast<Inference*>(this)->Var(&const_cast<Inference*>(this)->inputs_, slot, i);
  }
  v1::VarDesc* Output(std::string_view slot, int i) override { return Var(&outputs_, slot, i); }

  // The slot that a rule asked for in vain; empty when there is none.
  const std::string& missing() const { return missing_; }

  std::vector<v1::VarDesc> TakeOutputs() {
    std::vector<v1::VarDesc> all;
    for (auto& [name, vars] : outputs_) {
      for (v1::VarDesc& var : vars) all.push_back(std::move(var));
    }
    return all;
  }

 private:
  using Slots = std::vector<std::pair<std::string, std::vector<v1::VarDesc>>>;

  static void Fill(const google::protobuf::RepeatedPtrField<v1::OpSlot>& from, const VarLookup& find, int64_t batch,
                   Slots* to) {
    for (const v1::OpSlot& slot : from) {
      std::vector<v1::VarDesc> vars;
      for (const std::string& name : slot.vars()) {
        v1::VarDesc desc;
        if (const v1::VarDesc* known = find(name)) desc = *known;
        desc.set_name(name);
        if (batch >= 0) {
          for (int64_t& d : *desc.mutable_dims()) d = d < 0 ? batch : d;
        }
        vars.push_back(std::move(desc));
      }
      to->emplace_back(slot.name(), std::move(vars));
    }
  }
  static int Count(const Slots& slots, std::string_view name) {
    for (const auto& slot : slots) {
      if (slot.first == name) return static_cast<int>(slot.second.size());
    }
    return 0;
  }
  // A rule may ask for an optional slot that this op lacks; it then sees a variable without name and dims, and the op
  // is refused.
  v1::VarDesc* Var(Slots* slots, std::string_view name, int i) {
    for (auto& slot : *slots) {
      if (slot.first == name && i >= 0 && static_cast<size_t>(i) < slot.second.size()) {
        return &slot.second[static_cast<size_t>(i)];
      }
    }
    if (missing_.empty()) missing_ = std::string(name);
    none_.Clear();
    return &none_;
  }

  const v1::OpDesc& op_;
  const OpDef& def_;
  Slots inputs_;
  Slots outputs_;
  std::string missing_;
  v1::VarDesc none_;
};

absl::Status CheckSlots(const v1::OpDesc& op, const OpDef& def, bool input, bool table_update, const VarLookup& find,
                        bool may_be_new) {
  const auto& given = input ? op.inputs() : op.outputs();
  const std::vector<SlotDef>& known = input ? def.inputs : def.outputs;
  const char* side = input ? "input" : "output";
  std::set<std::string_view> seen;
  for (const v1::OpSlot& slot : given) {
    const auto at = std::find_if(known.begin(), known.end(), [&](const SlotDef& s) { return s.name == slot.name(); });
    if (at == known.end()) {
      std::vector<std::string> names;
      names.reserve(known.size());
      for (const SlotDef& s : known) names.push_back(s.name);
      return absl::InvalidArgumentError(absl::StrCat("no ", side, " slot '", slot.name(), "'",
                                                     DidYouMean(slot.name(), names), "; it has ",
                                                     names.empty() ? "none" : absl::StrJoin(names, ", ")));
    }
    if (!seen.insert(slot.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(side, " slot '", slot.name(), "' is given twice"));
    }
    if (!at->variadic && slot.vars_size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(side, " slot '", slot.name(), "' takes one variable, got ", slot.vars_size()));
    }
    for (const std::string& name : slot.vars()) {
      if (name.empty())
        return absl::InvalidArgumentError(absl::StrCat(side, " ", slot.name(), ": a variable without a name"));
      const v1::VarDesc* var = find(name);
      if (var == nullptr) {
        if (may_be_new) continue;
        return absl::NotFoundError(absl::StrCat(side, " ", slot.name(), ": variable '", name, "' is not declared"));
      }
      const bool fits = at->kinds.empty()
                            ? var->kind() == v1::DENSE
                            : std::find(at->kinds.begin(), at->kinds.end(), var->kind()) != at->kinds.end();
      const bool table =
          table_update && var->kind() == v1::TABLE && (slot.name() == "Param" || slot.name() == "ParamOut");
      if (!fits && !table) {
        std::vector<std::string> kinds;
        for (v1::VarKind kind : at->kinds) kinds.push_back(KindName(kind));
        return absl::InvalidArgumentError(absl::StrCat(side, " ", slot.name(), ": variable '", name, "' is ",
                                                       KindName(var->kind()), "; expected ",
                                                       kinds.empty() ? "dense" : absl::StrJoin(kinds, " or ")));
      }
    }
  }
  for (const SlotDef& slot : known) {
    if (slot.optional || (table_update && IsStateSlot(def, slot.name))) continue;
    const v1::OpSlot* found = FindSlot(given, slot.name);
    if (found == nullptr || found->vars_size() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(side, " slot '", slot.name, "' is missing"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAttrs(const v1::OpDesc& op, const OpDef& def) {
  std::set<std::string_view> seen;
  for (const v1::OpAttr& attr : op.attrs()) {
    const auto at =
        std::find_if(def.attrs.begin(), def.attrs.end(), [&](const AttrDef& a) { return a.name == attr.name(); });
    if (at == def.attrs.end()) {
      std::vector<std::string> names;
      for (const AttrDef& a : def.attrs) names.push_back(a.name);
      return absl::InvalidArgumentError(absl::StrCat("no attribute '", attr.name(), "'", DidYouMean(attr.name(), names),
                                                     "; it has ", names.empty() ? "none" : absl::StrJoin(names, ", ")));
    }
    if (!seen.insert(attr.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", attr.name(), "' is given twice"));
    }
    if (attr.value_case() != at->default_value.value_case()) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", attr.name(), "' takes ",
                                                     AttrTypeName(at->default_value.value_case()), ", got ",
                                                     AttrTypeName(attr.value_case())));
    }
  }
  for (const AttrDef& attr : def.attrs) {
    if (attr.required && !seen.contains(attr.name)) {
      return absl::InvalidArgumentError(absl::StrCat("attribute '", attr.name, "' is missing"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ProgramIndex::ProgramIndex(const v1::ProgramDesc& program) : program_(program) {
  vars_.resize(static_cast<size_t>(program.blocks_size()));
  for (int b = 0; b < program.blocks_size(); ++b) {
    for (const v1::VarDesc& var : program.blocks(b).vars()) vars_[static_cast<size_t>(b)].emplace(var.name(), &var);
  }
}

const v1::VarDesc* ProgramIndex::Find(int block, std::string_view name) const {
  // A parent stands before its children, so this ends even in a program that nobody has verified.
  int last = program_.blocks_size();
  while (block >= 0 && block < last) {
    const auto& vars = vars_[static_cast<size_t>(block)];
    if (const auto at = vars.find(name); at != vars.end()) return at->second;
    last = block;
    block = program_.blocks(block).parent();
  }
  return nullptr;
}

VarLookup ProgramIndex::Lookup(int block) const {
  return [this, block](std::string_view name) { return Find(block, name); };
}

std::vector<std::string> ProgramIndex::Names(int block) const {
  std::vector<std::string> names;
  int last = program_.blocks_size();
  while (block >= 0 && block < last) {
    for (const v1::VarDesc& var : program_.blocks(block).vars()) names.push_back(var.name());
    last = block;
    block = program_.blocks(block).parent();
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string OpPlace(int block, int index, const v1::OpDesc& op) {
  return absl::StrCat("block ", block, ", op ", index, " (", op.type(), ")");
}

absl::StatusOr<const OpDef*> CheckSignature(const v1::OpDesc& op, const VarLookup& find, bool outputs_may_be_new) {
  ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(op.type()));
  const bool table_update = UpdatesTable(op, *def, find);
  RETURN_IF_ERROR(CheckSlots(op, *def, /*input=*/true, table_update, find, /*may_be_new=*/false));
  RETURN_IF_ERROR(CheckSlots(op, *def, /*input=*/false, table_update, find, outputs_may_be_new));
  RETURN_IF_ERROR(CheckAttrs(op, *def));
  return def;
}

absl::StatusOr<std::vector<v1::VarDesc>> InferOutputs(const v1::OpDesc& op, const OpDef& def, const VarLookup& find) {
  Inference context(op, def, find, /*batch=*/-1);
  // A table's update takes no state and changes no shape; rules of update ops are written for tensors.
  if (def.shape && !UpdatesTable(op, def, find)) {
    const absl::Status status = def.shape(context);
    if (!context.missing().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot '", context.missing(), "' is missing or too short for this op"));
    }
    RETURN_IF_ERROR(status);
  }
  std::vector<v1::VarDesc> outputs = context.TakeOutputs();
  for (const v1::VarDesc& output : outputs) RETURN_IF_ERROR(CheckDims(output));
  return outputs;
}

Cost CostOf(const v1::OpDesc& op, const OpDef& def, const VarLookup& find, int64_t batch) {
  if (!def.cost || UpdatesTable(op, def, find)) return Cost();
  Inference context(op, def, find, batch);
  return def.cost(context);
}

bool DimsAgree(absl::Span<const int64_t> a, absl::Span<const int64_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](int64_t x, int64_t y) { return x == y || x < 0 || y < 0; });
}

int64_t KnownCount(absl::Span<const int64_t> dims) {
  int64_t count = 1;
  for (int64_t d : dims) {
    if (d < 0 || __builtin_mul_overflow(count, d, &count)) return -1;
  }
  return count;
}

absl::Status CheckDims(const v1::VarDesc& var) {
  int64_t elements = 1;
  for (int i = 0; i < var.dims_size(); ++i) {
    const int64_t d = var.dims(i);
    if (d < -1 || (d == -1 && i > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("variable '", var.name(), "' is ", DescribeVar(var),
                                                     "; a dimension is a count, the first may be -1"));
    }
    if (d > 0 && (__builtin_mul_overflow(elements, d, &elements) || elements > int64_t{1} << 48)) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable '", var.name(), "' is ", DescribeVar(var), ", more than 2^48 elements"));
    }
  }
  return absl::OkStatus();
}

std::string DescribeVar(const v1::VarDesc& var) {
  return absl::StrCat(var.kind() == v1::DENSE ? "" : absl::StrCat(KindName(var.kind()), " "), DTypeText(var.dtype()),
                      " ", ShapeString(absl::MakeConstSpan(var.dims().data(), static_cast<size_t>(var.dims_size()))));
}

std::string AttrTypeName(v1::OpAttr::ValueCase type) {
  switch (type) {
    case v1::OpAttr::kB:
      return "bool";
    case v1::OpAttr::kI:
      return "integer";
    case v1::OpAttr::kF:
      return "float";
    case v1::OpAttr::kS:
      return "string";
    case v1::OpAttr::kBools:
      return "list of bools";
    case v1::OpAttr::kInts:
      return "list of integers";
    case v1::OpAttr::kFloats:
      return "list of floats";
    case v1::OpAttr::kStrings:
      return "list of strings";
    case v1::OpAttr::kBlock:
      return "block";
    case v1::OpAttr::kBlocks:
      return "list of blocks";
    case v1::OpAttr::kDtype:
      return "dtype";
    case v1::OpAttr::kInitializer:
      return "initializer";
    case v1::OpAttr::VALUE_NOT_SET:
      return "nothing";
  }
  return "unknown type";
}

}  // namespace weir
