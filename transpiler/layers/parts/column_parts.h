// Shared code of layers with a parameter for each value of the last dimension.
#ifndef WEIR_TRANSPILER_LAYERS_PARTS_COLUMN_PARTS_H_
#define WEIR_TRANSPILER_LAYERS_PARTS_COLUMN_PARTS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transpiler/model/model_context.h"

namespace weir {

// Returns the last dimension of the layer's input. Errors: it is not dense, has dimensions that are not known, or has
// only that of examples.
absl::StatusOr<int64_t> LastWidth(ModelContext& ctx, const std::string& input);

absl::Status CheckEpsilon(const ModelContext& ctx, double epsilon);

// Adds a parameter of `size` equal values, and returns its name.
absl::StatusOr<std::string> ConstantParameter(ModelContext& ctx, std::string_view suffix, int64_t size, double value);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LAYERS_PARTS_COLUMN_PARTS_H_
