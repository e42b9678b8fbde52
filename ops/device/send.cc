// send (ops/send.cc), all_reduce (ops/all_reduce.cc) and local_gradient (ops/local_gradient.cc): adds the lanes of a
// dense gradient on the device, in the lane tree, before it brings them to the host.
//
// The sum of an aligned node of the tree goes to the channel as if it were the node's first lane alone: lanes that are
// absent are skipped when the channel and the server add, never added as zero, so the tree comes to the same bits.
#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/lane_tree.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class SendKernel : public OpDeviceKernel {
 public:
  explicit SendKernel(std::unique_ptr<OpKernel> cpu) : cpu_(std::move(cpu)) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    const int count = ctx.input_count(kX);
    sent_.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      Sent& sent = sent_[static_cast<size_t>(i)];
      sent.arrival.reset();
      sent.lanes.clear();
      const DeviceVariable& var = ctx.input_var(kX, i);
      if (!var.device.initialized()) continue;
      if (var.device.dtype() != v1::FLOAT32)
        return absl::InvalidArgumentError(absl::StrCat("X[", i, "] must be FLOAT32"));
      sent.value = var.device;
      if (var.kind == v1::SELECTED_ROWS) {
        RETURN_IF_ERROR(SendRows(ctx, var, &sent));
      } else {
        RETURN_IF_ERROR(SendDense(ctx, &sent));
      }
      // The kernel must not keep the tensor's address beyond this run.
      sent.value.Clear();
    }
    return absl::OkStatus();
  }

  absl::Status Finish(DeviceKernelContext& ctx) override {
    KernelContext host;
    host.step = ctx.step;
    // Set to 1 for each lane with a value to send: the channel only needs to know whether a lane has examples.
    batch_.assign(static_cast<size_t>(ctx.lanes), 0);
    host.lane_batch = batch_.data();
    host.inputs.resize(static_cast<size_t>(ctx.lanes));
    host.outputs.resize(static_cast<size_t>(ctx.lanes));
    for (auto& slots : host.inputs) slots.resize(ctx.inputs.size());
    for (size_t i = 0; i < sent_.size(); ++i) {
      Sent& sent = sent_[i];
      sent.host.resize(static_cast<size_t>(ctx.lanes));
      const float* from = nullptr;
      if (sent.arrival != nullptr) {
        ASSIGN_OR_RETURN(const void* const arrived, sent.arrival->Wait());
        from = static_cast<const float*>(arrived);
      }
      const DeviceVariable& var = ctx.input_var(kX, static_cast<int>(i));
      for (int lane = 0; lane < ctx.lanes; ++lane) {
        const bool goes =
            std::any_of(sent.lanes.begin(), sent.lanes.end(), [&](const LaneValue& v) { return v.lane == lane; });
        Prepare(var.kind, goes, &sent.host[static_cast<size_t>(lane)]);
      }
      for (const LaneValue& value : sent.lanes) {
        Variable& to = sent.host[static_cast<size_t>(value.lane)];
        Tensor* tensor = std::get_if<Tensor>(&to);
        if (SelectedRows* rows = std::get_if<SelectedRows>(&to)) {
          rows->CopyRowsOf(std::get<SelectedRows>(*var.host[static_cast<size_t>(value.lane)]));
          tensor = &rows->values;
        }
        tensor->Resize(v1::FLOAT32, value.dims);
        if (tensor->bytes() > 0) std::memcpy(tensor->raw(), from, tensor->bytes());
        from += tensor->size();
        batch_[static_cast<size_t>(value.lane)] = 1;
      }
      sent.arrival.reset();
      for (int lane = 0; lane < ctx.lanes; ++lane) {
        host.inputs[static_cast<size_t>(lane)][kX].vars.push_back(&sent.host[static_cast<size_t>(lane)]);
      }
    }
    for (size_t slot = 1; slot < ctx.inputs.size(); ++slot) {
      for (DeviceVariable* var : ctx.inputs[slot].vars) {
        for (int lane = 0; lane < ctx.lanes; ++lane) {
          host.inputs[static_cast<size_t>(lane)][slot].vars.push_back(
              var->host[var->shared ? 0 : static_cast<size_t>(lane)]);
        }
      }
    }
    return cpu_->Run(host);
  }

 private:
  static constexpr int kX = 0;

  struct LaneValue {
    int lane = 0;
    Shape dims;
  };
  struct Sent {
    DeviceTensor value;
    std::shared_ptr<Arrival> arrival;
    std::vector<LaneValue> lanes;  // lanes with a value, in the order in which the values arrive
    DeviceArray sums;
    // The channel reads it until the step's pushes end.
    std::vector<Variable> host;
  };

  // Keeps the memory of the previous step in a variable that is sent. Makes any other variable absent.
  static void Prepare(v1::VarKind kind, bool goes, Variable* var) {
    if (kind == v1::SELECTED_ROWS) {
      if (!goes || !std::holds_alternative<SelectedRows>(*var)) *var = SelectedRows();
    } else if (!goes || !std::holds_alternative<Tensor>(*var)) {
      *var = Tensor();
    }
  }

  static absl::Status SendRows(DeviceKernelContext& ctx, const DeviceVariable& var, Sent* sent) {
    const DeviceTensor& t = sent->value;
    std::vector<DeviceTransfers::Piece> pieces;
    for (int lane = 0; lane < t.lanes(); ++lane) {
      const SelectedRows* rows = std::get_if<SelectedRows>(var.host[static_cast<size_t>(lane)]);
      if (ctx.lane_batch[lane] == 0 || rows == nullptr || !rows->present) continue;
      pieces.push_back({.data = t.raw(lane), .bytes = static_cast<size_t>(t.size(lane)) * sizeof(float)});
      sent->lanes.push_back({.lane = lane, .dims = t.dims(lane)});
    }
    ASSIGN_OR_RETURN(sent->arrival, ctx.transfers->Out(pieces, "gradients"));
    return absl::OkStatus();
  }

  static absl::Status SendDense(DeviceKernelContext& ctx, Sent* sent) {
    const DeviceTensor& t = sent->value;
    if (t.lanes() != ctx.lanes) return absl::InvalidArgumentError("a gradient that all lanes share cannot be sent");
    std::vector<int> lanes;
    for (int lane = 0; lane < t.lanes(); ++lane) {
      if (ctx.lane_batch[lane] > 0) lanes.push_back(lane);
    }
    if (lanes.empty()) return absl::OkStatus();
    const int64_t n = t.size(lanes[0]);
    for (int lane : lanes) {
      if (t.size(lane) != n)
        return absl::InvalidArgumentError(
            absl::StrCat("X has ", n, " elements in one lane and ", t.size(lane), " in another"));
    }
    std::vector<DeviceTransfers::Piece> pieces;
    RETURN_IF_ERROR(sent->sums.Reserve(ctx.memory(), lanes.size() * static_cast<size_t>(n) * sizeof(float)));
    size_t done = 0;
    float* to = sent->sums.data<float>();
    for (const LaneRange& node : AlignedNodes({.begin = ctx.step->first_lane, .count = ctx.lanes})) {
      const int end = node.begin - ctx.step->first_lane + node.count;
      std::vector<LaneRange> present;
      std::vector<int> of;
      for (; done < lanes.size() && lanes[done] < end; ++done) {
        present.push_back({.begin = ctx.step->first_lane + lanes[done], .count = 1});
        of.push_back(lanes[done]);
      }
      if (of.empty()) continue;
      sent->lanes.push_back({.lane = of[0], .dims = t.dims(of[0])});
      const std::vector<LaneAdd> adds = TreeAdds(present, ctx.step->first_lane + ctx.lanes);
      if (adds.empty()) {
        pieces.push_back({.data = t.raw(of[0]), .bytes = static_cast<size_t>(n) * sizeof(float)});
        continue;
      }
      // Each element is added by one thread, in the order of the tree.
      TreeAt tree = {.lanes = static_cast<int>(of.size()),
                     .x = {},
                     .adds = static_cast<int>(adds.size()),
                     .left = {},
                     .right = {},
                     .out = to};
      for (size_t i = 0; i < of.size(); ++i) tree.x[i] = t.data<float>(of[i]);
      for (size_t i = 0; i < adds.size(); ++i) {
        tree.left[i] = static_cast<uint8_t>(adds[i].left);
        tree.right[i] = static_cast<uint8_t>(adds[i].right);
      }
      RETURN_IF_ERROR(ForEach(ctx.runtime(), n, tree));
      pieces.push_back({.data = to, .bytes = static_cast<size_t>(n) * sizeof(float)});
      to += n;
    }
    ASSIGN_OR_RETURN(sent->arrival, ctx.transfers->Out(pieces, "gradients"));
    return absl::OkStatus();
  }

  const std::unique_ptr<OpKernel> cpu_;
  std::vector<Sent> sent_;
  std::vector<int64_t> batch_;
};

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeSend(const KernelInit& init) {
  const KernelFactory* factory = KernelRegistry::Global().Find(init.op.type());
  if (factory == nullptr) return absl::NotFoundError("no kernel for CPU");
  ASSIGN_OR_RETURN(std::unique_ptr<OpKernel> cpu, (*factory)(init));
  return std::unique_ptr<OpDeviceKernel>(new SendKernel(std::move(cpu)));
}

REGISTER_DEVICE_KERNEL(send, MakeSend, {"Counts"});
REGISTER_DEVICE_KERNEL(all_reduce, MakeSend, {});
REGISTER_DEVICE_KERNEL(local_gradient, MakeSend, {});

}  // namespace
}  // namespace device
}  // namespace weir
