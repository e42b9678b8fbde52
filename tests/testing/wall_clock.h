// A wall clock of the process that a test can set (wall_clock_shim.c).
//
//   int main(int argc, char** argv) {
//     testing::InitGoogleTest(&argc, argv);
//     weir::TakeWallClock(argv);
//     return RUN_ALL_TESTS();
//   }
//
// The test's data must include //tests/testing:libwall_clock_shim.so.
#ifndef WEIR_TESTS_TESTING_WALL_CLOCK_H_
#define WEIR_TESTS_TESTING_WALL_CLOCK_H_

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace weir {

using WallClockSetter = void (*)(int64_t seconds);

inline WallClockSetter FindWallClockSetter() {
  return reinterpret_cast<WallClockSetter>(::dlsym(RTLD_DEFAULT, "weir_test_set_wall_clock"));
}

// Sets the clock `seconds` off the machine's.
inline void SetWallClock(int64_t seconds) { FindWallClockSetter()(seconds); }

// Starts the program again under the shim; returns in the process that has the shim.
inline void TakeWallClock(char** argv) {
  if (FindWallClockSetter() != nullptr) return;
  const std::string shim = std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") +
                           "/tests/testing/libwall_clock_shim.so";
  if (std::getenv("LD_PRELOAD") == nullptr && ::setenv("LD_PRELOAD", shim.c_str(), 1) == 0)
    ::execv("/proc/self/exe", argv);
  std::fprintf(stderr, "the test does not run under %s\n", shim.c_str());
  std::exit(1);
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_WALL_CLOCK_H_
