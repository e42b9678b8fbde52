// Sums of rows of some widths, and gradients of rows of one number, have a way of their own, which gives the bits of
// the general one.

#include <cstring>
#include <vector>

#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/lookup.h"

namespace weir {
namespace {

constexpr int64_t kRows = 40;
constexpr int64_t kSlots = 3;

// Up to four ids in a slot (one each for no pooling), with places in order of first appearance.
struct Case {
  IdBatch ids;
  std::vector<int32_t> place;
  int64_t places = 0;
};

Case MakeCase(int64_t examples, bool one_each) {
  Case c;
  c.ids.slots = kSlots;
  c.ids.offsets.push_back(0);
  std::vector<int32_t> place_of(kRows, -1);
  for (int64_t g = 0; g < examples * kSlots; ++g) {
    const uint32_t count = one_each ? 1 : Philox(1, static_cast<uint64_t>(g), 0).v[0] % 5;
    for (uint32_t i = 0; i < count; ++i) {
      const int64_t id = Philox(2, static_cast<uint64_t>(g), i).v[0] % kRows;
      int32_t& place = place_of[static_cast<size_t>(id)];
      if (place < 0) place = static_cast<int32_t>(c.places++);
      c.ids.values.push_back(id);
      c.place.push_back(place);
    }
    c.ids.offsets.push_back(static_cast<int64_t>(c.ids.values.size()));
  }
  return c;
}

// Zeros of both signs are among them.
float Number(uint64_t key, int64_t i) {
  const PhiloxBlock r = Philox(key, static_cast<uint64_t>(i), 0);
  return r.v[1] % 4 == 0 ? 0.0f : r.v[1] % 4 == 1 ? -0.0f : UniformFloat(r.v[0]) - 0.5f;
}

std::string BitsOf(const float* values, int64_t n) {
  return std::string(reinterpret_cast<const char*>(values), static_cast<size_t>(n) * 4);
}

const std::vector<LookupAttrs>& AllAttrs() {
  static const auto* const all = new std::vector<LookupAttrs>{
      {.pooling = Pooling::kNone}, {.pooling = Pooling::kSum}, {.pooling = Pooling::kSum, .per_slot = true}};
  return *all;
}

TEST(LookupNumbersTest, SumsHaveTheBitsOfTheGeneralWay) {
  for (const LookupAttrs& attrs : AllAttrs()) {
    for (const int64_t examples : {0, 1, 7, 100}) {
      const Case c = MakeCase(examples, attrs.pooling == Pooling::kNone);
      for (const int64_t width : {1, 8, 16}) {
        // Rows of one value more are nothing special.
        std::vector<float> rows, wider;
        for (int64_t i = 0; i < kRows; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            rows.push_back(Number(3, i * width + j));
            wider.push_back(rows.back());
          }
          wider.push_back(0);
        }
        const std::vector<int32_t> row(c.ids.values.begin(), c.ids.values.end());
        Tensor out, general;
        PoolRows(attrs, c.ids, row.data(), rows.data(), width, &out);
        PoolRows(attrs, c.ids, row.data(), wider.data(), width + 1, &general);
        ASSERT_EQ(general.size() * width, out.size() * (width + 1));
        for (int64_t i = 0; i < out.size() / width; ++i) {
          ASSERT_EQ(BitsOf(out.data<float>() + i * width, width),
                    BitsOf(general.data<float>() + i * (width + 1), width))
              << i;
        }
      }
    }
  }
}

TEST(LookupNumbersTest, GradientsHaveTheBitsOfTheGeneralWay) {
  for (const LookupAttrs& attrs : AllAttrs()) {
    for (const int64_t examples : {0, 1, 7, 100}) {
      for (const bool fresh : {true, false}) {
        const Case c = MakeCase(examples, attrs.pooling == Pooling::kNone);
        const int64_t groups = attrs.pooling == Pooling::kSum && !attrs.per_slot ? examples : examples * kSlots;
        Tensor numbers(v1::FLOAT32, {groups, 1}), pairs(v1::FLOAT32, {groups, 2});
        for (int64_t i = 0; i < groups; ++i) {
          numbers.data<float>()[i] = pairs.data<float>()[2 * i] = Number(4, i);
          pairs.data<float>()[2 * i + 1] = 0;
        }
        std::vector<float> grad(kRows, 0.25f), general(2 * kRows, 0.25f);
        ScatterGradient(attrs, c.ids, c.place.data(), fresh, numbers, 1, grad.data());
        ScatterGradient(attrs, c.ids, c.place.data(), fresh, pairs, 2, general.data());
        for (size_t i = 0; i < kRows; ++i) ASSERT_EQ(BitsOf(&grad[i], 1), BitsOf(&general[2 * i], 1)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace weir
