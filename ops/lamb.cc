// lamb: m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  r = mhat / (sqrt(vhat) + epsilon) + weight_decay w;
//       w -= lr |w| / |r| r, with lr alone when either norm is 0
//
//   Param, Grad               any shape, or merged selected rows of Param for Grad
//   Moment1, Moment2          m and v, shape of Param, initially 0
//   Step                      updates so far: [1], or one per row when Grad comes as rows
//   ParamNorm, DirectionNorm  [1] float64, from whole_norm: |w| and |r| of the whole parameter
//
// lamb_direction: Out = r of the coming update, like Grad; changes nothing. Its norm is what lamb needs.
//
// Lazy on rows: |r| is over the rows of the step, |w| over all rows, and only the rows of the step change. No row form
// for tables. Arithmetic in ops/norm_math.h.
#include "ops/norm_math.h"
#include "ops/norm_update.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

constexpr int kParamNorm = 6, kDirectionNorm = 7;
// Inputs of lamb_direction.
constexpr int kParam = 0, kGrad = 1, kMoment1 = 2, kMoment2 = 3, kStep = 4;

LambMath MathOf(const AttrReader& attrs) {
  return {attrs.Float("beta1"), attrs.Float("beta2"), attrs.Float("epsilon"), attrs.Float("weight_decay")};
}

std::vector<AttrDef> Attrs() {
  return {FloatAttr("beta1", 0.9), FloatAttr("beta2", 0.999), FloatAttr("epsilon", 1e-6),
          FloatAttr("weight_decay", 0.01)};
}

class LambKernel : public OpKernel {
 public:
  explicit LambKernel(const KernelInit& init) : math_(MathOf(init.attrs)) {}

  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const UpdateArgs a, CheckUpdate(ctx, LambMath::kStates, LambMath::kCounts));
    if (a.absent) return absl::OkStatus();
    ASSIGN_OR_RETURN(const double param_norm, ReadNorm(ctx, kParamNorm, "ParamNorm"));
    ASSIGN_OR_RETURN(const double direction_norm, ReadNorm(ctx, kDirectionNorm, "DirectionNorm"));
    const float rate = LambMath::Rate(a.lr, param_norm, direction_norm);
    const float* const g = a.dense != nullptr ? a.dense->data<float>() : a.selected->values.data<float>();
    if (a.dense != nullptr) *a.count += 1;
    const LambMath::Step dense = math_.At(rate, a.dense != nullptr ? *a.count : 1);
    ForUpdated(a, ctx.step->pool, [&](int64_t begin, int64_t n, int64_t row) {
      if (row < 0) {
        UpdateLoops<LambMath>::Dense(dense, n, g + begin, a.param + begin, a.state[0] + begin, a.state[1] + begin,
                                     nullptr);
        return;
      }
      float& count = a.count[a.selected->ids[static_cast<size_t>(row)]];
      count += 1;
      UpdateLoops<LambMath>::Dense(math_.At(rate, count), n, g + row * a.width, a.param + begin, a.state[0] + begin,
                                   a.state[1] + begin, nullptr);
    });
    return absl::OkStatus();
  }

 private:
  const LambMath math_;
};

WEIR_VECTORIZED void Directions(const LambMath::Step& c, int64_t n, const float* g, const float* w,
                                const float* moment1, const float* moment2, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    float m = moment1[i], v = moment2[i];
    out[i] = LambMath::Direction(c, g[i], w[i], m, v);
  }
}

class LambDirectionKernel : public OpKernel {
 public:
  explicit LambDirectionKernel(const KernelInit& init) : math_(MathOf(init.attrs)) {}

  absl::Status Run(KernelContext& ctx) override {
    for (int slot : {kParam, kMoment1, kMoment2, kStep}) {
      if (!ctx.input(slot).initialized()) {
        return absl::FailedPreconditionError("Param or state has no value; run the startup program first");
      }
    }
    const Tensor& w = ctx.input(kParam);
    for (int slot : {kMoment1, kMoment2}) {
      if (ctx.input(slot).size() != w.size()) return absl::InvalidArgumentError("a moment is not of the size of Param");
    }
    if (ctx.input(kStep).size() == 0) return absl::InvalidArgumentError("Step is empty");
    const float* const counts = ctx.input(kStep).data<float>();
    const float* const m = ctx.input(kMoment1).data<float>();
    const float* const v = ctx.input(kMoment2).data<float>();
    if (const Tensor* g = std::get_if<Tensor>(&ctx.input_var(kGrad))) {
      Tensor* const out = ctx.output(0);
      if (!g->initialized()) {
        out->Clear();
        return absl::OkStatus();
      }
      if (g->size() != w.size()) return absl::InvalidArgumentError("Grad is not of the size of Param");
      out->Resize(v1::FLOAT32, g->dims());
      const LambMath::Step c = math_.At(0, counts[0] + 1);
      ForPieces(ctx.step->pool, w.size(), int64_t{1} << 15, [&](int64_t begin, int64_t end) {
        Directions(c, end - begin, g->data<float>() + begin, w.data<float>() + begin, m + begin, v + begin,
                   out->data<float>() + begin);
      });
      return absl::OkStatus();
    }
    const SelectedRows& g = std::get<SelectedRows>(ctx.input_var(kGrad));
    if (g.present && !g.ids.empty() && !g.values.initialized())
      return absl::InvalidArgumentError("Grad has ids without values");
    SelectedRows* const out = ctx.OutputAs<SelectedRows>(0);
    out->CopyRowsOf(g);
    if (!g.present || g.ids.empty()) return absl::OkStatus();
    const int64_t rows = w.rank() == 0 ? 1 : w.dim(0), width = w.size() / std::max<int64_t>(1, rows);
    if (ctx.input(kStep).size() != rows || g.values.size() != static_cast<int64_t>(g.ids.size()) * width) {
      return absl::InvalidArgumentError("rows of Grad do not fit Param and Step");
    }
    out->values.Resize(v1::FLOAT32, g.values.dims());
    for (size_t i = 0; i < g.ids.size(); ++i) {
      const int64_t id = g.ids[i];
      if (id < 0 || id >= rows) {
        return absl::InvalidArgumentError(absl::StrCat("Grad has row ", id, "; Param has rows 0 to ", rows - 1));
      }
      const int64_t from = static_cast<int64_t>(i) * width, at = id * width;
      Directions(math_.At(0, counts[id] + 1), width, g.values.data<float>() + from, w.data<float>() + at, m + at,
                 v + at, out->values.data<float>() + from);
    }
    return absl::OkStatus();
  }

 private:
  const LambMath math_;
};

REGISTER_OP(lamb)
(WithNorms(MakeUpdateOp("lamb", "Adam's direction with a rate for each parameter, by |w| / |r|", Attrs(),
                        {{.slot = "Moment1"}, {.slot = "Moment2"}, {.slot = "Step", .like = StateDef::kCount}}, 16),
           {"ParamNorm", "DirectionNorm"}));
REGISTER_KERNEL(lamb, MakeKernel<LambKernel>);

REGISTER_OP(lamb_direction)
({.type = "lamb_direction",
  .summary = "the direction of the coming lamb update",
  .inputs = {{.name = "Param"},
             {.name = "Grad", .kinds = {v1::DENSE, v1::SELECTED_ROWS}},
             {.name = "Moment1"},
             {.name = "Moment2"},
             {.name = "Step"}},
  .outputs = {{.name = "Out", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = Attrs(),
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    for (const char* slot : {"Param", "Grad", "Moment1", "Moment2", "Step"}) {
      if (ctx.Input(slot).dtype() != v1::FLOAT32) return ctx.Error(absl::StrCat(slot, " must be FLOAT32"));
    }
    RETURN_IF_ERROR(ExpectSameDims(ctx, "Param", "Moment1"));
    RETURN_IF_ERROR(ExpectSameDims(ctx, "Param", "Moment2"));
    const Shape dims = ctx.InputShape("Param"), grad = ctx.InputShape("Grad"), count = ctx.InputShape("Step");
    const bool rows = ctx.Input("Grad").kind() == v1::SELECTED_ROWS;
    const bool fit =
        rows ? !dims.empty() && dims.size() == grad.size() && std::equal(dims.begin() + 1, dims.end(), grad.begin() + 1)
             : dims == grad;
    if (!fit) return ctx.Error(absl::StrCat("Grad ", ShapeString(grad), " does not fit Param ", ShapeString(dims)));
    if (count != Shape{rows ? dims[0] : 1})
      return ctx.Error(absl::StrCat("Step ", ShapeString(count), " does not fit Param"));
    SetLike(ctx, "Out", "Grad");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(12)});
REGISTER_KERNEL(lamb_direction, MakeKernel<LambDirectionKernel>);

}  // namespace
}  // namespace weir
