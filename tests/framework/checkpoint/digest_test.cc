#include <cmath>
#include <numeric>

#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

std::vector<float> Ramp(int n) {
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 1.0f);
  return v;
}

TEST(DigestTest, PiecesAddUpToTheWholeAndOrderDoesNotMatter) {
  const std::vector<float> v = Ramp(1000);
  const uint64_t whole = DenseDigest("w", 0, v);
  EXPECT_EQ(whole, DenseDigest("w", 300, absl::MakeConstSpan(v).subspan(300)) +
                       DenseDigest("w", 0, absl::MakeConstSpan(v).first(300)));
}

TEST(DigestTest, OneBitOnePlaceOneNameEachChangeIt) {
  std::vector<float> v = Ramp(8);
  const uint64_t digest = DenseDigest("w", 0, v);
  EXPECT_NE(digest, DenseDigest("x", 0, v));
  EXPECT_NE(digest, DenseDigest("w", 1, v));
  std::swap(v[2], v[5]);
  EXPECT_NE(digest, DenseDigest("w", 0, v));
  std::swap(v[2], v[5]);
  EXPECT_EQ(digest, DenseDigest("w", 0, v));
  v[3] = std::nextafter(v[3], 100.0f);
  EXPECT_NE(digest, DenseDigest("w", 0, v));
  EXPECT_NE(DenseDigest("w", 0, {0.0f}), DenseDigest("w", 0, {-0.0f}));
}

TEST(DigestTest, TheSchemeNeverChanges) {
  // Checkpoints on disk hold these numbers.
  EXPECT_EQ(DigestHex(DenseDigest("fc_0.w", 5, {1.0f, -2.5f})), "a1cb79da8ced4db2");
  EXPECT_EQ(DigestHex(RowDigest("table", -3, {1.0f, -2.5f})), "24da1a432c640950");
}

TEST(DigestTest, RangesAddUpAndNameThePlaceOfAChange) {
  std::vector<float> v = Ramp(1000);
  VariableDigester a("w", 1000), b("w", 1000);
  a.AddValues(0, absl::MakeConstSpan(v).first(77));
  a.AddValues(77, absl::MakeConstSpan(v).subspan(77));
  v[500] += 1;
  b.AddValues(0, v);
  EXPECT_EQ(std::accumulate(a.sum().ranges.begin(), a.sum().ranges.end(), uint64_t{0}), a.sum().values);
  for (int r = 0; r < kDigestRanges; ++r) EXPECT_EQ(a.sum().ranges[r] != b.sum().ranges[r], r == 500 * 64 / 1000) << r;
}

TEST(DigestTest, FewerElementsThanRangesLoseNothing) {
  VariableDigester d("b", 3);
  d.AddValues(0, {1.0f, 2.0f, 3.0f});
  EXPECT_EQ(d.sum().values, DenseDigest("b", 0, {1.0f, 2.0f, 3.0f}));
  EXPECT_EQ(std::accumulate(d.sum().ranges.begin(), d.sum().ranges.end(), uint64_t{0}), d.sum().values);
}

TEST(DigestTest, AScalarThatEveryOwnerKeepsCountsOnce) {
  VariableDigester whole("w", 100), first("w", 100), second("w", 100);
  whole.AddScalarState("step", 0, {9.0f});
  first.AddScalarState("step", 0, {9.0f});
  second.AddScalarState("step", 50, {9.0f});
  VariableDigestSum sum = first.sum();
  sum += second.sum();
  EXPECT_EQ(sum.state, whole.sum().state);
  EXPECT_NE(sum.state, 0u);
}

}  // namespace
}  // namespace weir
