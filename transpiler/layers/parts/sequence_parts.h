// Shared code of layers that read a sequence.
#ifndef WEIR_TRANSPILER_LAYERS_PARTS_SEQUENCE_PARTS_H_
#define WEIR_TRANSPILER_LAYERS_PARTS_SEQUENCE_PARTS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transpiler/model/model_context.h"

namespace weir {

// Returns the variable with the lengths of a sequence: the one `given` by the layer's field `length`, else
// "<sequence>.length". Errors: the sequence, which the field named `field` names, is not [B, T, W]; there is no such
// length variable.
absl::StatusOr<std::string> SequenceLength(ModelContext& ctx, std::string_view field, const std::string& sequence,
                                           const std::string& given);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LAYERS_PARTS_SEQUENCE_PARTS_H_
