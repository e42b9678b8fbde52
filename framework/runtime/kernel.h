// How an operator runs: a kernel made once per op when a program is prepared, then run every step with variables
// already found. Kernels register themselves from ops/<name>.cc (CPU) and ops/<name>.cu's launcher (CUDA).
#ifndef WEIR_FRAMEWORK_RUNTIME_KERNEL_H_
#define WEIR_FRAMEWORK_RUNTIME_KERNEL_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/tensor/tensor.h"
#include "proto/program.pb.h"

namespace weir {

class ParamChannel;
struct StepOutcome;

// Non-finite values met in a step. Thread-safe.
class StepHealth {
 public:
  void Reset();
  // Keeps the first.
  void ReportNonFinite(std::string_view variable);
  // Empty when all is well.
  std::string non_finite() const;

 private:
  mutable Mutex mu_;
  std::string non_finite_ ABSL_GUARDED_BY(mu_);
};

// What a kernel may know of the step it runs in. Owned by the executor; constant while kernels run.
struct StepContext {
  int64_t step = 0;
  uint64_t seed = 0;
  // false in evaluation and prediction: dropout is the identity, rows are not created.
  bool training = true;
  // First lane of this process and lanes in the job: lane i of the executor is lane first_lane + i of the job.
  int first_lane = 0;
  int job_lanes = 1;
  // nullptr in programs without servers.
  ParamChannel* channel = nullptr;
  // Where fetch_barrier writes what the servers said of the step (framework/runtime/param_channel.h). May be nullptr.
  StepOutcome* outcome = nullptr;
  ThreadPool* pool = nullptr;
  // Where rows are pulled to that a device copies from; nullptr for ordinary memory. Of one executor always the same.
  PinnedMemory* row_memory = nullptr;
  StepHealth* health = nullptr;
  // train.loss_scaling, a power of two: backward is seeded with it, and what leaves for the servers is divided by it.
  float loss_scale = 1;
  // On servers: samples and trainers whose gradients the step holds (merge divides by them).
  int64_t samples = 0;
  int trainers = 1;
};

// The variables of one op run. Slots are addressed by their position in the OpDef, variables by their place in the
// slot.
class KernelContext {
 public:
  // Everything below borrows; the executor builds one per op (and lane) when it prepares the program.
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

  // Dense.
  const Tensor& input(int slot, int i = 0) const { return std::get<Tensor>(*inputs[0][slot].vars[i]); }
  Tensor* output(int slot, int i = 0) { return OutputAs<Tensor>(slot, i); }
  // Any kind.
  const Variable& input_var(int slot, int i = 0) const { return *inputs[0][slot].vars[i]; }
  Variable* output_var(int slot, int i = 0) { return outputs[0][slot].vars[i]; }
  template <typename T>
  T* OutputAs(int slot, int i = 0) {
    Variable* var = outputs[0][slot].vars[i];
    if (!std::holds_alternative<T>(*var)) *var = T();
    return &std::get<T>(*var);
  }
  // Step and gate kernels.
  const Variable& lane_input(int lane, int slot, int i = 0) const { return *inputs[lane][slot].vars[i]; }
  Variable* lane_output(int lane, int slot, int i = 0) { return outputs[lane][slot].vars[i]; }
};

class OpKernel {
 public:
  virtual ~OpKernel() = default;
  // May run for several lanes at once: everything that changes is in the context. Errors name what was expected and
  // got; the executor adds the op. A lane without examples runs too: kernels take a batch of 0.
  virtual absl::Status Run(KernelContext& ctx) = 0;
};

// Made once per op. `vars` resolves the description of a variable by name (dims with -1 for the batch).
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
  void Register(std::string_view type, Device device, KernelFactory factory);
  // nullptr when there is none.
  const KernelFactory* Find(std::string_view type, Device device) const;

 private:
  std::vector<std::pair<std::pair<std::string, Device>, std::unique_ptr<KernelFactory>>> kernels_;
};

struct KernelRegistrar {
  KernelRegistrar(std::string_view type, Device device, KernelFactory factory) {
    KernelRegistry::Global().Register(type, device, std::move(factory));
  }
};
#define REGISTER_KERNEL(name, device, factory) \
  static const ::weir::KernelRegistrar weir_kernel_registrar_##name##_##device(#name, ::weir::Device::device, factory)
// At namespace scope:  REGISTER_KERNEL(relu, kCpu, MakeKernel<ReluKernel>);

// For kernels with a constructor from KernelInit that cannot fail.
template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeKernel(const KernelInit& init) {
  return std::unique_ptr<OpKernel>(new Kernel(init));
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_KERNEL_H_
