// Computes products with an epilogue by cuBLASLt: bias and relu applied to the result, or the gradient of a bias
// computed from an operand. cuBLASLt is the base of cuBLAS and comes with it (cublas.h).
//
// The algorithm of a product is chosen once for its sizes, by the library's heuristics with a fixed workspace size, so
// bits are equal in every run on the same device with the same library. Strided batches support these epilogues: one
// bias for all products, one bias gradient for each (CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE).
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
  // Returns the cuBLASLt of the device, opened by the first call, with the errors of Cublas::Of.
  static absl::StatusOr<CublasLt*> Of(DeviceMemory* memory);
  ~CublasLt();

  struct Plan {
    // True if the epilogue applies bias and relu; false if it applies only the bias.
    bool relu = false;
    struct Choice;
    std::shared_ptr<Choice> choice;
  };
  // Returns the plan of a product with a bias or column sums and positive sizes; null if the library cannot compute it,
  // in which case cuBLAS and separate kernels do. Plans are valid as long as this object; the first plan for a
  // product's sizes may wait for the device.
  absl::StatusOr<const Plan*> PlanOf(const Product& product, const Factors& factors);
  // Computes the product that the plan was made for, or one that differs only in addresses of equal alignment.
  absl::Status Multiply(DeviceRuntime& runtime, const Product& product, const Factors& factors, const Plan& plan);

 private:
  struct Library;
  // Sizes, strides, precision, and alignment of addresses.
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
