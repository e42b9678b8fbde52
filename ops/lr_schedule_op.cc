#include "ops/lr_schedule_op.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

class ScheduleKernel : public OpKernel {
 public:
  explicit ScheduleKernel(RateFunction rate) : rate_(std::move(rate)) {}

  absl::Status Run(KernelContext& ctx) override {
    RETURN_IF_ERROR(CheckOne(ctx.input(0), "Step", v1::INT64));
    double x = 0;
    if (ctx.inputs[0].size() > 1 && ctx.has_input(1)) {
      RETURN_IF_ERROR(CheckOne(ctx.input(1), "X", v1::FLOAT64));
      x = ctx.input(1).data<double>()[0];
    }
    const double rate = rate_(ctx.input(0).data<int64_t>()[0], x);
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT64, {1});
    out->data<double>()[0] = rate;
    return absl::OkStatus();
  }

 private:
  const RateFunction rate_;
};

}  // namespace

absl::Status ExpectOne(const InferContext& ctx, std::string_view slot, DType dtype) {
  RETURN_IF_ERROR(ExpectDense(ctx, slot, dtype));
  if (KnownCount(ctx.InputShape(slot)) == 1) return absl::OkStatus();
  return ctx.Error(absl::StrCat(Av(slot), " must have one element, got ", ShapeString(ctx.InputShape(slot))));
}

absl::Status CheckOne(const Tensor& x, std::string_view what, DType dtype) {
  if (!x.initialized()) {
    return absl::FailedPreconditionError(absl::StrCat(Av(what), " has no value; run the startup program first"));
  }
  if (x.size() == 1 && x.dtype() == dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Av(what), " must be ", v1::DType_Name(dtype),
                                                 " with one element, got ", v1::DType_Name(x.dtype()), " ",
                                                 ShapeString(x.dims())));
}

OpDef MakeScheduleOp(ScheduleOpOptions options) {
  OpDef def = {.type = std::move(options.type), .summary = std::move(options.summary)};
  def.inputs = {{.name = "Step"}};
  if (options.behind_another) def.inputs.push_back({.name = "X"});
  def.outputs = {{.name = "Out"}};
  def.attrs = std::move(options.attrs);
  def.scope = OpScope::kStep;
  def.shape = [behind = options.behind_another, check = std::move(options.check)](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectOne(ctx, "Step", v1::INT64));
    if (behind) RETURN_IF_ERROR(ExpectOne(ctx, "X", v1::FLOAT64));
    if (check) RETURN_IF_ERROR(check(ctx));
    ctx.SetOutput("Out", {1}, v1::FLOAT64);
    return absl::OkStatus();
  };
  def.cost = [](InferContext&) { return Cost{.flops = 10, .bytes = 16}; };
  return def;
}

absl::StatusOr<std::unique_ptr<OpKernel>> MakeScheduleKernel(RateFunction rate) {
  return std::unique_ptr<OpKernel>(new ScheduleKernel(std::move(rate)));
}

}  // namespace weir
