// Arithmetic of losses of several scores per example, for CPU and CUDA. `sum(n, term)` adds term(0) ... term(n - 1) in
// the order of ops/fixed_sum.h; rows have at least one element.
#ifndef WEIR_OPS_ROW_LOSS_MATH_H_
#define WEIR_OPS_ROW_LOSS_MATH_H_

#include <cstdint>

#include "ops/inline.h"
#include "ops/loss_math.h"
#include "ops/vector_math.h"

namespace weir {

// Mean over the classes of the binary cross entropy of each.
struct MultiLabelMath {
  template <typename Sum>
  WEIR_MATH float Loss(const Sum& sum, int64_t n, const float* x, const float* label) const {
    const SigmoidCrossEntropyMath math{};
    return sum(n, [=](int64_t i) { return math.Loss(x[i], label[i]); }) / static_cast<float>(n);
  }
  WEIR_MATH float Dx(int64_t n, float x, float label, float dloss) const {
    return dloss / static_cast<float>(n) * (Sigmoid(x) - label);
  }
};

// Cross entropy of the labels, divided by their sum, and the softmax of the scores. NaN if a label is negative.
struct ListwiseSoftmaxMath {
  // Writes the softmax of the first n scores.
  template <typename Sum>
  WEIR_MATH float Loss(const Sum& sum, int64_t n, const float* x, const float* label, float* softmax) const {
    float largest = x[0];
    for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < n; ++i) softmax[i] = Exp(x[i] - largest);
    const float all = sum(n, [=](int64_t i) { return softmax[i]; });
    for (int64_t i = 0; i < n; ++i) softmax[i] = softmax[i] / all;
    const float labels = sum(n, [=](int64_t i) { return Checked(label[i]); });
    if (labels == 0.0f) return 0.0f;
    return Log(all) - sum(n, [=](int64_t i) { return label[i] * (x[i] - largest); }) / labels;
  }
  // The gradient of score i is dloss * (softmax[i] - label[i] / sum of the labels); 0 if that sum is.
  template <typename Sum>
  WEIR_MATH void Dx(const Sum& sum, int64_t n, const float* label, const float* softmax, float dloss, float* dx) const {
    const float labels = sum(n, [=](int64_t i) { return Checked(label[i]); });
    for (int64_t i = 0; i < n; ++i) dx[i] = labels == 0.0f ? 0.0f : dloss * (softmax[i] - label[i] / labels);
  }

 private:
  static WEIR_MATH float Checked(float label) { return label < 0.0f ? __builtin_nanf("") : label; }
};

// Losses of a positive score beside n negative ones have
//   State Begin(sum, n, positive, negative): what all elements of a row share
//   float Loss(sum, state, n, positive, negative)
//   float Slope(state, n, positive, x): derivative by the negative score x. That by the positive is minus their sum.

// A loss of the distance d = positive - negative, mean over the negatives.
template <typename Term>
struct PairLossMath {
  struct State {};
  Term term;
  template <typename Sum>
  WEIR_MATH State Begin(const Sum&, int64_t, float, const float*) const {
    return {};
  }
  template <typename Sum>
  WEIR_MATH float Loss(const Sum& sum, State, int64_t n, float positive, const float* negative) const {
    const Term math = term;
    return sum(n, [=](int64_t i) { return math.Loss(positive - negative[i]); }) / static_cast<float>(n);
  }
  WEIR_MATH float Slope(State, int64_t n, float positive, float x) const {
    return -term.Slope(positive - x) / static_cast<float>(n);
  }
};
struct BprTerm {
  // log(1 + e^-d)
  WEIR_MATH float Loss(float d) const { return (d > 0.0f ? 0.0f : -d) + Log1pExpMinusAbs(d); }
  WEIR_MATH float Slope(float d) const { return Sigmoid(d) - 1.0f; }
};
struct PairwiseHingeTerm {
  float margin;
  WEIR_MATH float Loss(float d) const {
    const float lack = margin - d;
    return lack <= 0.0f ? 0.0f : lack;  // NaN stays NaN
  }
  WEIR_MATH float Slope(float d) const {
    const float lack = margin - d;
    return lack > 0.0f ? -1.0f : lack <= 0.0f ? 0.0f : lack;
  }
};

// -log of the positive's part of the softmax over all.
struct SampledSoftmaxMath {
  struct State {
    float largest, all;
  };
  template <typename Sum>
  WEIR_MATH State Begin(const Sum& sum, int64_t n, float positive, const float* negative) const {
    float largest = positive;
    for (int64_t i = 0; i < n; ++i) largest = negative[i] > largest ? negative[i] : largest;
    const float others = sum(n, [=](int64_t i) { return Exp(negative[i] - largest); });
    return {largest, others + Exp(positive - largest)};
  }
  template <typename Sum>
  WEIR_MATH float Loss(const Sum&, State state, int64_t, float positive, const float*) const {
    return Log(state.all) - (positive - state.largest);
  }
  WEIR_MATH float Slope(State state, int64_t, float, float x) const { return Exp(x - state.largest) / state.all; }
};

}  // namespace weir

#endif  // WEIR_OPS_ROW_LOSS_MATH_H_
