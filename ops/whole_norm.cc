// whole_norm: the Euclidean norm of everything that goes by one name
//
//   X     [21] int64 each, from sum_of_squares
//   Out   [1] float64 each: the square root of the total, which is rounded once. All the same
//   name  s: what goes together, "fc_0.w@GRAD"; over all slices and servers
//   with_tables  b: covers dense parameters, which every trainer holds, and tables, which servers hold
//
// In a single-machine program X has all the parts. On a server it has one: there the optimize block stops at this op
// until the totals of all servers are known (pserver/protocol/norm_rounds.h), and the kernel is not run.
#include <cmath>

#include "framework/base/exact_sum.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

class WholeNormKernel : public OpKernel {
 public:
  explicit WholeNormKernel(const KernelInit& init) : name_(init.attrs.String("name")) {}

  absl::Status Run(KernelContext& ctx) override {
    ExactSum total;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      if (!ctx.input(0, i).initialized() || ctx.input(0, i).dtype() != v1::INT64) {
        return absl::FailedPreconditionError(
            absl::StrCat("part ", i, " of ", name_, " has no value; sum_of_squares makes it"));
      }
      ASSIGN_OR_RETURN(const ExactSum part, ExactSum::FromWords(ctx.input(0, i).span<int64_t>()));
      total.Add(part);
    }
    const double norm = std::sqrt(total.Rounded());
    if (!std::isfinite(norm)) {
      return absl::OutOfRangeError(
          absl::StrCat("the norm of ", name_, " is ", norm, ": it holds a NaN or an infinity"));
    }
    for (int i = 0; i < ctx.output_count(0); ++i) {
      Tensor* const out = ctx.output(0, i);
      out->Resize(v1::FLOAT64, {1});
      out->data<double>()[0] = norm;
    }
    return absl::OkStatus();
  }

 private:
  const std::string name_;
};

REGISTER_OP(whole_norm)
({.type = "whole_norm",
  .summary = "norm over all parts of one name, on all servers",
  .inputs = {{.name = "X", .variadic = true}},
  .outputs = {{.name = "Out", .variadic = true}},
  .attrs = {Required(StringAttr("name", "")), BoolAttr("with_tables", false)},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    for (int i = 0; i < ctx.InputCount("X"); ++i) {
      const Shape dims = ctx.InputShape("X", i);
      if (ctx.Input("X", i).dtype() != v1::INT64 || dims != Shape{ExactSum::kWords}) {
        return ctx.Error(absl::StrCat("X must be INT64 [", ExactSum::kWords, "], the output of sum_of_squares, got ",
                                      v1::DType_Name(ctx.Input("X", i).dtype()), " ", ShapeString(dims)));
      }
    }
    if (ctx.attrs().String("name").empty()) return ctx.Error("name is empty");
    for (int i = 0; i < ctx.OutputCount("Out"); ++i) ctx.SetOutput("Out", {1}, v1::FLOAT64, i);
    return absl::OkStatus();
  },
  .cost =
      [](InferContext& ctx) {
        const double words = static_cast<double>(ExactSum::kWords * ctx.InputCount("X"));
        return Cost{.flops = words, .bytes = 8 * words};
      }});
REGISTER_KERNEL(whole_norm, MakeKernel<WholeNormKernel>);

}  // namespace
}  // namespace weir
