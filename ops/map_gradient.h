// Maps the values of a gradient, each by itself, for the kernels of operators.
#ifndef WEIR_OPS_MAP_GRADIENT_H_
#define WEIR_OPS_MAP_GRADIENT_H_

#include <variant>

#include "framework/runtime/kernel.h"

namespace weir {

// Computes output 0 from input 0, dense or selected rows, which may be the same variable: calls loop(n, x, out) with
// their n values. An absent gradient stays absent.
template <typename Loop>
void MapGradient(KernelContext& ctx, const Loop& loop) {
  const auto map = [&loop](const Tensor& x, Tensor* out) {
    if (out != &x) out->Resize(v1::FLOAT32, x.dims());
    loop(x.size(), x.data<float>(), out->data<float>());
  };
  const Variable& in = ctx.input_var(0);
  if (const Tensor* x = std::get_if<Tensor>(&in)) {
    if (x->initialized()) {
      map(*x, ctx.output(0));
    } else {
      ctx.output(0)->Clear();
    }
    return;
  }
  const SelectedRows& x = std::get<SelectedRows>(in);
  SelectedRows* const out = ctx.OutputAs<SelectedRows>(0);
  out->CopyRowsOf(x);
  if (x.present && x.values.initialized()) map(x.values, &out->values);
}

}  // namespace weir

#endif  // WEIR_OPS_MAP_GRADIENT_H_
