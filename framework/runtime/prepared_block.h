// A block of a program as the executors of the CPU and of a device prepare it: its declarations, the mode of each op,
// and the names under which variables are kept. Knows neither memory (framework/runtime/block_variables.h) nor kernels.
//
// Ops are added in the order of the block, since an op decides which variables the lanes share for the ops after it.
// Not thread-safe before the last op is added; constant afterwards.
#ifndef WEIR_FRAMEWORK_RUNTIME_PREPARED_BLOCK_H_
#define WEIR_FRAMEWORK_RUNTIME_PREPARED_BLOCK_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/op_mode.h"
#include "proto/program.pb.h"

namespace weir {

// Returns InvalidArgument if the program has no block of this index.
absl::Status CheckBlock(const v1::ProgramDesc& program, int block);

// An op of a block. Pointers are valid as long as the block.
struct BlockOp {
  int index = 0;
  const v1::OpDesc* desc = nullptr;
  const OpDef* def = nullptr;
  OpMode mode = OpMode::kLane;

  // True for an op that runs once per lane, false for one that runs once and sees all lanes.
  bool per_lane() const { return mode == OpMode::kLane || mode == OpMode::kLanesInOrder; }
};

// Owner of a variable: each lane has one of its own, all lanes share one until the step ends, or the scope has it.
enum class VariableOwner { kLane, kStep, kPersistable };

class PreparedBlock {
 public:
  // Copies the program. Variables named in `fetch` keep memory of their own even if the program lets them share a
  // buffer. InvalidArgument for a block that does not exist or shared buffers that would change a result.
  static absl::StatusOr<std::unique_ptr<PreparedBlock>> Create(const v1::ProgramDesc& program, int block,
                                                               absl::Span<const std::string> fetch);
  PreparedBlock(const PreparedBlock&) = delete;
  PreparedBlock& operator=(const PreparedBlock&) = delete;

  // Sets kByReference on the ops that may return views (framework/runtime/view_ops.h). Call it before AddOp.
  void AllowViews();

  // Determines definition and mode of an op, and marks the variables that lanes share because of it. Call it for each
  // op, in order. NotFound for an unknown type.
  absl::StatusOr<BlockOp> AddOp(int index);

  int ops_size() const { return block().ops_size(); }
  const v1::OpDesc& op(int index) const { return block().ops(index); }
  // Returns the arguments for the construction of the op's kernel. They refer to this block.
  KernelInit InitOf(const BlockOp& op) const;

  // Returns the declaration of a variable, in this block or the nearest around it; nullptr if there is none.
  const v1::VarDesc* Describe(std::string_view name) const;
  // Undeclared variables are the lanes'.
  VariableOwner OwnerOf(std::string_view name) const;
  // Returns the name under which the variable is kept; equal for variables of one buffer. Valid as long as the block
  // and `name`.
  std::string_view Storage(std::string_view name) const;
  bool SharesBuffer(std::string_view name) const { return buffers_.contains(name); }

 private:
  PreparedBlock(const v1::ProgramDesc& program, int block) : program_(program), block_(block) {}

  const v1::BlockDesc& block() const { return program_.blocks(block_); }
  void ReadDeclarations();

  v1::ProgramDesc program_;
  const int block_;
  std::map<std::string, const v1::VarDesc*, std::less<>> declared_;
  // Outputs of step ops, except persistable ones and those of per_lane slots: one variable for all lanes.
  std::set<std::string, std::less<>> of_step_;
  // "buffer 3" by variable that shares one. No variable has a blank in its name.
  std::map<std::string, std::string, std::less<>> buffers_;
};

// Returns the variables of an op's slots in the order of their definitions. `locate` returns the StatusOr of a pointer
// to the variable of a name. NotFound names a slot that is not defined.
template <typename Slot, typename Locate>
absl::StatusOr<std::vector<Slot>> FillSlots(const std::vector<SlotDef>& defs,
                                            const google::protobuf::RepeatedPtrField<v1::OpSlot>& given,
                                            const Locate& locate) {
  std::vector<Slot> slots(defs.size());
  for (const v1::OpSlot& slot : given) {
    size_t i = 0;
    while (i < defs.size() && defs[i].name != slot.name()) ++i;
    if (i == defs.size()) return absl::NotFoundError(absl::StrCat("there is no slot '", slot.name(), "'"));
    for (const std::string& name : slot.vars()) {
      ASSIGN_OR_RETURN(auto* const var, locate(name));
      slots[i].vars.push_back(var);
    }
  }
  return slots;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PREPARED_BLOCK_H_
