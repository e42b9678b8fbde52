#include "pserver/client/residuals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/codecs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr LaneRange kNode{0, 2};

// Returns what a server decodes.
std::vector<float> Arrived(v1::WireFormat format, const char* bytes, size_t n, size_t group,
                           const std::string& exponents) {
  std::vector<float> arrived(n);
  if (exponents.empty()) {
    Decode(format, bytes, n, group, arrived.data());
  } else {
    EXPECT_EQ(format, v1::WIRE_FLOAT16);
    DecodeWithExponents(bytes, n, group, exponents, arrived.data());
  }
  return arrived;
}

// Encodes `values` and returns what a server decodes.
std::vector<float> SendDense(Residuals& residuals, std::vector<float> values, v1::WireFormat format, int64_t begin = 0,
                             int64_t count = -1) {
  const size_t n = values.size();
  const WireBuffer bytes = BufferPool().Get(EncodedBytes(format, n, kDenseGroup));
  const std::string exponents = residuals.EncodeDense("w", kNode, count < 0 ? static_cast<int64_t>(n) : count, begin,
                                                      absl::MakeSpan(values), format, bytes.data);
  return Arrived(format, bytes.data, n, kDenseGroup, exponents);
}

std::vector<float> SendRows(Residuals& residuals, const std::vector<int64_t>& ids, std::vector<float> values,
                            v1::WireFormat format, const int64_t* before = nullptr) {
  const size_t n = values.size(), width = n / ids.size();
  const WireBuffer bytes = BufferPool().Get(EncodedBytes(format, n, width));
  const std::string exponents = residuals.EncodeRows("t", kNode, static_cast<int>(width), ids, before,
                                                     absl::MakeSpan(values), format, bytes.data);
  return Arrived(format, bytes.data, n, width, exponents);
}

TEST(ResidualsTest, WhatIsLostOnceComesLater) {
  // The scale is 1: 0.3 rounds to 0 until its residuals have added up to more than a half.
  Residuals residuals;
  std::vector<float> got;
  for (int i = 0; i < 4; ++i) got.push_back(SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8)[1]);
  EXPECT_THAT(got, testing::ElementsAre(0, 1, 0, 0));
}

TEST(ResidualsTest, TheSumOfManyPushesIsThatOfTheGradients) {
  std::mt19937 random(1);
  for (const v1::WireFormat format : {v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
    Residuals residuals;
    std::vector<double> exact(8), sent(8), naive(8);
    for (int step = 0; step < 1000; ++step) {
      std::vector<float> grads(8);
      for (size_t i = 0; i < 8; ++i) grads[i] = 0.7f + 1e-4f * static_cast<float>(random() % 100);
      const std::vector<float> dense = SendDense(residuals, grads, format),
                               rows = SendRows(residuals, {-4, 9}, grads, format);
      for (size_t i = 0; i < 8; ++i) {
        exact[i] += grads[i];
        sent[i] += dense[i];
        naive[i] += rows[i];
      }
    }
    // The sum is off by one rounding error, not by a thousand.
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(sent[i], exact[i], 0.01) << v1::WireFormat_Name(format);
      EXPECT_NEAR(naive[i], exact[i], 0.01) << v1::WireFormat_Name(format);
    }
  }
}

TEST(ResidualsTest, PiecesOfABlockAndNodesHaveTheirOwn) {
  Residuals residuals;
  SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8, /*begin=*/2, /*count=*/4);
  EXPECT_EQ(SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8, /*begin=*/0, /*count=*/4)[1], 0);
  EXPECT_EQ(SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8, /*begin=*/2, /*count=*/4)[1], 1);
}

// Returns the residuals as the bytes of a file.
std::string Saved(const Residuals& residuals, int64_t step) {
  std::string all;
  const absl::Status saved = residuals.Save(step, [&](const v1::Residual& residual) {
    all += ResidualElement(residual);
    return absl::OkStatus();
  });
  EXPECT_TRUE(saved.ok()) << saved;
  return all;
}

TEST(ResidualsTest, WhatIsNotFiniteOrBeyondTheFormatLeavesNoPoison) {
  Residuals residuals;
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> sent = SendDense(residuals, {inf, 70000, std::nanf("")}, v1::WIRE_FLOAT16);
  EXPECT_EQ(sent[0], inf);
  EXPECT_NEAR(sent[1], 70000, 32);
  EXPECT_TRUE(std::isnan(sent[2]));
  EXPECT_THAT(SendDense(residuals, {1, 0, 20}, v1::WIRE_FLOAT16), testing::ElementsAre(1, 70000 - sent[1], 20));
  EXPECT_EQ(residuals.large().count, 1);
  EXPECT_EQ(residuals.large().first, "w");
}

TEST(ResidualsTest, AResidualOfAGradientOfAnotherSizeIsDropped) {
  // The scale of the first group is 1000, so that 400 is lost.
  for (const float next : {399.0f, 400.0f}) {
    Residuals residuals;
    EXPECT_THAT(SendRows(residuals, {7}, {127000, 400}, v1::WIRE_INT8), testing::ElementsAre(127000, 0));
    EXPECT_NEAR(SendRows(residuals, {7}, {next, 0}, v1::WIRE_INT8)[1], next < 400 ? 0 : 400, 2) << next;
  }
  Residuals residuals;
  SendDense(residuals, {127000, 400}, v1::WIRE_INT8);
  EXPECT_THAT(SendDense(residuals, {0, 0}, v1::WIRE_INT8), testing::ElementsAre(0, 0));
  // One that is not large stays.
  SendDense(residuals, {0.127f, 0.0004f}, v1::WIRE_INT8);
  EXPECT_NEAR(SendDense(residuals, {0, 0}, v1::WIRE_INT8)[1], 0.0004, 1e-5);
}

TEST(ResidualsTest, GradientsThatAreTooSmallForTheirFormatComeTogether) {
  Residuals residuals;
  float sum = 0;
  for (int i = 0; i < 100; ++i) sum += SendDense(residuals, {1e-8f}, v1::WIRE_FLOAT16)[0];
  EXPECT_NEAR(sum, 1e-6, 4e-8);
}

// Rows beside a large one are what they are, and small elements of its row come later.
TEST(ResidualsTest, ALargeElementOfFloat16TakesNothingFromTheOthers) {
  Residuals residuals;
  EXPECT_THAT(SendRows(residuals, {-4, 9}, {0x1p90f, 1, 0.25f, 3}, v1::WIRE_FLOAT16),
              testing::ElementsAre(0x1p90f, 0, 0.25f, 3));
  EXPECT_THAT(SendRows(residuals, {-4, 9}, {0, 2, 0.25f, 3}, v1::WIRE_FLOAT16), testing::ElementsAre(0, 3, 0.25f, 3));
  EXPECT_EQ(residuals.large().count, 1);
  EXPECT_EQ(residuals.large().first, "t");
}

// However large a gradient is, what is sent is finite, and later gradients are what they are.
TEST(ResidualsTest, OneLargeGradientDoesNotChangeLaterSteps) {
  for (const v1::WireFormat format : {v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
    for (const float large : {1e5f, 1e9f, -1e9f, 3e38f, 3.4e38f, -3.4e38f, std::numeric_limits<float>::max()}) {
      Residuals residuals;
      SendDense(residuals, {0.3f, 0.3f}, format);
      SendRows(residuals, {7}, {0.3f, 0.3f, 0.3f, 0.3f}, format);
      for (int i = 0; i < 2; ++i) {
        // With the residual of the one before.
        const float off = std::abs(large) / 100;
        EXPECT_NEAR(SendDense(residuals, {large, 0}, format)[0], large, off) << v1::WireFormat_Name(format);
        EXPECT_NEAR(SendRows(residuals, {7}, {large, 0, 0, 0}, format)[0], large, off) << v1::WireFormat_Name(format);
      }
      // What may be left of it is a rounding error that is not large.
      for (const float rest : {1.0f, 0.01f}) {
        EXPECT_LE(std::abs(SendDense(residuals, {1, 0}, format)[0]), rest + 1) << large;
        EXPECT_LE(std::abs(SendRows(residuals, {7}, {1, 0, 0, 0}, format)[0]), rest + 1) << large;
      }
    }
  }
}

TEST(ResidualsTest, AStepWithoutEffectLeavesResidualsAsTheyWere) {
  // Rows 1 and 2 share the only place.
  Residuals residuals(/*row_bytes=*/1), undisturbed(/*row_bytes=*/1);
  for (Residuals* each : {&residuals, &undisturbed}) {
    SendDense(*each, {127, 0.3f, 0.4f}, v1::WIRE_INT8);
    SendRows(*each, {1}, {127, 0.3f, 0.4f, 0}, v1::WIRE_INT8);
    each->Keep();
  }
  SendDense(residuals, {5, 0.2f, 0.1f}, v1::WIRE_INT8);
  SendRows(residuals, {2}, {5, 0.2f, 0.1f, 0}, v1::WIRE_INT8);
  SendRows(residuals, {1}, {3, 0.2f, 0.1f, 0}, v1::WIRE_INT8);
  EXPECT_NE(Saved(residuals, 1), Saved(undisturbed, 1));
  residuals.Drop();
  EXPECT_EQ(Saved(residuals, 1), Saved(undisturbed, 1));
  residuals.Drop();
  EXPECT_EQ(Saved(residuals, 1), Saved(undisturbed, 1)) << "the step before took effect";
}

TEST(ResidualsTest, MemoryOfRowsDoesNotGrowWithTheIds) {
  Residuals residuals(/*row_bytes=*/10'000);
  std::vector<int64_t> ids(1000);
  size_t bytes = 0;
  for (int64_t round = 0; round < 20; ++round) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = round * 1000 + static_cast<int64_t>(i);
    SendRows(residuals, ids, std::vector<float>(4000, 0.1f), v1::WIRE_BFLOAT16);
    if (round == 0) bytes = residuals.bytes();
  }
  EXPECT_LE(residuals.bytes(), 10'000u);
  EXPECT_EQ(residuals.bytes(), bytes);
}

// Restores residuals from a file that arrives in pieces of `piece` bytes.
absl::Status RestoreFrom(const std::string& file, Residuals& residuals, absl::Span<const LaneRange> nodes, int64_t step,
                         size_t piece = 1000) {
  ResidualReader reader(
      [&](const v1::Residual& residual, std::string_view) { return residuals.Restore(residual, nodes, step); });
  for (size_t at = 0; at < file.size(); at += piece)
    RETURN_IF_ERROR(reader.Append(std::string_view(file).substr(at, piece)));
  return reader.Finish();
}

// Results of `steps` steps that send rows of width 2 for all ids, in calls of `each` ids. The calls are made in the
// order given by `seed`, or on threads.
struct Sent {
  std::vector<std::vector<float>> arrived;
  std::string left;
  bool operator==(const Sent&) const = default;
};
Sent SendInCalls(const std::vector<int64_t>& ids, size_t each, int threads, uint64_t seed) {
  // Memory for some twenty places.
  Residuals residuals(/*row_bytes=*/360);
  ThreadPool pool("test", threads);
  std::mt19937_64 random(seed);
  Sent sent;
  for (int step = 0; step < 6; ++step) {
    std::vector<size_t> begins;
    for (size_t begin = 0; begin < ids.size(); begin += each) begins.push_back(begin);
    std::shuffle(begins.begin(), begins.end(), random);
    std::vector<float> arrived(2 * ids.size());
    pool.ParallelFor(static_cast<int64_t>(begins.size()), [&](int64_t call) {
      const size_t begin = begins[static_cast<size_t>(call)], end = std::min(ids.size(), begin + each);
      std::vector<float> values;
      for (size_t i = begin; i < end; ++i) values.insert(values.end(), {127, 0.3f + 0.01f * static_cast<float>(i % 7)});
      const std::vector<float> got =
          SendRows(residuals, {ids.begin() + static_cast<ptrdiff_t>(begin), ids.begin() + static_cast<ptrdiff_t>(end)},
                   values, v1::WIRE_INT8, begin == 0 ? nullptr : &ids[begin - 1]);
      std::copy(got.begin(), got.end(), arrived.begin() + 2 * static_cast<ptrdiff_t>(begin));
    });
    sent.arrived.push_back(std::move(arrived));
  }
  sent.left = Saved(residuals, 6);
  return sent;
}

TEST(ResidualsTest, HowTheRowsOfAStepAreCutAndWhoIsFirstChangesNothing) {
  std::vector<int64_t> ids(40);
  std::iota(ids.begin(), ids.end(), -20);
  std::sort(ids.begin(), ids.end(),
            [](int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); });
  const Sent whole = SendInCalls(ids, ids.size(), /*threads=*/0, /*seed=*/1);
  // Residuals have an effect: some rows have sent different values in different steps.
  EXPECT_NE(whole.arrived[0], whole.arrived[1]);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const size_t each : {1, 2, 3, 7, 16, 17}) {
      EXPECT_EQ(SendInCalls(ids, each, /*threads=*/0, seed), whole) << each << " " << seed;
      EXPECT_EQ(SendInCalls(ids, each, /*threads=*/3, seed), whole) << each << " " << seed;
    }
  }
}

TEST(ResidualsTest, OfRowsThatShareAPlaceTheFirstOfTheStepKeepsItsResidual) {
  // Memory for one place.
  Residuals residuals(/*row_bytes=*/1);
  EXPECT_EQ(SendRows(residuals, {5, 6}, {127, 0.3f, 127, 0.3f}, v1::WIRE_INT8), (std::vector<float>{127, 0, 127, 0}));
  EXPECT_EQ(SendRows(residuals, {5, 6}, {127, 0.3f, 127, 0.3f}, v1::WIRE_INT8), (std::vector<float>{127, 1, 127, 0}));
}

TEST(ResidualsTest, AreSavedAndComeBackToTheNodesThatAreLeft) {
  Residuals residuals;
  SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8);
  SendRows(residuals, {5, 6}, {127, 0.3f, 127, 0}, v1::WIRE_INT8);
  const std::string saved = Saved(residuals, /*step=*/7);
  Residuals again, other;
  const LaneRange nodes[] = {{2, 1}, kNode}, others[] = {{0, 1}};
  ASSERT_TRUE(RestoreFrom(saved, again, nodes, /*step=*/7).ok());
  EXPECT_EQ(SendDense(again, {127, 0.3f}, v1::WIRE_INT8)[1], 1);
  EXPECT_EQ(SendRows(again, {5, 6}, {127, 0.3f, 127, 0.3f}, v1::WIRE_INT8)[1], 1);
  ASSERT_TRUE(RestoreFrom(saved, other, others, /*step=*/7).ok());
  EXPECT_EQ(other.bytes(), 0u);
}

TEST(ResidualsTest, OfAnotherStepRowsComeBackAndDenseValuesDoNot) {
  Residuals residuals;
  SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8);
  SendRows(residuals, {5}, {127, 0.3f}, v1::WIRE_INT8);
  const std::string saved = Saved(residuals, /*step=*/7);
  for (const int64_t step : {7, 8}) {
    Residuals again;
    ASSERT_TRUE(RestoreFrom(saved, again, {kNode}, step).ok());
    // The residual of 0.3 lifts the next 0.3 above half a step of 1.
    EXPECT_EQ(SendDense(again, {127, 0.3f}, v1::WIRE_INT8)[1], step == 7 ? 1 : 0);
    EXPECT_EQ(SendRows(again, {5}, {127, 0.3f}, v1::WIRE_INT8)[1], 1);
  }
}

TEST(ResidualsTest, EntriesThatContradictThemselvesAreRefused) {
  v1::Residual of;
  of.set_name("t");
  of.set_lanes(2);
  of.set_width(3);
  of.add_ids(1);
  of.add_values(1);
  EXPECT_THAT(std::string(Residuals().Restore(of, {}, 0).message()),
              HasSubstr("residuals of t: 1 values for 1 ids of width 3"));
  of.set_width(-1);
  EXPECT_FALSE(Residuals().Restore(of, {}, 0).ok());
  // Values of a block that do not begin where the previous ones end.
  of.set_width(0);
  of.clear_ids();
  of.set_begin(7);
  EXPECT_THAT(std::string(Residuals().Restore(of, {kNode}, 0).message()),
              HasSubstr("residuals of t: values from element 7 on come behind those of 0"));
}

TEST(ResidualsTest, WhatIsSavedComesInMessagesOfALimitedSizeAndIsRead) {
  // 16 values in a message instead of a million.
  Residuals residuals(kResidualBytes, /*message_bytes=*/64);
  std::vector<float> dense(100);
  for (size_t i = 0; i < dense.size(); ++i) dense[i] = i % 10 == 0 ? 127 : 0.3f;
  std::vector<int64_t> ids(50);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> rows;
  for (size_t i = 0; i < ids.size(); ++i) rows.insert(rows.end(), {127, 0.3f});
  SendDense(residuals, dense, v1::WIRE_INT8);
  SendRows(residuals, ids, rows, v1::WIRE_INT8);
  size_t messages = 0, largest = 0;
  const absl::Status counted = residuals.Save(7, [&](const v1::Residual& residual) {
    ++messages;
    largest = std::max(largest, residual.ByteSizeLong());
    return absl::OkStatus();
  });
  EXPECT_TRUE(counted.ok());
  EXPECT_EQ(messages, 7 + 7u);  // 100 values, and 50 rows of 2
  EXPECT_LT(largest, 200u);
  // The size of the pieces in which the file arrives does not matter.
  const std::string saved = Saved(residuals, 7);
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{100}, saved.size()}) {
    Residuals again;
    const absl::Status restored = RestoreFrom(saved, again, {kNode}, 7, piece);
    ASSERT_TRUE(restored.ok()) << restored;
    Residuals one = Residuals();
    ASSERT_TRUE(RestoreFrom(Saved(again, 7), one, {kNode}, 7).ok());
    EXPECT_EQ(Saved(again, 7), Saved(one, 7));
    EXPECT_EQ(SendDense(again, dense, v1::WIRE_INT8)[99], 1);
    EXPECT_EQ(SendRows(again, ids, rows, v1::WIRE_INT8)[99], 1);
  }
  // An error of the callback ends Save.
  EXPECT_EQ(residuals.Save(7, [](const v1::Residual&) { return absl::UnavailableError("full"); }).message(), "full");
}

TEST(ResidualsTest, AFileThatIsOneMessageIsRead) {
  // An older format: everything in one message, a block's values in one piece, at first without a step.
  v1::Residuals all;
  for (const int lane : {4, 0}) {
    v1::Residual* const dense = all.add_residuals();
    dense->set_name("w");
    dense->set_lane(lane);
    dense->set_lanes(2);
    dense->set_width(0);
    dense->add_values(0);
    dense->add_values(lane == 0 ? 0.3f : 0);
    v1::Residual* const rows = all.add_residuals();
    *rows = *dense;
    rows->set_name("t");
    rows->set_width(2);
    rows->add_ids(5);
    rows->set_step(9);
  }
  Residuals residuals;
  ASSERT_TRUE(RestoreFrom(all.SerializeAsString(), residuals, {kNode}, 7).ok());
  EXPECT_EQ(SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8)[1], 1);
  EXPECT_EQ(SendRows(residuals, {5}, {127, 0.3f}, v1::WIRE_INT8)[1], 1);
  // The present format parses as such a message if it is small enough.
  v1::Residuals read;
  EXPECT_TRUE(read.ParseFromString(Saved(residuals, 8)));
  EXPECT_EQ(read.residuals_size(), 2);
}

TEST(ResidualsTest, BytesThatAreNoResidualsAreRefused) {
  Residuals residuals;
  SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8);
  const std::string saved = Saved(residuals, 7);
  Residuals again;
  EXPECT_THAT(std::string(RestoreFrom(saved.substr(0, saved.size() - 1), again, {kNode}, 7).message()),
              HasSubstr("residuals: they end within an element"));
  std::string other = saved;
  other[0] = 0x12;
  EXPECT_THAT(std::string(RestoreFrom(other, again, {kNode}, 7).message()),
              HasSubstr("residuals: a field with tag 18"));
  EXPECT_FALSE(RestoreFrom(std::string(30, '\xff'), again, {kNode}, 7).ok());
  other = saved;
  other[2] = 0x07;
  EXPECT_THAT(std::string(RestoreFrom(other, again, {kNode}, 7).message()),
              HasSubstr("residuals: an element that is none"));
}

}  // namespace
}  // namespace weir
