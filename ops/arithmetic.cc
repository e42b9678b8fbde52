#include "ops/arithmetic.h"

#include <dnnl.h>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
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

struct Bf16Level {
  v1::Train::Arithmetic arithmetic;
  const char* name;
  Bf16Unit unit;
};
constexpr Bf16Level kAvx512Bf16 = {v1::Train::AVX512_BF16, "avx512_bf16", Bf16Unit::kAvx512};
constexpr Bf16Level kAmxBf16 = {v1::Train::AMX_BF16, "amx_bf16", Bf16Unit::kAmx};

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const Level& Best() { return HasAvx512() ? kAvx512 : HasAvx2() ? kAvx2 : kBase; }

Mutex mu;
const Level* chosen ABSL_GUARDED_BY(mu) = nullptr;
const Bf16Level* chosen_bf16 ABSL_GUARDED_BY(mu) = nullptr;

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

// Selects the instructions of products in BF16.
absl::Status ChooseBf16(v1::Train::Arithmetic arithmetic) {
  const bool automatic = arithmetic == v1::Train::AUTO;
  const Bf16Level& level =
      arithmetic == v1::Train::AMX_BF16 || (automatic && HasBf16Unit(Bf16Unit::kAmx)) ? kAmxBf16 : kAvx512Bf16;
  if (!HasBf16Unit(level.unit)) {
    const std::string other =
        level.unit == Bf16Unit::kAmx && HasBf16Unit(Bf16Unit::kAvx512) ? "arithmetic: AVX512_BF16" : "precision: FP32";
    return absl::FailedPreconditionError(
        automatic
            ? "train.precision is BF16, and this processor has neither AMX_BF16 nor AVX512_BF16: set precision: "
              "FP32"
            : absl::StrCat("train.arithmetic is ", v1::Train::Arithmetic_Name(arithmetic),
                           ", which this processor has not, or the system does not let the process use: set ", other));
  }
  MutexLock lock(&mu);
  if (chosen_bf16 == nullptr) chosen_bf16 = &level;
  if (chosen_bf16 == &level || automatic) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("arithmetic is already ", chosen_bf16->name, " in this process; ",
                                                    level.name, " must be set before the first product of matrices"));
}

absl::Status ChooseFp32(v1::Train::Arithmetic arithmetic) {
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

}  // namespace

ProductPrecision PrecisionOnCpu(const v1::Train& train) {
  const bool bf16 = train.device() == v1::Train::CPU && train.precision() == v1::Train::BF16;
  return bf16 ? ProductPrecision::kBf16 : ProductPrecision::kFp32;
}

absl::Status SetArithmetic(v1::Train::Arithmetic arithmetic, ProductPrecision precision) {
  const bool for_bf16 = arithmetic == v1::Train::AVX512_BF16 || arithmetic == v1::Train::AMX_BF16;
  if (precision == ProductPrecision::kBf16) RETURN_IF_ERROR(ChooseBf16(for_bf16 ? arithmetic : v1::Train::AUTO));
  return ChooseFp32(for_bf16 ? v1::Train::AVX512 : arithmetic);
}

std::string ResolvedArithmetic(ProductPrecision precision) {
  const absl::Status status = SetArithmetic(v1::Train::AUTO, precision);
  CHECK(status.ok()) << status;
  MutexLock lock(&mu);
  return precision == ProductPrecision::kBf16 ? chosen_bf16->name : chosen->name;
}

Bf16Unit ResolvedBf16Unit() {
  const absl::Status status = SetArithmetic(v1::Train::AUTO, ProductPrecision::kBf16);
  CHECK(status.ok()) << status;
  MutexLock lock(&mu);
  return chosen_bf16->unit;
}

}  // namespace weir
