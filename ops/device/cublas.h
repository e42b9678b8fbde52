// Loads cuBLAS for the first product: the library has half a gigabyte and comes with the machine's toolkit, or with its
// PyTorch; no program of Weir links it. Search order: the folder in WEIR_CUBLAS_DIR, the loader's own path.
#ifndef WEIR_OPS_DEVICE_CUBLAS_H_
#define WEIR_OPS_DEVICE_CUBLAS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/runtime/product_precision.h"
#include "framework/tensor/device_memory.h"

namespace weir {
namespace device {

struct Product;

// Factors of a product as passed to the library: a and b themselves, or copies rounded to 16 bits with equal layout.
struct Factors {
  const void* a = nullptr;
  const void* b = nullptr;
  ProductPrecision precision = ProductPrecision::kFp32;
};

// Thread-safe.
class Cublas {
 public:
  // Returns the cuBLAS of the device, opened by the first call. FailedPrecondition if the library is not found; names
  // the places searched.
  static absl::StatusOr<Cublas*> Of(DeviceMemory* memory);
  ~Cublas();

  // Shared with CublasLt: the handle of the loaded library (for dlsym, also of functions of cuBLASLt), and workspace
  // memory of the compute queue.
  void* library() const;
  DeviceBlock* workspace() const;

  // Computes a product of positive sizes. Ignores its bias, activation and column sums.
  absl::Status Multiply(DeviceRuntime& runtime, const Product& product, const Factors& factors);

 private:
  struct Library;
  Cublas(DeviceMemory* memory, std::unique_ptr<Library> library);
  absl::Status Open();

  DeviceMemory* const memory_;
  Mutex mu_;
  const std::unique_ptr<Library> library_;
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CUBLAS_H_
