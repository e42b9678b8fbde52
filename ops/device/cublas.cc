#include "ops/device/cublas.h"

#include "absl/strings/str_cat.h"

#if WEIR_HAVE_CUDA

#include <cublas_v2.h>

#include <string>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "ops/device/cublas_library.h"
#include "ops/device/cublas_types.h"
#include "ops/device/product_spec.h"

namespace weir {
namespace device {

// Type of cublasGemmStridedBatchedEx, written out because its header overloads the name in C++.
using MultiplyFunction = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                                            const void*, const void*, cudaDataType, int, long long, const void*,
                                            cudaDataType, int, long long, const void*, void*, cudaDataType, int,
                                            long long, int, cublasComputeType_t, cublasGemmAlgo_t);

// Functions used, with signatures that cuBLAS 12 and 13 share.
struct Cublas::Library {
  void* handle = nullptr;
  decltype(&::cublasCreate_v2) create = nullptr;
  decltype(&::cublasDestroy_v2) destroy = nullptr;
  decltype(&::cublasSetStream_v2) set_stream = nullptr;
  decltype(&::cublasSetWorkspace_v2) set_workspace = nullptr;
  MultiplyFunction multiply = nullptr;
  decltype(&::cublasGetStatusString) text = nullptr;
  cublasHandle_t blas = nullptr;
  std::shared_ptr<DeviceBlock> workspace;

  absl::Status Check(cublasStatus_t status, std::string_view what) const {
    return ToStatus(status, absl::StrCat("cuBLAS: ", Av(what)), text);
  }
};

namespace {

// Workspace that NVIDIA recommends for its largest devices (Hopper).
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

}  // namespace

Cublas::Cublas(DeviceMemory* memory, std::unique_ptr<Library> library)
    : memory_(memory), library_(std::move(library)) {}

Cublas::~Cublas() {
  if (library_->blas != nullptr) library_->destroy(library_->blas);
}

absl::Status Cublas::Open() {
  Library& l = *library_;
  ASSIGN_OR_RETURN(l.handle, OpenCublasLibrary());
  if (!Load(l.handle, "cublasCreate_v2", &l.create) || !Load(l.handle, "cublasDestroy_v2", &l.destroy) ||
      !Load(l.handle, "cublasSetStream_v2", &l.set_stream) ||
      !Load(l.handle, "cublasSetWorkspace_v2", &l.set_workspace) ||
      !Load(l.handle, "cublasGemmStridedBatchedEx", &l.multiply) || !Load(l.handle, "cublasGetStatusString", &l.text)) {
    return absl::FailedPreconditionError("cuBLAS is too old: a function of version 12 is missing");
  }
  void* const stream = memory_->runtime()->stream(DeviceQueue::kCompute);
  RETURN_IF_ERROR(l.Check(l.create(&l.blas), "opening it"));
  RETURN_IF_ERROR(l.Check(l.set_stream(l.blas, static_cast<cudaStream_t>(stream)), "choosing the stream"));
  // Give cuBLAS a workspace of its own, so that the choice of algorithm, and with it every bit, does not depend on
  // other users of memory.
  ASSIGN_OR_RETURN(l.workspace, memory_->Allocate(kWorkspaceBytes, "cuBLAS"));
  return l.Check(l.set_workspace(l.blas, l.workspace->data(), l.workspace->size()), "giving it memory");
}

absl::StatusOr<Cublas*> Cublas::Of(DeviceMemory* memory) {
  static Mutex* const mu = new Mutex();
  MutexLock lock(mu);
  std::shared_ptr<void>& attached = memory->attached()["cuBLAS"];
  if (attached == nullptr) {
    std::shared_ptr<Cublas> cublas(new Cublas(memory, std::make_unique<Library>()));
    RETURN_IF_ERROR(cublas->Open());
    attached = cublas;
  }
  return static_cast<Cublas*>(attached.get());
}

void* Cublas::library() const { return library_->handle; }
DeviceBlock* Cublas::workspace() const { return library_->workspace.get(); }

absl::Status Cublas::Multiply(DeviceRuntime& runtime, const Product& p, const Factors& factors) {
  MutexLock lock(&mu_);
  // Select the device for the calling thread, to which the stream belongs.
  (void)runtime.stream(DeviceQueue::kCompute);
  const float one = 1, zero = 0;
  const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const cudaDataType type = FactorType(factors.precision);
  // cuBLAS is column-major: compute c^T = b^T * a^T.
  return library_->Check(library_->multiply(library_->blas, op(p.transpose_b), op(p.transpose_a), static_cast<int>(p.n),
                                            static_cast<int>(p.m), static_cast<int>(p.k), &one, factors.b, type,
                                            static_cast<int>(p.transpose_b ? p.k : p.n), p.stride_b, factors.a, type,
                                            static_cast<int>(p.transpose_a ? p.m : p.k), p.stride_a, &zero, p.c,
                                            CUDA_R_32F, static_cast<int>(p.n), p.stride_c, static_cast<int>(p.count),
                                            ComputeType(factors.precision), CUBLAS_GEMM_DEFAULT),
                         absl::StrCat("product of ", p.m, " x ", p.k, " and ", p.k, " x ", p.n));
}

}  // namespace device
}  // namespace weir

#else

namespace weir {
namespace device {

struct Cublas::Library {};
Cublas::Cublas(DeviceMemory* memory, std::unique_ptr<Library>) : memory_(memory) {}
Cublas::~Cublas() = default;
absl::StatusOr<Cublas*> Cublas::Of(DeviceMemory*) {
  return absl::InternalError("a product on CUDA in a build without it");
}
void* Cublas::library() const { return nullptr; }
DeviceBlock* Cublas::workspace() const { return nullptr; }
absl::Status Cublas::Multiply(DeviceRuntime&, const Product&, const Factors&) {
  return absl::InternalError("a product on CUDA in a build without it");
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_HAVE_CUDA
