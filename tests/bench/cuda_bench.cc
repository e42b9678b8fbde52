// The dense parts of a Criteo-shaped DeepFM and DLRM (tests/bench/cuda_models.h) on a CUDA device: forward, backward
// and Adam, rows of embeddings and data already on the device, one lane (lanes: 0).
//
//   bazel run //tests/bench:cuda_bench          tools/gpu_check runs it beside tests/bench/cuda_torch.py
//
// Checked first: loss and gradient of the rows against the CPU executor on the same numbers. Then 10 steps to warm up,
// 50 timed. The roofline is that of the same run: for each operator the larger of its arithmetic at the rate of one
// large product and its bytes at the rate of one large copy. Without a device it says so and ends well.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/device/device_executor.h"
#include "framework/device/rounded_factors.h"
#include "framework/graph/infer.h"
#include "framework/runtime/executor.h"
#include "framework/tensor/cuda_device.h"
#include "ops/device/product.h"
#include "tests/bench/cuda_models.h"

namespace weir {
namespace {

constexpr int kWarm = 10, kSteps = 50;

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Peaks {
  double flops = 0;  // a second
  double bytes = 0;
};

absl::StatusOr<Peaks> MeasurePeaks(DeviceTransfers* transfers, ProductPrecision precision) {
  constexpr int64_t kN = 8192;
  DeviceRuntime* const runtime = transfers->runtime();
  DeviceArray a, b, c;
  for (DeviceArray* array : {&a, &b, &c}) {
    RETURN_IF_ERROR(array->Reserve(transfers->memory(), kN * kN * sizeof(float)));
    RETURN_IF_ERROR(runtime->Zero(DeviceQueue::kCompute, array->data<float>(), kN * kN * sizeof(float)));
  }
  DeviceKernelContext ctx;
  ctx.transfers = transfers;
  RoundedFactors rounded;
  ctx.precision = precision;
  ctx.rounded = &rounded;
  const auto time = [&](int times, const std::function<absl::Status()>& run) -> absl::StatusOr<double> {
    RETURN_IF_ERROR(run());
    RETURN_IF_ERROR(runtime->WaitForAll());
    const double begin = Seconds();
    for (int i = 0; i < times; ++i) RETURN_IF_ERROR(run());
    RETURN_IF_ERROR(runtime->WaitForAll());
    return (Seconds() - begin) / times;
  };
  ASSIGN_OR_RETURN(const double product, time(5, [&] {
                     return device::Multiply(
                         ctx,
                         {.m = kN, .n = kN, .k = kN, .a = a.data<float>(), .b = b.data<float>(), .c = c.data<float>()});
                   }));
  ASSIGN_OR_RETURN(const double copy, time(20, [&] {
                     return runtime->CopyWithin(DeviceQueue::kCompute, c.data<float>(), a.data<float>(),
                                                kN * kN * sizeof(float));
                   }));
  return Peaks{.flops = 2.0 * kN * kN * kN / product, .bytes = 2.0 * kN * kN * sizeof(float) / copy};
}

double Roofline(const v1::ProgramDesc& program, int64_t batch, const Peaks& peaks) {
  const ProgramIndex index(program);
  double seconds = 0;
  for (const v1::OpDesc& op : program.blocks(0).ops()) {
    const Cost cost = CostOf(op, *OpRegistry::Global().Find(op.type()), index.Lookup(0), batch);
    seconds += std::max(cost.flops / peaks.flops, cost.bytes / peaks.bytes);
  }
  return seconds;
}

struct Values {
  double loss = 0;
  double gradient = 0;  // sum of absolute values
};
Values Read(Executor& executor, const Scope&) {
  Values values;
  for (const float x : std::get<Tensor>(*executor.Find(0, "loss")).span<float>()) values.loss += x;
  for (const float x : std::get<Tensor>(*executor.Find(0, "fields@GRAD")).span<float>())
    values.gradient += std::fabs(x);
  return values;
}

struct Precision {
  ProductPrecision value;
  const char* name;
  // Relative, of the loss and of gradients.
  double bound;
};
// TF32 and float16 round factors to 10 bits, bfloat16 to 7.
constexpr Precision kPrecisions[] = {{ProductPrecision::kFp32, "fp32", 1e-4},
                                     {ProductPrecision::kTf32, "tf32", 1e-2},
                                     {ProductPrecision::kBf16, "bf16", 5e-2},
                                     {ProductPrecision::kFp16, "fp16", 1e-2}};

absl::Status Bench(DeviceMemory* memory, absl::StatusOr<CudaModel> (*make)(int64_t), int64_t batch,
                   const Precision& precision) {
  ASSIGN_OR_RETURN(const CudaModel model, make(batch));
  const std::vector<std::string> fetch = {"loss", "fields@GRAD"};
  ThreadPool pool("bench", 3);
  const StepContext ctx = {.pool = &pool};
  Scope cpu_scope, scope;
  Fill(model, &cpu_scope);
  Fill(model, &scope);
  Values cpu, gpu;
  {
    ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, Executor::Create(model.program, &cpu_scope, {.fetch = fetch}));
    RETURN_IF_ERROR(executor->Run(ctx, {batch}));
    cpu = Read(*executor, cpu_scope);
  }
  DeviceTransfers transfers(memory);
  DeviceScope device_scope(&scope);
  {
    ASSIGN_OR_RETURN(
        std::unique_ptr<Executor> executor,
        CreateDeviceExecutor(
            model.program, &scope,
            {.fetch = fetch, .precision = precision.value, .transfers = &transfers, .device_scope = &device_scope}));
    RETURN_IF_ERROR(executor->Run(ctx, {batch}));
    gpu = Read(*executor, scope);
  }
  if (std::fabs(gpu.loss - cpu.loss) > precision.bound * std::fabs(cpu.loss) ||
      std::fabs(gpu.gradient - cpu.gradient) > precision.bound * cpu.gradient) {
    return absl::InternalError(absl::StrCat(model.name, ", batch ", batch, ": loss ", gpu.loss, " and gradient ",
                                            gpu.gradient, "; the CPU has ", cpu.loss, " and ", cpu.gradient));
  }
  ASSIGN_OR_RETURN(const Peaks peaks, MeasurePeaks(&transfers, precision.value));
  ASSIGN_OR_RETURN(
      std::unique_ptr<Executor> executor,
      CreateDeviceExecutor(model.program, &scope,
                           {.precision = precision.value, .transfers = &transfers, .device_scope = &device_scope}));
  for (int step = 0; step < kWarm; ++step) RETURN_IF_ERROR(executor->Run(ctx, {batch}));
  RETURN_IF_ERROR(memory->runtime()->WaitForAll());
  const double begin = Seconds();
  for (int step = 0; step < kSteps; ++step) RETURN_IF_ERROR(executor->Run(ctx, {batch}));
  const double queued = Seconds();
  RETURN_IF_ERROR(memory->runtime()->WaitForAll());
  const double seconds = (Seconds() - begin) / kSteps;
  const double roofline = Roofline(model.program, batch, peaks);
  std::printf(
      "%s batch=%lld precision=%s step_ms=%.3f queue_ms=%.3f examples_per_s=%.0f roofline_ms=%.3f "
      "roofline_fraction=%.3f "
      "product_tflops=%.1f copy_gb_per_s=%.0f memory_mb=%.0f\n",
      model.name.c_str(), static_cast<long long>(batch), precision.name, seconds * 1e3, (queued - begin) / kSteps * 1e3,
      static_cast<double>(batch) / seconds, roofline * 1e3, roofline / seconds, peaks.flops * 1e-12, peaks.bytes * 1e-9,
      static_cast<double>(memory->statistics().most_in_use) / (1 << 20));
  std::fflush(stdout);
  return absl::OkStatus();
}

int Main() {
  const absl::StatusOr<std::unique_ptr<ReplayingDevice>> device = OpenCudaDevice(0);
  if (!device.ok()) {
    std::printf("skipped: %s\n", std::string(device.status().message()).c_str());
    return 0;
  }
  std::printf("%s\n", (*device)->info().name.c_str());
  DeviceMemory memory(device->get());
  for (absl::StatusOr<CudaModel> (*make)(int64_t) : {DeepFm, Dlrm}) {
    for (const Precision& precision : kPrecisions) {
      for (const int64_t batch : {8192, 65536}) {
        if (const absl::Status status = Bench(&memory, make, batch, precision); !status.ok()) {
          std::fprintf(stderr, "cuda_bench: %s\n", std::string(status.message()).c_str());
          return 1;
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace weir

int main() { return weir::Main(); }
