// Loads the library of tests/testing/devices/fake_nccl.cc in the place of NCCL. Tests that use it have
// //tests/testing/devices:libfake_nccl.so among their data.
#ifndef WEIR_TESTS_TESTING_DEVICES_FAKE_NCCL_H_
#define WEIR_TESTS_TESTING_DEVICES_FAKE_NCCL_H_

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "glog/logging.h"
#include "pserver/collective/nccl_library.h"

namespace weir {

inline std::string FakeNcclPath() {
  return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
         "/tests/testing/devices/libfake_nccl.so";
}

inline const NcclLibrary* FakeNccl() {
  const absl::StatusOr<const NcclLibrary*> library = NcclLibrary::Load(FakeNcclPath());
  CHECK(library.ok()) << library.status();
  return *library;
}

// Sets a setting or counter of the library, named in fake_nccl.cc, and returns the value before.
inline int FakeNcclSet(const char* setting, int value) {
  static void* const handle = ::dlopen(FakeNcclPath().c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(handle != nullptr) << ::dlerror();
  const auto set = reinterpret_cast<int (*)(const char*, int)>(::dlsym(handle, "FakeNcclSet"));
  CHECK(set != nullptr);
  return set(setting, value);
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_DEVICES_FAKE_NCCL_H_
