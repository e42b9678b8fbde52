#include "pserver/replica/update_share.h"

#include <set>
#include <string>
#include <utility>

#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"

namespace weir {

namespace {

bool IsBlock(int index, const v1::ProgramDesc& main) { return index >= 0 && index < main.blocks_size(); }

// Returns true if an optimizer of the block updates one of the parameters.
bool Updates(const v1::BlockDesc& block, const std::set<std::string>& parameters) {
  for (const v1::OpDesc& op : block.ops()) {
    const OpDef* const def = OpRegistry::Global().Find(op.type());
    if (def != nullptr && def->is_optimizer && parameters.contains(InputOf(op, "Param"))) return true;
  }
  return false;
}

void AddNames(const v1::BlockDesc& block, std::set<std::string>* names) {
  for (const v1::OpDesc& op : block.ops()) {
    for (const auto* slots : {&op.inputs(), &op.outputs()}) {
      for (const v1::OpSlot& slot : *slots) names->insert(slot.vars().begin(), slot.vars().end());
    }
  }
}

bool WritesAny(const v1::OpDesc& op, const std::set<std::string>& names) {
  for (const v1::OpSlot& slot : op.outputs()) {
    for (const std::string& name : slot.vars()) {
      if (names.contains(name)) return true;
    }
  }
  return false;
}

}  // namespace

void KeepShare(int trainer, int lr_block, v1::ProgramDesc* main, v1::ProgramDesc* startup,
               google::protobuf::RepeatedField<int32_t>* blocks) {
  std::set<std::string> own;
  google::protobuf::RepeatedPtrField<v1::PlacedBlock> placed;
  for (v1::PlacedBlock& block : *main->mutable_plan()->mutable_blocks()) {
    if (block.trainer() != trainer) continue;
    own.insert(block.name());
    *placed.Add() = std::move(block);
  }
  main->mutable_plan()->mutable_blocks()->Swap(&placed);
  std::set<std::string> needed = own;
  if (IsBlock(lr_block, *main)) AddNames(main->blocks(lr_block), &needed);
  google::protobuf::RepeatedField<int32_t> kept;
  for (const int32_t index : *blocks) {
    // A block that does not exist is for others to report.
    if (IsBlock(index, *main) && !Updates(main->blocks(index), own)) continue;
    if (IsBlock(index, *main)) AddNames(main->blocks(index), &needed);
    kept.Add(index);
  }
  blocks->Swap(&kept);
  if (startup->blocks_size() < 2) return;
  google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
  for (v1::OpDesc& op : *startup->mutable_blocks(1)->mutable_ops()) {
    if (WritesAny(op, needed)) *ops.Add() = std::move(op);
  }
  startup->mutable_blocks(1)->mutable_ops()->Swap(&ops);
}

}  // namespace weir
