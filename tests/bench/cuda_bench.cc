// The dense part of a Criteo-shaped DeepFM on a CUDA device: forward, backward and Adam, rows of embeddings and data
// already on the device, one lane (lanes: 0). 26 fields of width 16 and 13 dense values; factorisation machine; tower
// 400-400-400.
//
//   bazel run //tests/bench:cuda_bench          tools/gpu_check runs it beside tests/bench/torch_twin.py
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
#include "framework/base/philox.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/autodiff.h"
#include "framework/graph/builder.h"
#include "framework/graph/infer.h"
#include "framework/runtime/device_executor.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/rounded_factors.h"
#include "framework/tensor/cuda_device.h"
#include "ops/device/product.h"

namespace weir {
namespace {

constexpr int64_t kFields = 26, kWidth = 16, kDense = 13;
constexpr int kWarm = 10, kSteps = 50;

struct Model {
  v1::ProgramDesc program;
  // Shape and initial value of what lasts.
  std::vector<std::pair<std::string, Shape>> lasting;
};

absl::Status AddLasting(ProgramBuilder* builder, Model* model, const std::string& name, const Shape& dims,
                        bool parameter) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_kind(v1::DENSE);
  var.set_dtype(v1::FLOAT32);
  for (int64_t d : dims) var.add_dims(d);
  var.set_persistable(true);
  var.set_is_parameter(parameter);
  var.set_trainable(parameter);
  var.set_stop_gradient(!parameter);
  model->lasting.push_back({name, dims});
  return builder->AddVar(std::move(var)).status();
}

// Backward is seeded with 1 / batch: gradients are means.
absl::StatusOr<Model> DeepFm(int64_t batch) {
  Model model;
  {
    ProgramBuilder builder(&model.program);
    const auto out = [&](v1::OpDesc op, const std::string& name) {
      return builder.AddOpOut(std::move(op), "Out", name).status();
    };
    RETURN_IF_ERROR(AddLasting(&builder, &model, "fields", {batch, kFields, kWidth}, true));
    RETURN_IF_ERROR(AddLasting(&builder, &model, "wide", {batch, 1}, true));
    RETURN_IF_ERROR(AddLasting(&builder, &model, "dense", {batch, kDense}, false));
    RETURN_IF_ERROR(AddLasting(&builder, &model, "label", {batch, 1}, false));
    RETURN_IF_ERROR(
        builder.AddOp(MakeOp("fm_interaction", {{"X", {"fields"}}}, {{"Out", {"fm"}}, {"Sum", {"fm.sum"}}})));
    RETURN_IF_ERROR(
        out(MakeOp("reshape", {{"X", {"fields"}}}, {}, {AttrInts("shape", {batch, kFields * kWidth})}), "flat"));
    RETURN_IF_ERROR(out(MakeOp("concat", {{"X", {"flat", "dense"}}}, {}, {AttrI("axis", 1)}), "input"));
    std::string x = "input";
    int64_t width = kFields * kWidth + kDense;
    for (const int64_t size : {400, 400, 400, 1}) {
      const std::string layer = absl::StrCat("deep.", size, ".", model.lasting.size());
      RETURN_IF_ERROR(AddLasting(&builder, &model, layer + ".w", {width, size}, true));
      RETURN_IF_ERROR(AddLasting(&builder, &model, layer + ".b", {size}, true));
      RETURN_IF_ERROR(out(MakeOp("fc", {{"X", {x}}, {"W", {layer + ".w"}}, {"Bias", {layer + ".b"}}}, {},
                                 {AttrS("activation", size == 1 ? "identity" : "relu")}),
                          layer));
      x = layer;
      width = size;
    }
    RETURN_IF_ERROR(out(MakeOp("elementwise_add", {{"X", {"wide"}}, {"Y", {"fm"}}}, {}), "first"));
    RETURN_IF_ERROR(out(MakeOp("elementwise_add", {{"X", {"first"}}, {"Y", {x}}}, {}), "logit"));
    RETURN_IF_ERROR(
        out(MakeOp("sigmoid_cross_entropy_with_logits", {{"X", {"logit"}}, {"Label", {"label"}}}, {}), "loss"));
  }
  v1::LossDesc* loss = model.program.add_losses();
  loss->set_name("loss");
  loss->set_var("loss");
  loss->set_weight(1.0 / static_cast<double>(batch));
  RETURN_IF_ERROR(AppendBackward(&model.program));
  ProgramBuilder builder(&model.program);
  RETURN_IF_ERROR(AddLasting(&builder, &model, "learning_rate", {1}, false));
  const std::vector<std::pair<std::string, Shape>> parameters = model.lasting;
  for (const auto& [name, dims] : parameters) {
    if (name.rfind("deep.", 0) != 0) continue;
    for (const char* state : {".m", ".v"}) RETURN_IF_ERROR(AddLasting(&builder, &model, name + state, dims, false));
    RETURN_IF_ERROR(AddLasting(&builder, &model, name + ".t", {1}, false));
    v1::OpDesc update = MakeOp("adam",
                               {{"Param", {name}},
                                {"Grad", {GradName(name)}},
                                {"LearningRate", {"learning_rate"}},
                                {"Moment1", {name + ".m"}},
                                {"Moment2", {name + ".v"}},
                                {"Step", {name + ".t"}}},
                               {{"ParamOut", {name}},
                                {"Moment1Out", {name + ".m"}},
                                {"Moment2Out", {name + ".v"}},
                                {"StepOut", {name + ".t"}}});
    update.set_role(v1::OPTIMIZE);
    RETURN_IF_ERROR(builder.AddOp(std::move(update)));
  }
  return model;
}

void Fill(const Model& model, Scope* scope) {
  for (size_t v = 0; v < model.lasting.size(); ++v) {
    const auto& [name, dims] = model.lasting[v];
    Tensor t(v1::FLOAT32, dims);
    const bool state = name.size() > 2 && (name.ends_with(".m") || name.ends_with(".v") || name.ends_with(".t"));
    for (int64_t i = 0; i < t.size(); ++i) {
      const float u = UniformFloat(Philox(v, static_cast<uint64_t>(i), 0).v[0]);
      t.data<float>()[i] = state                     ? 0
                           : name == "label"         ? (u < 0.25f ? 1.0f : 0.0f)
                           : name == "learning_rate" ? 1e-3f
                                                     : 0.1f * (u - 0.5f);
    }
    *scope->FindOrCreate(name) = std::move(t);
  }
}

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

absl::Status Bench(DeviceMemory* memory, int64_t batch, const Precision& precision) {
  ASSIGN_OR_RETURN(const Model model, DeepFm(batch));
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
    return absl::InternalError(absl::StrCat("batch ", batch, ": loss ", gpu.loss, " and gradient ", gpu.gradient,
                                            "; the CPU has ", cpu.loss, " and ", cpu.gradient));
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
      "deepfm batch=%lld precision=%s step_ms=%.3f queue_ms=%.3f examples_per_s=%.0f roofline_ms=%.3f "
      "roofline_fraction=%.3f "
      "product_tflops=%.1f copy_gb_per_s=%.0f memory_mb=%.0f\n",
      static_cast<long long>(batch), precision.name, seconds * 1e3, (queued - begin) / kSteps * 1e3,
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
  for (const Precision& precision : kPrecisions) {
    for (const int64_t batch : {8192, 65536}) {
      if (const absl::Status status = Bench(&memory, batch, precision); !status.ok()) {
        std::fprintf(stderr, "cuda_bench: %s\n", std::string(status.message()).c_str());
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace weir

int main() { return weir::Main(); }
