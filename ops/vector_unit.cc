#include "ops/vector_unit.h"

#include <atomic>

namespace weir {
namespace {

VectorUnit Detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return VectorUnit::kPlain;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? VectorUnit::kAvx512 : VectorUnit::kAvx2;
}

// Atomic because kernels of several lanes read it; written in tests only.
std::atomic<VectorUnit>& Unit() {
  static std::atomic<VectorUnit> unit{Detect()};
  return unit;
}

}  // namespace

VectorUnit CurrentVectorUnit() { return Unit().load(std::memory_order_relaxed); }

bool SetVectorUnitForTest(VectorUnit unit) {
  if (unit > Detect()) return false;
  Unit().store(unit);
  return true;
}

}  // namespace weir
