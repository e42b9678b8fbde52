#include "framework/runtime/row_values.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/tensor/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();

float ValueOf(DType dtype, uint32_t bits) {
  const uint16_t half = static_cast<uint16_t>(bits);
  return dtype == v1::FLOAT16 ? OfFloat16(half) : OfBFloat16(half);
}
// Returns the bits of the largest finite value.
uint32_t MostBits(DType dtype) { return dtype == v1::FLOAT16 ? 0x7bff : 0x7f7f; }
uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

class RowValuesTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, RowValuesTest, ::testing::Values(v1::FLOAT16, v1::BFLOAT16),
                         [](const auto& type) { return v1::DType_Name(type.param); });

// Rows stored by RowValues, and the same rows rounded one by one.
struct Stored {
  std::vector<std::vector<float>> rows, plain;
};
Stored Store(const RowValues& values, int64_t step, const std::vector<int64_t>& ids,
             const std::vector<std::vector<float>>& rows) {
  Stored stored{.plain = rows};
  const int width = static_cast<int>(rows[0].size());
  const size_t bytes = static_cast<size_t>(values.Bytes(width));
  std::vector<char> at_rest(rows.size() * bytes);
  std::vector<const float*> from;
  std::vector<char*> to;
  for (size_t i = 0; i < rows.size(); ++i) {
    from.push_back(rows[i].data());
    to.push_back(at_rest.data() + i * bytes);
  }
  values.Store(step, static_cast<int64_t>(rows.size()), ids.data(), width, from.data(), to.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    stored.rows.emplace_back(rows[i].size());
    values.Load(to[i], width, stored.rows.back().data());
    values.Round(step, ids[i], absl::MakeSpan(stored.plain[i]));
  }
  return stored;
}

void ExpectSame(const Stored& stored, const std::vector<std::vector<float>>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < rows[i].size(); ++j) {
      ASSERT_EQ(BitsOf(stored.rows[i][j]), BitsOf(stored.plain[i][j]))
          << std::hex << BitsOf(rows[i][j]) << " in row " << std::dec << i << " of " << rows.size() << ", column " << j
          << " of " << rows[i].size();
    }
  }
}

TEST_P(RowValuesTest, EveryValueOfTheTypeStaysItself) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = ValueOf(GetParam(), bits);
    if (std::isnan(value)) continue;
    for (uint32_t random : {0u, 1u, 32768u, 65535u}) {
      ASSERT_EQ(BitsOf(RoundAtRandom(GetParam(), value, static_cast<uint16_t>(random))), BitsOf(value));
    }
  }
}

// Between any two neighbours the number of draws, out of 65536, that round up is proportional to the distance from the
// lower one.
TEST_P(RowValuesTest, ItGoesToEachNeighbourByItsDistance) {
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t bits = 0; bits < MostBits(GetParam()); ++bits) {
      const float lower = ValueOf(GetParam(), sign | bits), upper = ValueOf(GetParam(), sign | (bits + 1));
      for (int eighths : {1, 3, 4, 7}) {
        // Exact, since neighbours are at least 13 bits of a float apart.
        const float value = static_cast<float>(lower + (static_cast<double>(upper) - lower) * eighths / 8);
        const uint16_t first_up = static_cast<uint16_t>(65536 - 8192 * eighths);
        ASSERT_EQ(RoundAtRandom(GetParam(), value, first_up - 1), lower) << value;
        ASSERT_EQ(RoundAtRandom(GetParam(), value, first_up), upper) << value;
      }
    }
  }
}

TEST_P(RowValuesTest, LoopsAndThePlainFormAgreeAroundEveryValue) {
  const RowValues values(GetParam(), 3, "t");
  // Values, points next to them, half way and near the neighbours; 16 columns, so that each meets many random bits.
  for (uint32_t bits = 0; bits < 65536; bits += 4) {
    std::vector<std::vector<float>> rows;
    std::vector<int64_t> ids;
    for (uint32_t b = bits; b < bits + 4; ++b) {
      const uint32_t at = BitsOf(ValueOf(GetParam(), b));
      std::vector<float> row;
      for (int32_t beside : {0, 1, -1, 2, 7, 8, -8, 100, 4096, -4096, 8191, 8192, 32767, 32768, 65535, 65536}) {
        row.push_back(std::bit_cast<float>(at + static_cast<uint32_t>(beside)));
      }
      rows.push_back(row);
      ids.push_back(static_cast<int64_t>(b) * 0x1234567 - 77);
    }
    ExpectSame(Store(values, bits, ids, rows), rows);
  }
}

TEST_P(RowValuesTest, LoopsAndThePlainFormAgreeOnRandomBits) {
  const RowValues values(GetParam(), 3, "t");
  std::mt19937_64 random(5);
  for (int width : {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 65}) {
    for (int round = 0; round < 300; ++round) {
      std::vector<std::vector<float>> rows(1 + random() % 20, std::vector<float>(static_cast<size_t>(width)));
      std::vector<int64_t> ids;
      for (std::vector<float>& row : rows) {
        ids.push_back(static_cast<int64_t>(random()));
        for (float& value : row) {
          uint32_t bits = static_cast<uint32_t>(random());
          // Half of them lie near the smallest normal FLOAT16, where the rounding method changes.
          if (round % 2 == 0) bits = (bits & 0x80ffffff) + 0x37000000;
          value = std::bit_cast<float>(bits);
        }
      }
      ExpectSame(Store(values, static_cast<int64_t>(random() >> 4), ids, rows), rows);
    }
  }
}

TEST_P(RowValuesTest, WhatIsNotFiniteStaysAndWhatIsFiniteStaysFinite) {
  const float most = ValueOf(GetParam(), MostBits(GetParam()));
  const float quiet = ToNearest(GetParam(), std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> row = {kInf,
                                  -kInf,
                                  0.0f,
                                  -0.0f,
                                  std::nextafter(most, kInf),
                                  -std::nextafter(most, kInf),
                                  std::numeric_limits<float>::max(),
                                  -std::numeric_limits<float>::max(),
                                  std::bit_cast<float>(0x7f800001u),
                                  std::bit_cast<float>(0xffffffffu),
                                  std::numeric_limits<float>::denorm_min()};
  for (int64_t step = 0; step < 100; ++step) {
    const Stored stored = Store(RowValues(GetParam(), 1, "t"), step, {7}, {row});
    const std::vector<float> expected = {kInf, -kInf, 0.0f, -0.0f, most, -most, most, -most, quiet, -quiet};
    for (size_t j = 0; j < expected.size(); ++j) EXPECT_EQ(BitsOf(stored.rows[0][j]), BitsOf(expected[j])) << j;
    ExpectSame(stored, {row});
  }
}

TEST_P(RowValuesTest, NearestIsNearestAndFillsItsWords) {
  const RowValues values(GetParam(), 1, "t");
  EXPECT_EQ(values.Bytes(1), 4);
  EXPECT_EQ(values.Bytes(16), 32);
  EXPECT_EQ(values.Bytes(17), 36);
  const std::vector<float> row = {0.1f, -3.14159f, 1e-7f, 65504.0f, std::bit_cast<float>(0xff800001u)};
  std::vector<char> at_rest(static_cast<size_t>(values.Bytes(5)), 'x');
  values.StoreNearest(row.data(), 5, at_rest.data());
  EXPECT_EQ(at_rest[10], 0);
  EXPECT_EQ(at_rest[11], 0);
  std::vector<float> back(5);
  values.Load(at_rest.data(), 5, back.data());
  for (size_t j = 0; j < 4; ++j) EXPECT_EQ(back[j], ToNearest(GetParam(), row[j]));
  EXPECT_TRUE(std::isnan(back[4]) && std::signbit(back[4]));
  // Values that StoreNearest has rounded are exact in the type, so Store must not change them.
  const Stored again = Store(values, 9, {4}, {back});
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are meant
  EXPECT_EQ(std::memcmp(again.rows[0].data(), back.data(), 5 * sizeof(float)), 0);
}

// The mean over many ids, columns and steps equals the value within five standard deviations of 65536 draws.
TEST_P(RowValuesTest, RoundingIsUnbiased) {
  const RowValues values(GetParam(), 17, "t");
  std::mt19937_64 random(1);
  for (int k = 0; k < 40; ++k) {
    // Exponents from 2^-20 (in FLOAT16 between the smallest values) to 2^10.
    const double value = std::ldexp(1 + static_cast<double>(random() % (1 << 20)) / (1 << 20), k % 31 - 20);
    std::vector<std::vector<float>> rows(64, std::vector<float>(32, static_cast<float>(value)));
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < 64; ++id) ids.push_back(id);
    double sum = 0;
    std::set<float> seen;
    for (int64_t step = 0; step < 32; ++step) {
      for (const std::vector<float>& row : Store(values, step, ids, rows).rows) {
        for (float each : row) {
          sum += each;
          seen.insert(each);
        }
      }
    }
    ASSERT_LE(seen.size(), 2u);
    const double apart = static_cast<double>(*seen.rbegin()) - *seen.begin();
    const double part = apart == 0 ? 0 : (static_cast<float>(value) - *seen.begin()) / apart;
    const double deviation = apart * std::sqrt(part * (1 - part) / 65536);
    EXPECT_NEAR(sum / 65536, static_cast<float>(value), 5 * deviation + 1e-12) << value;
  }
}

// A weight of 1 and 4000 steps of 1e-5, each less than half the distance to the next value: rounding to nearest would
// never leave 1.
TEST_P(RowValuesTest, SmallUpdatesAreNotLost) {
  const RowValues values(GetParam(), 5, "t");
  ASSERT_EQ(ToNearest(GetParam(), 1 + 1e-5f), 1);
  double sum = 0;
  const int ids = 400;
  for (int64_t id = 0; id < ids; ++id) {
    float weight = 1;
    for (int64_t step = 0; step < 4000; ++step) {
      weight += 1e-5f;
      values.Round(step, id, absl::MakeSpan(&weight, 1));
    }
    sum += weight;
  }
  // BFLOAT16 rounds up 5.1 times by 2^-7, plus or minus the root of that; for the mean the deviation is 0.0009.
  EXPECT_NEAR(sum / ids, 1.04, 0.005);
}

// A resumed run depends on these bits, so they must never change.
TEST_P(RowValuesTest, NeverChanges) {
  const RowValues values(GetParam(), 42, "vectors");
  std::vector<float> row(10);
  for (size_t j = 0; j < row.size(); ++j) row[j] = 1 + static_cast<float>(j) / 65536 * 37;
  std::vector<float> by_hand = row;
  const char key[] = "rounding of vectors";
  for (size_t j = 0; j < row.size(); ++j) {
    const PhiloxBlock block =
        Philox(StableHash(key, sizeof(key) - 1, 42), 1000 << 17 | j / 8, static_cast<uint64_t>(-3));
    const uint32_t word = block.v[j % 8 / 2];
    by_hand[j] = RoundAtRandom(GetParam(), row[j], static_cast<uint16_t>(j % 2 == 0 ? word : word >> 16));
  }
  values.Round(1000, -3, absl::MakeSpan(row));
  EXPECT_EQ(row, by_hand);
  // Distance above 1, in units of the type's spacing.
  std::vector<int> steps;
  for (float value : row) steps.push_back(static_cast<int>((value - 1) * (GetParam() == v1::FLOAT16 ? 1024 : 128)));
  if (GetParam() == v1::FLOAT16) {
    EXPECT_THAT(steps, ElementsAre(0, 0, 1, 2, 3, 2, 4, 4, 5, 5));
  } else {
    EXPECT_THAT(steps, ElementsAre(0, 0, 0, 0, 1, 0, 1, 0, 1, 1));
  }
}

TEST_P(RowValuesTest, SeedTableIdColumnAndStepMatter) {
  const std::vector<float> row(64, 1 + 0x1p-12f + 0x1p-9f);
  const auto rounded = [&](uint64_t seed, const char* table, int64_t step, int64_t id) {
    return Store(RowValues(GetParam(), seed, table), step, {id}, {row}).rows[0];
  };
  const std::vector<float> base = rounded(1, "t", 1, 1);
  EXPECT_EQ(std::set<float>(base.begin(), base.end()).size(), 2u);
  EXPECT_EQ(rounded(1, "t", 1, 1), base);
  EXPECT_NE(rounded(2, "t", 1, 1), base);
  EXPECT_NE(rounded(1, "u", 1, 1), base);
  EXPECT_NE(rounded(1, "t", 2, 1), base);
  EXPECT_NE(rounded(1, "t", 1, 2), base);
  EXPECT_NE(std::vector<float>(base.begin(), base.begin() + 32), std::vector<float>(base.begin() + 32, base.end()));
}

TEST(RowValuesFloat32Test, ValuesAreAsTheyAre) {
  const RowValues values(v1::FLOAT32, 1, "t");
  const std::vector<float> row = {0.1f, -0.0f, kInf, 1e-45f};
  EXPECT_EQ(values.Bytes(4), 16);
  const Stored stored = Store(values, 3, {1}, {row});
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are meant
  EXPECT_EQ(std::memcmp(stored.rows[0].data(), row.data(), 16), 0);
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are meant
  EXPECT_EQ(std::memcmp(stored.plain[0].data(), row.data(), 16), 0);
}

}  // namespace
}  // namespace weir
