// Kernels of operators on the CPU. An executor creates a kernel once per op when it prepares a program, then runs it
// every step with variables already looked up. Kernels register themselves from the files of their operators in ops/,
// before main, and no list names them; framework/device/device_kernel.h has those of devices.
#ifndef WEIR_FRAMEWORK_RUNTIME_KERNEL_H_
#define WEIR_FRAMEWORK_RUNTIME_KERNEL_H_

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
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/product_precision.h"
#include "framework/tensor/tensor.h"
#include "proto/program.pb.h"

namespace weir {

class RowSource;
class StepChannel;
struct StepOutcome;

// Records non-finite values found in a step. Thread-safe.
class StepHealth {
 public:
  void Reset();
  // Keeps the first report.
  void ReportNonFinite(std::string_view variable);
  // Returns the variable reported first; empty if none.
  std::string non_finite() const;

 private:
  mutable Mutex mu_;
  std::string non_finite_ ABSL_GUARDED_BY(mu_);
};

// Context of a step for its kernels. Owned by the executor; constant while kernels run.
struct StepContext {
  // Number of this run of the program in the job. A step of the job is runs_per_step of them: its batches
  // (train.accumulate_steps) times the threads of a trainer (train.workers), each on a batch of its own.
  int64_t step = 0;
  int64_t runs_per_step = 1;
  uint64_t seed = 0;
  // false in evaluation and prediction: dropout is the identity, rows are not created.
  bool training = true;
  // First lane of this process and lanes in the job: lane i of the executor is lane first_lane + i of the job.
  int first_lane = 0;
  int job_lanes = 1;
  // Halves of the channel to servers (framework/runtime/param_channel.h). nullptr in programs without servers; a
  // program that only reads rows needs only `rows`.
  RowSource* rows = nullptr;
  StepChannel* channel = nullptr;
  // Receives the servers' outcome of the step from fetch_barrier (framework/runtime/param_channel.h). May be nullptr.
  StepOutcome* outcome = nullptr;
  ThreadPool* pool = nullptr;
  // Memory for pulled rows that a device copies from; nullptr for ordinary memory. Constant over the steps of one
  // executor.
  PinnedMemory* row_memory = nullptr;
  StepHealth* health = nullptr;
  // train.loss_scaling, a power of two: multiplies the seed of backward; gradients are divided by it before they are
  // sent.
  float loss_scale = 1;
  // Precision of matrix products on the CPU: kFp32 or kBf16.
  ProductPrecision precision = ProductPrecision::kFp32;
  // Numbers of samples and of trainers in the step's gradients, on servers (merge divides by them).
  int64_t samples = 0;
  int trainers = 1;
  // Number of this run among those of one executor, from 1; the executor sets it. A variable of all lanes has one value
  // for the lanes of an op in a run, so what one lane makes of it is good for the others. 0: kernels run without lanes
  // beside them.
  int64_t executor_run = 0;
};

// Variables of one op run. Slots are addressed by their position in the OpDef, variables by their position in the slot.
// A kernel with more than two inputs or outputs names the positions by an enum Input and an enum Output of its own.
class KernelContext {
 public:
  // Variables of one input or output of the op. Borrowed: the executor owns them, and builds one context per op (and
  // lane) when it prepares the program.
  struct Slot {
    std::vector<Variable*> vars;
  };
  // inputs[lane][slot]: kLane kernels have exactly one lane here. A variable of step scope is the same in all lanes.
  std::vector<std::vector<Slot>> inputs;
  std::vector<std::vector<Slot>> outputs;
  const StepContext* step = nullptr;
  // Lane of the job, for kLane kernels.
  int lane = 0;
  // Examples in each lane of this step (same indexing as inputs).
  const int64_t* lane_batch = nullptr;

  int lanes() const { return static_cast<int>(inputs.size()); }
  int input_count(int slot) const { return static_cast<int>(inputs[0][slot].vars.size()); }
  int output_count(int slot) const { return static_cast<int>(outputs[0][slot].vars.size()); }
  bool has_input(int slot) const { return input_count(slot) > 0; }
  bool has_output(int slot) const { return output_count(slot) > 0; }

  // Accessors for dense variables.
  const Tensor& input(int slot, int i = 0) const { return std::get<Tensor>(*inputs[0][slot].vars[i]); }
  Tensor* output(int slot, int i = 0) { return OutputAs<Tensor>(slot, i); }
  // Accessors for variables of any kind.
  const Variable& input_var(int slot, int i = 0) const { return *inputs[0][slot].vars[i]; }
  Variable* output_var(int slot, int i = 0) { return outputs[0][slot].vars[i]; }
  template <typename T>
  T* OutputAs(int slot, int i = 0) {
    Variable* var = outputs[0][slot].vars[i];
    if (!std::holds_alternative<T>(*var)) *var = T();
    return &std::get<T>(*var);
  }
  // Accessors for step and gate kernels.
  const Variable& lane_input(int lane, int slot, int i = 0) const { return *inputs[lane][slot].vars[i]; }
  Variable* lane_output(int lane, int slot, int i = 0) { return outputs[lane][slot].vars[i]; }
};

class OpKernel {
 public:
  virtual ~OpKernel() = default;
  // Runs the op. May run for several lanes at once: all mutable state is in the context. Errors name the expected and
  // the actual value; the executor adds the op. A lane without examples runs too: kernels must accept a batch of 0.
  virtual absl::Status Run(KernelContext& ctx) = 0;
};

// Arguments of a kernel's construction, once per op. `vars` returns the description of a variable by name (dims with -1
// for the batch).
struct KernelInit {
  const v1::OpDesc& op;
  const OpDef& def;
  AttrReader attrs;
  std::function<const v1::VarDesc*(std::string_view)> vars;
};
using KernelFactory = std::function<absl::StatusOr<std::unique_ptr<OpKernel>>(const KernelInit&)>;

class KernelRegistry {
 public:
  static KernelRegistry& Global();
  // CHECK-fails on a type registered twice.
  void Register(std::string_view type, KernelFactory factory);
  // Returns nullptr if there is none.
  const KernelFactory* Find(std::string_view type) const;

  // Host ops run by their CPU kernels in a trainer on a device, too: they communicate with servers, read ids, or count.
  void RegisterHostOp(std::string_view type);
  bool IsHostOp(std::string_view type) const { return host_ops_.contains(type); }

 private:
  std::map<std::string, KernelFactory, std::less<>> kernels_;
  std::set<std::string, std::less<>> host_ops_;
};

struct KernelRegistrar {
  KernelRegistrar(std::string_view type, KernelFactory factory) {
    KernelRegistry::Global().Register(type, std::move(factory));
  }
};
#define REGISTER_KERNEL(name, ...) static const ::weir::KernelRegistrar weir_kernel_registrar_##name(#name, __VA_ARGS__)
// At namespace scope:  REGISTER_KERNEL(relu, MakeKernel<ReluKernel>);

struct HostOpRegistrar {
  explicit HostOpRegistrar(std::string_view type) { KernelRegistry::Global().RegisterHostOp(type); }
};
#define REGISTER_HOST_OP(name) static const ::weir::HostOpRegistrar weir_host_op_registrar_##name(#name)

// Makes a kernel by its constructor from KernelInit, which cannot fail.
template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeKernel(const KernelInit& init) {
  return std::unique_ptr<OpKernel>(new Kernel(init));
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_KERNEL_H_
