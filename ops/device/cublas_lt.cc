#include "ops/device/cublas_lt.h"

#include "absl/strings/str_cat.h"

#if WEIR_HAVE_CUDA

#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "ops/device/cublas_library.h"
#include "ops/device/cublas_types.h"
#include "ops/device/product_spec.h"

namespace weir {
namespace device {

// Functions used, with signatures that cuBLAS 12 and 13 share.
struct CublasLt::Library {
  Cublas* cublas = nullptr;
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtDestroy) destroy = nullptr;
  decltype(&::cublasLtMatmul) multiply = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&::cublasLtMatmulDescCreate) new_product = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) delete_product = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) new_layout = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) delete_layout = nullptr;
  decltype(&::cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) new_preference = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) delete_preference = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&::cublasLtGetStatusString) text = nullptr;
  cublasLtHandle_t handle = nullptr;

  absl::Status Check(cublasStatus_t status, std::string_view what) const {
    return ToStatus(status, absl::StrCat("cuBLASLt: ", Av(what)), text);
  }
};

// Descriptors of one product. cuBLASLt is column-major: c^T = b^T * a^T, so its A is the product's b.
struct CublasLt::Plan::Choice {
  explicit Choice(const Library* library) : library(library) {}
  ~Choice() {
    for (cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) library->delete_layout(layout);
    }
    if (product != nullptr) library->delete_product(product);
  }
  const Library* const library;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
};

namespace {

// Returns the largest power of two, up to 256, that divides the addresses of all matrices of a batch.
int64_t Alignment(const void* address, int64_t stride, size_t element = sizeof(float)) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(address) | static_cast<uint64_t>(stride) * element | 256;
  return static_cast<int64_t>(bits & (~bits + 1));
}

size_t FactorBytes(const Factors& factors) {
  return RoundsTo16Bits(factors.precision) ? sizeof(uint16_t) : sizeof(float);
}

const void* BiasOf(const Product& p) { return p.column_sums != nullptr ? p.column_sums : p.bias; }

}  // namespace

CublasLt::CublasLt(DeviceMemory* memory, std::unique_ptr<Library> library)
    : memory_(memory), library_(std::move(library)) {}

CublasLt::~CublasLt() {
  {
    MutexLock lock(&mu_);
    plans_.clear();
  }
  if (library_->handle != nullptr) library_->destroy(library_->handle);
}

absl::Status CublasLt::Open() {
  Library& l = *library_;
  ASSIGN_OR_RETURN(l.cublas, Cublas::Of(memory_));
  void* const library = l.cublas->library();
  if (!Load(library, "cublasLtCreate", &l.create) || !Load(library, "cublasLtDestroy", &l.destroy) ||
      !Load(library, "cublasLtMatmul", &l.multiply) || !Load(library, "cublasLtMatmulAlgoGetHeuristic", &l.choose) ||
      !Load(library, "cublasLtMatmulDescCreate", &l.new_product) ||
      !Load(library, "cublasLtMatmulDescDestroy", &l.delete_product) ||
      !Load(library, "cublasLtMatmulDescSetAttribute", &l.set_product) ||
      !Load(library, "cublasLtMatrixLayoutCreate", &l.new_layout) ||
      !Load(library, "cublasLtMatrixLayoutDestroy", &l.delete_layout) ||
      !Load(library, "cublasLtMatrixLayoutSetAttribute", &l.set_layout) ||
      !Load(library, "cublasLtMatmulPreferenceCreate", &l.new_preference) ||
      !Load(library, "cublasLtMatmulPreferenceDestroy", &l.delete_preference) ||
      !Load(library, "cublasLtMatmulPreferenceSetAttribute", &l.set_preference) ||
      !Load(library, "cublasLtGetStatusString", &l.text)) {
    return absl::FailedPreconditionError("cuBLASLt is too old: a function of version 12 is missing");
  }
  // Select the device for the calling thread, to which the handle belongs.
  (void)memory_->runtime()->stream(DeviceQueue::kCompute);
  return l.Check(l.create(&l.handle), "opening it");
}

absl::StatusOr<CublasLt*> CublasLt::Of(DeviceMemory* memory) {
  // Call this before taking the lock: it takes the lock of the attachments.
  RETURN_IF_ERROR(Cublas::Of(memory).status());
  static Mutex* const mu = new Mutex();
  MutexLock lock(mu);
  std::shared_ptr<void>& attached = memory->attached()["cuBLASLt"];
  if (attached == nullptr) {
    std::shared_ptr<CublasLt> cublas(new CublasLt(memory, std::make_unique<Library>()));
    RETURN_IF_ERROR(cublas->Open());
    attached = cublas;
  }
  return static_cast<CublasLt*>(attached.get());
}

absl::StatusOr<const CublasLt::Plan*> CublasLt::PlanOf(const Product& p, const Factors& factors) {
  const bool relu = p.bias != nullptr && p.activation == Activation::kRelu;
  const Key key = {p.m,
                   p.n,
                   p.k,
                   p.count,
                   p.stride_a,
                   p.stride_b,
                   p.stride_c,
                   (p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (relu ? 4 : 0),
                   p.column_sums != nullptr ? 1 : 0,
                   static_cast<int64_t>(factors.precision),
                   Alignment(factors.a, p.stride_a, FactorBytes(factors)),
                   Alignment(factors.b, p.stride_b, FactorBytes(factors)),
                   Alignment(p.c, p.stride_c),
                   Alignment(BiasOf(p), p.column_sums != nullptr && p.count > 1 ? p.n : 0)};
  MutexLock lock(&mu_);
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second.get();
  std::unique_ptr<Plan> plan;
  // Leave batches of bias gradients to kernels if they are not aligned for vector loads.
  const bool odd_sums = p.column_sums != nullptr && p.count > 1 && p.n % 4 != 0;
  if (relu) {
    ASSIGN_OR_RETURN(plan, MakePlan(p, factors, /*relu=*/true));
    if (plan != nullptr) {
      // Our relu keeps NaNs (ops/activation_math.h), so that a NaN reaches the loss and is found. The library does not
      // document what its relu does with them: test it.
      ASSIGN_OR_RETURN(const bool keeps, KeepsNan(p, factors, *plan));
      if (!keeps) plan.reset();
    }
  }
  if (plan == nullptr && !odd_sums) {
    ASSIGN_OR_RETURN(plan, MakePlan(p, factors, /*relu=*/false));
    if (plan != nullptr) {
      ASSIGN_OR_RETURN(const bool works, Works(p, factors, *plan));
      if (!works) plan.reset();
    }
  }
  return (plans_[key] = std::move(plan)).get();
}

absl::StatusOr<std::unique_ptr<CublasLt::Plan>> CublasLt::MakePlan(const Product& p, const Factors& factors,
                                                                   bool relu) {
  const Library& l = *library_;
  auto plan = std::make_unique<Plan>();
  plan->choice = std::make_shared<Plan::Choice>(&l);
  Plan::Choice& choice = *plan->choice;
  plan->relu = relu;
  const std::string_view what = "describing a product";
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return l.Check(l.set_product(choice.product, attribute, &value, sizeof(value)), what);
  };
  RETURN_IF_ERROR(l.Check(l.new_product(&choice.product, ComputeType(factors.precision), CUDA_R_32F), what));
  const cublasOperation_t op_a = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, op_a));
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, op_b));
  const cublasLtEpilogue_t epilogue = p.column_sums != nullptr ? CUBLASLT_EPILOGUE_BGRADA
                                      : relu                   ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                               : CUBLASLT_EPILOGUE_BIAS;
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  const void* const bias = BiasOf(p);
  RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
  if (p.column_sums != nullptr && p.count > 1) RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, p.n));

  // Describes a stored matrix; `rows` and `columns` are those of the column-major layout.
  const auto lay = [&](cublasLtMatrixLayout_t* layout, cudaDataType type, int64_t rows, int64_t columns,
                       int64_t stride) -> absl::Status {
    RETURN_IF_ERROR(
        l.Check(l.new_layout(layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows), what));
    const int32_t count = static_cast<int32_t>(p.count);
    RETURN_IF_ERROR(l.Check(l.set_layout(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), what));
    return l.Check(l.set_layout(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)), what);
  };
  const cudaDataType type = FactorType(factors.precision);
  RETURN_IF_ERROR(lay(&choice.a, type, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.stride_b));
  RETURN_IF_ERROR(lay(&choice.b, type, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.stride_a));
  RETURN_IF_ERROR(lay(&choice.c, CUDA_R_32F, p.n, p.m, p.stride_c));

  cublasLtMatmulPreference_t preference = nullptr;
  RETURN_IF_ERROR(l.Check(l.new_preference(&preference), what));
  const uint64_t workspace = l.cublas->workspace()->size();
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    return l.set_preference(preference, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  const uint32_t align_a = static_cast<uint32_t>(Alignment(factors.b, p.stride_b, FactorBytes(factors))),
                 align_b = static_cast<uint32_t>(Alignment(factors.a, p.stride_a, FactorBytes(factors))),
                 align_c = static_cast<uint32_t>(Alignment(p.c, p.stride_c));
  const bool preferred = prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
                         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_a) &&
                         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_b) &&
                         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_c) &&
                         prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_c);
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const cublasStatus_t chosen =
      l.choose(l.handle, choice.product, choice.a, choice.b, choice.c, choice.c, preference, 1, &found, &count);
  l.delete_preference(preference);
  if (!preferred) return absl::InternalError("cuBLASLt: saying what is preferred of a product");
  // The library has no kernel of this kind: it returned NOT_SUPPORTED, or no algorithm.
  if (chosen != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return nullptr;
  choice.algorithm = found.algo;
  return plan;
}

// Tries the plan once on the product itself; the caller computes the product again.
absl::StatusOr<bool> CublasLt::Works(const Product& p, const Factors& factors, const Plan& plan) {
  const absl::Status status = Multiply(*memory_->runtime(), p, factors, plan);
  if (absl::IsInternal(status)) return false;
  RETURN_IF_ERROR(status);
  return true;
}

absl::StatusOr<bool> CublasLt::KeepsNan(const Product& p, const Factors& factors, const Plan& plan) {
  DeviceRuntime* const runtime = memory_->runtime();
  // Use NaNs as the bias, which make every result NaN.
  const size_t bytes = static_cast<size_t>(p.n) * sizeof(float);
  ASSIGN_OR_RETURN(const std::shared_ptr<DeviceBlock> bias, memory_->Allocate(bytes, "cuBLAS"));
  ASSIGN_OR_RETURN(const std::shared_ptr<PinnedBlock> pinned, memory_->AllocatePinned(bytes));
  std::fill_n(static_cast<float*>(pinned->data()), p.n, std::numeric_limits<float>::quiet_NaN());
  RETURN_IF_ERROR(runtime->CopyIn(DeviceQueue::kCompute, bias->data(), pinned->data(), bytes));
  Product probe = p;
  probe.bias = static_cast<const float*>(bias->data());
  ASSIGN_OR_RETURN(const bool works, Works(probe, factors, plan));
  if (!works) return false;
  // The product may overwrite c, which is its result.
  RETURN_IF_ERROR(runtime->CopyOut(DeviceQueue::kCompute, pinned->data(), p.c, bytes));
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceEvent> done, runtime->NewEvent());
  RETURN_IF_ERROR(runtime->Record(DeviceQueue::kCompute, done.get()));
  RETURN_IF_ERROR(runtime->Wait(done.get()));
  const float* const row = static_cast<const float*>(pinned->data());
  return std::all_of(row, row + p.n, [](float x) { return std::isnan(x); });
}

absl::Status CublasLt::Multiply(DeviceRuntime& runtime, const Product& p, const Factors& factors, const Plan& plan) {
  const Library& l = *library_;
  const Plan::Choice& choice = *plan.choice;
  const cudaStream_t stream = static_cast<cudaStream_t>(runtime.stream(DeviceQueue::kCompute));
  const void* const bias = BiasOf(p);
  RETURN_IF_ERROR(
      l.Check(l.set_product(choice.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)), "its bias"));
  const float one = 1, zero = 0;
  return l.Check(
      l.multiply(l.handle, choice.product, &one, factors.b, choice.a, factors.a, choice.b, &zero, p.c, choice.c, p.c,
                 choice.c, &choice.algorithm, l.cublas->workspace()->data(), l.cublas->workspace()->size(), stream),
      absl::StrCat("product of ", p.m, " x ", p.k, " and ", p.k, " x ", p.n));
}

}  // namespace device
}  // namespace weir

#else

namespace weir {
namespace device {

struct CublasLt::Library {};
struct CublasLt::Plan::Choice {};
CublasLt::CublasLt(DeviceMemory* memory, std::unique_ptr<Library>) : memory_(memory) {}
CublasLt::~CublasLt() = default;
absl::StatusOr<CublasLt*> CublasLt::Of(DeviceMemory*) {
  return absl::InternalError("a product on CUDA in a build without it");
}
absl::StatusOr<const CublasLt::Plan*> CublasLt::PlanOf(const Product&, const Factors&) {
  return absl::InternalError("a product on CUDA in a build without it");
}
absl::Status CublasLt::Multiply(DeviceRuntime&, const Product&, const Factors&, const Plan&) {
  return absl::InternalError("a product on CUDA in a build without it");
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_HAVE_CUDA
