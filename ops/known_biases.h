// Kernels and row rules of Adam's family that keep a table of the factors that depend only on the count of updates,
// which saves the powers for rows with fewer updates than table entries.
//
// Math: in the form of ops/adam_math.h, with Bias BiasAt(beta1, beta2, count). kMake: makes it of attributes and the
// table.
#ifndef WEIR_OPS_KNOWN_BIASES_H_
#define WEIR_OPS_KNOWN_BIASES_H_

#include <memory>
#include <string>
#include <vector>

#include "ops/adam_math.h"
#include "ops/update_op.h"

namespace weir {

// 32 KiB, which stays in the first-level cache beside the rows.
inline constexpr int kKnownBiases = 4096;

template <typename Math>
std::vector<AdamMath::Bias> KnownBiases(const AttrReader& attrs) {
  std::vector<AdamMath::Bias> biases(kKnownBiases);
  for (int t = 1; t < kKnownBiases; ++t) biases[t] = Math::BiasAt(attrs.Float("beta1"), attrs.Float("beta2"), t);
  return biases;
}

template <typename Math>
Math MakeBiased(const AttrReader& attrs, const AdamMath::Bias* biases, int known) {
  return {.beta1 = attrs.Float("beta1"),
          .beta2 = attrs.Float("beta2"),
          .epsilon = static_cast<float>(attrs.Float("epsilon")),
          .biases = biases,
          .known = known};
}

template <typename Math, auto kMake = MakeBiased<Math>>
class BiasedKernel : public OpKernel {
 public:
  explicit BiasedKernel(const KernelInit& init)
      : biases_(KnownBiases<Math>(init.attrs)), kernel_(kMake(init.attrs, biases_.data(), kKnownBiases)) {}
  absl::Status Run(KernelContext& ctx) override { return kernel_.Run(ctx); }

 private:
  const std::vector<AdamMath::Bias> biases_;
  UpdateKernel<Math> kernel_;
};

template <typename Math, auto kMake = MakeBiased<Math>>
class BiasedRowRule : public RowRule {
 public:
  BiasedRowRule(const std::string& type, const AttrReader& attrs)
      : biases_(KnownBiases<Math>(attrs)),
        rule_(kMake(attrs, biases_.data(), kKnownBiases), OpRegistry::Global().Find(type)->state,
              InitialStates(type, attrs)) {}
  std::vector<State> states(int width) const override { return rule_.states(width); }
  void InitState(int width, float* state) const override { rule_.InitState(width, state); }
  void Update(int width, float learning_rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    rule_.Update(width, learning_rate, divisor, n, rows, grads);
  }
  void UpdatePart(int width, int64_t state_at, float learning_rate, float divisor, int64_t n, float* const* rows,
                  const float* const* grads) const override {
    rule_.UpdatePart(width, state_at, learning_rate, divisor, n, rows, grads);
  }

 private:
  const std::vector<AdamMath::Bias> biases_;
  const MathRowRule<Math> rule_;
};

}  // namespace weir

#endif  // WEIR_OPS_KNOWN_BIASES_H_
