// sum: adds variables in the order given. An absent one (a gradient that nobody wrote) is skipped, never added as 0;
// with none present the result is absent.
//
//   X*   all of one shape: dense f32, or selected rows, or both
//   Out  dense if any X is dense, else selected rows
//
// Selected rows: rows of one id are added in order of inputs, then of rows; the result has each id once, in order of
// first appearance. Into a dense result the dense inputs go first, then the rows.
//
// Gradient of the dense form: dX = dOut for each X (op `scale`).
#include <algorithm>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void AddTo(int64_t n, const float* x, float* sum) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

absl::Status SumShape(InferContext& ctx) {
  const v1::VarDesc* like = &ctx.Input("X", 0);
  for (int i = 0; i < ctx.InputCount("X"); ++i) {
    const v1::VarDesc& x = ctx.Input("X", i);
    if ((x.kind() != v1::DENSE && x.kind() != v1::SELECTED_ROWS) || x.dtype() != v1::FLOAT32) {
      return ctx.Error(absl::StrCat("X[", i, "] (", x.name(), ") must be a dense FLOAT32 tensor or selected rows, got ",
                                    v1::VarKind_Name(x.kind()), " ", v1::DType_Name(x.dtype())));
    }
    const Shape dims = ctx.InputShape("X", i), first = ctx.InputShape("X", 0);
    // Selected rows may have an unknown height.
    const bool rows = x.kind() == v1::SELECTED_ROWS || ctx.Input("X", 0).kind() == v1::SELECTED_ROWS;
    if (rows ? !DimsAgree(dims, first) : dims != first) {
      return ctx.Error(absl::StrCat("X[0] has dims ", ShapeString(first), ", X[", i, "] (", x.name(), ") ",
                                    ShapeString(dims), "; they must be the same"));
    }
    if (like->kind() != v1::DENSE && x.kind() == v1::DENSE) like = &x;
  }
  v1::VarDesc* out = ctx.Output("Out");
  if (out != like) {
    out->set_kind(like->kind());
    out->set_dtype(v1::FLOAT32);
    *out->mutable_dims() = like->dims();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::OpDesc>> SumGradient(GradContext& ctx) {
  std::vector<v1::OpDesc> ops;
  for (int i = 0; i < ctx.op().inputs(0).vars_size(); ++i) {
    const std::string dx = ctx.InputGrad("X", i);
    if (dx.empty()) continue;
    if (ctx.Var(ctx.op().inputs(0).vars(i)).kind() != v1::DENSE) {
      return absl::InvalidArgumentError("sum: no gradient flows into selected rows");
    }
    ops.push_back(MakeOp("scale", {{"X", {ctx.OutputGrad("Out")}}}, {{"Out", {dx}}}));
  }
  return ops;
}

class SumKernel : public OpKernel {
 public:
  explicit SumKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    std::vector<const Tensor*> dense;
    std::vector<const SelectedRows*> rows;
    bool any_dense = false;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const Variable& x = ctx.input_var(0, i);
      if (const Tensor* tensor = std::get_if<Tensor>(&x)) {
        // A variable that was never written holds an empty tensor, whatever its kind.
        if (tensor->initialized()) dense.push_back(tensor);
      } else if (const SelectedRows* selected = std::get_if<SelectedRows>(&x)) {
        if (selected->present) rows.push_back(selected);
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("X[", i, "] holds ids; it must be a dense tensor or selected rows"));
      }
    }
    any_dense = !dense.empty();
    if (!any_dense && rows.empty()) {
      Variable* out = ctx.output_var(0);
      if (Tensor* tensor = std::get_if<Tensor>(out)) tensor->Clear();
      if (SelectedRows* selected = std::get_if<SelectedRows>(out)) *selected = SelectedRows();
      return absl::OkStatus();
    }
    if (!any_dense) return AddRows(rows, ctx.output_var(0));
    return AddDense(dense, rows, ctx.output_var(0));
  }

 private:
  static absl::Status AddDense(const std::vector<const Tensor*>& dense, const std::vector<const SelectedRows*>& rows,
                               Variable* out_var) {
    const Shape dims(dense[0]->dims().begin(), dense[0]->dims().end());
    for (const Tensor* x : dense) {
      if (x->dims() != absl::MakeConstSpan(dims)) {
        return absl::InvalidArgumentError(
            absl::StrCat("X has dims ", ShapeString(dims), " and ", ShapeString(x->dims()), "; they must be the same"));
      }
    }
    // The result may share the memory of any input: dense inputs are added block by block, and rows are kept until they
    // have been added.
    Tensor own;
    Tensor* out = std::holds_alternative<Tensor>(*out_var) ? &std::get<Tensor>(*out_var) : &own;
    out->Resize(v1::FLOAT32, dims);
    constexpr int64_t kBlock = 2048;  // 8 KiB: stays in the first-level cache
    float sum[kBlock];
    for (int64_t begin = 0; begin < out->size(); begin += kBlock) {
      const int64_t n = std::min(kBlock, out->size() - begin);
      std::copy_n(dense[0]->data<float>() + begin, n, sum);
      for (size_t i = 1; i < dense.size(); ++i) AddTo(n, dense[i]->data<float>() + begin, sum);
      std::copy_n(sum, n, out->data<float>() + begin);
    }
    const int64_t height = dims.empty() ? 0 : dims[0];
    const int64_t width = height == 0 ? 0 : out->size() / height;
    for (const SelectedRows* x : rows) {
      if (!x->ids.empty() && x->values.size() != static_cast<int64_t>(x->ids.size()) * width) {
        return absl::InvalidArgumentError(absl::StrCat("X has ", x->ids.size(), " rows with values ",
                                                       ShapeString(x->values.dims()), "; expected ", width, " each"));
      }
      for (size_t r = 0; r < x->ids.size(); ++r) {
        if (x->ids[r] < 0 || x->ids[r] >= height) {
          return absl::InvalidArgumentError(
              absl::StrCat("row ", x->ids[r], " is outside of the ", height, " rows of X"));
        }
        AddTo(width, x->values.data<float>() + r * width, out->data<float>() + x->ids[r] * width);
      }
    }
    if (out == &own) *out_var = std::move(own);
    return absl::OkStatus();
  }

  static absl::Status AddRows(const std::vector<const SelectedRows*>& inputs, Variable* out_var) {
    const auto width_of = [](const SelectedRows* x) { return x->values.rank() == 2 ? x->values.dim(1) : -1; };
    const int64_t width = width_of(inputs[0]);
    size_t most = 0;
    bool have_step_rows = true;
    for (const SelectedRows* x : inputs) {
      if (width < 0 || x->values.dim(0) != static_cast<int64_t>(x->ids.size())) {
        return absl::InvalidArgumentError(
            absl::StrCat("X has ", x->ids.size(), " rows with values ", ShapeString(x->values.dims())));
      }
      if (width_of(x) != width) {
        return absl::InvalidArgumentError(
            absl::StrCat("X has rows of ", width, " and of ", width_of(x), " values; they must be the same"));
      }
      most += x->ids.size();
      have_step_rows = have_step_rows && x->step_rows.size() == x->ids.size();
    }
    SelectedRows sum;
    sum.height = inputs[0]->height;
    sum.present = true;
    sum.merged = true;
    sum.ids.reserve(most);
    if (have_step_rows) sum.step_rows.reserve(most);
    // Position of each id in the sum. Never iterated over, since its order is random.
    absl::flat_hash_map<int64_t, size_t> position;
    position.reserve(most);
    for (const SelectedRows* x : inputs) {
      for (size_t r = 0; r < x->ids.size(); ++r) {
        if (!position.emplace(x->ids[r], sum.ids.size()).second) continue;
        sum.ids.push_back(x->ids[r]);
        if (have_step_rows) sum.step_rows.push_back(x->step_rows[r]);
      }
    }
    sum.values.Resize(v1::FLOAT32, {static_cast<int64_t>(sum.ids.size()), width});
    std::vector<bool> written(sum.ids.size(), false);
    for (const SelectedRows* x : inputs) {
      for (size_t r = 0; r < x->ids.size(); ++r) {
        const size_t at = position.find(x->ids[r])->second;
        const float* row = x->values.data<float>() + r * width;
        float* to = sum.values.data<float>() + at * width;
        if (written[at]) {
          AddTo(width, row, to);
        } else {
          std::copy_n(row, width, to);
          written[at] = true;
        }
      }
    }
    *out_var = std::move(sum);
    return absl::OkStatus();
  }
};

// Of variables with other names the sum is known by its own.
void SumElements(ElementContext& ctx) {
  for (int i = 1; i < ctx.InputCount("X"); ++i) {
    if (ctx.Names("X", i) != ctx.Names("X", 0)) return OwnElements()(ctx);
  }
  ctx.NameOutput("Out", ctx.Names("X", 0));
}

REGISTER_OP(sum)
({.type = "sum",
  .summary = "adds variables in the order given; absent ones are skipped",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}, .variadic = true}},
  .outputs = {{.name = "Out", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .shape = SumShape,
  .gradient = SumGradient,
  .cost = ElementwiseCost(1),
  .in_place = {{"X", "Out"}},
  .loss_form = LossForm::kWeightedSum,
  .elements = SumElements,
  .effect = ElementEffect::kAdded,
  .zero_of_zero = true});

REGISTER_KERNEL(sum, MakeKernel<SumKernel>);

}  // namespace
}  // namespace weir
