// An op of a block with its CPU kernel, as the CPU executor runs it.
#ifndef WEIR_FRAMEWORK_RUNTIME_CPU_OP_H_
#define WEIR_FRAMEWORK_RUNTIME_CPU_OP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/block_variables.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/memory_use.h"
#include "framework/runtime/prepared_block.h"

namespace weir {

// One run of a kernel.
struct KernelRun {
  KernelContext context;
  std::vector<MemoryUse::Held*> writes;
};

// An op, or some of its outputs.
struct OpPart {
  // One per lane, or one that sees all lanes (BlockOp.per_lane). Empty for a part that the op does not have.
  std::vector<KernelRun> runs;
  std::vector<std::string_view> writes;
  // Detail in the profile; set by CpuOp::MakeNames.
  ProfileName made;
};

// Created while a program is prepared; then Run may be called for different runs at the same time.
class CpuOp {
 public:
  // Locates the op's variables and creates its kernel. `block`, `step` and `batch`, the numbers of examples by lane,
  // are borrowed. NotFound for a variable that is not declared, a slot that is not defined, or an op without a kernel.
  static absl::StatusOr<CpuOp> Create(const PreparedBlock& block, const BlockOp& op, BlockVariables* vars,
                                      const StepContext* step, const int64_t* batch);

  int index() const { return op_.index; }
  const v1::OpDesc& desc() const { return *op_.desc; }
  OpMode mode() const { return op_.mode; }

  OpPart& whole() { return whole_; }
  // An output that is computed apart (OpDef.apart), and the others; without runs unless CutApart has made them.
  OpPart& apart() { return apart_; }
  OpPart& rest() { return rest_; }

  // Makes the parts of a lane op that has an output apart. An op in place reads its inputs before it writes and stays
  // whole; so does one that writes twice to the same memory, where the last value counts.
  void CutApart(const PreparedBlock& block);
  // Adds the variables of all parts to `memory`, which must outlive the op. Call it after CutApart.
  void WatchMemory(const PreparedBlock& block, BlockVariables* vars, MemoryUse* memory);
  // Interns the op's names in the profile, once.
  void MakeNames();

  // Sets the lane of the job that is lane 0 of the executor.
  void SetFirstLane(int first_lane);
  // Runs the kernel for a part and measures the memory written. The run is recorded if profiled_step >= 0. An error
  // names the op.
  absl::Status Run(OpPart& part, int run, int64_t profiled_step);
  // Measures the memory of outputs that others have written in place of the op.
  void MeasureOutputs() const;

  // Gate ops: a lane has arrived; returns true for the last one of a run. Acquire and release: the last one sees what
  // the others wrote.
  bool PassLane() { return lanes_to_come_->fetch_sub(1, std::memory_order_acq_rel) == 1; }
  void ExpectLanes(int lanes) { lanes_to_come_->store(lanes, std::memory_order_relaxed); }

 private:
  explicit CpuOp(const BlockOp& op) : op_(op) {}

  std::array<OpPart*, 3> parts() { return {&whole_, &rest_, &apart_}; }
  absl::Status RunKernel(const OpPart& part, KernelContext& context, int64_t profiled_step);

  BlockOp op_;
  std::unique_ptr<OpKernel> kernel_;
  OpPart whole_, rest_, apart_;
  // Gate ops: lanes that have not arrived in this run. Atomic: lanes arrive on threads of their own.
  std::unique_ptr<std::atomic<int>> lanes_to_come_;
  ProfileName type_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_CPU_OP_H_
