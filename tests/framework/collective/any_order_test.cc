// All-reduces in any order against plain sums: any number of ranks, types, sizes around every border, segments that
// ranks lack, values that are not finite. All ranks must have the same bits. And what rounding to 16 bits takes.

#include "framework/collective/any_order_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/collective/stored.h"
#include "framework/runtime/lane_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/collective/on_ranks.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kMessageBytes = 256;

template <typename T>
constexpr DType kTypeOf = v1::DTYPE_UNSET;
template <>
constexpr DType kTypeOf<float> = v1::FLOAT32;
template <>
constexpr DType kTypeOf<double> = v1::FLOAT64;
template <>
constexpr DType kTypeOf<int32_t> = v1::INT32;
template <>
constexpr DType kTypeOf<int64_t> = v1::INT64;

template <typename T>
class AnyOrderTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(AnyOrderTest, Types);

// Sizes around the borders of 64 bytes, of slices and of messages.
std::vector<int64_t> Sizes(size_t element, int ranks) {
  const auto unit = static_cast<int64_t>(64 / element), message = kMessageBytes / static_cast<int64_t>(element);
  std::vector<int64_t> sizes = {0, 1, unit - 1, unit, unit + 1};
  for (const int64_t border : {unit * ranks, message * ranks, 3 * message * ranks, 7 * message * ranks + 5 * unit}) {
    for (const int64_t near : {border - 1, border, border + 1}) sizes.push_back(near);
  }
  return sizes;
}

// Multiples of 1/4 whose sums no order changes.
template <typename T>
T Value(int rank, int64_t i) {
  const int64_t quarters = (rank + 3) * (i * 7919 % 1009 - 500);
  return static_cast<T>(std::is_integral_v<T> ? quarters : static_cast<double>(quarters) / 4);
}

TYPED_TEST(AnyOrderTest, EqualsThePlainSumOnAnyNumberOfRanks) {
  using T = TypeParam;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    LocalMeshes meshes(ranks, /*shuffle=*/11);
    ExpectAllOk(OnRanks(&meshes, ranks, MessagesOf(kMessageBytes), [&](Collective* collective, int rank) {
      const std::vector<int64_t> sizes = Sizes(sizeof(T), ranks);
      std::vector<std::vector<T>> in(sizes.size()), out(sizes.size());
      std::vector<Collective::PendingPtr> pending;
      for (size_t s = 0; s < sizes.size(); ++s) {
        for (int64_t i = 0; i < sizes[s]; ++i) in[s].push_back(Value<T>(rank, i));
        // Every other one in place.
        out[s] = s % 2 == 0 ? in[s] : std::vector<T>(in[s].size());
        pending.push_back(collective->AllReduce({.name = absl::StrCat("x", s),
                                                 .dtype = kTypeOf<T>,
                                                 .shape = {sizes[s]},
                                                 .addends = collective->Own((s % 2 == 0 ? out[s] : in[s]).data()),
                                                 .samples = rank + 1,
                                                 .any_order = true},
                                                out[s].data()));
      }
      for (size_t s = 0; s < sizes.size(); ++s) {
        if (absl::Status status = pending[s]->Wait(); !status.ok()) return status;
        EXPECT_EQ(pending[s]->samples(), ranks * (ranks + 1) / 2);
        EXPECT_TRUE(pending[s]->present());
        for (int64_t i = 0; i < sizes[s]; ++i) {
          T sum = 0;
          for (int r = 0; r < ranks; ++r) sum += Value<T>(r, i);
          if (out[s][static_cast<size_t>(i)] == sum) continue;
          ADD_FAILURE() << ranks << " ranks: element " << i << " of " << sizes[s] << " is "
                        << out[s][static_cast<size_t>(i)] << ", not " << sum;
          break;
        }
      }
      return absl::OkStatus();
    }));
  }
}

TYPED_TEST(AnyOrderTest, WholeNumbersWrapAndAveragesAreDividedOnce) {
  using T = TypeParam;
  LocalMeshes meshes(3);
  ExpectAllOk(OnRanks(&meshes, 3, MessagesOf(kMessageBytes), [&](Collective* collective, int rank) {
    if constexpr (std::is_integral_v<T>) {
      T value = std::numeric_limits<T>::max();
      const absl::Status status = collective
                                      ->AllReduce({.name = "w",
                                                   .dtype = kTypeOf<T>,
                                                   .shape = {1},
                                                   .addends = collective->Own(&value),
                                                   .any_order = true},
                                                  &value)
                                      ->Wait();
      // Three times 2^(n-1) - 1.
      EXPECT_EQ(value, std::numeric_limits<T>::max() - 2);
      return status;
    } else {
      std::vector<T> values(100, static_cast<T>(rank + 1));
      const absl::Status status = collective
                                      ->AllReduce({.name = "a",
                                                   .dtype = kTypeOf<T>,
                                                   .shape = {100},
                                                   .reduction = Reduction::kAverage,
                                                   .addends = collective->Own(values.data()),
                                                   .samples = 10,
                                                   .any_order = true},
                                                  values.data())
                                      ->Wait();
      EXPECT_THAT(values, Each(static_cast<T>(6) / static_cast<T>(30)));
      return status;
    }
  }));
}

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(AnyOrderRunTest, AllRanksHaveTheSameBitsWhateverTheValues) {
  constexpr int64_t kCount = 5003;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    std::vector<std::vector<float>> in, out(static_cast<size_t>(ranks));
    std::mt19937_64 random(5);
    const float special[] = {0.0F,
                             -0.0F,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             1e-40F,
                             -3e-42F,
                             std::numeric_limits<float>::denorm_min(),
                             3e38F};
    for (int r = 0; r < ranks; ++r) {
      std::vector<float>& values = in.emplace_back();
      for (int64_t i = 0; i < kCount; ++i) {
        const uint64_t draw = random();
        const float plain = static_cast<float>(draw >> 40) / 0x1p24F - 0.5F;
        values.push_back(draw % 7 == 0 && i < kCount / 2 ? special[(draw >> 8) % std::size(special)] : plain);
      }
    }
    std::vector<std::vector<float>> again = out;
    for (auto* to : {&out, &again}) {
      LocalMeshes meshes(ranks, /*shuffle=*/to == &out ? 3 : 4);
      ExpectAllOk(OnRanks(&meshes, ranks, MessagesOf(kMessageBytes), [&](Collective* collective, int rank) {
        std::vector<float>& own = (*to)[static_cast<size_t>(rank)];
        own.resize(kCount);
        return collective
            ->AllReduce({.name = "x",
                         .shape = {kCount},
                         .addends = collective->Own(in[static_cast<size_t>(rank)].data()),
                         .any_order = true},
                        own.data())
            ->Wait();
      }));
    }
    for (const std::vector<float>& each : out) EXPECT_EQ(BitsOf(each), BitsOf(out[0])) << ranks << " ranks";
    EXPECT_EQ(BitsOf(again[0]), BitsOf(out[0])) << "the second run gave other bits";
    for (int64_t i = 0; i < kCount; ++i) {
      double sum = 0;
      for (const std::vector<float>& each : in) sum += each[static_cast<size_t>(i)];
      const float got = out[0][static_cast<size_t>(i)];
      // 3e38 may overflow in one order and not in another.
      if (i < kCount / 2 && (std::abs(sum) > 2e38 || std::isinf(got))) continue;
      if (std::isnan(sum)) {
        EXPECT_TRUE(std::isnan(got)) << i;
      } else {
        EXPECT_NEAR(got, sum, 1e-5 + std::abs(sum) * 1e-5) << i;
      }
    }
  }
}

TEST(AnyOrderRunTest, SegmentsThatSomeRanksLackAreZerosThere) {
  const std::vector<int64_t> counts = {3, 17, 0, 200, 64, 1, 100};
  constexpr int64_t kCount = 385;
  for (int ranks = 1; ranks <= 8; ++ranks) {
    LocalMeshes meshes(ranks, /*shuffle=*/2);
    ExpectAllOk(OnRanks(&meshes, ranks, MessagesOf(kMessageBytes), [&](Collective* collective, int rank) {
      std::vector<float> values, out(kCount, -7);
      // Segment 3 is nowhere, 1 only on the last rank, 4 on none but rank 0, the others everywhere.
      uint64_t present = 0b1100101;
      if (rank == ranks - 1) present |= 0b10;
      if (rank == 0) present |= 0b10000;
      for (size_t s = 0; s < counts.size(); ++s) {
        const float value =
            (present >> s & 1) == 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(rank + 1);
        values.insert(values.end(), static_cast<size_t>(counts[s]), value);
      }
      std::vector<LaneAddend> addends = collective->Own(values.data());
      addends[0].present = present;
      const auto pending = collective->AllReduce(
          {.name = "x", .shape = {kCount}, .segments = counts, .addends = addends, .any_order = true}, out.data());
      if (absl::Status status = pending->Wait(); !status.ok()) return status;
      const auto sum = static_cast<float>(ranks * (ranks + 1)) / 2;
      const float expected[] = {sum, static_cast<float>(ranks), 0, -7, 1, sum, sum};
      int64_t at = 0;
      for (size_t s = 0; s < counts.size(); ++s) {
        EXPECT_EQ(pending->present(s), s != 3) << s;
        for (int64_t i = 0; i < counts[s]; ++i) EXPECT_EQ(out[static_cast<size_t>(at++)], expected[s]) << s;
      }
      return absl::OkStatus();
    }));
  }
}

TEST(AnyOrderRunTest, ARankAddsItsOwnAddendsFirst) {
  constexpr int64_t kCount = 1 << 16;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    LocalMeshes meshes(ranks);
    ExpectAllOk(OnRanks(&meshes, ranks, {}, [&](Collective* collective, int rank) {
      std::vector<std::vector<float>> sums;
      std::vector<LaneAddend> addends;
      for (const LaneRange& node : AlignedNodes(LanesOfTrainer(8, ranks, rank))) {
        sums.push_back(std::vector<float>(kCount, static_cast<float>(node.count)));
        addends.push_back({.lanes = node, .values = sums.back().data()});
      }
      const absl::Status status =
          collective
              ->AllReduce({.name = "x", .shape = {kCount}, .lanes = 8, .addends = addends, .any_order = true},
                          sums[0].data())
              ->Wait();
      EXPECT_THAT(sums[0], Each(8));
      return status;
    }));
    for (int r = 0; r < ranks; ++r) {
      const double bytes = 2.0 * (ranks - 1) / ranks * kCount * sizeof(float);
      EXPECT_NEAR(static_cast<double>(meshes.sent(r)) / bytes, 1, 0.03) << ranks << " ranks, rank " << r;
    }
  }
}

TEST(AnyOrderRunTest, WhatNoOrderChangesAndWhatIsRoundedStaysInTheTree) {
  EXPECT_TRUE(CanReduceInAnyOrder(Reduction::kSum, v1::FLOAT32));
  EXPECT_TRUE(CanReduceInAnyOrder(Reduction::kAverage, v1::FLOAT64));
  EXPECT_FALSE(CanReduceInAnyOrder(Reduction::kAverage, v1::INT32));
  for (const DType dtype : {v1::FLOAT16, v1::BFLOAT16}) EXPECT_FALSE(CanReduceInAnyOrder(Reduction::kSum, dtype));
  for (const Reduction reduction : {Reduction::kMin, Reduction::kMax, Reduction::kProduct, Reduction::kAdasum}) {
    EXPECT_FALSE(CanReduceInAnyOrder(reduction, v1::FLOAT32));
  }
  LocalMeshes meshes(4);
  ExpectAllOk(OnRanks(&meshes, 4, {}, [&](Collective* collective, int rank) {
    // 2048 + 1 + 1 + 1 is 2051 in float32, rounded once to 2052; each sum rounded would be 2048.
    std::vector<uint16_t> values(10, Float16Of(rank == 0 ? 2048.0F : 1.0F));
    const absl::Status status = collective
                                    ->AllReduce({.name = "h",
                                                 .dtype = v1::FLOAT16,
                                                 .shape = {10},
                                                 .addends = collective->Own(values.data()),
                                                 .any_order = true},
                                                values.data())
                                    ->Wait();
    EXPECT_THAT(values, Each(Float16Of(2052)));
    return status;
  }));
}

TEST(AnyOrderRunTest, RanksMustAgreeOnIt) {
  LocalMeshes meshes(2);
  const std::vector<absl::Status> statuses = OnRanks(&meshes, 2, {}, [&](Collective* collective, int rank) {
    std::vector<float> values(100);
    return collective
        ->AllReduce({.name = "x", .shape = {100}, .addends = collective->Own(values.data()), .any_order = rank == 1},
                    values.data())
        ->Wait();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("sum in any order"));
  }
}

TEST(AnyOrderRunTest, AddendsThatAreNoNodesAndAveragesOfNothingAreRefused) {
  for (const bool overlaps : {true, false}) {
    LocalMeshes meshes(2);
    const std::vector<absl::Status> statuses = OnRanks(&meshes, 2, {}, [&](Collective* collective, int rank) {
      std::vector<float> values(10);
      std::vector<LaneAddend> addends = collective->Own(values.data());
      if (overlaps && rank == 1) addends.push_back({.lanes = {1, 1}, .values = values.data()});
      return collective
          ->AllReduce({.name = "x",
                       .shape = {10},
                       .reduction = Reduction::kAverage,
                       .addends = addends,
                       .samples = overlaps ? 1 : 0,
                       .any_order = true},
                      values.data())
          ->Wait();
    });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(overlaps ? "rank 1 has an addend of lanes 1 to 1" : "the ranks have 0 samples together"));
    }
  }
}

TEST(AnyOrderRunTest, ARankThatStopsIsNamed) {
  ExpectStoppedRankIsNamed(1 << 18, [](Collective* collective, std::vector<float>* values) {
    return collective->AllReduce(
        {.name = "x", .shape = {1 << 18}, .addends = collective->Own(values->data()), .any_order = true},
        values->data());
  });
}

// ------------------------------------------------------------------------------------------------- what rounding takes

TEST(LostTest, OwnersKeepWhatRoundingTakesFromResults) {
  for (const DType dtype : {v1::FLOAT16, v1::BFLOAT16}) {
    const auto widen = [dtype](uint16_t bits) { return dtype == v1::FLOAT16 ? OfFloat16(bits) : OfBFloat16(bits); };
    for (int ranks = 1; ranks <= 8; ++ranks) {
      constexpr size_t kCount = 1000;
      std::vector<std::vector<uint16_t>> in(static_cast<size_t>(ranks)), out(static_cast<size_t>(ranks));
      std::vector<std::vector<float>> lost(static_cast<size_t>(ranks));
      std::mt19937_64 random(9);
      for (std::vector<uint16_t>& values : in) {
        for (size_t i = 0; i < kCount; ++i) {
          const float value = static_cast<float>(random() >> 40) / 0x1p20F;
          values.push_back(dtype == v1::FLOAT16 ? Float16Of(value) : BFloat16Of(value));
        }
      }
      LocalMeshes meshes(ranks);
      ExpectAllOk(OnRanks(&meshes, ranks, MessagesOf(kMessageBytes), [&](Collective* collective, int rank) {
        const auto r = static_cast<size_t>(rank);
        out[r].resize(kCount);
        lost[r].assign(kCount, 1);
        return collective
            ->AllReduce({.name = "x",
                         .dtype = dtype,
                         .shape = {kCount},
                         .addends = collective->Own(in[r].data()),
                         .lost = lost[r].data()},
                        out[r].data())
            ->Wait();
      }));
      for (size_t i = 0; i < kCount; ++i) {
        double sum = 0, kept = 0;
        for (size_t r = 0; r < in.size(); ++r) {
          sum += widen(in[r][i]);
          kept += lost[r][i] - 1;
          EXPECT_EQ(out[r][i], out[0][i]);
        }
        // Up to 128 in steps of 2^-20 or more: no sum in float32 is rounded much.
        EXPECT_NEAR(widen(out[0][i]) + kept, sum, 1e-4) << ranks << " ranks, element " << i;
      }
    }
  }
}

TEST(LostTest, OnlyValuesOf16BitsAreRounded) {
  LocalMeshes meshes(1);
  Collective collective(meshes.mesh(0), {});
  std::vector<float> values(10), lost(10);
  const auto pending = collective.AllReduce(
      {.name = "x", .shape = {10}, .addends = collective.Own(values.data()), .lost = lost.data()}, values.data());
  EXPECT_THAT(std::string(pending->Wait().message()), HasSubstr("values of type float32 lose nothing"));
}

}  // namespace
}  // namespace weir
