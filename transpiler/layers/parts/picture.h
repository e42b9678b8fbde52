// Shared code of conv2d and pool2d: settings of one number, or of height and width, and the pictures they read.
#ifndef WEIR_TRANSPILER_LAYERS_PARTS_PICTURE_H_
#define WEIR_TRANSPILER_LAYERS_PARTS_PICTURE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "transpiler/model/model_context.h"

namespace weir {

// Returns the variable that `input` names: [B, C, H, W], all but B known. InvalidArgument for other dims.
absl::StatusOr<v1::VarDesc> PictureInput(ModelContext& ctx, const std::string& input);

// Returns {height, width} of a field: one number is both; `otherwise` if the field is empty. InvalidArgument unless
// there are at most two numbers, each at least `least`.
absl::StatusOr<std::vector<int64_t>> HeightAndWidth(const ModelContext& ctx, std::string_view field,
                                                    const google::protobuf::RepeatedField<int64_t>& values,
                                                    const std::vector<int64_t>& otherwise, int64_t least);

// Returns an error unless windows of this kernel fit into the picture, and the padding is below the kernel.
absl::Status CheckWindows(const ModelContext& ctx, const v1::VarDesc& picture, const std::vector<int64_t>& kernel,
                          const std::vector<int64_t>& padding);

// Returns the attribute for operators that apply an activation themselves. SOFTMAX, which is over classes, is an error.
absl::StatusOr<std::string> ActivationOfElements(const ModelContext& ctx, v1::Activation activation);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LAYERS_PARTS_PICTURE_H_
