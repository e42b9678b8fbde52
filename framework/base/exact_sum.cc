#include "framework/base/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"

namespace weir {

namespace {

constexpr int kLowestExponent = -298;
constexpr int64_t kRadixMask = 0xffffffff;

// value = mantissa * 2^(exponent - 149), exponent from 0; mantissa below 2^24.
struct Parts {
  uint64_t mantissa;
  int exponent;
};
Parts PartsOf(uint32_t bits) {
  const uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  if (exponent == 0) return {fraction, 0};
  return {fraction | 0x800000, static_cast<int>(exponent) - 1};
}

// Compiles a loop once per vector width and selects at run time; integer sums have the same bits at every width. Off
// under clang and sanitizers.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(WEIR_ASAN) && !defined(WEIR_TSAN)
#define WEIR_FOR_EVERY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WEIR_FOR_EVERY_WIDTH
#endif

// Values of a block, whose sums of half squares stay far below 2^64.
constexpr int64_t kBlock = 1024;
// Exponents that one pass over a block takes in: mantissas are below 2^24, so shifted squares are below 2^62.
constexpr int kWindow = 8;
// Fewer values than this are added one by one.
constexpr int64_t kFewValues = 64;

WEIR_FOR_EVERY_WIDTH uint32_t LargestMagnitude(const uint32_t* bits, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = bits[i] & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// Squares of the values with exponent fields in [lowest, lowest + window), in units of the square of a mantissa of
// `lowest`.
struct WindowSum {
  uint64_t low = 0, high = 0;  // of the lower and the upper halves of each
  uint32_t smaller = 0;        // not 0: some values lie below the window
};
WEIR_FOR_EVERY_WIDTH WindowSum AddWindow(const uint32_t* bits, int64_t n, int lowest, int window) {
  uint64_t low = 0, high = 0;
  uint32_t smaller = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = bits[i] & 0x7fffffff;
    const int field = static_cast<int>(magnitude >> 23);
    // Subnormals have the exponent of field 1 and no leading digit.
    const uint32_t mantissa = (magnitude & 0x7fffff) | (field > 0 ? 0x800000u : 0u);
    const int above = (field > 0 ? field : 1) - lowest;
    const bool inside = static_cast<uint32_t>(above) < static_cast<uint32_t>(window);
    const uint64_t m = inside ? mantissa : 0u;
    const uint64_t square = m * m << (inside ? 2 * above : 0);
    low += square & 0xffffffffu;
    high += square >> 32;
    smaller |= above < 0 ? mantissa : 0u;
  }
  return {low, high, smaller};
}

}  // namespace

void ExactSum::AddShifted(uint64_t mantissa, int position, bool negative) {
  if (++pending_ >= kMostPending) Normalize();
  const int limb = position >> 5;
  const unsigned __int128 wide = static_cast<unsigned __int128>(mantissa) << (position & 31);
  const int64_t sign = negative ? -1 : 1;
  limbs_[limb] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide) & kRadixMask);
  limbs_[limb + 1] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide >> 32) & kRadixMask);
  limbs_[limb + 2] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide >> 64));
}

void ExactSum::NoteNotFinite(float a, float b) {
  const double product = static_cast<double>(a) * b;
  flags_ |= std::isnan(product) ? kNan : product > 0 ? kPlusInfinity : kMinusInfinity;
}

void ExactSum::AddProduct(float a, float b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return NoteNotFinite(a, b);
  const uint32_t bits_a = std::bit_cast<uint32_t>(a), bits_b = std::bit_cast<uint32_t>(b);
  const Parts pa = PartsOf(bits_a), pb = PartsOf(bits_b);
  AddShifted(pa.mantissa * pb.mantissa, pa.exponent + pb.exponent, ((bits_a ^ bits_b) >> 31) != 0);
}

void ExactSum::AddOne(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffff;
  if (bits >= 0x7f800000) return NoteNotFinite(value, value);
  const Parts parts = PartsOf(bits);
  AddShifted(parts.mantissa * parts.mantissa, 2 * parts.exponent, false);
}

void ExactSum::AddSquares(absl::Span<const float> values) {
  const int64_t count = static_cast<int64_t>(values.size());
  if (count < kFewValues) {
    for (float value : values) AddOne(value);
    return;
  }
  uint32_t bits[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    std::memcpy(bits, values.data() + begin, static_cast<size_t>(n) * sizeof(float));
    const int highest = static_cast<int>(LargestMagnitude(bits, n) >> 23);
    if (highest == 255) {
      for (int64_t i = 0; i < n; ++i) AddOne(values[static_cast<size_t>(begin + i)]);
      continue;
    }
    // Add the values from the highest exponent down, one window per pass. Gradients of a block take one or two passes.
    for (int end = highest + 1;;) {
      const int lowest = std::max(1, end - kWindow);
      const WindowSum sum = AddWindow(bits, n, lowest, std::max(1, end - lowest));
      AddShifted(sum.low, 2 * (lowest - 1), false);
      AddShifted(sum.high, 2 * (lowest - 1) + 32, false);
      if (sum.smaller == 0) break;
      end = lowest;
    }
  }
}

void ExactSum::Normalize() {
  for (int i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= kRadixMask;
  }
  pending_ = 1;  // what is left in a limb is below 2^32
}

void ExactSum::Add(const ExactSum& other) {
  if (pending_ + other.pending_ + 1 >= kMostPending) {
    Normalize();
    ExactSum carried = other;
    carried.Normalize();
    for (int i = 0; i < kLimbs; ++i) limbs_[i] += carried.limbs_[i];
    pending_ += carried.pending_;
  } else {
    for (int i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
    pending_ += other.pending_;
  }
  flags_ |= other.flags_;
}

double ExactSum::Rounded() const {
  if ((flags_ & kNan) != 0 || (flags_ & kPlusInfinity && flags_ & kMinusInfinity)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (flags_ != 0) {
    return (flags_ & kPlusInfinity) != 0 ? std::numeric_limits<double>::infinity()
                                         : -std::numeric_limits<double>::infinity();
  }
  ExactSum copy = *this;
  copy.Normalize();
  const bool negative = copy.limbs_[kLimbs - 1] < 0;
  if (negative) {
    for (int64_t& limb : copy.limbs_) limb = -limb;
    copy.Normalize();
  }
  // Binary digits, lowest first; the highest limb may hold more than 32 of them.
  uint32_t digits[kLimbs + 1];
  for (int i = 0; i < kLimbs; ++i) digits[i] = static_cast<uint32_t>(copy.limbs_[i] & kRadixMask);
  digits[kLimbs] = static_cast<uint32_t>(copy.limbs_[kLimbs - 1] >> 32);
  int top = kLimbs;
  while (top >= 0 && digits[top] == 0) --top;
  if (top < 0) return 0;
  const int highest = 32 * top + 31 - std::countl_zero(digits[top]);
  const auto bit = [&](int i) -> uint64_t { return i < 0 ? 0 : digits[i / 32] >> (i % 32) & 1; };
  // Take 53 digits, then round half to even by the digits that follow.
  uint64_t mantissa = 0;
  for (int i = highest; i > highest - 53; --i) mantissa = mantissa << 1 | bit(i);
  const int half = highest - 53;
  if (bit(half) != 0) {
    bool more = (mantissa & 1) != 0;
    for (int i = half - 1; i >= 0 && !more; --i) more = bit(i) != 0;
    if (more) ++mantissa;
  }
  const double value = std::ldexp(static_cast<double>(mantissa), highest - 52 + kLowestExponent);
  return negative ? -value : value;
}

void ExactSum::ToWords(int64_t* words) const {
  ExactSum copy = *this;
  copy.Normalize();
  std::copy(copy.limbs_, copy.limbs_ + kLimbs, words);
  words[kLimbs] = flags_;
}

absl::StatusOr<ExactSum> ExactSum::FromWords(absl::Span<const int64_t> words) {
  if (words.size() != static_cast<size_t>(kWords)) {
    return absl::InvalidArgumentError(absl::StrCat("an exact sum has ", kWords, " words, got ", words.size()));
  }
  ExactSum sum;
  for (int i = 0; i < kLimbs; ++i) {
    const int64_t limb = words[static_cast<size_t>(i)];
    // The highest limb is signed and leaves room for adding sums of this size.
    const bool fits = i + 1 < kLimbs ? limb >= 0 && limb <= kRadixMask : std::abs(limb / 2) < int64_t{1} << 40;
    if (!fits) return absl::InvalidArgumentError(absl::StrCat("limb ", i, " of an exact sum is ", limb));
    sum.limbs_[i] = limb;
  }
  sum.flags_ = words[kLimbs];
  if ((sum.flags_ & ~(kNan | kPlusInfinity | kMinusInfinity)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("flags of an exact sum are ", sum.flags_));
  }
  sum.pending_ = 1;
  return sum;
}

std::string ExactSum::ToBytes() const {
  int64_t words[kWords];
  ToWords(words);
  std::string bytes(sizeof(words), '\0');
  for (size_t i = 0; i < kWords; ++i) {
    for (size_t b = 0; b < 8; ++b) bytes[8 * i + b] = static_cast<char>(static_cast<uint64_t>(words[i]) >> 8 * b);
  }
  return bytes;
}

absl::StatusOr<ExactSum> ExactSum::FromBytes(std::string_view bytes) {
  if (bytes.size() != sizeof(int64_t) * kWords) {
    return absl::InvalidArgumentError(
        absl::StrCat("an exact sum has ", sizeof(int64_t) * kWords, " bytes, got ", bytes.size()));
  }
  int64_t words[kWords];
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word = 0;
    for (size_t b = 0; b < 8; ++b) word |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[8 * i + b])) << 8 * b;
    words[i] = static_cast<int64_t>(word);
  }
  return FromWords(words);
}

}  // namespace weir
