// Measures of the order that predictions give to the examples of a group.
//
// Examples with equal scores are in no order: a measure is then the mean over all orders of them, which is computed
// without listing any. `k` 0 stands for the whole group. Positive: a label of one half and more.
#ifndef WEIR_TRANSPILER_METRICS_RANKING_H_
#define WEIR_TRANSPILER_METRICS_RANKING_H_

#include <cstdint>

#include "absl/types/span.h"

namespace weir {

struct Scored {
  float score = 0;
  float label = 0;
};

// Place of an example in its group, smaller for one that stands before: by falling score, then by falling label. A NaN
// is below every number; -0 is 0.
uint64_t PlaceOf(const Scored& scored);
// Returns the example of a place. PlaceOf of it is the place again, for every number that PlaceOf returns.
Scored AtPlace(uint64_t place);

inline bool IsPositive(float label) { return label >= 0.5f; }

// The functions below need groups in the order of PlaceOf.

// Examples of a group, which must outlive this.
struct ScoredGroup {
  absl::Span<const Scored> examples;
  // One for each example, finite and above 0. Empty: all are 1.
  absl::Span<const float> weights = {};

  // Return the sum of the weights of all examples, or of the positives.
  double Weight() const;
  double PositiveWeight() const;
};

struct PairCounts {
  // Of weighted examples: sums of weights, in a unit of the class.
  int64_t positives = 0, negatives = 0;
  // Twice the number of pairs of a positive and a negative in the right order, with half a pair for equal scores. A
  // pair of weighted examples counts as often as the product of its weights, in these units, says.
  __int128 twice_ordered = 0;

  // NaN if one class is missing.
  double Auc() const;
};
// Units are powers of two. Weights that are whole numbers are not rounded as long as those of a class add up to less
// than 2^60; others are rounded to 2^-59 of that sum.
PairCounts CountPairs(absl::Span<const Scored> group, absl::Span<const float> weights = {});

// DCG@k divided by that of the labels in falling order. NaN if no label is above 0. Gains are labels, or 2^label - 1.
double Ndcg(absl::Span<const Scored> group, int k, bool exponential);

// The following are NaN for a group without positives.
// Probability that a positive is among the first k.
double HitRate(absl::Span<const Scored> group, int k);
// Part of the positives that is among the first k.
double RecallAt(absl::Span<const Scored> group, int k);
// 1 / rank of the first positive; 0 if it is not among the first k.
double ReciprocalRank(absl::Span<const Scored> group, int k);

}  // namespace weir

#endif  // WEIR_TRANSPILER_METRICS_RANKING_H_
