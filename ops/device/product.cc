#include "ops/device/product.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/device/rounded_factors.h"
#include "framework/tensor/float16.h"
#include "ops/device/cublas.h"
#include "ops/device/cublas_lt.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/rounding_functors.h"
#include "ops/gemm.h"

namespace weir {
namespace device {
namespace {

// Returns true if all lanes have equally many rows.
bool Even(const std::vector<int64_t>& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](int64_t n) { return n == rows[0]; });
}

// Calls fn with the functor that does the rest of the product to `rows` rows of p.n values at c: bias and activation.
template <typename Fn, typename Do>
absl::Status WithEpilogueOf(const float* bias, int64_t n, float* c, const Do& fn) {
  if (bias != nullptr) return fn(BiasAt<Fn>{.bias = bias, .n = n, .y = c});
  if constexpr (std::is_same_v<Fn, IdentityFn>) {
    return absl::OkStatus();
  } else {
    return fn(UnaryAt<Fn>{.x = c, .y = c});
  }
}
template <typename Do>
absl::Status WithEpilogue(const float* bias, Activation activation, int64_t n, float* c, const Do& fn) {
  switch (activation) {
    case Activation::kIdentity:
      break;
    case Activation::kRelu:
      return WithEpilogueOf<ReluFn>(bias, n, c, fn);
    case Activation::kSigmoid:
      return WithEpilogueOf<SigmoidFn>(bias, n, c, fn);
    case Activation::kTanh:
      return WithEpilogueOf<TanhFn>(bias, n, c, fn);
  }
  return WithEpilogueOf<IdentityFn>(bias, n, c, fn);
}

absl::Status PutEpilogue(DeviceRuntime& runtime, const Product& p, const float* bias, Activation activation) {
  const bool joined = p.count == 1 || p.stride_c == p.m * p.n;
  const int64_t pieces = joined ? 1 : p.count, size = (joined ? p.count : 1) * p.m * p.n;
  for (int64_t i = 0; i < pieces; ++i) {
    RETURN_IF_ERROR(WithEpilogue(bias, activation, p.n, p.c + i * p.stride_c,
                                 [&](const auto& f) { return ForEach(runtime, size, f); }));
  }
  return absl::OkStatus();
}

// Computes the product and its epilogue at once in the emulation, with the bits of the separate kernels.
absl::Status PutLoop(DeviceRuntime& runtime, const void* arguments) {
  return runtime.RunLoop(DeviceQueue::kCompute, [p = *static_cast<const Product*>(arguments)] {
    std::vector<float> partial;
    for (int64_t i = 0; i < p.count; ++i) {
      float* const c = p.c + i * p.stride_c;
      const float* const b = p.b + i * p.stride_b;
      Gemm(p.m, p.n, p.k, p.a + i * p.stride_a, b, c, {.transpose_a = p.transpose_a, .transpose_b = p.transpose_b});
      (void)WithEpilogue(p.bias, p.activation, p.n, c, [&](const auto& f) {
        for (int64_t e = 0; e < p.m * p.n; ++e) f(e);
        return absl::OkStatus();
      });
      if (p.column_sums == nullptr) continue;
      const LaneRows rows = {.lanes = 1, .begin = {0, p.k}};
      const int64_t runs = std::max<int64_t>(1, Runs(p.k));
      partial.resize(static_cast<size_t>(runs * p.n));
      const ColumnRunAt run = {.x = b, .n = p.n, .rows = rows, .runs = runs, .partial = partial.data()};
      for (int64_t e = 0; e < runs * p.n; ++e) run(e);
      const ColumnSum sum = {
          .partial = partial.data(), .n = p.n, .rows = rows, .runs = runs, .out = p.column_sums + i * p.n};
      for (int64_t o = 0; o < p.n; ++o) sum.Store(o, SumInOrder(sum, o));
    }
  });
}

struct CublasArguments {
  Product product;
  Factors factors;
  Cublas* cublas;
};
absl::Status PutCublas(DeviceRuntime& runtime, const void* arguments) {
  const CublasArguments& a = *static_cast<const CublasArguments*>(arguments);
  return a.cublas->Multiply(runtime, a.product, a.factors);
}

struct CublasLtArguments {
  Product product;
  Factors factors;
  CublasLt* cublas;
  const CublasLt::Plan* plan;
};
absl::Status PutCublasLt(DeviceRuntime& runtime, const void* arguments) {
  const CublasLtArguments& a = *static_cast<const CublasLtArguments*>(arguments);
  return a.cublas->Multiply(runtime, a.product, a.factors, *a.plan);
}

// Submits the product to CUDA; k > 0.
absl::Status PutProduct(DeviceKernelContext& ctx, const Product& p, const Factors& factors) {
  DeviceRuntime& runtime = ctx.runtime();
  if (p.bias != nullptr || p.column_sums != nullptr) {
    ASSIGN_OR_RETURN(CublasLt * lt, CublasLt::Of(ctx.memory()));
    ASSIGN_OR_RETURN(const CublasLt::Plan* const plan, lt->PlanOf(p, factors));
    if (plan != nullptr) {
      RETURN_IF_ERROR(
          Call(runtime, PutCublasLt, CublasLtArguments{.product = p, .factors = factors, .cublas = lt, .plan = plan}));
      // Products that differ only in the activation share a plan, which may leave the activation to a kernel.
      const bool done = p.activation == Activation::kIdentity || (p.activation == Activation::kRelu && plan->relu);
      return done ? absl::OkStatus() : PutEpilogue(runtime, p, nullptr, p.activation);
    }
  }
  CHECK(p.column_sums == nullptr) << "SumsColumns was not asked";
  ASSIGN_OR_RETURN(Cublas * cublas, Cublas::Of(ctx.memory()));
  RETURN_IF_ERROR(Call(runtime, PutCublas, CublasArguments{.product = p, .factors = factors, .cublas = cublas}));
  return PutEpilogue(runtime, p, p.bias, p.activation);
}

// ---------------------------------------------------------------------------------------------------- 16 bits

absl::Status Round(DeviceKernelContext& ctx, const float* x, int64_t n, DeviceArray* to) {
  RETURN_IF_ERROR(to->Reserve(ctx.memory(), static_cast<size_t>(n) * sizeof(uint16_t)));
  uint16_t* const out = to->data<uint16_t>();
  return ctx.precision == ProductPrecision::kBf16 ? ForEach(ctx.runtime(), n, ToBFloat16At{.x = x, .out = out})
                                                  : ForEach(ctx.runtime(), n, ToFloat16At{.x = x, .out = out});
}

// The product in the emulation, without its epilogue.
struct RoundedArguments {
  Product product;
  const uint16_t* a;
  const uint16_t* b;
  bool bf16;
};
absl::Status PutRoundedLoop(DeviceRuntime& runtime, const void* arguments) {
  return runtime.RunLoop(DeviceQueue::kCompute, [r = *static_cast<const RoundedArguments*>(arguments)] {
    const Product& p = r.product;
    const auto floats = [&r](const uint16_t* from, int64_t n) {
      std::vector<float> values(static_cast<size_t>(n));
      for (size_t i = 0; i < values.size(); ++i) values[i] = r.bf16 ? OfBFloat16(from[i]) : OfFloat16(from[i]);
      return values;
    };
    for (int64_t i = 0; i < p.count; ++i) {
      const std::vector<float> a = floats(r.a + i * p.stride_a, p.m * p.k);
      const std::vector<float> b = floats(r.b + i * p.stride_b, p.k * p.n);
      Gemm(p.m, p.n, p.k, a.data(), b.data(), p.c + i * p.stride_c,
           {.transpose_a = p.transpose_a, .transpose_b = p.transpose_b});
    }
  });
}

// Needs k > 0 and no column sums, which are taken of values that are not rounded.
absl::Status MultiplyIn16Bits(DeviceKernelContext& ctx, const Product& p) {
  DeviceRuntime& runtime = ctx.runtime();
  RoundedFactors& rounded = *ctx.rounded;
  const int64_t of_a = (p.count - 1) * p.stride_a + p.m * p.k, of_b = (p.count - 1) * p.stride_b + p.k * p.n;
  RETURN_IF_ERROR(Round(ctx, p.a, of_a, &rounded.left()));
  const uint16_t* const a = rounded.left().data<uint16_t>();
  const uint16_t* b = nullptr;
  if (p.b_is_weight) {
    RoundedFactors::Weight& weight = rounded.weight(p.b);
    if (weight.rounded < of_b) {
      RETURN_IF_ERROR(Round(ctx, p.b, of_b, &weight.bits));
      weight.rounded = of_b;
    }
    b = weight.bits.data<uint16_t>();
  } else {
    RETURN_IF_ERROR(Round(ctx, p.b, of_b, &rounded.right()));
    b = rounded.right().data<uint16_t>();
  }
  if (!runtime.emulated()) return PutProduct(ctx, p, {.a = a, .b = b, .precision = ctx.precision});
  const bool bf16 = ctx.precision == ProductPrecision::kBf16;
  RETURN_IF_ERROR(Call(runtime, PutRoundedLoop, RoundedArguments{.product = p, .a = a, .b = b, .bf16 = bf16}));
  return PutEpilogue(runtime, p, p.bias, p.activation);
}

}  // namespace

absl::Status Multiply(DeviceKernelContext& ctx, const Product& p) {
  if (p.m == 0 || p.n == 0 || p.count == 0) return absl::OkStatus();
  DeviceRuntime& runtime = ctx.runtime();
  // cuBLAS takes sizes as int.
  if (!runtime.emulated() && std::max({p.m, p.n, p.k, p.count}) > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(p.count, " products of ", p.m, " x ", p.k, " and ", p.k, " x ", p.n,
                                                   ": a device takes sizes below 2^31"));
  }
  if (RoundsTo16Bits(ctx.precision) && p.k > 0) {
    CHECK(p.column_sums == nullptr) << "SumsColumns was not asked";
    return MultiplyIn16Bits(ctx, p);
  }
  if (runtime.emulated()) return Call(runtime, PutLoop, p);
  if (p.k > 0) return PutProduct(ctx, p, {.a = p.a, .b = p.b, .precision = ctx.precision});
  for (int64_t i = 0; i < p.count; ++i) {
    RETURN_IF_ERROR(
        runtime.Zero(DeviceQueue::kCompute, p.c + i * p.stride_c, static_cast<size_t>(p.m * p.n) * sizeof(float)));
  }
  return PutEpilogue(runtime, p, p.bias, p.activation);
}

absl::StatusOr<bool> SumsColumns(DeviceKernelContext& ctx, const Product& p) {
  if (p.m == 0 || p.n == 0 || p.count == 0 || p.transpose_b || RoundsTo16Bits(ctx.precision)) return false;
  if (ctx.runtime().emulated()) return true;
  if (p.k == 0) return false;
  ASSIGN_OR_RETURN(CublasLt * lt, CublasLt::Of(ctx.memory()));
  ASSIGN_OR_RETURN(const CublasLt::Plan* const plan, lt->PlanOf(p, {.a = p.a, .b = p.b, .precision = ctx.precision}));
  return plan != nullptr;
}

absl::Status MultiplyRows(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x, const float* w,
                          bool transpose_w, int64_t k, int64_t n, float* c, const float* bias, Activation activation) {
  if (Even(rows)) {
    return Multiply(ctx, {.m = rows[0],
                          .n = n,
                          .k = k,
                          .a = x,
                          .b = w,
                          .c = c,
                          .transpose_b = transpose_w,
                          .count = static_cast<int64_t>(rows.size()),
                          .stride_a = rows[0] * k,
                          .stride_c = rows[0] * n,
                          .bias = bias,
                          .activation = activation,
                          .b_is_weight = true});
  }
  int64_t row = 0;
  for (size_t l = 0; l < rows.size(); row += rows[l++]) {
    RETURN_IF_ERROR(Multiply(ctx, {.m = rows[l],
                                   .n = n,
                                   .k = k,
                                   .a = x + row * k,
                                   .b = w,
                                   .c = c + row * n,
                                   .transpose_b = transpose_w,
                                   .bias = bias,
                                   .activation = activation,
                                   .b_is_weight = true}));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MultiplyColumns(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x,
                                     const float* y, int64_t k, int64_t n, float* c, float* sums) {
  if (Even(rows)) {
    Product product = {.m = k,
                       .n = n,
                       .k = rows[0],
                       .a = x,
                       .b = y,
                       .c = c,
                       .transpose_a = true,
                       .count = static_cast<int64_t>(rows.size()),
                       .stride_a = rows[0] * k,
                       .stride_b = rows[0] * n,
                       .stride_c = k * n,
                       .column_sums = sums};
    if (sums != nullptr) {
      ASSIGN_OR_RETURN(const bool summed, SumsColumns(ctx, product));
      if (!summed) product.column_sums = nullptr;
    }
    RETURN_IF_ERROR(Multiply(ctx, product));
    return product.column_sums != nullptr;
  }
  int64_t row = 0;
  for (size_t l = 0; l < rows.size(); row += rows[l++]) {
    RETURN_IF_ERROR(Multiply(ctx, {.m = k,
                                   .n = n,
                                   .k = rows[l],
                                   .a = x + row * k,
                                   .b = y + row * n,
                                   .c = c + static_cast<int64_t>(l) * k * n,
                                   .transpose_a = true}));
  }
  return false;
}

}  // namespace device
}  // namespace weir
