// Adasums against plain code: any number of ranks, types, lanes that are absent, sizes around every border; and values
// at which the formula divides by zero.

#include "framework/collective/adasum.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "framework/collective/addend_nodes.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/collective/stored.h"
#include "framework/runtime/lane_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/collective/on_ranks.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Values of any of the types are also doubles.
using Values = std::vector<double>;

double RoundTo(DType dtype, double value) {
  if (dtype == v1::FLOAT64) return value;
  const auto single = static_cast<float>(value);
  if (dtype == v1::FLOAT16) return Widen(Narrow<Float16Bits>(single));
  return dtype == v1::BFLOAT16 ? Widen(Narrow<BFloat16Bits>(single)) : single;
}

double Product(const Values& a, const Values& b) {
  double whole = 0;
  for (size_t begin = 0; begin < a.size(); begin += 4096) {
    double sums[8] = {};
    for (size_t i = begin; i < std::min(a.size(), begin + 4096); ++i) sums[(i - begin) % 8] += a[i] * b[i];
    double block = 0;
    for (const double sum : sums) block += sum;
    whole += block;
  }
  return whole;
}

Values Pair(DType dtype, const Values& a, const Values& b) {
  const double aa = Product(a, a), bb = Product(b, b), ab = Product(a, b);
  const double of_a = aa > 0 ? 1 - ab / (2 * aa) : 1, of_b = bb > 0 ? 1 - ab / (2 * bb) : 1;
  Values out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = RoundTo(dtype, of_a * a[i] + of_b * b[i]);
  return out;
}

// Lanes [begin, begin + count), of those that are present.
using ByLane = std::map<int, Values>;
std::optional<Values> Node(DType dtype, const ByLane& lanes, int begin, int count) {
  if (count == 1) {
    const auto lane = lanes.find(begin);
    return lane == lanes.end() ? std::nullopt : std::optional(lane->second);
  }
  const auto left = Node(dtype, lanes, begin, count / 2), right = Node(dtype, lanes, begin + count / 2, count / 2);
  if (!left.has_value() || !right.has_value()) return left.has_value() ? left : right;
  return Pair(dtype, *left, *right);
}

std::vector<char> Store(DType dtype, const Values& values) {
  std::vector<char> bytes(values.size() * DTypeSize(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto put = [&](auto value) { std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value)); };
    const auto single = static_cast<float>(values[i]);
    if (dtype == v1::FLOAT64) put(values[i]);
    if (dtype == v1::FLOAT32) put(single);
    if (dtype == v1::FLOAT16) put(Narrow<Float16Bits>(single));
    if (dtype == v1::BFLOAT16) put(Narrow<BFloat16Bits>(single));
  }
  return bytes;
}

ByLane RandomLanes(DType dtype, int lanes, int64_t count, double absent, std::mt19937_64* random) {
  ByLane result;
  const auto draw = [random] { return static_cast<double>((*random)() >> 11) / 0x1p53; };
  for (int l = 0; l < lanes; ++l) {
    if (draw() < absent) continue;
    Values& values = result[l];
    for (int64_t i = 0; i < count; ++i) {
      double value = draw() - 0.5;
      if ((*random)() % 50 == 0) value = std::vector<double>{0, -0.0, 1e-40, -6e-8, 100}[(*random)() % 5];
      values.push_back(RoundTo(dtype, value));
    }
  }
  return result;
}

// A segment that no lane has, one of every border, and a large one.
const std::vector<int64_t> kCounts = {1, 0, 7, 8, 9, 64, 4095, 4096, 4097, 20, 3 * 4096 + 5, 1};
constexpr size_t kNowhere = 9;

// Node sums of one rank with all segments, in one memory for each addend.
struct Own {
  std::vector<std::vector<char>> memory;
  std::vector<LaneAddend> addends;
};
Own OwnOf(DType dtype, const std::vector<ByLane>& segments, int lanes, int ranks, int rank) {
  Own own;
  for (const LaneRange& node : AlignedNodes(LanesOfTrainer(lanes, ranks, rank))) {
    std::vector<char> bytes;
    uint64_t present = 0;
    for (size_t s = 0; s < segments.size(); ++s) {
      std::optional<Values> values = Node(dtype, segments[s], node.begin, node.count);
      if (values.has_value()) present |= uint64_t{1} << s;
      // NaN where it must not be read.
      if (!values.has_value()) values = Values(static_cast<size_t>(kCounts[s]), std::nan(""));
      const std::vector<char> stored = Store(dtype, *values);
      bytes.insert(bytes.end(), stored.begin(), stored.end());
    }
    own.memory.push_back(std::move(bytes));
    own.addends.push_back({.lanes = node, .values = own.memory.back().data(), .present = present});
  }
  return own;
}

class AdasumTest : public ::testing::TestWithParam<DType> {};

TEST_P(AdasumTest, EqualsTheReferenceOnAnyNumberOfRanks) {
  const DType dtype = GetParam();
  std::mt19937_64 random(3);
  int64_t count = 0;
  for (const int64_t each : kCounts) count += each;
  for (const int lanes : {8, 32}) {
    std::vector<ByLane> segments;
    std::vector<char> expected;
    for (size_t s = 0; s < kCounts.size(); ++s) {
      segments.push_back(RandomLanes(dtype, lanes, kCounts[s], s == kNowhere ? 1 : s % 3 == 2 ? 0.6 : 0, &random));
      const std::optional<Values> values = Node(dtype, segments[s], 0, lanes);
      const std::vector<char> stored = Store(dtype, values.value_or(Values(static_cast<size_t>(kCounts[s]), -7)));
      expected.insert(expected.end(), stored.begin(), stored.end());
    }
    const std::vector<char> before = Store(dtype, Values(static_cast<size_t>(count), -7));
    for (int ranks = 1; ranks <= 8; ++ranks) {
      LocalMeshes meshes(ranks, /*shuffle=*/5);
      ExpectAllOk(OnRanks(&meshes, ranks, MessagesOf(2048), [&](Collective* collective, int rank) {
        Own own = OwnOf(dtype, segments, lanes, ranks, rank);
        const auto values = [&](const char* name) {
          return Collective::Values{.name = name,
                                    .dtype = dtype,
                                    .shape = {count},
                                    .segments = kCounts,
                                    .reduction = Reduction::kAdasum,
                                    .lanes = lanes,
                                    .addends = own.addends,
                                    .samples = 3};
        };
        std::vector<char> out = before, at_root = before;
        const auto pending = collective->AllReduce(values("a"), out.data());
        const auto rooted = collective->Reduce(values("r"), ranks / 2, at_root.data());
        EXPECT_TRUE(pending->Wait().ok());
        EXPECT_TRUE(rooted->Wait().ok());
        EXPECT_EQ(out, expected) << ranks << " ranks, " << lanes << " lanes, rank " << rank;
        EXPECT_EQ(at_root, rank == ranks / 2 ? expected : before);
        for (size_t s = 0; s < kCounts.size(); ++s) EXPECT_EQ(pending->present(s), s != kNowhere);
        EXPECT_EQ(pending->samples(), 3 * ranks);
        // In place, where the first addend lacks nothing but what nobody has.
        std::vector<char>& memory = own.memory[0];
        if (own.addends[0].present != (AllSegments(kCounts.size()) & ~(uint64_t{1} << kNowhere))) {
          return collective->AllReduce(values("i"), out.data())->Wait();
        }
        std::vector<char> in_place = expected;
        const size_t nowhere =
            static_cast<size_t>(std::accumulate(kCounts.begin(), kCounts.begin() + kNowhere, int64_t{0})) *
            DTypeSize(dtype);
        std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(nowhere),
                    static_cast<size_t>(kCounts[kNowhere]) * DTypeSize(dtype),
                    in_place.begin() + static_cast<std::ptrdiff_t>(nowhere));
        EXPECT_TRUE(collective->AllReduce(values("i"), memory.data())->Wait().ok());
        EXPECT_EQ(memory, in_place);
        return absl::OkStatus();
      }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AdasumTest, ::testing::Values(v1::FLOAT32, v1::FLOAT64, v1::FLOAT16, v1::BFLOAT16),
                         [](const auto& info) { return v1::DType_Name(info.param); });

std::vector<float> AdasumOf(std::vector<std::vector<float>> lanes) {
  std::vector<LaneAddend> addends;
  for (size_t l = 0; l < lanes.size(); ++l) {
    addends.push_back({.lanes = {static_cast<int>(l), 1}, .values = lanes[l].data()});
  }
  std::vector<float> out(lanes[0].size());
  Adasum(v1::FLOAT32, addends, static_cast<int>(lanes.size()), static_cast<int64_t>(out.size()), out.data());
  return out;
}

TEST(AdasumValuesTest, EqualGradientsAreAveragedAndThoseAtRightAnglesAdded) {
  EXPECT_THAT(AdasumOf({{3, 4}, {3, 4}}), ElementsAre(3, 4));
  EXPECT_THAT(AdasumOf({{1, 0, 2}, {0, 5, 0}}), ElementsAre(1, 5, 2));
  EXPECT_THAT(AdasumOf({{1, 0}, {1, 1}}), ElementsAre(1.25, 0.75));
  // a.b = 2, a.a = 4, b.b = 2: 3/4 of a and half of b.
  EXPECT_THAT(AdasumOf({{2, 0}, {1, 1}}), ElementsAre(2, 0.5));
  // Opposite ones take from each other what they have.
  EXPECT_THAT(AdasumOf({{1, 2}, {-1, -2}}), ElementsAre(0, 0));
}

TEST(AdasumValuesTest, ZerosTakeNothing) {
  EXPECT_THAT(AdasumOf({{0, 0}, {3, 4}}), ElementsAre(3, 4));
  EXPECT_THAT(AdasumOf({{3, 4}, {-0.0F, 0}}), ElementsAre(3, 4));
  EXPECT_THAT(AdasumOf({{0, 0}, {0, 0}}), ElementsAre(0, 0));
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_THAT(AdasumOf({{least, 0}, {least, 0}}), ElementsAre(least, 0));
  const float most = std::numeric_limits<float>::max();
  EXPECT_THAT(AdasumOf({{most, 0}, {most, 0}}), ElementsAre(most, 0));
  const std::vector<float> signs = AdasumOf({{-0.0F}, {-0.0F}});
  EXPECT_TRUE(std::signbit(signs[0]));
}

TEST(AdasumValuesTest, WhatIsNotFiniteShows) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf, -inf}) {
    EXPECT_FALSE(std::isfinite(AdasumOf({{1, bad}, {2, 3}})[1])) << bad;
    EXPECT_FALSE(std::isfinite(AdasumOf({{1, 2}, {2, bad}})[1])) << bad;
    EXPECT_FALSE(std::isfinite(AdasumOf({{0, bad}, {0, 0}})[1])) << bad;
  }
}

TEST(AdasumRunTest, OwnersExchangeLittleBesideTheValues) {
  constexpr int64_t kCount = 1 << 18;
  for (const int ranks : {2, 4, 8}) {
    LocalMeshes meshes(ranks);
    ExpectAllOk(OnRanks(&meshes, ranks, {}, [&](Collective* collective, int rank) {
      std::vector<float> values(kCount, static_cast<float>(rank));
      return collective
          ->AllReduce({.name = "g",
                       .shape = {kCount},
                       .reduction = Reduction::kAdasum,
                       .addends = collective->Own(values.data())},
                      values.data())
          ->Wait();
    }));
    for (int r = 0; r < ranks; ++r) {
      const double bytes = 2.0 * (ranks - 1) / ranks * kCount * sizeof(float);
      EXPECT_NEAR(static_cast<double>(meshes.sent(r)) / bytes, 1, 0.03) << ranks << " ranks, rank " << r;
    }
  }
}

TEST(AdasumRunTest, WhatHasNoAdasumIsRefused) {
  struct Case {
    Collective::Values values;
    bool scatters;
    const char* message;
  };
  std::vector<int64_t> memory(10);
  for (const Case& c :
       std::vector<Case>{{{.name = "i", .dtype = v1::INT64, .shape = {10}, .reduction = Reduction::kAdasum},
                          false,
                          "values of type int64 have no adasum"},
                         {{.name = "s", .shape = {10}, .reduction = Reduction::kAdasum},
                          true,
                          "an adasum cannot be scattered: its products are over whole segments"}}) {
    LocalMeshes meshes(2);
    const std::vector<absl::Status> statuses = OnRanks(&meshes, 2, {}, [&](Collective* collective, int rank) {
      if (rank == 1) return collective->Barrier("b")->Wait();
      const auto refused = c.scatters ? collective->ReduceScatter(c.values, {0, 5, 10}, memory.data())
                                      : collective->AllReduce(c.values, memory.data());
      return refused->Wait();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    }
  }
}

TEST(AdasumRunTest, ARankThatStopsIsNamed) {
  ExpectStoppedRankIsNamed(1 << 18, [](Collective* collective, std::vector<float>* values) {
    return collective->AllReduce(
        {.name = "x", .shape = {1 << 18}, .reduction = Reduction::kAdasum, .addends = collective->Own(values->data())},
        values->data());
  });
}

}  // namespace
}  // namespace weir
