#include "transpiler/layers/parts/picture.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"

namespace weir {

absl::StatusOr<v1::VarDesc> PictureInput(ModelContext& ctx, const std::string& input) {
  ASSIGN_OR_RETURN(v1::VarDesc x, ctx.DenseInput("input", input));
  if (x.dims_size() == 4) {
    RETURN_IF_ERROR(ctx.FlatWidth("input", x).status());
    return x;
  }
  return ctx.Error("input", absl::StrCat("'", input, "' is [", absl::StrJoin(x.dims(), ", "),
                                         "]; pictures are [B, channels, height, width]: a reshape layer makes them"));
}

absl::StatusOr<std::vector<int64_t>> HeightAndWidth(const ModelContext& ctx, std::string_view field,
                                                    const google::protobuf::RepeatedField<int64_t>& values,
                                                    const std::vector<int64_t>& otherwise, int64_t least) {
  if (values.empty()) return otherwise;
  if (values.size() > 2) {
    return ctx.Error(field, absl::StrCat("is one number, or height and width; got ", values.size(), " numbers"));
  }
  for (const int64_t value : values) {
    if (value < least) return ctx.Error(field, absl::StrCat("must be at least ", least, ", got ", value));
  }
  return std::vector<int64_t>{values.Get(0), values.Get(values.size() - 1)};
}

absl::Status CheckWindows(const ModelContext& ctx, const v1::VarDesc& picture, const std::vector<int64_t>& kernel,
                          const std::vector<int64_t>& padding) {
  for (size_t i = 0; i < 2; ++i) {
    const char* const axis = i == 0 ? "height" : "width";
    const int64_t size = picture.dims(2 + static_cast<int>(i));
    if (padding[i] >= kernel[i]) {
      return ctx.Error("padding",
                       absl::StrCat("must be below the kernel's ", axis, " of ", kernel[i], ", got ", padding[i]));
    }
    if (kernel[i] - padding[i] > size + padding[i]) {
      return ctx.Error("kernel",
                       absl::StrCat("of ", axis, " ", kernel[i], " does not fit into '", picture.name(), "' [",
                                    absl::StrJoin(picture.dims(), ", "), "] with a padding of ", padding[i]));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ActivationOfElements(const ModelContext& ctx, v1::Activation activation) {
  switch (activation) {
    case v1::IDENTITY:
      return "identity";
    case v1::RELU:
      return "relu";
    case v1::SIGMOID:
      return "sigmoid";
    case v1::TANH:
      return "tanh";
    case v1::SOFTMAX:
      break;
  }
  return ctx.Error(
      "activation",
      "SOFTMAX is over the classes of an example [B, classes]; this output has none: use an activation layer");
}

}  // namespace weir
