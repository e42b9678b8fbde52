// Compares the fast number parsers with std::from_chars, bit by bit.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/philox.h"
#include "framework/formats/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/guarded_line.h"

namespace weir {
namespace {

// A number followed by characters that would change its value if they were read.
class Misled {
 public:
  explicit Misled(const std::string& number) : size_(number.size()), text_(number + "99999999.99999e9") {}
  const char* begin() const { return text_.data(); }
  const char* end() const { return text_.data() + size_; }

 private:
  const size_t size_;
  const std::string text_;
};

// Returns whether the fast parser took the number, and expects that its value is right.
bool FloatIsRight(const std::string& number, char behind) {
  const std::string text = number + behind + std::string(16, '9');
  float fast = 0, plain = 0;
  const char* const stop = ReadFloat(text.data(), text.data() + number.size(), &fast);
  if (stop == nullptr) return false;
  EXPECT_EQ(stop, text.data() + number.size()) << number;
  EXPECT_TRUE(ParseWhole(std::string_view(number), &plain)) << number;
  EXPECT_EQ(std::bit_cast<uint32_t>(fast), std::bit_cast<uint32_t>(plain)) << number;
  return true;
}

TEST(ReadFloatTest, CommonNumbersAreTakenAndRight) {
  for (const char* number : {"0",
                             "-0",
                             "1",
                             "-1",
                             "7",
                             "42",
                             "0.5",
                             "-0.25",
                             ".5",
                             "5.",
                             "-.5",
                             "3.14159",
                             "16777216",
                             "33554433",
                             "33554435.25",
                             "0.1",
                             "0.2",
                             "0.3",
                             "123456.789",
                             "-122.23",
                             "452600.0",
                             "0.000001",
                             "9007199254740991",
                             "99999999",
                             "100000000",
                             "123456789012345",
                             "1.17549435",
                             "0000000001",
                             "0.0000000000001"}) {
    EXPECT_TRUE(FloatIsRight(number, ' ')) << number;
  }
}

TEST(ReadFloatTest, WhateverIsTakenIsRoundedAsFromCharsDoes) {
  int taken = 0;
  constexpr int kNumbers = 300000;
  for (uint64_t i = 0; i < kNumbers; ++i) {
    const PhiloxBlock r = Philox(11, i, 0);
    const uint64_t digits = (static_cast<uint64_t>(r.v[0]) << 32 | r.v[1]) >> (r.v[2] % 64);
    std::string number = absl::StrCat(digits);
    const size_t point = r.v[3] % (number.size() + 3);
    if (point < number.size()) number.insert(point, ".");
    if (r.v[3] & 1024) number.insert(0, "-");
    taken += FloatIsRight(number, ",\t 0"[r.v[3] >> 11 & 1]);
  }
  EXPECT_GT(taken, kNumbers / 2);
}

TEST(ReadFloatTest, MiddlesBetweenTwoFloatsAreRight) {
  for (uint64_t i = 0; i < 100000; ++i) {
    // A number of 25 bits with the last one set lies halfway between two floats. Its neighbours, exact in a double,
    // round differently.
    const PhiloxBlock r = Philox(12, i, 0);
    const uint64_t middle = (uint64_t{1} << 24 | r.v[0] >> 8) << 1 | 1;
    const uint64_t scaled = middle << (r.v[1] % 28);
    for (const uint64_t digits : {scaled - 1, scaled, scaled + 1}) FloatIsRight(absl::StrCat(digits), ' ');
    FloatIsRight(absl::StrFormat("%d.5", middle >> 1), ' ');
    FloatIsRight(absl::StrFormat("%d.50000001", middle >> 1), ' ');
    FloatIsRight(absl::StrFormat("%d.49999999", middle >> 1), ' ');
  }
}

TEST(ReadFloatTest, RareNumbersAndNoNumbersAreLeft) {
  for (const char* number : {"", "-", ".", "-.", "+1", "e5", "1e5", "1E5", "nan", "inf", "x", " 1",
                             "12345678901234567890", "0.12345678901234567890", "9007199254740993"}) {
    EXPECT_FALSE(FloatIsRight(number, ' ')) << number;
  }
}

TEST(ReadFloatTest, NothingBeyondTheEndCounts) {
  for (const char* number : {"", "1", "12345678", "1.5", "1.", "-", "1234567890123456", "0.12345678"}) {
    const Misled text(number);
    float value;
    EXPECT_EQ(ReadFloat(text.begin(), text.end(), &value), nullptr) << number;
  }
}

TEST(ReadFloatTest, NothingBehindThePaddingIsRead) {
  // Up to 40 characters, with equally many digits before and after the point.
  for (size_t size = 0; size <= 20; ++size) {
    const std::string digits(size, '7');
    for (const std::string& number : {digits, digits + ".", digits + "." + digits}) {
      const std::string_view text = Guarded(number, Guard::kBehind);
      float value;
      uint64_t whole;
      EXPECT_EQ(ReadFloat(text.data(), text.data() + text.size(), &value), nullptr) << number;
      const bool ends_at_point = text.size() > size && size > 0 && size <= 18;
      EXPECT_EQ(ReadUnsigned(text.data(), text.data() + text.size(), &whole),
                ends_at_point ? text.data() + size : nullptr)
          << number;
    }
  }
}

// Does the same for ShortFloat, which reads fields of up to eight characters with a known end.
bool ShortIsRight(const std::string& field) {
  const std::string text = field + std::string(16, '9');
  bool bad = false;
  float plain = 0;
  const float fast = ShortFloat(text.data(), static_cast<ptrdiff_t>(field.size()), &bad);
  if (bad) return false;
  EXPECT_TRUE(ParseWhole(std::string_view(field), &plain)) << field;
  EXPECT_EQ(std::bit_cast<uint32_t>(fast), std::bit_cast<uint32_t>(plain)) << field;
  return true;
}

TEST(ShortFloatTest, CommonNumbersAreTakenAndRight) {
  for (const char* field :
       {"0",       "-0",       "1",        "-1",       "42",       "0.5",      "-0.25",    ".5",
        "5.",      "-.5",      "-5.",      "3.14159",  "12345678", "1234567.", ".1234567", "-1234567",
        "-122.23", "452600.0", "0.000001", "00000001", "0.000000", "99999999"}) {
    EXPECT_TRUE(ShortIsRight(field)) << field;
  }
  for (const char* field :
       {"-", ".", "-.", "1..2", "1.2.3", "+1", "1e5", "nan", "inf", "1 ", " 1", "1,5", "--1", "1-", "0x12", "/", ":"}) {
    EXPECT_FALSE(ShortIsRight(field)) << field;
  }
}

TEST(ShortFloatTest, WhateverIsTakenIsRoundedAsFromCharsDoes) {
  int taken = 0;
  constexpr int kFields = 400000;
  for (uint64_t i = 0; i < kFields; ++i) {
    const PhiloxBlock r = Philox(13, i, 0), c = Philox(13, i, 1);
    std::string field;
    for (uint32_t place = 0; place <= r.v[0] % 8; ++place) {
      const uint32_t random = c.v[place % 4] >> (8 * (place / 4));
      field += "0123456789012345678901234567890123456789.-e/"[random % (r.v[1] % 4 == 0 ? 44 : 40)];
    }
    if (const size_t point = r.v[2] % 12; point < field.size()) field[point] = '.';
    taken += ShortIsRight(field);
  }
  EXPECT_GT(taken, kFields / 2);
}

TEST(ShortUnsignedTest, OneByteThatIsNoDigitIsSeenInEveryPlace) {
  for (ptrdiff_t size = 1; size <= 8; ++size) {
    for (ptrdiff_t place = 0; place < 12; ++place) {
      for (int c = 0; c < 256; ++c) {
        std::string text(24, '7');
        text[static_cast<size_t>(place)] = static_cast<char>(c);
        bool bad = false;
        const uint64_t value = ShortUnsigned(text.data(), size, &bad);
        const std::string field = text.substr(0, static_cast<size_t>(size));
        ASSERT_EQ(bad, field.find_first_not_of("0123456789") != std::string::npos) << field;
        if (!bad) {
          ASSERT_EQ(value, std::stoull(field));
        }
      }
    }
  }
}

TEST(MarksTest, AreAllPlacesInOrderAndThenTheEnd) {
  for (size_t size = 0; size < 200; ++size) {
    for (uint64_t round = 0; round < 8; ++round) {
      // Few marks or many; marks behind the end must be ignored.
      std::string text(size + 16, 'x');
      std::vector<size_t> places;
      for (size_t i = 0; i < text.size(); ++i) {
        const uint32_t random = Philox(14, size * 8 + round, i).v[0];
        if (random % (1 + 3 * round) == 0) text[i] = " \t:"[random >> 8 & 3 ? random >> 8 & 1 : 2];
        if (text[i] != 'x' && i < size) places.push_back(i);
      }
      Marks marks(text.data(), text.data() + size, ' ', '\t', ':');
      for (const size_t place : places) ASSERT_EQ(marks.Next(), text.data() + place);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(marks.Next(), text.data() + size);
    }
  }
}

TEST(ReadUnsignedTest, UpTo18DigitsAreRead) {
  uint64_t digits = 0;
  for (int n = 1; n <= 18; ++n) {
    digits = digits * 10 + static_cast<uint64_t>(n % 10);
    const std::string text = absl::StrCat(digits, std::string(16, ' '));
    uint64_t value = 0;
    ASSERT_EQ(ReadUnsigned(text.data(), text.data() + n, &value), text.data() + n) << n;
    EXPECT_EQ(value, digits);
  }
  const std::string longer = absl::StrCat("1234567890123456789", std::string(16, ' '));
  uint64_t value;
  EXPECT_EQ(ReadUnsigned(longer.data(), longer.data() + 19, &value), nullptr);
}

TEST(ReadUnsignedTest, EveryByteThatIsNoDigitEndsTheNumber) {
  for (int place = 0; place <= 9; ++place) {
    for (int c = 0; c < 256; ++c) {
      if (c >= '0' && c <= '9') continue;
      const std::string text =
          std::string(static_cast<size_t>(place), '7') + static_cast<char>(c) + std::string(24, '8');
      uint64_t value = 0;
      const char* const stop = ReadUnsigned(text.data(), text.data() + 20, &value);
      ASSERT_EQ(stop, place == 0 ? nullptr : text.data() + place) << place << " " << c;
      if (place > 0) {
        ASSERT_EQ(value, std::stoull(std::string(static_cast<size_t>(place), '7')));
      }
    }
  }
}

TEST(ReadIdTest, SignsAreRead) {
  const std::string text = "-42" + std::string(16, ' ');
  int64_t id = 0;
  ASSERT_EQ(ReadId(text.data(), text.data() + 3, &id), text.data() + 3);
  EXPECT_EQ(id, -42);
  EXPECT_EQ(ReadId(text.data(), text.data() + 1, &id), nullptr);
  const Misled cut("-");
  EXPECT_EQ(ReadId(cut.begin(), cut.end(), &id), nullptr);
}

TEST(ParseFiniteTest, NumbersTooSmallForFloat32AreTheZeroOfTheirSign) {
  for (const char* number : {"1e-46", "3.2e-51", "5e-324", "1e-400", "0.0e999", "1e-99999"}) {
    float value = 1;
    EXPECT_TRUE(ParseFinite(number, &value)) << number;
    EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(0.0f)) << number;
    EXPECT_TRUE(ParseFinite(absl::StrCat("-", number), &value)) << number;
    EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(-0.0f)) << number;
  }
  float least = 0;
  EXPECT_TRUE(ParseFinite("1e-45", &least));
  EXPECT_EQ(least, std::numeric_limits<float>::denorm_min());
}

TEST(ParseFiniteTest, NumbersBeyondFloat32AreToldFromWhatIsNoNumber) {
  float value;
  EXPECT_TRUE(ParseFinite("3.4028235e38", &value));
  for (const char* number : {"1e39", "-1e39", "+1e39", "3.5e38", "1e999", "-1e99999"}) {
    EXPECT_FALSE(ParseFinite(number, &value)) << number;
    EXPECT_STREQ(WhyNotFinite(number), "is beyond float32, whose greatest number is 3.4e38") << number;
  }
  for (const char* word : {"", "+", "-", "x", "1e39x", "1e-51 ", "inf", "+inf", "nan", "1,5", "0x1p999"}) {
    EXPECT_FALSE(ParseFinite(word, &value)) << word;
    EXPECT_STREQ(WhyNotFinite(word), "is not a finite number") << word;
  }
}

TEST(ParseFiniteTest, OnePlusMayStandInFront) {
  float value = 0;
  EXPECT_TRUE(ParseFinite("+0.5", &value));
  EXPECT_EQ(value, 0.5f);
  int64_t id = 0;
  EXPECT_TRUE(ParseId("+7", &id));
  EXPECT_EQ(id, 7);
  EXPECT_TRUE(ParseId("+18446744073709551615", &id));
  EXPECT_EQ(id, -1);
  for (const char* word : {"+-0.5", "++0.5", "-+0.5", "+ 1"}) {
    EXPECT_FALSE(ParseFinite(word, &value)) << word;
    EXPECT_FALSE(ParseId(word, &id)) << word;
  }
}

TEST(FindByteTest, IsTheFirstOrTheEnd) {
  for (int size = 0; size < 40; ++size) {
    for (int at = 0; at <= size; ++at) {
      for (const char c : {',', '\t', '\0', '\xFF', '\x80'}) {
        // Bytes before it have neighbouring values; the same byte follows behind the end.
        std::string text(static_cast<size_t>(size), static_cast<char>(c + 1));
        if (at < size) text[static_cast<size_t>(at)] = c;
        for (int later = at + 1; later < size; later += 3) text[static_cast<size_t>(later)] = c;
        text += std::string(16, c);
        ASSERT_EQ(FindByte(text.data(), text.data() + size, c), text.data() + at) << size << " " << at;
      }
    }
  }
}

}  // namespace
}  // namespace weir
