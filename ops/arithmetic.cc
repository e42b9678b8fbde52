#include "ops/arithmetic.h"

#include <dnnl.h>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "glog/logging.h"

namespace weir {
namespace {

struct Level {
  v1::Train::Arithmetic arithmetic;
  const char* name;
  dnnl_cpu_isa_t isa;
};
// Limits oneDNN to exactly these instructions, even if the processor has more (AMX, VNNI), so that two kinds of
// processor give equal bits.
constexpr Level kAvx512 = {v1::Train::AVX512, "avx512", dnnl_cpu_isa_avx512_core};
constexpr Level kAvx2 = {v1::Train::AVX2, "avx2", dnnl_cpu_isa_avx2};
constexpr Level kBase = {v1::Train::AUTO, "sse41", dnnl_cpu_isa_sse41};

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const Level& Best() { return HasAvx512() ? kAvx512 : HasAvx2() ? kAvx2 : kBase; }

Mutex mu;
const Level* chosen ABSL_GUARDED_BY(mu) = nullptr;

absl::Status Choose(const Level& level) {
  MutexLock lock(&mu);
  if (chosen == &level) return absl::OkStatus();
  if (chosen != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("arithmetic is already ", chosen->name, " in this process; ",
                                                      level.name, " must be set before the first product of matrices"));
  }
  if (dnnl_set_max_cpu_isa(level.isa) != dnnl_success || dnnl_get_effective_cpu_isa() != level.isa) {
    return absl::FailedPreconditionError(
        absl::StrCat("oneDNN cannot be held to ", level.name,
                     ": it was used before arithmetic was chosen, or it was built without a limit on instructions"));
  }
  chosen = &level;
  return absl::OkStatus();
}

}  // namespace

absl::Status SetArithmetic(v1::Train::Arithmetic arithmetic) {
  if (arithmetic == v1::Train::AVX512) {
    if (!HasAvx512()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "train.arithmetic is AVX512, and this processor has not all of AVX-512 F, BW, DQ and VL; the best "
          "it has is ",
          Best().name, ": set AVX2 or AUTO"));
    }
    return Choose(kAvx512);
  }
  if (arithmetic == v1::Train::AVX2) {
    if (!HasAvx2()) {
      return absl::FailedPreconditionError(
          "train.arithmetic is AVX2, and this processor has not both AVX2 and FMA: set AUTO");
    }
    return Choose(kAvx2);
  }
  {
    // AUTO accepts the selection that is in use.
    MutexLock lock(&mu);
    if (chosen != nullptr) return absl::OkStatus();
  }
  return Choose(Best());
}

std::string ResolvedArithmetic() {
  const absl::Status status = SetArithmetic(v1::Train::AUTO);
  CHECK(status.ok()) << status;
  MutexLock lock(&mu);
  return chosen->name;
}

}  // namespace weir
