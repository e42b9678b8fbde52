// Numbers in text, for the fast ways of parsers: eight bytes at a time, and only what is common.
//
// A function reads from p and returns where the number ends, or null for what it leaves to the plain way of its caller: no number,
// one that ends beyond `end`, or one that is too long or too rare to be worth it. What it reads is what std::from_chars
// reads from the same bytes, bit by bit. At least LineParser::kPadding bytes behind `end` can be read.
#ifndef WEIR_TRAINER_DATA_NUMBERS_H_
#define WEIR_TRAINER_DATA_NUMBERS_H_

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace weir {

// The plain ways, which are the reference.

// All of `word` as a number of type T.
template <typename T>
bool ParseWhole(std::string_view word, T* value) {
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
  return error == std::errc() && stop == word.data() + word.size();
}

inline bool ParseFinite(std::string_view word, float* value) { return ParseWhole(word, value) && std::isfinite(*value); }

// Any int64; an unsigned number from 2^63 on stands for the int64 of the same bits.
inline bool ParseId(std::string_view word, int64_t* id) {
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

// Each decimal digit as its value; any other byte as something else, with its high bit set in NotDigits.
inline uint64_t DigitValues(uint64_t x) { return x ^ (kEveryByte * '0'); }
// A carry goes from a byte that is no digit into the ones behind it, so only the first mark is sure to be right.
inline uint64_t NotDigits(uint64_t values) {
  return ((values + kEveryByte * (0x80 - 10)) | values) & (kEveryByte * 0x80);
}

// Eight digits, the first in the lowest byte.
inline uint64_t Combine8(uint64_t values) {
  values = values * 10 + (values >> 8);  // pairs, in every second byte
  return (((values & 0x000000FF000000FFULL) * 0x000F424000000064ULL) +
          (((values >> 16) & 0x000000FF000000FFULL) * 0x0000271000000001ULL)) >>
         32;
}

inline constexpr uint64_t kPowers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

// Appends the digits at p to *value and returns where they end: at most 24 of them, and *value is right up to 19. What stands
// beyond `end` may count, so that the place returned is beyond it, too.
inline const char* Digits(const char* p, const char* end, uint64_t* value) {
  for (int i = 0; i < 3 && p <= end; ++i) {
    const uint64_t values = DigitValues(Load8(p));
    const uint64_t stop = NotDigits(values);
    if (stop == 0) {
      *value = *value * kPowers[8] + Combine8(values);
      p += 8;
      continue;
    }
    const int n = std::countr_zero(stop) >> 3;
    // Zeros in front; a shift by all of the bits is in two.
    *value = *value * kPowers[n] + Combine8(values << 8 << (56 - 8 * n));
    return p + n;
  }
  return p;
}

inline constexpr float kFloatPowers[] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
inline constexpr double kDoublePowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                           1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

}  // namespace internal

// Whole numbers from 0 on, of up to 18 digits.
inline const char* ReadUnsigned(const char* p, const char* end, uint64_t* value) {
  uint64_t read = 0;
  const char* const stop = internal::Digits(p, end, &read);
  if (stop == p || stop > end || stop - p > 18) return nullptr;
  *value = read;
  return stop;
}

inline const char* ReadId(const char* p, const char* end, int64_t* id) {
  const bool negative = *p == '-';
  uint64_t read;
  p = ReadUnsigned(p + negative, end, &read);
  if (p == nullptr) return nullptr;
  *id = negative ? -static_cast<int64_t>(read) : static_cast<int64_t>(read);
  return p;
}

// Digits with or without a point: no exponent, no more than 19 digits.
inline const char* ReadFloat(const char* p, const char* end, float* value) {
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
  if (digits <= (1u << 24) && behind_point <= 10) {
    // Both are floats, so their quotient is rounded once.
    magnitude = static_cast<float>(digits) / kFloatPowers[behind_point];
  } else if (digits <= (1ULL << 53)) {
    // The quotient in double is the nearest to the number, and far from both ends of what floats can be. Rounding it again is
    // right, unless it is the middle between two floats, which the number itself may not be.
    const double quotient = static_cast<double>(digits) / kDoublePowers[behind_point];
    constexpr uint64_t kBelow = (1ULL << 29) - 1;  // bits of a double that a float lacks
    if ((std::bit_cast<uint64_t>(quotient) & kBelow) == (kBelow >> 1) + 1) return nullptr;
    magnitude = static_cast<float>(quotient);
  } else {
    return nullptr;
  }
  *value = negative ? -magnitude : magnitude;
  return p;
}

// The first `c` in [p, end), or end.
inline const char* FindByte(const char* p, const char* end, char c) {
  using namespace internal;
  const uint64_t pattern = kEveryByte * static_cast<uint8_t>(c);
  for (; p < end; p += 8) {
    const uint64_t x = Load8(p) ^ pattern;
    // The lowest mark is right; a borrow marks bytes behind it only.
    const uint64_t zero = (x - kEveryByte) & ~x & (kEveryByte * 0x80);
    if (zero == 0) continue;
    p += std::countr_zero(zero) >> 3;
    break;
  }
  return p < end ? p : end;
}

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_NUMBERS_H_
