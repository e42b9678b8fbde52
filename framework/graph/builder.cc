#include "framework/graph/builder.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "glog/logging.h"

namespace weir {

ProgramBuilder::ProgramBuilder(v1::ProgramDesc* program, int block) : program_(program), block_(block) {
  if (program->blocks_size() == 0) program->add_blocks()->set_index(0);
  CHECK(block >= 0 && block < program->blocks_size()) << "no block " << block;
  for (v1::VarDesc& var : *program->mutable_blocks(block)->mutable_vars()) own_.emplace(var.name(), &var);
}

int ProgramBuilder::AddBlock(int parent) {
  v1::BlockDesc* block = program_->add_blocks();
  block->set_index(program_->blocks_size() - 1);
  block->set_parent(parent);
  return block->index();
}

absl::StatusOr<v1::VarDesc*> ProgramBuilder::AddVar(v1::VarDesc var) {
  if (var.name().empty()) return absl::InvalidArgumentError("a variable needs a name");
  RETURN_IF_ERROR(CheckDims(var));
  if (FindVar(var.name()) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("variable '", var.name(), "' is declared already"));
  }
  v1::VarDesc* added = block()->add_vars();
  *added = std::move(var);
  own_.emplace(added->name(), added);
  return added;
}

absl::Status ProgramBuilder::AddData(std::string_view name, absl::Span<const int64_t> dims, DType dtype) {
  v1::VarDesc var;
  var.set_name(std::string(name));
  var.set_dtype(dtype);
  var.mutable_dims()->Assign(dims.begin(), dims.end());
  var.set_stop_gradient(true);
  return AddVar(std::move(var)).status();
}

absl::Status ProgramBuilder::AddIds(std::string_view name, int64_t slots) {
  v1::VarDesc var;
  var.set_name(std::string(name));
  var.set_kind(v1::IDS);
  var.set_dtype(v1::INT64);
  var.add_dims(-1);
  var.add_dims(slots);
  var.set_stop_gradient(true);
  return AddVar(std::move(var)).status();
}

const v1::VarDesc* ProgramBuilder::FindVar(std::string_view name) const {
  if (const auto at = own_.find(name); at != own_.end()) return at->second;
  for (int b = program_->blocks(block_).parent(); b >= 0; b = program_->blocks(b).parent()) {
    for (const v1::VarDesc& var : program_->blocks(b).vars()) {
      if (var.name() == name) return &var;
    }
  }
  return nullptr;
}

v1::VarDesc* ProgramBuilder::MutableVar(std::string_view name) {
  const auto at = own_.find(name);
  return at == own_.end() ? nullptr : at->second;
}

absl::Status ProgramBuilder::AddOp(v1::OpDesc op) {
  const std::string place = OpPlace(block_, program_->blocks(block_).ops_size(), op);
  const auto at_place = [&place](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(place, ": ", status.message()));
  };
  const VarLookup find = [this](std::string_view name) { return FindVar(name); };
  const absl::StatusOr<const OpDef*> def = CheckSignature(op, find, /*outputs_may_be_new=*/true);
  if (!def.ok()) return at_place(def.status());
  absl::StatusOr<std::vector<v1::VarDesc>> outputs = InferOutputs(op, **def, find);
  if (!outputs.ok()) return at_place(outputs.status());
  for (const v1::VarDesc& inferred : *outputs) {
    const v1::VarDesc* declared = FindVar(inferred.name());
    if (declared == nullptr) continue;
    if (declared->kind() == inferred.kind() && declared->dtype() == inferred.dtype() &&
        DimsAgree(absl::MakeConstSpan(declared->dims().data(), static_cast<size_t>(declared->dims_size())),
                  absl::MakeConstSpan(inferred.dims().data(), static_cast<size_t>(inferred.dims_size())))) {
      continue;
    }
    return at_place(
        absl::InvalidArgumentError(absl::StrCat("output '", inferred.name(), "' is declared as ",
                                                DescribeVar(*declared), "; the op gives ", DescribeVar(inferred))));
  }
  for (v1::VarDesc& inferred : *outputs) {
    if (FindVar(inferred.name()) == nullptr) RETURN_IF_ERROR(AddVar(std::move(inferred)).status());
  }
  *block()->add_ops() = std::move(op);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ProgramBuilder::AddOpOut(v1::OpDesc op, std::string_view slot, std::string_view out) {
  const std::string name = out.empty() ? TempName(op.type()) : std::string(out);
  v1::OpSlot* output = op.add_outputs();
  output->set_name(std::string(slot));
  output->add_vars(name);
  RETURN_IF_ERROR(AddOp(std::move(op)));
  return name;
}

std::string ProgramBuilder::TempName(std::string_view prefix) {
  auto at = temps_.lower_bound(prefix);
  if (at == temps_.end() || at->first != prefix) at = temps_.emplace_hint(at, std::string(prefix), 0);
  while (true) {
    std::string name = absl::StrCat(at->first, ".tmp_", at->second++);
    if (FindVar(name) == nullptr) return name;
  }
}

}  // namespace weir
