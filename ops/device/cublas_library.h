// Finds the library cuBLAS of this machine.
#ifndef WEIR_OPS_DEVICE_CUBLAS_LIBRARY_H_
#define WEIR_OPS_DEVICE_CUBLAS_LIBRARY_H_

#include <dlfcn.h>

#include "absl/status/statusor.h"

namespace weir {
namespace device {

// Loads cuBLAS from the folder in WEIR_CUBLAS_DIR, else from the loader's own path. The handle is for dlsym, also of
// functions of cuBLASLt. FailedPrecondition if it is not found; names the places searched.
absl::StatusOr<void*> OpenCublasLibrary();

// Finds a function of the library. Returns false, with *function null, if there is none of this name.
template <typename Function>
bool Load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CUBLAS_LIBRARY_H_
