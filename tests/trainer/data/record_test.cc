// Packing of an example into one run of bytes.

#include "trainer/files/record.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAreArray;

// Makes an example with two floats.
Example Of(const std::vector<int64_t>& ids, const std::vector<uint16_t>& counts, const std::vector<float>& weights) {
  return {.floats = {0.5, -2}, .ids = ids, .counts = counts, .weights = weights};
}

TEST(RecordTest, WhatComesOutIsWhatWentIn) {
  const int64_t largest = 0xFFFFFFFF;
  for (const std::vector<int64_t>& ids :
       {std::vector<int64_t>{1, 2, 3}, {largest, 0, 7}, {largest + 1, 0, 7}, {-1, 0, 7}}) {
    for (const std::vector<uint16_t>& counts : {std::vector<uint16_t>{1, 1, 1}, {0, 3, 0}, {1, 1, 1, 0}, {2, 1}}) {
      for (const std::vector<float>& weights : {std::vector<float>{}, {1, 0.5, 2}}) {
        const Example in = Of(ids, counts, weights);
        // An example that a parser has filled from another line.
        Example out = {.floats = {9, 9}, .ids = {9}, .counts = std::vector<uint16_t>(counts.size(), 9), .weights = {9}};
        Record(in).CopyTo(&out);
        EXPECT_THAT(out.floats, ElementsAreArray(in.floats));
        EXPECT_THAT(out.ids, ElementsAreArray(in.ids));
        EXPECT_THAT(out.counts, ElementsAreArray(in.counts));
        EXPECT_THAT(out.weights, ElementsAreArray(in.weights));
      }
    }
  }
}

// A shuffle buffer counts these bytes, so the order of examples depends on them.
TEST(RecordTest, IdsThatFitIn32BitsTakeFourBytes) {
  const auto bytes = [](int64_t id) { return Record(Of({id, 2, 3}, {1, 1, 1}, {})).bytes(); };
  EXPECT_EQ(bytes(0xFFFFFFFF), bytes(0));
  EXPECT_EQ(bytes(0x100000000), bytes(0) + 3 * 4);
  EXPECT_EQ(bytes(-1), bytes(0) + 3 * 4);
}

TEST(RecordTest, CountsAreKeptUnlessEverySlotHasOneId) {
  const auto kept = [](const std::vector<int64_t>& ids, const std::vector<uint16_t>& counts) {
    return Record(Of(ids, counts, {})).Look(2, counts.size()).counts != nullptr;
  };
  EXPECT_FALSE(kept({1, 2, 3}, {1, 1, 1}));
  EXPECT_FALSE(kept({1, 2, 3, 4, 5}, {1, 1, 1, 1, 1}));
  EXPECT_TRUE(kept({1, 2, 3}, {1, 2, 0}));
  EXPECT_TRUE(kept({1, 2}, {1, 1, 0}));
  EXPECT_TRUE(kept({1, 2, 3, 4, 5}, {1, 1, 1, 0, 2}));
}

}  // namespace
}  // namespace weir
