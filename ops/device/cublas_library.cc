#include "ops/device/cublas_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {
namespace device {

absl::StatusOr<void*> OpenCublasLibrary() {
  const char* const given = std::getenv("WEIR_CUBLAS_DIR");
  std::vector<std::string> names;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12"}) {
    if (given != nullptr) names.push_back(absl::StrCat(given, "/", name));
    names.push_back(name);
  }
  std::string tried;
  for (const std::string& name : names) {
    if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    const char* const why = dlerror();
    absl::StrAppend(&tried, "; ", why == nullptr ? name : why);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "cuBLAS is not there: it comes with a CUDA toolkit or a PyTorch for CUDA; WEIR_CUBLAS_DIR names its folder",
      tried));
}

}  // namespace device
}  // namespace weir
