// Predictions between trainers: what one has serialized comes back, bytes that make no sense are refused.

#include "trainer/predict/scores.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ScoresTest, LinesStandInInputOrderWithSkippedOnesAmongThem) {
  const Scores first{.width = 2, .positions = {{1, 0}, {0, 20}}, .values = {0.5f, 0.25f, 1, 0}, .skipped = {{0, 10}}};
  // A trainer without an example has no width, and may have skipped lines all the same.
  const Scores second{.skipped = {{1, 7}}};
  Scores all;
  for (const Scores* each : {&second, &first}) ASSERT_TRUE(all.Append(each->Serialize()).ok());
  std::vector<std::pair<InputPosition, int64_t>> lines;
  for (const Scores::Line& line : all.InOrder()) lines.emplace_back(line.position, line.index);
  EXPECT_EQ(lines,
            (std::vector<std::pair<InputPosition, int64_t>>{{{0, 10}, -1}, {{0, 20}, 1}, {{1, 0}, 0}, {{1, 7}, -1}}));
  EXPECT_EQ(all.values, (std::vector<float>{0.5f, 0.25f, 1, 0}));
  EXPECT_EQ(all.width, 2);
  EXPECT_EQ(second.InOrder().size(), 1u);
}

TEST(ScoresTest, BytesThatMakeNoSenseAreRefused) {
  const std::string good = Scores{.width = 1, .positions = {{0, 0}}, .values = {0.5f}, .skipped = {{0, 9}}}.Serialize();
  const auto with = [&good](size_t at, int64_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  };
  // 2^62 + 1 numbers wrap to the record of one.
  for (const int64_t width :
       {int64_t{-1}, int64_t{0}, int64_t{2}, (int64_t{1} << 62) + 1, std::numeric_limits<int64_t>::max()}) {
    EXPECT_FALSE(Scores().Append(with(0, width)).ok()) << width;
  }
  for (const int64_t skipped : {int64_t{-1}, int64_t{3}, (int64_t{1} << 60) + 1}) {
    EXPECT_FALSE(Scores().Append(with(8, skipped)).ok()) << skipped;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    // Cut behind the skipped line it is what a trainer without examples would say, but for its width.
    EXPECT_FALSE(Scores().Append(good.substr(0, size)).ok()) << size;
  }
  EXPECT_TRUE(Scores().Append(good).ok());
}

}  // namespace
}  // namespace weir
