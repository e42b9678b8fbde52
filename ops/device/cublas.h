// cuBLAS, loaded when the first product is asked for: it is half a gigabyte that comes with the machine's toolkit, or
// with its PyTorch, and no program of ours links it. Looked for, in this order: the folder in WEIR_CUBLAS_DIR, the
// loader's own path.
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

// A product's factors as the library gets them: a and b themselves, or copies rounded to 16 bits that lie as they do.
struct Factors {
  const void* a = nullptr;
  const void* b = nullptr;
  ProductPrecision precision = ProductPrecision::kFp32;
};

// Thread-safe.
class Cublas {
 public:
  // That of the device; opened by the first call. FailedPrecondition when the library is not there, and says where it
  // was looked for.
  static absl::StatusOr<Cublas*> Of(DeviceMemory* memory);
  ~Cublas();

  // What others of the library share with it: where its functions are (dlsym, those of cuBLASLt, too), and memory of
  // the compute queue.
  void* library() const;
  DeviceBlock* workspace() const;

  // Sizes are positive. Of bias, activation and sums it knows nothing.
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
