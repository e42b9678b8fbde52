// Number parsing for the fast paths of parsers: eight bytes at a time, and only common forms.
//
// A function reads from p and returns the end of the number, or null for input that it leaves to the plain path of its
// caller: no number, one that ends beyond `end`, or one that is too long or too rare to be worth it. Results equal
// those of std::from_chars on the same bytes, bit by bit. At least LineParser::kPadding bytes behind `end` must be
// readable.
#ifndef WEIR_FRAMEWORK_FORMATS_NUMBERS_H_
#define WEIR_FRAMEWORK_FORMATS_NUMBERS_H_

#include <emmintrin.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

#include "absl/strings/charconv.h"

// Forces inlining of functions in the innermost loops of parsers, where a call costs as much as the work.
#define WEIR_INLINE inline __attribute__((always_inline))
#define WEIR_INLINE_MEMBER __attribute__((always_inline))

namespace weir {

// Plain paths, which are the reference.

// Parses all of `word` as a number of type T.
template <typename T>
bool ParseWhole(std::string_view word, T* value) {
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
  return error == std::errc() && stop == word.data() + word.size();
}

// Returns a number without the plus sign in front, which std::from_chars does not take.
inline std::string_view WithoutPlus(std::string_view word) {
  const bool plus = word.size() > 1 && word[0] == '+' && word[1] != '-';
  return plus ? word.substr(1) : word;
}

// Parses all of `word` as the nearest float32: a number that is too small for one is the 0 of its sign. Returns false
// for what WhyNotFinite says.
inline bool ParseFinite(std::string_view word, float* value) {
  word = WithoutPlus(word);
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, *value);
  if (stop != end) return false;
  if (error != std::errc::result_out_of_range) return error == std::errc() && std::isfinite(*value);
  // Too small or too great. absl::from_chars says which: it gives the nearest number that there is.
  double nearest = 0;
  absl::from_chars(word.data(), end, nearest);
  if (std::fabs(nearest) > 1) return false;
  *value = word[0] == '-' ? -0.0f : 0.0f;
  return true;
}

inline constexpr char kNotFinite[] = "is not a finite number";

// Returns what is wrong with a word that ParseFinite has refused: kNotFinite, or that float32 does not reach so far.
inline const char* WhyNotFinite(std::string_view word) {
  word = WithoutPlus(word);
  const char* const end = word.data() + word.size();
  float unused;
  const auto [stop, error] = std::from_chars(word.data(), end, unused);
  return stop == end && error == std::errc::result_out_of_range ? "is beyond float32, whose greatest number is 3.4e38"
                                                                : kNotFinite;
}

// Parses any int64; an unsigned number from 2^63 on stands for the int64 of the same bits.
inline bool ParseId(std::string_view word, int64_t* id) {
  word = WithoutPlus(word);
  if (ParseWhole(word, id)) return true;
  uint64_t bits;
  if (!ParseWhole(word, &bits)) return false;
  *id = static_cast<int64_t>(bits);
  return true;
}

namespace internal {

static_assert(std::endian::native == std::endian::little, "the first character is the lowest byte");

inline constexpr uint64_t kEveryByte = 0x0101010101010101ULL;  // times b: b in every byte

inline uint64_t Load8(const char* p) {
  uint64_t x;
  std::memcpy(&x, p, 8);
  return x;
}

// Maps each decimal digit to its value, and any other byte to a value that NotDigits marks.
inline uint64_t DigitValues(uint64_t x) { return x ^ (kEveryByte * '0'); }
// Marks, with the high bit, bytes that are not digits. A byte that is no digit carries into those behind it, so only
// the first mark is reliable.
inline uint64_t NotDigits(uint64_t values) {
  return ((values + kEveryByte * (0x80 - 10)) | values) & (kEveryByte * 0x80);
}

// Returns the number that eight digits form, the first in the lowest byte.
inline uint64_t Combine8(uint64_t values) {
  values = values * 10 + (values >> 8);  // pairs, in every second byte
  return (((values & 0x000000FF000000FFULL) * 0x000F424000000064ULL) +
          (((values >> 16) & 0x000000FF000000FFULL) * 0x0000271000000001ULL)) >>
         32;
}

inline constexpr uint64_t kPowers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

// Appends the digits at p to *value and returns where they end. Reads at most 24 digits; *value is correct for up to
// 19. Digits beyond `end` may be included, so that the returned end is beyond it, too.
WEIR_INLINE const char* Digits(const char* p, const char* end, uint64_t* value) {
  for (int i = 0; i < 3 && p <= end; ++i) {
    const uint64_t values = DigitValues(Load8(p));
    const uint64_t stop = NotDigits(values);
    if (stop == 0) {
      *value = *value * kPowers[8] + Combine8(values);
      p += 8;
      continue;
    }
    const int n = std::countr_zero(stop) >> 3;
    // Puts zeros in front. The shift is split in two, because a shift by all 64 bits is undefined.
    *value = *value * kPowers[n] + Combine8(values << 8 << (56 - 8 * n));
    return p + n;
  }
  return p;
}

inline constexpr float kFloatPowers[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
inline constexpr double kDoublePowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                           1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// Divides `digits` (of up to 19) by 10^behind_point. Returns false if the correct rounding is not certain.
WEIR_INLINE bool Shift(uint64_t digits, int64_t behind_point, float* magnitude) {
  if (digits <= (1u << 24) && behind_point <= 10) {
    // Both are floats, so their quotient is rounded once.
    *magnitude = static_cast<float>(static_cast<uint32_t>(digits)) / kFloatPowers[behind_point];
    return true;
  }
  if (digits > (1ULL << 53)) return false;
  // The quotient in double is the nearest to the number, and far from both limits of float. Rounding it again is
  // correct unless it is the middle between two floats, which the number itself may not be.
  const double quotient = static_cast<double>(digits) / kDoublePowers[behind_point];
  constexpr uint64_t kBelow = (1ULL << 29) - 1;  // bits of a double that a float lacks
  *magnitude = static_cast<float>(quotient);
  return (std::bit_cast<uint64_t>(quotient) & kBelow) != (kBelow >> 1) + 1;
}

}  // namespace internal

// Reads a whole number from 0 on, of up to 18 digits.
WEIR_INLINE const char* ReadUnsigned(const char* p, const char* end, uint64_t* value) {
  uint64_t read = 0;
  const char* const stop = internal::Digits(p, end, &read);
  if (stop == p || stop > end || stop - p > 18) return nullptr;
  *value = read;
  return stop;
}

WEIR_INLINE const char* ReadId(const char* p, const char* end, int64_t* id) {
  const bool negative = *p == '-';
  uint64_t read;
  p = ReadUnsigned(p + negative, end, &read);
  if (p == nullptr) return nullptr;
  *id = negative ? -static_cast<int64_t>(read) : static_cast<int64_t>(read);
  return p;
}

// Reads digits with or without a point: no exponent, no more than 19 digits.
WEIR_INLINE const char* ReadFloat(const char* p, const char* end, float* value) {
  using namespace internal;
  const bool negative = *p == '-';
  const char* const begin = p + negative;
  uint64_t digits = 0;
  p = Digits(begin, end, &digits);
  int64_t count = p - begin;
  int64_t behind_point = 0;
  if (*p == '.' && p < end) {
    const char* const fraction = p + 1;
    p = Digits(fraction, end, &digits);
    behind_point = p - fraction;
    count += behind_point;
  }
  if (p > end || count == 0 || count > 19 || ((*p | 0x20) == 'e' && p < end)) return nullptr;
  float magnitude;
  if (!Shift(digits, behind_point, &magnitude)) return nullptr;
  *value = negative ? -magnitude : magnitude;
  return p;
}

// Returns the position of the first `c` in [p, end), or end.
inline const char* FindByte(const char* p, const char* end, char c) {
  using namespace internal;
  const uint64_t pattern = kEveryByte * static_cast<uint8_t>(c);
  for (; p < end; p += 8) {
    const uint64_t x = Load8(p) ^ pattern;
    // The lowest mark is correct; a borrow only affects the bytes behind it.
    const uint64_t zero = (x - kEveryByte) & ~x & (kEveryByte * 0x80);
    if (zero == 0) continue;
    p += std::countr_zero(zero) >> 3;
    break;
  }
  return p < end ? p : end;
}

// Positions of a character, or of any of three, in a line, in order. Sixty-four bytes are searched at once, so that the
// end of a field is known before the field is read.
class Marks {
 public:
  Marks(const char* begin, const char* end, char a) : Marks(begin, end, a, a, a) {}
  Marks(const char* begin, const char* end, char a, char b, char c)
      : block_(begin), end_(end), a_(_mm_set1_epi8(a)), b_(_mm_set1_epi8(b)), c_(_mm_set1_epi8(c)) {
    Search();
  }

  // Returns the next position, or the end.
  WEIR_INLINE_MEMBER const char* Next() {
    while (mask_ == 0) {
      if (end_ - block_ <= 64) return end_;
      block_ += 64;
      Search();
    }
    const char* const at = block_ + std::countr_zero(mask_);
    mask_ &= mask_ - 1;
    return at;
  }

 private:
  WEIR_INLINE_MEMBER uint64_t SearchSixteen(const char* p) const {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i found =
        _mm_or_si128(_mm_cmpeq_epi8(x, a_), _mm_or_si128(_mm_cmpeq_epi8(x, b_), _mm_cmpeq_epi8(x, c_)));
    return static_cast<uint32_t>(_mm_movemask_epi8(found));
  }
  WEIR_INLINE_MEMBER void Search() {
    const ptrdiff_t left = end_ - block_;
    if (left >= 64) {
      mask_ = SearchSixteen(block_) | SearchSixteen(block_ + 16) << 16 | SearchSixteen(block_ + 32) << 32 |
              SearchSixteen(block_ + 48) << 48;
      return;
    }
    mask_ = 0;
    for (ptrdiff_t at = 0; at < left; at += 16) mask_ |= SearchSixteen(block_ + at) << at;
    mask_ &= (uint64_t{1} << left) - 1;
  }

  const char* block_;
  const char* const end_;
  const __m128i a_, b_, c_;
  uint64_t mask_ = 0;  // marks of the block that have not been returned
};

// Reads a field of known size, 1 to 8 bytes, as a whole number from 0 on. Sets *bad if it is not one.
WEIR_INLINE uint64_t ShortUnsigned(const char* p, ptrdiff_t size, bool* bad) {
  const uint64_t values = internal::DigitValues(internal::Load8(p)) << (64 - 8 * size);
  *bad |= internal::NotDigits(values) != 0;
  return internal::Combine8(values);
}

// Reads such a field as a number with a sign, a point, or both; results as ReadFloat.
WEIR_INLINE float ShortFloat(const char* p, ptrdiff_t size, bool* bad) {
  using namespace internal;
  const bool negative = *p == '-';
  size -= negative;
  if (size == 0) {
    *bad = true;
    return 0;
  }
  uint64_t values = DigitValues(Load8(p + negative)) << (64 - 8 * size);
  const uint64_t points = values ^ (kEveryByte * ('.' ^ '0'));
  const uint64_t point = (points - kEveryByte) & ~points & (kEveryByte * 0x80);
  int behind_point = 0;
  if (point != 0) {
    // Moves the digits before the point up, over the point.
    const int place = std::countr_zero(point) & ~7;
    const uint64_t before = (uint64_t{1} << place) - 1;
    behind_point = 7 - (place >> 3);
    values = (values & before) << 8 | (values & ~(before << 8 | 0xFF));
    *bad |= size == 1;
  }
  *bad |= NotDigits(values) != 0;
  float magnitude;
  *bad |= !Shift(Combine8(values), behind_point, &magnitude);
  return negative ? -magnitude : magnitude;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_NUMBERS_H_
