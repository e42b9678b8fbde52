#include "transpiler/base/programs.h"

#include <set>
#include <utility>

namespace weir {
namespace {

using Slots = google::protobuf::RepeatedPtrField<v1::OpSlot>;

std::string OnlyVar(const Slots& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name && slot.vars_size() > 0) return slot.vars(0);
  }
  return "";
}

bool Names(const Slots& slots, std::string_view var) {
  for (const v1::OpSlot& slot : slots) {
    for (const std::string& name : slot.vars()) {
      if (name == var) return true;
    }
  }
  return false;
}

void Collect(const Slots& slots, std::set<std::string>* names) {
  for (const v1::OpSlot& slot : slots) names->insert(slot.vars().begin(), slot.vars().end());
}

}  // namespace

const v1::VarDesc* FindVar(const v1::BlockDesc& block, std::string_view name) {
  for (const v1::VarDesc& var : block.vars()) {
    if (var.name() == name) return &var;
  }
  return nullptr;
}

v1::VarDesc* FindVar(v1::BlockDesc* block, std::string_view name) {
  return const_cast<v1::VarDesc*>(FindVar(static_cast<const v1::BlockDesc&>(*block), name));
}

VarIndex::VarIndex(const v1::BlockDesc& block) {
  vars_.reserve(static_cast<size_t>(block.vars_size()));
  for (const v1::VarDesc& var : block.vars()) Add(var);
}

std::string InputOf(const v1::OpDesc& op, std::string_view slot) { return OnlyVar(op.inputs(), slot); }
std::string OutputOf(const v1::OpDesc& op, std::string_view slot) { return OnlyVar(op.outputs(), slot); }
bool Reads(const v1::OpDesc& op, std::string_view var) { return Names(op.inputs(), var); }
bool Writes(const v1::OpDesc& op, std::string_view var) { return Names(op.outputs(), var); }

const v1::OpAttr* FindAttr(const v1::OpDesc& op, std::string_view name) {
  for (const v1::OpAttr& attr : op.attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

std::vector<v1::ParamGrad> UpdatedParameters(const v1::ProgramDesc& main) {
  std::vector<v1::ParamGrad> pairs;
  std::set<std::string> seen;
  if (main.blocks_size() == 0) return pairs;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.role() != v1::OPTIMIZE) continue;
    for (const v1::ParamGrad& pair : op.param_grads()) {
      if (seen.insert(pair.param()).second) pairs.push_back(pair);
    }
  }
  return pairs;
}

v1::ParamGrad Pair(std::string_view param, std::string_view grad) {
  v1::ParamGrad pair;
  pair.set_param(std::string(param));
  pair.set_grad(std::string(grad));
  return pair;
}

v1::OpDesc WithRole(v1::OpDesc op, v1::OpRole role, const v1::ParamGrad* pair) {
  op.set_role(role);
  if (pair != nullptr) *op.add_param_grads() = *pair;
  return op;
}

void FilterOps(v1::BlockDesc* block, const std::function<bool(const v1::OpDesc&)>& keep) {
  google::protobuf::RepeatedPtrField<v1::OpDesc> kept;
  for (v1::OpDesc& op : *block->mutable_ops()) {
    if (keep(op)) *kept.Add() = std::move(op);
  }
  block->mutable_ops()->Swap(&kept);
}

void DropUnusedVars(v1::ProgramDesc* program) {
  std::set<std::string> used;
  for (const v1::BlockDesc& block : program->blocks()) {
    for (const v1::OpDesc& op : block.ops()) {
      Collect(op.inputs(), &used);
      Collect(op.outputs(), &used);
      for (const v1::ParamGrad& pair : op.param_grads()) used.insert({pair.param(), pair.grad()});
    }
  }
  for (const v1::LossDesc& loss : program->losses()) {
    used.insert({loss.var(), loss.prediction(), loss.label(), loss.sample_weight()});
  }
  google::protobuf::RepeatedPtrField<v1::VarDesc> kept;
  for (v1::VarDesc& var : *program->mutable_blocks(0)->mutable_vars()) {
    if (used.contains(var.name())) *kept.Add() = std::move(var);
  }
  program->mutable_blocks(0)->mutable_vars()->Swap(&kept);
}

}  // namespace weir
