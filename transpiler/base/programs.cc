#include "transpiler/base/programs.h"

#include <set>
#include <string>
#include <utility>

namespace weir {
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
  const auto use = [&](const std::string& var) { used.insert(var); };
  for (const v1::BlockDesc& block : program->blocks()) {
    for (const v1::OpDesc& op : block.ops()) {
      ForEachVar(op.inputs(), use);
      ForEachVar(op.outputs(), use);
      for (const v1::ParamGrad& pair : op.param_grads()) used.insert({pair.param(), pair.grad()});
    }
  }
  for (const v1::LossDesc& loss : program->losses()) {
    used.insert({loss.var(), loss.prediction(), loss.label(), loss.sample_weight()});
  }
  used.insert(program->kept().begin(), program->kept().end());
  google::protobuf::RepeatedPtrField<v1::VarDesc> kept;
  for (v1::VarDesc& var : *program->mutable_blocks(0)->mutable_vars()) {
    if (used.contains(var.name())) *kept.Add() = std::move(var);
  }
  program->mutable_blocks(0)->mutable_vars()->Swap(&kept);
}

}  // namespace weir
