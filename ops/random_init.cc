#include "ops/random_init.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/initial_value.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

class RandomInitKernel : public OpKernel {
 public:
  RandomInitKernel(const AttrReader& attrs, v1::Initializer initializer)
      : initializer_(std::move(initializer)),
        shape_(attrs.Ints("shape")),
        variable_(attrs.String("variable")),
        seed_(static_cast<uint64_t>(attrs.Int("seed"))),
        element_begin_(attrs.Int("element_begin")) {}

  absl::Status Run(KernelContext& ctx) override {
    Tensor* out = ctx.output(0);
    RETURN_IF_ERROR(MakeRoom(variable_, v1::FLOAT32, shape_, out));
    return InitialElements(initializer_, seed_, variable_, shape_, element_begin_, out->span<float>());
  }

 private:
  const v1::Initializer initializer_;
  const std::vector<int64_t> shape_;
  const std::string variable_;
  const uint64_t seed_;
  const int64_t element_begin_;
};

}  // namespace

absl::Status MakeRoom(const std::string& variable, DType dtype, absl::Span<const int64_t> shape, Tensor* out) {
  const double bytes = static_cast<double>(ElementCount(shape)) * static_cast<double>(DTypeSize(dtype));
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (memory > 0 && bytes > memory) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("variable '%s' of dims %s needs %.0f bytes; this machine has %.0f", variable,
                        ShapeString(shape), bytes, memory));
  }
  out->Resize(dtype, shape);
  return absl::OkStatus();
}

absl::Status InferFromShapeAttr(InferContext& ctx, DType dtype) {
  const std::vector<int64_t> shape = ctx.attrs().Ints("shape");
  for (int64_t d : shape) {
    if (d < 0) return ctx.Error(absl::StrCat("shape must not be negative, got ", ShapeString(shape)));
  }
  ctx.SetOutput("Out", shape, dtype);
  return absl::OkStatus();
}

OpDef MakeRandomInitOp(std::string type, std::string summary, std::vector<AttrDef> attrs) {
  attrs.push_back(Required(IntsAttr("shape")));
  attrs.push_back(Required(StringAttr("variable", "")));
  attrs.push_back(IntAttr("seed", 1));
  attrs.push_back(IntAttr("element_begin", 0));
  return {.type = std::move(type),
          .summary = std::move(summary),
          .outputs = {{"Out"}},
          .attrs = std::move(attrs),
          .scope = OpScope::kStep,
          .shape = [](InferContext& ctx) -> absl::Status {
            if (ctx.attrs().String("variable").empty()) return ctx.Error("variable must name the whole variable");
            if (ctx.attrs().Int("element_begin") < 0) return ctx.Error("element_begin must not be negative");
            return InferFromShapeAttr(ctx, v1::FLOAT32);
          },
          .cost =
              [](InferContext& ctx) {
                // Count about 100 operations for the ten Philox rounds that make four elements.
                const double elements = static_cast<double>(ElementCount(ctx.attrs().Ints("shape")));
                return Cost{.flops = 25 * elements, .bytes = 4 * elements};
              }};
}

absl::StatusOr<std::unique_ptr<OpKernel>> MakeRandomInitKernel(const AttrReader& attrs, v1::Initializer initializer) {
  return std::unique_ptr<OpKernel>(new RandomInitKernel(attrs, std::move(initializer)));
}

}  // namespace weir
