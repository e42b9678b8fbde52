#include "framework/runtime/initial_value.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/float16.h"
#include "framework/tensor/tensor.h"

namespace weir {
namespace {

// Returns one key per (seed, name). Variables and tables do not share names.
uint64_t KeyOf(uint64_t seed, std::string_view name) { return StableHash(name.data(), name.size(), seed); }

// Natural logarithm of x in (0, 1), accurate to 1e-15, from exact operations alone: the last bit of the C library's
// varies with its version and the processor.
double Log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  // log m = 2 atanh((m - 1) / (m + 1)), |argument| <= 0.1716
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
  return 2 * t * sum + exponent * 0.69314718055994530942;
}

template <int n>
double Polynomial(const double (&c)[n], double x) {
  double sum = c[n - 1];
  for (int i = n - 2; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

// Quantile of the normal distribution for p in (0, 1), accurate to 1e-15. Wichura, "Algorithm AS 241", Applied
// Statistics 37 (1988).
double NormalQuantile(double p) {
  static constexpr double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                 1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                 3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr double b[] = {1.0,
                                 4.2313330701600911252e+1,
                                 6.8718700749205790830e+2,
                                 5.3941960214247511077e+3,
                                 2.1213794301586595867e+4,
                                 3.9307895800092710610e+4,
                                 2.8729085735721942674e+4,
                                 5.2264952788528545610e+3};
  static constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                 3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double d[] = {1.0,
                                 2.05319162663775882187e0,
                                 1.67638483018380384940e0,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};
  static constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                 2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double f[] = {1.0,
                                 5.99832206555887937690e-1,
                                 1.36929880922735805310e-1,
                                 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4,
                                 1.84631831751005468180e-5,
                                 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(a, r) / Polynomial(b, r);
  }
  const double r = std::sqrt(-Log(q < 0 ? p : 1 - p));
  const double x =
      r <= 5 ? Polynomial(c, r - 1.6) / Polynomial(d, r - 1.6) : Polynomial(e, r - 5) / Polynomial(f, r - 5);
  return q < 0 ? -x : x;
}

// Maps 32 random bits to a value. Uniform: a is the minimum, b the width of the interval.
float UniformValue(uint32_t bits, float a, float b) {
  const float v = a + UniformFloat(bits) * b;
  return v < a + b || b == 0 ? v : std::nextafter(a + b, a);
}
float GaussianValue(uint32_t bits, float mean, float deviation) {
  const double p = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  return mean + deviation * static_cast<float>(NormalQuantile(p));
}

enum class Kind { kConstant, kUniform, kGaussian };
struct Distribution {
  Kind kind = Kind::kConstant;
  float a = 0, b = 0;
};

Distribution Glorot(bool uniform, double fans) {
  if (uniform) {
    const double limit = std::sqrt(6.0 / fans);
    return {Kind::kUniform, static_cast<float>(-limit), static_cast<float>(2 * limit)};
  }
  return {Kind::kGaussian, 0, static_cast<float>(std::sqrt(2.0 / fans))};
}

absl::StatusOr<Distribution> DistributionOf(const v1::Initializer& init, absl::Span<const int64_t> dims) {
  switch (init.kind_case()) {
    case v1::Initializer::kUniform: {
      const double min = init.uniform().min(), max = init.uniform().max();
      if (!(min <= max) || !std::isfinite(static_cast<float>(min)) || !std::isfinite(static_cast<float>(max - min))) {
        return absl::InvalidArgumentError(
            absl::StrCat("uniform initializer: min ", min, " must be at most max ", max, ", both 32-bit floats"));
      }
      return Distribution{Kind::kUniform, static_cast<float>(min), static_cast<float>(max - min)};
    }
    case v1::Initializer::kGaussian: {
      const double deviation = init.gaussian().stddev();
      if (!(deviation >= 0) || !std::isfinite(static_cast<float>(deviation))) {
        return absl::InvalidArgumentError(
            absl::StrCat("gaussian initializer: stddev must not be negative, and a 32-bit float, got ", deviation));
      }
      return Distribution{Kind::kGaussian, static_cast<float>(init.gaussian().mean()), static_cast<float>(deviation)};
    }
    case v1::Initializer::kXavier: {
      int64_t in = init.xavier().fan_in(), out = init.xavier().fan_out();
      if (in == 0 && dims.size() == 2) in = dims[0];
      if (out == 0 && dims.size() == 2) out = dims[1];
      if (in < 1 || out < 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("xavier initializer needs fan_in and fan_out for a variable of dims ", ShapeString(dims),
                         "; only a matrix has its own"));
      }
      return Glorot(init.xavier().uniform(), static_cast<double>(in) + static_cast<double>(out));
    }
    default:
      return Distribution{Kind::kConstant, static_cast<float>(init.constant().value()), 0};
  }
}

// Fills elements [begin, begin + out.size()) of the sequence of (key, high); a Philox block makes four.
template <typename Value>
void FillSequence(uint64_t key, uint64_t high, int64_t begin, absl::Span<float> out, Value value) {
  int64_t i = 0;
  const int64_t n = static_cast<int64_t>(out.size());
  while (i < n) {
    const int64_t element = begin + i;
    const PhiloxBlock block = Philox(key, static_cast<uint64_t>(element / 4), high);
    for (int64_t j = element % 4; j < 4 && i < n; ++j, ++i) out[static_cast<size_t>(i)] = value(block.v[j]);
  }
}

// Uniform values, the common initializer of rows, four Philox blocks at a time. The results have the bits of
// UniformValue.
#define WEIR_AVX2 __attribute__((target("avx2")))

// Writes the first `n` of the 16 values of blocks `first` to `first` + 3. Each 64-bit lane computes one block and keeps
// each of its words in the low half.
WEIR_AVX2 inline void UniformBlocks4(uint64_t key, uint64_t high, uint64_t first, float a, float b, size_t n,
                                     float* out) {
  const __m256i m0 = _mm256_set1_epi32(static_cast<int>(0xD2511F53u)),
                m1 = _mm256_set1_epi32(static_cast<int>(0xCD9E8D57u));
  // The high halves of c and k are never used: mul_epu32 reads only low halves.
  __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(first)), _mm256_set_epi64x(3, 2, 1, 0));
  __m256i c1 = _mm256_srli_epi64(c0, 32);
  __m256i c2 = _mm256_set1_epi64x(static_cast<int64_t>(high));
  __m256i c3 = _mm256_srli_epi64(c2, 32);
  __m256i k0 = _mm256_set1_epi32(static_cast<int>(key)), k1 = _mm256_set1_epi32(static_cast<int>(key >> 32));
// With a higher unroll count the compiler computes the keys one by one.
#pragma GCC unroll 2
  for (int round = 0; round < 10; ++round) {
    const __m256i p0 = _mm256_mul_epu32(m0, c0), p1 = _mm256_mul_epu32(m1, c2);
    c0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(c1, k0));
    c2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c3, k1));
    c1 = p1;
    c3 = p0;
    k0 = _mm256_add_epi32(k0, _mm256_set1_epi32(static_cast<int>(0x9E3779B9u)));
    k1 = _mm256_add_epi32(k1, _mm256_set1_epi32(static_cast<int>(0xBB67AE85u)));
  }
  const __m256i front = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xAA);
  const __m256i back = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xAA);
  const __m256i even = _mm256_unpacklo_epi64(front, back),
                odd = _mm256_unpackhi_epi64(front, back);  // blocks 0, 2 and 1, 3
  const __m256i words[2] = {_mm256_permute2x128_si256(even, odd, 0x20), _mm256_permute2x128_si256(even, odd, 0x31)};
  const float top = a + b;
  const __m256 end = _mm256_set1_ps(b == 0 ? std::numeric_limits<float>::infinity() : top);
  for (size_t i = 0; i < 2 && 8 * i < n; ++i) {
    const __m256 uniform =
        _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(words[i], 8)), _mm256_set1_ps(1.0f / 16777216.0f));
    __m256 v = _mm256_add_ps(_mm256_set1_ps(a), _mm256_mul_ps(uniform, _mm256_set1_ps(b)));
    const __m256 below = _mm256_cmp_ps(v, end, _CMP_LT_OQ);
    if (_mm256_movemask_ps(below) != 0xFF) v = _mm256_blendv_ps(_mm256_set1_ps(std::nextafter(top, a)), v, below);
    if (n >= 8 * i + 8) {
      _mm256_storeu_ps(out + 8 * i, v);
    } else {
      float some[8];
      _mm256_storeu_ps(some, v);
      std::memcpy(out + 8 * i, some, (n - 8 * i) * sizeof(float));
    }
  }
}

// Fills `out` from the start of a block on.
WEIR_AVX2 void FillUniformAvx2(uint64_t key, uint64_t high, uint64_t block, float a, float b, absl::Span<float> out) {
  for (size_t i = 0; i < out.size(); i += 16, block += 4) {
    UniformBlocks4(key, high, block, a, b, std::min(out.size() - i, size_t{16}), out.data() + i);
  }
}

void FillUniform(uint64_t key, uint64_t high, int64_t begin, float a, float b, absl::Span<float> out) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  // FillSequence does the elements before the first whole block, and short ranges, where it is faster.
  const size_t plain = has_avx2 && out.size() > 4 ? static_cast<size_t>(-begin & 3) : out.size();
  FillSequence(key, high, begin, out.first(plain), [&](uint32_t bits) { return UniformValue(bits, a, b); });
  if (plain < out.size()) FillUniformAvx2(key, high, static_cast<uint64_t>(begin + 3) / 4, a, b, out.subspan(plain));
}

void FillFrom(const Distribution& d, uint64_t key, uint64_t high, int64_t begin, absl::Span<float> out) {
  switch (d.kind) {
    case Kind::kConstant:
      std::fill(out.begin(), out.end(), d.a);
      return;
    case Kind::kUniform:
      FillUniform(key, high, begin, d.a, d.b, out);
      return;
    case Kind::kGaussian:
      FillSequence(key, high, begin, out, [&](uint32_t bits) { return GaussianValue(bits, d.a, d.b); });
      return;
  }
}

}  // namespace

absl::Status InitialElements(const v1::Initializer& init, uint64_t seed, std::string_view variable,
                             absl::Span<const int64_t> whole_dims, int64_t begin, absl::Span<float> out) {
  ASSIGN_OR_RETURN(const Distribution distribution, DistributionOf(init, whole_dims));
  FillFrom(distribution, KeyOf(seed, variable), /*high=*/0, begin, out);
  return absl::OkStatus();
}

RowInitializer::RowInitializer(const v1::Initializer& init, uint64_t seed, std::string_view table, DType values)
    : key_(KeyOf(seed, table)), values_(values), all_(ValuesOf(init)) {}

RowInitializer::Values RowInitializer::ValuesOf(const v1::Initializer& init) {
  // Inits that rows cannot have (fans left open, max < min) are refused when the job is read; zero is a safe default
  // here.
  const absl::StatusOr<Distribution> distribution = DistributionOf(init, {});
  const Distribution d = distribution.ok() ? *distribution : Distribution();
  return {.kind = d.kind == Kind::kConstant  ? Values::kConstant
                  : d.kind == Kind::kUniform ? Values::kUniform
                                             : Values::kGaussian,
          .a = d.a,
          .b = d.b};
}

void RowInitializer::SetColumns(int begin, int width, const v1::Initializer& init) {
  Values values = ValuesOf(init);
  values.begin = begin;
  values.width = width;
  columns_.push_back(values);
}

void RowInitializer::FillFrom(const Values& values, int64_t id, int begin, absl::Span<float> out) const {
  const Kind kind = values.kind == Values::kConstant  ? Kind::kConstant
                    : values.kind == Values::kUniform ? Kind::kUniform
                                                      : Kind::kGaussian;
  weir::FillFrom({kind, values.a, values.b}, key_, static_cast<uint64_t>(id), begin, out);
  if (values_ == v1::FLOAT32) return;
  for (float& value : out) value = ToNearest(values_, value);
}

void RowInitializer::Fill(int64_t id, absl::Span<float> row) const {
  if (columns_.empty()) return FillFrom(all_, id, 0, row);
  for (const Values& values : columns_) {
    FillFrom(values, id, values.begin,
             row.subspan(static_cast<size_t>(values.begin), static_cast<size_t>(values.width)));
  }
}

void RowInitializer::FillColumns(int64_t id, int begin, absl::Span<float> values) const {
  FillFrom(all_, id, begin, values);
}

}  // namespace weir
