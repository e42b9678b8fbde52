// adam: m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr mhat / (sqrt(vhat) + epsilon)
//
//   Param, Grad       any shape, or merged selected rows of Param for Grad
//   Moment1, Moment2  m and v, shape of Param, initially 0
//   Step              t, updates so far: [1], or one per row when Grad comes as rows
//
// mhat = m / (1 - b1^t), vhat = v / (1 - b2^t). Lazy on rows: t counts the updates of the row, so a row's first update is a
// full step whenever it comes. Counts are float32, exact up to 2^24 updates. Arithmetic in ops/adam_math.h.
#include "ops/adam_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

// 32 KiB: stays in the first-level cache beside the rows. Rows with more updates pay for their powers.
constexpr int kKnownBiases = 4096;

AdamMath MathOf(const AttrReader& attrs, const AdamMath::Bias* biases) {
  return {.beta1 = attrs.Float("beta1"),
          .beta2 = attrs.Float("beta2"),
          .epsilon = static_cast<float>(attrs.Float("epsilon")),
          .biases = biases,
          .known = biases == nullptr ? 0 : kKnownBiases};
}

std::vector<AdamMath::Bias> KnownBiases(const AttrReader& attrs) {
  std::vector<AdamMath::Bias> biases(kKnownBiases);
  for (int t = 1; t < kKnownBiases; ++t) biases[t] = AdamMath::BiasAt(attrs.Float("beta1"), attrs.Float("beta2"), t);
  return biases;
}

// Keeps the table of powers alive beside what points into it.
class AdamKernel : public OpKernel {
 public:
  explicit AdamKernel(const KernelInit& init)
      : biases_(KnownBiases(init.attrs)), kernel_(MathOf(init.attrs, biases_.data())) {}
  absl::Status Run(KernelContext& ctx) override { return kernel_.Run(ctx); }

 private:
  const std::vector<AdamMath::Bias> biases_;
  UpdateKernel<AdamMath> kernel_;
};

class AdamRowRule : public RowRule {
 public:
  explicit AdamRowRule(const AttrReader& attrs)
      : biases_(KnownBiases(attrs)),
        rule_(MathOf(attrs, biases_.data()), OpRegistry::Global().Find("adam")->state, InitialStates("adam", attrs)) {}
  std::vector<State> states(int width) const override { return rule_.states(width); }
  void InitState(int width, float* state) const override { rule_.InitState(width, state); }
  void Update(int width, float learning_rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    rule_.Update(width, learning_rate, divisor, n, rows, grads);
  }

 private:
  const std::vector<AdamMath::Bias> biases_;
  const MathRowRule<AdamMath> rule_;
};

REGISTER_OP(adam)
(MakeUpdateOp("adam", "w -= lr mhat / (sqrt(vhat) + epsilon)",
              {FloatAttr("beta1", 0.9), FloatAttr("beta2", 0.999), FloatAttr("epsilon", 1e-8)},
              {{.slot = "Moment1"}, {.slot = "Moment2"}, {.slot = "Step", .like = StateDef::kCount}}, 12));
REGISTER_KERNEL(adam, kCpu, MakeKernel<AdamKernel>);
REGISTER_ROW_RULE(adam, [](const AttrReader& attrs) -> absl::StatusOr<std::unique_ptr<RowRule>> {
  return std::unique_ptr<RowRule>(new AdamRowRule(attrs));
});

}  // namespace
}  // namespace weir
