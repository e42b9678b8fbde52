#include "framework/tensor/float16.h"

#include <cpuid.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;

// Returns the next larger value of the type.
float Next(DType dtype, float value) {
  if (dtype == v1::FLOAT32) return std::nextafter(value, std::numeric_limits<float>::infinity());
  // The bits of magnitudes are in the order of the magnitudes.
  const uint16_t bits = dtype == v1::FLOAT16 ? Float16Of(value) : BFloat16Of(value);
  const uint16_t next = value == 0 ? 1 : value > 0 ? bits + 1 : bits - 1;
  return dtype == v1::FLOAT16 ? OfFloat16(next) : OfBFloat16(next);
}

}  // namespace

uint16_t Float16Of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinity) return sign | 0x7e00;
  if (magnitude == kInfinity) return sign | 0x7c00;
  if (magnitude >= std::bit_cast<uint32_t>(kMostFloat16)) return sign | 0x7bff;
  if (magnitude < 0x38800000u) {  // below 2^-14: multiples of 2^-24
    return sign | static_cast<uint16_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 16777216.0f));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000u + 0xfff + odd) >> 13);
}

float OfFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00)
    return std::bit_cast<float>(sign | kInfinity | (magnitude & 0x3ff) << 13 | (magnitude > 0x7c00 ? 0x400000u : 0));
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) / 16777216.0f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

uint16_t BFloat16Of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kInfinity) return sign | static_cast<uint16_t>(magnitude >> 16 | 0x40);
  if (magnitude == kInfinity) return sign | 0x7f80;
  return sign | static_cast<uint16_t>(std::min<uint32_t>((magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16, 0x7f7f));
}

float OfBFloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float ToNearest(DType dtype, float value) {
  switch (dtype) {
    case v1::FLOAT32:
      return value;
    case v1::FLOAT16:
      return OfFloat16(Float16Of(value));
    case v1::BFLOAT16:
      return OfBFloat16(BFloat16Of(value));
    default:
      LOG(FATAL) << v1::DType_Name(dtype) << " is no float of 16 or 32 bits";
  }
}

float NotBelow(DType dtype, double number) {
  const float nearest = ToNearest(dtype, static_cast<float>(number));
  return nearest < number ? Next(dtype, nearest) : nearest;
}

float NotAbove(DType dtype, double number) { return -NotBelow(dtype, -number); }

bool HasFloat16Vectors() {
  // clang's builtin does not know f16c.
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return has;
}

}  // namespace weir
