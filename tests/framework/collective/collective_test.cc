// Collective operations among ranks in one process against a plain reference: all operations, types and reductions,
// 1 to 8 ranks, sizes around every border, values that are not finite, addends that are absent.

#include "framework/collective/collective.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/counters.h"
#include "framework/base/status_macros.h"
#include "framework/collective/local_mesh.h"
#include "framework/tensor/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/collective.pb.h"
#include "tests/framework/collective/on_ranks.h"

namespace weir {
namespace {

using ::testing::Each;

// Small messages, so that few elements are many messages.
constexpr int64_t kMessageBytes = 256;

Collective::Options SmallMessages() { return MessagesOf(kMessageBytes); }

// Runs `body` on every rank, each on its own thread; returns what each returned.
std::vector<absl::Status> OnRanks(LocalMeshes* meshes, int ranks,
                                  const std::function<absl::Status(Collective*, int rank)>& body) {
  return weir::OnRanks(meshes, ranks, SmallMessages(), body);
}

// ------------------------------------------------------------------------------------------------ the plain
// reference

// A value of any type, as the type in which it is reduced.
struct Number {
  double real = 0;
  int64_t integer = 0;
};

bool IsInteger(DType dtype) { return dtype == v1::INT32 || dtype == v1::INT64; }
bool IsSingle(DType dtype) { return dtype != v1::FLOAT64 && !IsInteger(dtype); }

Number Read(DType dtype, const std::vector<char>& bytes, int64_t i) {
  const char* at = bytes.data() + i * static_cast<int64_t>(DTypeSize(dtype));
  const auto load = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case v1::FLOAT32:
      return {.real = load(float())};
    case v1::FLOAT64:
      return {.real = load(double())};
    case v1::INT32:
      return {.integer = load(int32_t())};
    case v1::INT64:
      return {.integer = load(int64_t())};
    case v1::FLOAT16:
      return {.real = OfFloat16(load(uint16_t()))};
    case v1::BFLOAT16:
      return {.real = OfBFloat16(load(uint16_t()))};
    default:
      ADD_FAILURE();
      return {};
  }
}

Number Combined(Reduction reduction, DType dtype, Number a, Number b) {
  if (IsInteger(dtype)) {
    const auto ua = static_cast<uint64_t>(a.integer), ub = static_cast<uint64_t>(b.integer);
    int64_t result = 0;
    if (reduction == Reduction::kSum) result = static_cast<int64_t>(ua + ub);
    if (reduction == Reduction::kProduct) result = static_cast<int64_t>(ua * ub);
    if (reduction == Reduction::kMin) result = std::min(a.integer, b.integer);
    if (reduction == Reduction::kMax) result = std::max(a.integer, b.integer);
    return {.integer = dtype == v1::INT32 ? static_cast<int32_t>(result) : result};
  }
  if (reduction == Reduction::kMin || reduction == Reduction::kMax) {
    if (std::isnan(a.real) || std::isnan(b.real)) return {.real = std::numeric_limits<double>::quiet_NaN()};
    const bool a_first = a.real < b.real || (a.real == b.real && std::signbit(a.real));
    return a_first == (reduction == Reduction::kMin) ? a : b;
  }
  if (IsSingle(dtype)) {
    const auto fa = static_cast<float>(a.real), fb = static_cast<float>(b.real);
    return {.real = reduction == Reduction::kProduct ? fa * fb : fa + fb};
  }
  return {.real = reduction == Reduction::kProduct ? a.real * b.real : a.real + b.real};
}

// Reduces lanes [begin, begin + count) of element i, node by node from the top. `lanes`: null where a lane is absent.
std::optional<Number> ReduceNode(Reduction reduction, DType dtype, const std::vector<const std::vector<char>*>& lanes,
                                 int begin, int count, int64_t i) {
  if (begin >= static_cast<int>(lanes.size())) return std::nullopt;
  if (count == 1) {
    const std::vector<char>* values = lanes[static_cast<size_t>(begin)];
    return values == nullptr ? std::nullopt : std::optional(Read(dtype, *values, i));
  }
  const auto left = ReduceNode(reduction, dtype, lanes, begin, count / 2, i);
  const auto right = ReduceNode(reduction, dtype, lanes, begin + count / 2, count / 2, i);
  if (!left.has_value() || !right.has_value()) return left.has_value() ? left : right;
  return Combined(reduction, dtype, *left, *right);
}

// Bits of a number that is stored in the type; the same for all NaN.
uint64_t BitsOf(DType dtype, Number number, bool round) {
  if (IsInteger(dtype)) return static_cast<uint64_t>(number.integer);
  if (std::isnan(number.real)) return ~uint64_t{0};
  if (!round || dtype == v1::FLOAT32 || dtype == v1::FLOAT64) return std::bit_cast<uint64_t>(number.real);
  const auto value = static_cast<float>(number.real);
  const float most = dtype == v1::FLOAT16 ? kMostFloat16 : kMostBFloat16;
  // Halfway from the greatest value to the next power of two.
  const float overflow = dtype == v1::FLOAT16 ? 65520.0F : 0x1.ffp127F;
  float nearest = ToNearest(dtype, value);
  if (std::abs(nearest) == most && std::abs(value) >= overflow) {
    nearest = std::copysign(std::numeric_limits<float>::infinity(), value);
  }
  return std::bit_cast<uint64_t>(static_cast<double>(nearest));
}

std::vector<char> RandomValues(DType dtype, int64_t count, std::mt19937_64* random) {
  const size_t bytes = DTypeSize(dtype);
  std::vector<char> values(static_cast<size_t>(count) * bytes);
  const auto store = [&](int64_t i, auto value) {
    std::memcpy(values.data() + static_cast<size_t>(i) * bytes, &value, sizeof(value));
  };
  const double special[] = {0.0,
                            -0.0,
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            1e-40,
                            -3e-42,
                            std::numeric_limits<double>::denorm_min(),
                            -1e-310,
                            6e-8,
                            60000,
                            -65504,
                            3e38};
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t draw = (*random)();
    double real = (static_cast<double>(draw >> 11) / 0x1p53 - 0.5) * 100;
    if (draw % 5 == 0) real = special[(draw >> 8) % std::size(special)];
    const auto single = static_cast<float>(real);
    switch (dtype) {
      case v1::FLOAT32:
        store(i, single);
        break;
      case v1::FLOAT64:
        store(i, real);
        break;
      case v1::INT32:
        store(i, static_cast<int32_t>(draw));
        break;
      case v1::INT64:
        store(i, static_cast<int64_t>(draw));
        break;
      case v1::FLOAT16:
        store(i, Float16Of(single));
        break;
      case v1::BFLOAT16:
        store(i, BFloat16Of(single));
        break;
      default:
        ADD_FAILURE();
    }
  }
  return values;
}

// ---------------------------------------------------------------------------------------------------------- reductions

struct ReductionCase {
  DType dtype;
  Reduction reduction;
};

class ReductionTest : public ::testing::TestWithParam<ReductionCase> {};

// Sizes around the borders of 64 bytes, of slices and of messages.
std::vector<int64_t> Sizes(DType dtype, int ranks) {
  const int64_t unit = 64 / static_cast<int64_t>(DTypeSize(dtype));
  const int64_t message = kMessageBytes / static_cast<int64_t>(DTypeSize(dtype));
  std::vector<int64_t> sizes = {0, 1, unit - 1, unit, unit + 1};
  for (const int64_t border : {unit * ranks, message * ranks, 3 * message * ranks}) {
    for (const int64_t near : {border - 1, border, border + 1}) sizes.push_back(near);
  }
  return sizes;
}

// What one rank has after each operation, by size.
struct Outputs {
  std::vector<std::vector<char>> reduced, at_root, slices;
};

// Borders of slices of `count` elements: uneven, the first one empty.
std::vector<int64_t> UnevenSlices(int64_t count, int ranks) {
  std::vector<int64_t> begins = {0};
  for (int r = 1; r < ranks; ++r) begins.push_back(count * (r - 1) * r / (ranks * ranks));
  begins.push_back(count);
  return begins;
}

// Runs all reductions of inputs[size][rank] on each rank, all at once, every other one in place.
std::vector<Outputs> ReduceOnRanks(const ReductionCase& of, const std::vector<std::vector<std::vector<char>>>& inputs,
                                   int ranks, uint64_t shuffle) {
  std::vector<Outputs> outputs(static_cast<size_t>(ranks));
  const auto element = static_cast<int64_t>(DTypeSize(of.dtype));
  LocalMeshes meshes(ranks, shuffle);
  ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
    Outputs& out = outputs[static_cast<size_t>(rank)];
    for (auto* of_kind : {&out.reduced, &out.at_root, &out.slices}) of_kind->resize(inputs.size());
    std::vector<Collective::PendingPtr> pending;
    for (size_t s = 0; s < inputs.size(); ++s) {
      const std::vector<char>& in = inputs[s][static_cast<size_t>(rank)];
      const int64_t count = static_cast<int64_t>(in.size()) / element;
      const bool in_place = s % 2 == 0;
      for (auto* of_kind : {&out.reduced, &out.at_root, &out.slices}) {
        (*of_kind)[s] = in_place ? in : std::vector<char>(in.size());
      }
      const auto values = [&](const char* kind, const std::vector<char>& output) {
        return Collective::Values{.name = absl::StrCat(kind, s),
                                  .dtype = of.dtype,
                                  .shape = {count},
                                  .reduction = of.reduction,
                                  .addends = collective->Own(in_place ? output.data() : in.data()),
                                  .samples = rank + 1};
      };
      pending.push_back(collective->AllReduce(values("all", out.reduced[s]), out.reduced[s].data()));
      pending.push_back(
          collective->Reduce(values("root", out.at_root[s]), static_cast<int>(s) % ranks, out.at_root[s].data()));
      const std::vector<int64_t> begins = UnevenSlices(count, ranks);
      char* const own = out.slices[s].data() + begins[static_cast<size_t>(rank)] * element;
      pending.push_back(collective->ReduceScatter(values("slice", out.slices[s]), begins, own));
    }
    for (const auto& each : pending) {
      if (absl::Status status = each->Wait(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }));
  return outputs;
}

TEST_P(ReductionTest, EqualsTheReferenceOnAnyNumberOfRanks) {
  const DType dtype = GetParam().dtype;
  const Reduction reduction = GetParam().reduction;
  std::mt19937_64 random(7);
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const std::vector<int64_t> sizes = Sizes(dtype, ranks);
    // By size and rank; one value each.
    std::vector<std::vector<std::vector<char>>> inputs(sizes.size());
    for (size_t s = 0; s < sizes.size(); ++s) {
      for (int r = 0; r < ranks; ++r) inputs[s].push_back(RandomValues(dtype, sizes[s], &random));
    }
    const std::vector<Outputs> outputs = ReduceOnRanks(GetParam(), inputs, ranks, /*shuffle=*/1);
    const std::vector<Outputs> again =
        ranks % 3 == 2 ? ReduceOnRanks(GetParam(), inputs, ranks, /*shuffle=*/2) : outputs;
    int root = 1;
    while (root < ranks) root *= 2;
    const int samples = ranks * (ranks + 1) / 2;
    for (size_t s = 0; s < sizes.size(); ++s) {
      std::vector<const std::vector<char>*> lanes;
      for (const std::vector<char>& each : inputs[s]) lanes.push_back(&each);
      const Reduction plain = reduction == Reduction::kAverage ? Reduction::kSum : reduction;
      const std::vector<int64_t> begins = UnevenSlices(sizes[s], ranks);
      for (int64_t i = 0; i < sizes[s]; ++i) {
        Number expected = *ReduceNode(plain, dtype, lanes, 0, root, i);
        if (reduction == Reduction::kAverage) {
          expected.real = IsSingle(dtype) ? static_cast<float>(expected.real) / static_cast<float>(samples)
                                          : expected.real / samples;
        }
        const uint64_t bits = BitsOf(dtype, expected, true);
        const auto owner = std::upper_bound(begins.begin(), begins.end(), i) - begins.begin() - 1;
        const std::vector<char>& at_root = outputs[s % static_cast<size_t>(ranks)].at_root[s];
        const std::vector<char>& slice = outputs[static_cast<size_t>(owner)].slices[s];
        for (const std::vector<char>* result : {&outputs[0].reduced[s], &at_root, &slice}) {
          ASSERT_EQ(BitsOf(dtype, Read(dtype, *result, i), false), bits)
              << ranks << " ranks, element " << i << " of " << sizes[s];
        }
      }
      for (size_t r = 0; r < outputs.size(); ++r) {
        EXPECT_EQ(outputs[r].reduced[s], outputs[0].reduced[s]) << "rank " << r << " has other bits";
        EXPECT_EQ(outputs[r].reduced[s], again[r].reduced[s]) << "the second run gave other bits";
        EXPECT_EQ(outputs[r].at_root[s], again[r].at_root[s]);
        EXPECT_EQ(outputs[r].slices[s], again[r].slices[s]);
      }
    }
  }
}

std::vector<ReductionCase> AllReductions() {
  std::vector<ReductionCase> cases;
  for (const DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::FLOAT16, v1::BFLOAT16}) {
    for (const Reduction reduction :
         {Reduction::kSum, Reduction::kAverage, Reduction::kMin, Reduction::kMax, Reduction::kProduct}) {
      if (CanReduce(reduction, dtype)) cases.push_back({dtype, reduction});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, ReductionTest, ::testing::ValuesIn(AllReductions()), [](const auto& info) {
  return absl::StrCat(v1::DType_Name(info.param.dtype), "_", std::string(ReductionName(info.param.reduction)));
});

// Sums of the lanes of a trainer, as a trainer makes them: float32, by the tree.
struct Lanes {
  std::vector<std::vector<float>> values;  // by lane; empty: absent
};

std::vector<float> NodeSum(const Lanes& lanes, LaneRange node) {
  if (node.count == 1) return lanes.values[static_cast<size_t>(node.begin)];
  std::vector<float> left = NodeSum(lanes, {node.begin, node.count / 2});
  std::vector<float> right = NodeSum(lanes, {node.begin + node.count / 2, node.count / 2});
  if (left.empty() || right.empty()) return left.empty() ? right : left;
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

Lanes RandomLanes(int lanes, int64_t count, double absent, std::mt19937_64* random) {
  Lanes result;
  for (int l = 0; l < lanes; ++l) {
    std::vector<float>& values = result.values.emplace_back();
    if (static_cast<double>((*random)() >> 11) / 0x1p53 < absent) continue;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(static_cast<double>((*random)() >> 11) / 0x1p53 - 0.5));
    }
  }
  return result;
}

TEST(CollectiveTest, TheSumOfLanesDependsOnNoNumberOfRanks) {
  constexpr int64_t kCount = 1000;
  std::mt19937_64 random(11);
  for (const int lanes : {8, 32}) {
    for (const double absent : {0.0, 0.4, 0.9}) {
      const Lanes input = RandomLanes(lanes, kCount, absent, &random);
      const std::vector<float> expected = NodeSum(input, {0, lanes});
      for (int ranks = 1; ranks <= 8; ++ranks) {
        LocalMeshes meshes(ranks, /*shuffle=*/3);
        ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
          std::vector<std::vector<float>> sums;
          std::vector<LaneAddend> addends;
          for (const LaneRange& node : AlignedNodes(LanesOfTrainer(lanes, ranks, rank))) {
            sums.push_back(NodeSum(input, node));
            if (!sums.back().empty()) addends.push_back({.lanes = node, .values = sums.back().data()});
          }
          std::vector<float> out(kCount, -7);
          const auto pending = collective->AllReduce(
              {.name = "g", .shape = {kCount}, .lanes = lanes, .addends = addends, .samples = 5}, out.data());
          EXPECT_TRUE(pending->Wait().ok());
          EXPECT_EQ(pending->present(), !expected.empty());
          EXPECT_EQ(pending->samples(), 5 * ranks);
          EXPECT_EQ(out, expected.empty() ? std::vector<float>(kCount, -7) : expected);
          return absl::OkStatus();
        }));
      }
    }
  }
}

TEST(CollectiveTest, AnAbsentAddendIsNoZero) {
  // -0 + 0 is 0, and -0 alone stays -0.
  for (const bool zeros : {false, true}) {
    LocalMeshes meshes(2);
    ExpectAllOk(OnRanks(&meshes, 2, [&](Collective* collective, int rank) {
      std::vector<float> values(3, rank == 0 ? -0.0F : 0.0F);
      std::vector<LaneAddend> addends;
      if (rank == 0 || zeros) addends = collective->Own(values.data());
      if (absl::Status status =
              collective->AllReduce({.name = "z", .shape = {3}, .addends = addends}, values.data())->Wait();
          !status.ok()) {
        return status;
      }
      for (const float value : values) EXPECT_EQ(std::signbit(value), !zeros);
      return absl::OkStatus();
    }));
  }
}

// ------------------------------------------------------------------------------------------------------------ segments

std::vector<uint32_t> FloatBits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// Values in the memory of a rank's addends: NaN where a segment is absent, which shows where it is read.
struct Addends {
  std::vector<std::vector<float>> memory;
  std::vector<LaneAddend> addends;
};

Addends AddendsOf(const std::vector<Lanes>& segments, const std::vector<int64_t>& counts, int lanes, int ranks,
                  int rank) {
  Addends result;
  for (const LaneRange& node : AlignedNodes(LanesOfTrainer(lanes, ranks, rank))) {
    std::vector<float> values;
    uint64_t present = 0;
    for (size_t s = 0; s < segments.size(); ++s) {
      std::vector<float> sum = NodeSum(segments[s], node);
      if (!sum.empty()) present |= uint64_t{1} << s;
      if (sum.empty()) sum.assign(static_cast<size_t>(counts[s]), std::numeric_limits<float>::quiet_NaN());
      values.insert(values.end(), sum.begin(), sum.end());
    }
    result.memory.push_back(std::move(values));
    // Not left out where nothing is present: an addend may have no segment.
    result.addends.push_back({.lanes = node, .values = result.memory.back().data(), .present = present});
  }
  return result;
}

class SegmentsTest : public ::testing::TestWithParam<int> {
 protected:
  // Around the borders of 64 bytes, messages and slices.
  const std::vector<int64_t> counts_ = {3, 1, 15, 16, 17, 64, 63, 65, 1, 200, 2, 1000, 511, 30};
  const int64_t count_ = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});

  // The lanes of each segment: some have all, some few, two none. Lane 5 alone has the first one, and it is -0.
  std::vector<Lanes> Input(int lanes, std::mt19937_64* random) const {
    const double absent[] = {0, 0.3, 0.9};
    std::vector<Lanes> segments;
    for (size_t s = 0; s < counts_.size(); ++s) {
      segments.push_back(RandomLanes(lanes, counts_[s], s == 7 || s == 13 ? 1 : absent[s % 3], random));
    }
    for (std::vector<float>& values : segments[0].values) values.clear();
    segments[0].values[5].assign(static_cast<size_t>(counts_[0]), -0.0F);
    return segments;
  }
  // What the memory of a result is that was full of -7: unchanged where nobody has the segment.
  std::vector<float> Expected(const std::vector<Lanes>& segments, int lanes) const {
    std::vector<float> all;
    for (size_t s = 0; s < segments.size(); ++s) {
      std::vector<float> sum = NodeSum(segments[s], {0, lanes});
      if (sum.empty()) sum.assign(static_cast<size_t>(counts_[s]), -7);
      all.insert(all.end(), sum.begin(), sum.end());
    }
    return all;
  }
};

TEST_P(SegmentsTest, HaveTheBitsOfOperationsOfTheirOwn) {
  const int ranks = GetParam();
  std::mt19937_64 random(13);
  for (const int lanes : {8, 32}) {
    const std::vector<Lanes> input = Input(lanes, &random);
    const std::vector<float> expected = Expected(input, lanes);
    LocalMeshes meshes(ranks, /*shuffle=*/3);
    ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
      const Addends own = AddendsOf(input, counts_, lanes, ranks, rank);
      std::vector<float> together(static_cast<size_t>(count_), -7), alone = together;
      std::vector<Collective::PendingPtr> pending;
      pending.push_back(collective->AllReduce(
          {.name = "all", .shape = {count_}, .segments = counts_, .lanes = lanes, .addends = own.addends},
          together.data()));
      int64_t begin = 0;
      for (size_t s = 0; s < counts_.size(); ++s) {
        std::vector<LaneAddend> addends;
        for (const LaneAddend& each : own.addends) {
          if ((each.present >> s & 1) == 0) continue;
          addends.push_back({.lanes = each.lanes, .values = static_cast<const float*>(each.values) + begin});
        }
        pending.push_back(collective->AllReduce(
            {.name = absl::StrCat("one.", s), .shape = {counts_[s]}, .lanes = lanes, .addends = addends},
            alone.data() + begin));
        begin += counts_[s];
      }
      for (const auto& each : pending) {
        if (absl::Status status = each->Wait(); !status.ok()) return status;
      }
      EXPECT_EQ(FloatBits(together), FloatBits(alone));
      EXPECT_EQ(FloatBits(together), FloatBits(expected));
      EXPECT_TRUE(pending[0]->present());
      for (size_t s = 0; s < counts_.size(); ++s) EXPECT_EQ(pending[0]->present(s), pending[s + 1]->present()) << s;
      EXPECT_TRUE(std::signbit(together[0]));
      return absl::OkStatus();
    }));
  }
}

TEST_P(SegmentsTest, InPlaceAtARootAndInSlicesToo) {
  const int ranks = GetParam();
  constexpr int kLanes = 8;
  std::mt19937_64 random(17);
  const std::vector<Lanes> input = Input(kLanes, &random);
  const std::vector<float> expected = Expected(input, kLanes);
  const std::vector<int64_t> begins = UnevenSlices(count_, ranks);
  std::vector<float> slices(expected.size(), -7);
  LocalMeshes meshes(ranks, /*shuffle=*/5);
  ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
    Addends own = AddendsOf(input, counts_, kLanes, ranks, rank), in_place = own;
    for (size_t a = 0; a < own.addends.size(); ++a) {
      // The copies have memory of their own.
      in_place.addends[a].values = in_place.memory[a].data();
    }
    int64_t at = 0;
    for (size_t s = 0; s < counts_.size(); at += counts_[s++]) {
      if (s == 7 || s == 13) std::fill_n(in_place.memory[0].begin() + at, counts_[s], -7);
    }
    std::vector<float> at_root(expected.size(), -7);
    const auto values = [&](const char* name, const Addends& of) {
      return Collective::Values{
          .name = name, .shape = {count_}, .segments = counts_, .lanes = kLanes, .addends = of.addends};
    };
    const int root = ranks / 2;
    const std::vector<Collective::PendingPtr> pending = {
        collective->AllReduce(values("in place", in_place), in_place.memory[0].data()),
        collective->Reduce(values("root", own), root, at_root.data()),
        collective->ReduceScatter(values("slices", own), begins, slices.data() + begins[static_cast<size_t>(rank)])};
    for (const auto& each : pending) {
      if (absl::Status status = each->Wait(); !status.ok()) return status;
    }
    EXPECT_EQ(FloatBits(in_place.memory[0]), FloatBits(expected));
    EXPECT_EQ(FloatBits(at_root), FloatBits(rank == root ? expected : std::vector<float>(expected.size(), -7)));
    return absl::OkStatus();
  }));
  EXPECT_EQ(FloatBits(slices), FloatBits(expected));
}

TEST_P(SegmentsTest, NothingIsSentOfThoseThatAreAbsent) {
  const int ranks = GetParam();
  LocalMeshes meshes(ranks);
  const std::vector<int64_t> counts = {100000, 1000, 100000};
  ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
    std::vector<float> values(201000, 1);
    std::vector<LaneAddend> addends = collective->Own(values.data());
    // The first segment is nowhere, the last one only on rank 0.
    addends[0].present = rank == 0 ? 6 : 2;
    const auto pending =
        collective->AllReduce({.name = "x", .shape = {201000}, .segments = counts, .addends = addends}, values.data());
    if (absl::Status status = pending->Wait(); !status.ok()) return status;
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(values[100000], ranks);
    EXPECT_EQ(values[101000], 1);
    EXPECT_FALSE(pending->present(0));
    EXPECT_TRUE(pending->present(2));
    return absl::OkStatus();
  }));
  int64_t sent = 0;
  for (int r = 0; r < ranks; ++r) sent += meshes.sent(r) - 1024 * (ranks - 1);
  // Rank 0 sends what others add of its last segment, and every result goes to all others.
  EXPECT_LE(sent, 4 * (ranks - 1) * (100000 + 100000 + 2 * 1000));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SegmentsTest, ::testing::Range(1, 9));

TEST(CollectiveTest, SegmentsThatNobodyHasChangeNothing) {
  LocalMeshes meshes(3);
  ExpectAllOk(OnRanks(&meshes, 3, [&](Collective* collective, int rank) {
    std::vector<float> values(30, 1), out(30, -7);
    std::vector<LaneAddend> addends = collective->Own(values.data());
    addends[0].present = 0;
    if (rank == 1) addends.clear();
    const auto pending =
        collective->AllReduce({.name = "x", .shape = {30}, .segments = {10, 20}, .addends = addends}, out.data());
    if (absl::Status status = pending->Wait(); !status.ok()) return status;
    EXPECT_FALSE(pending->present() || pending->present(0) || pending->present(1));
    EXPECT_THAT(out, Each(-7));
    return absl::OkStatus();
  }));
}

TEST(CollectiveTest, AsManySegmentsAsAreBoundFit) {
  // 64 segments in each of the 6 addends of a rank: lanes 1 to 14 of 32.
  LocalMeshes meshes(2);
  ExpectAllOk(OnRanks(&meshes, 2, [&](Collective* collective, int rank) {
    std::vector<float> values(64, 1), out(64, 0);
    std::vector<LaneAddend> addends;
    for (const LaneRange& node : AlignedNodes(rank == 0 ? LaneRange{1, 14} : LaneRange{17, 14})) {
      addends.push_back({.lanes = node, .values = values.data(), .present = 0x5555555555555555});
    }
    const auto pending = collective->AllReduce({.name = std::string(128, 'n'),
                                                .shape = {64},
                                                .segments = std::vector<int64_t>(64, 1),
                                                .lanes = 32,
                                                .addends = addends},
                                               out.data());
    if (absl::Status status = pending->Wait(); !status.ok()) return status;
    for (size_t s = 0; s < 64; ++s) {
      EXPECT_EQ(pending->present(s), s % 2 == 0);
      EXPECT_EQ(out[s], s % 2 == 0 ? 2 * static_cast<float>(addends.size()) : 0);
    }
    return absl::OkStatus();
  }));
}

TEST(CollectiveTest, ARankSendsWhatTheHeaderSays) {
  constexpr int64_t kCount = 1 << 18;
  std::mt19937_64 random(5);
  const Lanes input = RandomLanes(8, kCount, 0, &random);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    LocalMeshes meshes(ranks);
    ExpectAllOk(OnRanks(&meshes, ranks, Collective::Options(), [&](Collective* collective, int rank) {
      std::vector<std::vector<float>> sums;
      std::vector<LaneAddend> addends;
      for (const LaneRange& node : AlignedNodes(LanesOfTrainer(8, ranks, rank))) {
        sums.push_back(NodeSum(input, node));
        addends.push_back({.lanes = node, .values = sums.back().data()});
      }
      return collective->AllReduce({.name = "g", .shape = {kCount}, .lanes = 8, .addends = addends}, sums[0].data())
          ->Wait();
    }));
    for (int r = 0; r < ranks; ++r) {
      const auto k = static_cast<double>(AlignedNodes(LanesOfTrainer(8, ranks, r)).size());
      const double bytes = (k + 1) * (ranks - 1) / ranks * kCount * sizeof(float);
      EXPECT_NEAR(static_cast<double>(meshes.sent(r)) / bytes, 1, 0.02) << ranks << " ranks, rank " << r;
    }
  }
}

TEST(CollectiveTest, MessagesAreCounted) {
  const auto value = [](const std::string& name) { return Counters::Process().Value("counted.collective." + name); };
  LocalMeshes meshes(2);
  Collective::Options options = SmallMessages();
  options.counted_as = "counted";
  const auto body = [](Collective* collective, int rank) -> absl::Status {
    std::vector<float> values(48, 1);
    std::vector<std::string> all;
    const auto reduced =
        collective->AllReduce({.name = "g", .shape = {48}, .addends = collective->Own(values.data())}, values.data());
    RETURN_IF_ERROR(reduced->Wait());
    return collective->AllGatherBytes("b", std::string(static_cast<size_t>(rank) * 300, 'x'), &all)->Wait();
  };
  ExpectAllOk(OnRanks(&meshes, 2, options, body));
  // Both ranks count under one name. Two headers and one message of 300 bytes, which is two; slices of 32 and 16
  // floats, once as addends and once as sums.
  EXPECT_EQ(value("messages"), 4 + 2 + 2 * 2);
  EXPECT_EQ(value("bytes_out"), 4 * 1024 + 300 + 2 * 4 * 48);
  EXPECT_EQ(value("bytes_in"), value("bytes_out"));
}

TEST(CollectiveTest, OnlyTheRootGetsAReduction) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      LocalMeshes meshes(ranks, /*shuffle=*/9);
      ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
        std::vector<int64_t> in(500), out(500, -1);
        for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int64_t>(i) * (rank + 1);
        if (absl::Status status =
                collective
                    ->Reduce(
                        {.name = "r", .dtype = v1::INT64, .shape = {50, 10}, .addends = collective->Own(in.data())},
                        root, out.data())
                    ->Wait();
            !status.ok()) {
          return status;
        }
        for (size_t i = 0; i < out.size(); ++i) {
          const int64_t sum = static_cast<int64_t>(i) * ranks * (ranks + 1) / 2;
          EXPECT_EQ(out[i], rank == root ? sum : -1);
        }
        return absl::OkStatus();
      }));
    }
  }
}

TEST(CollectiveTest, ReduceScatterKeepsASliceOfAnySize) {
  // Some empty, one the whole.
  const std::vector<std::vector<int64_t>> borders = {{0, 0, 0, 400}, {0, 400, 400, 400}, {0, 1, 67, 400}};
  for (const std::vector<int64_t>& begins : borders) {
    LocalMeshes meshes(3, /*shuffle=*/2);
    ExpectAllOk(OnRanks(&meshes, 3, [&](Collective* collective, int rank) {
      std::vector<int32_t> in(400), out(400, -1);
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i) + rank;
      if (absl::Status status =
              collective
                  ->ReduceScatter(
                      {.name = "rs", .dtype = v1::INT32, .shape = {400}, .addends = collective->Own(in.data())}, begins,
                      out.data())
                  ->Wait();
          !status.ok()) {
        return status;
      }
      const int64_t begin = begins[static_cast<size_t>(rank)], end = begins[static_cast<size_t>(rank) + 1];
      for (int64_t i = 0; i < 400; ++i) {
        EXPECT_EQ(out[static_cast<size_t>(i)], i < end - begin ? static_cast<int32_t>(3 * (begin + i) + 3) : -1);
      }
      return absl::OkStatus();
    }));
  }
}

// --------------------------------------------------------------------------------------------------------------- moves

std::string Text(int rank, int peer, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(rank * 31 + peer * 7 + static_cast<int>(i)));
  return text;
}

TEST(CollectiveTest, BytesOfAnyLengthReachTheirRanks) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{255}, size_t{256}, size_t{5000}}) {
      LocalMeshes meshes(ranks, /*shuffle=*/4);
      const auto length = [bytes](int rank, int peer) { return bytes * static_cast<size_t>((rank + peer) % 3); };
      ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
        std::vector<std::string> to, from, all, gathered;
        for (int peer = 0; peer < ranks; ++peer) to.push_back(Text(rank, peer, length(rank, peer)));
        const int root = ranks - 1;
        const std::vector<Collective::PendingPtr> pending = {
            collective->AllToAllBytes("a", to, &from),
            collective->AllGatherBytes("g", Text(rank, 0, length(rank, 0)), &all),
            collective->GatherBytes("r", Text(rank, 1, length(rank, 1)), root, &gathered)};
        for (const auto& each : pending) {
          if (absl::Status status = each->Wait(); !status.ok()) return status;
        }
        for (int peer = 0; peer < ranks; ++peer) {
          const auto p = static_cast<size_t>(peer);
          EXPECT_EQ(from[p], Text(peer, rank, length(peer, rank)));
          EXPECT_EQ(all[p], Text(peer, 0, length(peer, 0)));
          if (rank == root) {
            EXPECT_EQ(gathered[p], Text(peer, 1, length(peer, 1)));
          }
        }
        EXPECT_EQ(gathered.size(), rank == root ? static_cast<size_t>(ranks) : 0);
        return absl::OkStatus();
      }));
    }
  }
}

TEST(CollectiveTest, ABroadcastComesFromAnyRoot) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      for (const int64_t count : {0, 1, 63, 64, 65, 16383, 16384, 40000}) {
        LocalMeshes meshes(ranks);
        ExpectAllOk(OnRanks(&meshes, ranks, {.message_bytes = 10000}, [&](Collective* collective, int rank) {
          std::vector<double> values(static_cast<size_t>(count));
          for (size_t i = 0; i < values.size(); ++i) values[i] = rank == root ? static_cast<double>(i) + 0.5 : -1;
          if (absl::Status status = collective->Broadcast("b", v1::FLOAT64, {count}, root, values.data())->Wait();
              !status.ok()) {
            return status;
          }
          for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<double>(i) + 0.5);
          return absl::OkStatus();
        }));
      }
    }
  }
}

TEST(CollectiveTest, AllGatherFillsInTheSlicesOfOthers) {
  std::mt19937_64 random(3);
  for (const DType dtype : {v1::FLOAT32, v1::FLOAT64, v1::INT32, v1::INT64, v1::FLOAT16, v1::BFLOAT16, v1::UINT8}) {
    const size_t element = DTypeSize(dtype);
    for (int ranks = 1; ranks <= 8; ++ranks) {
      LocalMeshes meshes(ranks, /*shuffle=*/6);
      const std::vector<int64_t> sizes = Sizes(dtype, ranks);
      std::vector<std::vector<char>> expected;
      for (const int64_t size : sizes) {
        std::vector<char>& bytes = expected.emplace_back(static_cast<size_t>(size) * element);
        for (char& byte : bytes) byte = static_cast<char>(random());
      }
      ExpectAllOk(OnRanks(&meshes, ranks, [&](Collective* collective, int rank) {
        std::vector<std::vector<char>> all;
        for (const std::vector<char>& each : expected) all.emplace_back(each.size(), '?');
        std::vector<Collective::PendingPtr> pending;
        for (size_t s = 0; s < sizes.size(); ++s) {
          const std::vector<int64_t> begins = UnevenSlices(sizes[s], ranks);
          const auto begin = begins[static_cast<size_t>(rank)] * static_cast<int64_t>(element);
          const auto end = begins[static_cast<size_t>(rank) + 1] * static_cast<int64_t>(element);
          std::copy(expected[s].begin() + begin, expected[s].begin() + end, all[s].begin() + begin);
          pending.push_back(collective->AllGather("g", dtype, begins, all[s].data()));
        }
        for (const auto& each : pending) {
          if (absl::Status status = each->Wait(); !status.ok()) return status;
        }
        EXPECT_EQ(all, expected);
        return absl::OkStatus();
      }));
    }
  }
}

TEST(CollectiveTest, MoreBytesThanARankIsBelievedToSendArrive) {
  // Unequal, and more than two steps of 64 MiB.
  LocalMeshes meshes(2);
  ExpectAllOk(OnRanks(&meshes, 2, Collective::Options(), [&](Collective* collective, int rank) {
    const auto bytes = [](int of) {
      return std::string(of == 0 ? (size_t{130} << 20) + 7 : 5, static_cast<char>('a' + of));
    };
    std::vector<std::string> all;
    const absl::Status status = collective->AllGatherBytes("much", bytes(rank), &all)->Wait();
    if (!status.ok()) return status;
    EXPECT_TRUE(all[0] == bytes(0) && all[1] == bytes(1));
    return absl::OkStatus();
  }));
}

TEST(CollectiveTest, ABarrierWaitsForTheLast) {
  LocalMeshes meshes(3);
  std::atomic<bool> last{false};
  ExpectAllOk(OnRanks(&meshes, 3, [&](Collective* collective, int rank) {
    if (rank == 2) {
      // The others are in the barrier now: each has sent two headers of it.
      while (meshes.sent(0) < 2048 || meshes.sent(1) < 2048) std::this_thread::yield();
      last = true;
    }
    const absl::Status status = collective->Barrier("all")->Wait();
    EXPECT_TRUE(last);
    return status;
  }));
}

TEST(CollectiveTest, HundredsOfSmallOperationsAreUnderWayAtOnce) {
  constexpr int kOperations = 300;
  LocalMeshes meshes(4, /*shuffle=*/8);
  ExpectAllOk(OnRanks(&meshes, 4, [&](Collective* collective, int rank) {
    std::vector<std::vector<int64_t>> values;
    for (int i = 0; i < kOperations; ++i) values.push_back(std::vector<int64_t>(static_cast<size_t>(i % 40), rank + i));
    std::vector<Collective::PendingPtr> pending;
    for (int i = 0; i < kOperations; ++i) {
      std::vector<int64_t>& v = values[static_cast<size_t>(i)];
      pending.push_back(collective->AllReduce({.name = absl::StrCat("small.", i),
                                               .dtype = v1::INT64,
                                               .shape = {i % 40},
                                               .addends = collective->Own(v.data())},
                                              v.data()));
    }
    for (int i = 0; i < kOperations; ++i) {
      if (absl::Status status = pending[static_cast<size_t>(i)]->Wait(); !status.ok()) return status;
      EXPECT_THAT(values[static_cast<size_t>(i)], Each(4 * i + 6));
    }
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace weir
