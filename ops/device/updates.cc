// sgd, momentum, adagrad, adam, running_average on dense gradients (files of the same names in ops/). For programs that
// update where they compute; a trainer's are updated by servers. The rate and the count of updates are the host's.
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/updates_functors.h"

namespace weir {
namespace device {
namespace {

constexpr int kParam = 0, kGrad = 1, kLearningRate = 2, kFirstState = 3;

absl::StatusOr<float> OneNumber(DeviceKernelContext& ctx, int slot, std::string_view name) {
  const Tensor& tensor = ctx.host_input<Tensor>(0, slot);
  if (tensor.initialized() && tensor.dtype() == v1::FLOAT32 && tensor.size() == 1) return tensor.data<float>()[0];
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(name.data(), name.size()),
                                                 " must be one FLOAT32 number, got ", ShapeString(tensor.dims())));
}

// Slots Param, Grad, LearningRate, states, count; outputs ParamOut, states, count, which may be the inputs.
template <typename Math>
class UpdateKernel : public OpDeviceKernel {
 public:
  explicit UpdateKernel(Math math) : math_(math) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& grad = ctx.input(kGrad);
    // An absent gradient changes nothing.
    if (!grad.initialized()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckThere("Param", ctx.input(kParam)));
    if (grad.lanes() != 1)
      return absl::InvalidArgumentError("Grad is that of several lanes; an update takes their sum");
    RETURN_IF_ERROR(CheckLike("Grad", grad, ctx.input(kParam)));
    ASSIGN_OR_RETURN(const float lr, OneNumber(ctx, kLearningRate, "LearningRate"));
    float count = 1;
    if constexpr (Math::kCounts) {
      constexpr int kCount = kFirstState + Math::kStates;
      ASSIGN_OR_RETURN(count, OneNumber(ctx, kCount, "the count of updates"));
      count += 1;
      Variable* const out = ctx.output_var(1 + Math::kStates).host[0];
      if (!std::holds_alternative<Tensor>(*out)) *out = Tensor();
      Tensor& to = std::get<Tensor>(*out);
      to.Resize(v1::FLOAT32, {1});
      to.data<float>()[0] = count;
    }
    UpdateAt<Math> update = {.step = math_.At(lr, count), .grad = grad.data<float>(), .param = nullptr, .state = {}};
    ASSIGN_OR_RETURN(update.param, InPlace(ctx, kParam, 0));
    for (int s = 0; s < Math::kStates; ++s) {
      RETURN_IF_ERROR(CheckLike("the state", ctx.input(kFirstState + s), ctx.input(kParam)));
      ASSIGN_OR_RETURN(update.state[s], InPlace(ctx, kFirstState + s, 1 + s));
    }
    return ForEach(ctx.runtime(), grad.size(), update);
  }

 private:
  // Returns the output with the input's values.
  static absl::StatusOr<float*> InPlace(DeviceKernelContext& ctx, int input, int output) {
    const DeviceTensor& from = ctx.input(input);
    DeviceTensor& to = ctx.output(output);
    if (&to == &from) return to.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(output, from));
    if (from.size() > 0) {
      RETURN_IF_ERROR(ctx.runtime().CopyWithin(DeviceQueue::kCompute, to.raw(), from.raw(),
                                               static_cast<size_t>(from.size()) * sizeof(float)));
    }
    return to.data<float>();
  }

  const Math math_;
};

template <typename Math>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> Make(const KernelInit& init, Math math) {
  for (const v1::OpSlot& slot : init.op.inputs()) {
    const v1::VarDesc* var = slot.name() == "Grad" && slot.vars_size() == 1 ? init.vars(slot.vars(0)) : nullptr;
    if (var != nullptr && var->kind() != v1::DENSE) {
      return absl::InvalidArgumentError(absl::StrCat(
          "its gradient is selected rows, which only the CPU updates; train.cpu_ops: \"", init.op.type(), "\""));
    }
  }
  return std::unique_ptr<OpDeviceKernel>(new UpdateKernel<Math>(math));
}

REGISTER_DEVICE_KERNEL(sgd, [](const KernelInit& init) { return Make(init, SgdMath{}); }, {"LearningRate"});
REGISTER_DEVICE_KERNEL(momentum,
                       [](const KernelInit& init) {
                         const float mu = static_cast<float>(init.attrs.Float("mu"));
                         return init.attrs.Bool("use_nesterov") ? Make(init, MomentumMath<true>{.mu = mu})
                                                                : Make(init, MomentumMath<false>{.mu = mu});
                       },
                       {"LearningRate"});
REGISTER_DEVICE_KERNEL(adagrad,
                       [](const KernelInit& init) {
                         return Make(init, AdagradMath{.epsilon = static_cast<float>(init.attrs.Float("epsilon"))});
                       },
                       {"LearningRate"});
REGISTER_DEVICE_KERNEL(adam,
                       [](const KernelInit& init) {
                         return Make(init, AdamMath{.beta1 = init.attrs.Float("beta1"),
                                                    .beta2 = init.attrs.Float("beta2"),
                                                    .epsilon = static_cast<float>(init.attrs.Float("epsilon"))});
                       },
                       {"LearningRate", "Step", "StepOut"});
REGISTER_DEVICE_KERNEL(running_average, [](const KernelInit& init) { return Make(init, RunningAverageMath{}); },
                       {"LearningRate"});

}  // namespace
}  // namespace device
}  // namespace weir
