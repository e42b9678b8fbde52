#include "transpiler/metrics/ranking.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace weir {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr uint32_t kSign = 0x80000000, kNanPlace = 0xffffffff;

// Larger numbers have smaller results. Bits of numbers of one sign are in the order of their magnitude.
uint32_t Falling(float x) {
  if (std::isnan(x)) return kNanPlace;
  const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
  return (bits & kSign) != 0 ? bits : ~(bits | kSign);
}
float NumberOf(uint32_t falling) { return std::bit_cast<float>((falling & kSign) != 0 ? falling : ~falling & ~kSign); }

bool SameScore(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }

// Calls body(first, count, positives) for each run of equal scores that begins among the first k, until it returns
// false.
template <typename Body>
void ForRuns(absl::Span<const Scored> group, size_t k, const Body& body) {
  for (size_t first = 0; first < std::min(k, group.size());) {
    size_t end = first, positives = 0;
    for (; end < group.size() && SameScore(group[end].score, group[first].score); ++end) {
      positives += IsPositive(group[end].label);
    }
    if (!body(first, end - first, positives)) return;
    first = end;
  }
}

size_t Positives(absl::Span<const Scored> group) {
  return static_cast<size_t>(
      std::count_if(group.begin(), group.end(), [](const Scored& s) { return IsPositive(s.label); }));
}

size_t Depth(absl::Span<const Scored> group, int k) {
  return k == 0 ? group.size() : std::min(group.size(), static_cast<size_t>(k));
}

// Returns the power of two by which weights that add up to `sum`, above 0, are multiplied to be whole numbers that add
// up to less than 2^61.
double UnitsFor(double sum) { return std::ldexp(1.0, 59 - std::ilogb(sum)); }

PairCounts CountWeightedPairs(absl::Span<const Scored> group, absl::Span<const float> weights) {
  // Of negatives and of positives.
  double sums[2] = {}, units[2] = {};
  for (size_t i = 0; i < group.size(); ++i) sums[IsPositive(group[i].label)] += static_cast<double>(weights[i]);
  for (const int c : {0, 1}) units[c] = sums[c] > 0 ? UnitsFor(sums[c]) : 0;
  PairCounts counts;
  for (size_t i = 0; i < group.size();) {
    const float score = group[i].score;
    int64_t run[2] = {};
    for (; i < group.size() && SameScore(group[i].score, score); ++i) {
      const bool positive = IsPositive(group[i].label);
      run[positive] += std::llround(static_cast<double>(weights[i]) * units[positive]);
    }
    counts.twice_ordered += static_cast<__int128>(run[0]) * (2 * counts.positives + run[1]);
    counts.negatives += run[0];
    counts.positives += run[1];
  }
  return counts;
}

double Discount(size_t rank) { return 1 / std::log2(static_cast<double>(rank) + 2); }

}  // namespace

uint64_t PlaceOf(const Scored& scored) { return uint64_t{Falling(scored.score)} << 32 | Falling(scored.label); }

Scored AtPlace(uint64_t place) {
  return {NumberOf(static_cast<uint32_t>(place >> 32)), NumberOf(static_cast<uint32_t>(place))};
}

double ScoredGroup::Weight() const {
  if (weights.empty()) return static_cast<double>(examples.size());
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

double ScoredGroup::PositiveWeight() const {
  if (weights.empty()) return static_cast<double>(Positives(examples));
  double sum = 0;
  for (size_t i = 0; i < examples.size(); ++i) {
    if (IsPositive(examples[i].label)) sum += static_cast<double>(weights[i]);
  }
  return sum;
}

double PairCounts::Auc() const {
  const double pairs = static_cast<double>(positives) * static_cast<double>(negatives);
  return pairs == 0 ? kNan : static_cast<double>(twice_ordered) / 2 / pairs;
}

PairCounts CountPairs(absl::Span<const Scored> group, absl::Span<const float> weights) {
  if (!weights.empty()) return CountWeightedPairs(group, weights);
  PairCounts counts;
  ForRuns(group, group.size(), [&](size_t, size_t count, size_t positives) {
    const size_t negatives = count - positives;
    // Positives above, and those beside.
    counts.twice_ordered += static_cast<__int128>(negatives) * (2 * counts.positives + static_cast<int64_t>(positives));
    counts.positives += static_cast<int64_t>(positives);
    counts.negatives += static_cast<int64_t>(negatives);
    return true;
  });
  return counts;
}

double Ndcg(absl::Span<const Scored> group, int k, bool exponential) {
  const size_t depth = Depth(group, k);
  const auto gain = [&](float label) { return exponential ? std::exp2(static_cast<double>(label)) - 1 : label; };
  std::vector<float> labels;
  for (const Scored& s : group) labels.push_back(s.label);
  std::sort(labels.begin(), labels.end(), std::greater<>());
  double best = 0;
  for (size_t rank = 0; rank < depth; ++rank) best += gain(labels[rank]) * Discount(rank);
  if (!(best > 0)) return kNan;
  double found = 0;
  ForRuns(group, depth, [&](size_t first, size_t count, size_t) {
    double gains = 0, discounts = 0;
    for (size_t i = first; i < first + count; ++i) {
      gains += gain(group[i].label);
      if (i < depth) discounts += Discount(i);
    }
    found += gains / static_cast<double>(count) * discounts;
    return true;
  });
  return found / best;
}

double HitRate(absl::Span<const Scored> group, int k) {
  if (Positives(group) == 0) return kNan;
  const size_t depth = Depth(group, k);
  double hit = 0;
  ForRuns(group, depth, [&](size_t first, size_t count, size_t positives) {
    if (positives == 0) return true;
    // Probability that the places of this run below `depth` hold negatives alone.
    const size_t places = std::min(count, depth - first);
    double none = 1;
    for (size_t i = 0; i < places; ++i) {
      none *= i + positives > count ? 0 : static_cast<double>(count - positives - i) / static_cast<double>(count - i);
    }
    hit = 1 - none;
    return false;
  });
  return hit;
}

double RecallAt(absl::Span<const Scored> group, int k) {
  const size_t all = Positives(group), depth = Depth(group, k);
  if (all == 0) return kNan;
  double found = 0;
  ForRuns(group, depth, [&](size_t first, size_t count, size_t positives) {
    const size_t places = std::min(count, depth - first);
    found += static_cast<double>(positives) * static_cast<double>(places) / static_cast<double>(count);
    return true;
  });
  return found / static_cast<double>(all);
}

double ReciprocalRank(absl::Span<const Scored> group, int k) {
  if (Positives(group) == 0) return kNan;
  const size_t depth = Depth(group, k);
  double mean = 0;
  ForRuns(group, depth, [&](size_t first, size_t count, size_t positives) {
    if (positives == 0) return true;
    // Probability that the first positive of the run has place i in it.
    double probability = static_cast<double>(positives) / static_cast<double>(count);
    for (size_t i = 0; i + positives <= count && first + i < depth; ++i) {
      mean += probability / static_cast<double>(first + i + 1);
      if (i + 1 < count) {
        probability *= static_cast<double>(count - i - positives) / static_cast<double>(count - i - 1);
      }
    }
    return false;
  });
  return mean;
}

}  // namespace weir
