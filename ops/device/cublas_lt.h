// Products with an epilogue, by cuBLASLt: a bias and relu on the way out, or the gradient of a bias on the way in. It
// is the library that cuBLAS itself stands on, and comes with it (cublas.h).
//
// How a product is computed is decided once for its sizes, by the library's heuristics with the same memory every time;
// so its bits are those of every run on the same device with the same library. Strided batches have these epilogues:
// a bias is one for all products, a bias's gradient is one for each (CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE).
#ifndef WEIR_OPS_DEVICE_CUBLAS_LT_H_
#define WEIR_OPS_DEVICE_CUBLAS_LT_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/tensor/device_memory.h"
#include "ops/device/cublas.h"

namespace weir {
namespace device {

// Thread-safe.
class CublasLt {
 public:
  // Of the device; opened by the first call, with the errors of Cublas::Of.
  static absl::StatusOr<CublasLt*> Of(DeviceMemory* memory);
  ~CublasLt();

  struct Plan {
    // Relu is applied on the way; otherwise only the bias is.
    bool relu = false;
    struct Choice;
    std::shared_ptr<Choice> choice;
  };
  // Of a product with a bias or column sums, whose sizes are positive. Null: the library has no way to compute it so,
  // and cuBLAS and kernels do. Plans live as long as this; making the first of its kind may wait for the device.
  absl::StatusOr<const Plan*> PlanOf(const Product& product, const Factors& factors);
  // Of the product that the plan was made for, or one like it with other addresses, equally aligned.
  absl::Status Multiply(DeviceRuntime& runtime, const Product& product, const Factors& factors, const Plan& plan);

 private:
  struct Library;
  // Sizes, strides, the precision, and how addresses are aligned.
  using Key = std::array<int64_t, 14>;
  CublasLt(DeviceMemory* memory, std::unique_ptr<Library> library);
  absl::Status Open();
  absl::StatusOr<std::unique_ptr<Plan>> MakePlan(const Product& product, const Factors& factors, bool relu);
  absl::StatusOr<bool> Works(const Product& product, const Factors& factors, const Plan& plan);
  absl::StatusOr<bool> KeepsNan(const Product& product, const Factors& factors, const Plan& plan);

  DeviceMemory* const memory_;
  const std::unique_ptr<Library> library_;
  Mutex mu_;
  std::map<Key, std::unique_ptr<Plan>> plans_ ABSL_GUARDED_BY(mu_);
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CUBLAS_LT_H_
