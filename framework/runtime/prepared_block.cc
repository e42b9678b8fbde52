#include "framework/runtime/prepared_block.h"

#include <algorithm>

#include "framework/graph/shared_buffers.h"
#include "framework/runtime/view_ops.h"

namespace weir {

absl::Status CheckBlock(const v1::ProgramDesc& program, int block) {
  if (block >= 0 && block < program.blocks_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("program '", program.name(), "' has ", program.blocks_size(), " blocks; there is no block ", block));
}

absl::StatusOr<std::unique_ptr<PreparedBlock>> PreparedBlock::Create(const v1::ProgramDesc& program, int block,
                                                                     absl::Span<const std::string> fetch) {
  RETURN_IF_ERROR(CheckBlock(program, block));
  std::unique_ptr<PreparedBlock> prepared(new PreparedBlock(program, block));
  prepared->ReadDeclarations();
  ASSIGN_OR_RETURN(const SharedBuffers buffers, ReadSharedBuffers(prepared->program_, block));
  for (const auto& [name, buffer] : buffers) {
    const bool fetched = std::find(fetch.begin(), fetch.end(), name) != fetch.end();
    if (!fetched) prepared->buffers_[name] = absl::StrCat("buffer ", buffer);
  }
  return prepared;
}

void PreparedBlock::ReadDeclarations() {
  // Read the blocks from the outermost inwards, so that the nearest declaration counts. The bound on the length ends
  // the loop if parents form a circle.
  std::vector<int> chain;
  for (int b = block_;
       b >= 0 && b < program_.blocks_size() && chain.size() <= static_cast<size_t>(program_.blocks_size());
       b = program_.blocks(b).parent()) {
    chain.push_back(b);
  }
  for (auto b = chain.rbegin(); b != chain.rend(); ++b) {
    for (const v1::VarDesc& var : program_.blocks(*b).vars()) declared_[var.name()] = &var;
  }
}

void PreparedBlock::AllowViews() {
  v1::BlockDesc* const block = program_.mutable_blocks(block_);
  for (const int i : ViewOps(*block, [this](std::string_view name) { return SharesBuffer(name); })) {
    *block->mutable_ops(i)->add_attrs() = AttrB(kByReference, true);
  }
}

absl::StatusOr<BlockOp> PreparedBlock::AddOp(int index) {
  BlockOp op = {.index = index, .desc = &block().ops(index)};
  ASSIGN_OR_RETURN(op.def, OpRegistry::Global().Get(op.desc->type()));
  op.mode =
      OpModeOf(*op.desc, *op.def, [this](std::string_view name) { return OwnerOf(name) != VariableOwner::kLane; });
  if (op.mode != OpMode::kStep) return op;
  for (const v1::OpSlot& slot : op.desc->outputs()) {
    const int i = op.def->OutputIndex(slot.name());
    if (i >= 0 && op.def->outputs[static_cast<size_t>(i)].per_lane) continue;
    for (const std::string& name : slot.vars()) {
      if (OwnerOf(name) != VariableOwner::kPersistable) of_step_.insert(name);
    }
  }
  return op;
}

KernelInit PreparedBlock::InitOf(const BlockOp& op) const {
  return {
      .op = *op.desc, .def = *op.def, .attrs = AttrReader(*op.desc, *op.def), .vars = [this](std::string_view name) {
        return Describe(name);
      }};
}

const v1::VarDesc* PreparedBlock::Describe(std::string_view name) const {
  const auto it = declared_.find(name);
  return it == declared_.end() ? nullptr : it->second;
}

VariableOwner PreparedBlock::OwnerOf(std::string_view name) const {
  const v1::VarDesc* const desc = Describe(name);
  if (desc != nullptr && desc->persistable()) return VariableOwner::kPersistable;
  return of_step_.contains(name) ? VariableOwner::kStep : VariableOwner::kLane;
}

std::string_view PreparedBlock::Storage(std::string_view name) const {
  const auto buffer = buffers_.find(name);
  return buffer == buffers_.end() ? name : std::string_view(buffer->second);
}

}  // namespace weir
