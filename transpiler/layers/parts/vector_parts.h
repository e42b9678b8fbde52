// Shared code of layers that read several vectors of one width for each example.
#ifndef WEIR_TRANSPILER_LAYERS_PARTS_VECTOR_PARTS_H_
#define WEIR_TRANSPILER_LAYERS_PARTS_VECTOR_PARTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "transpiler/model/model_context.h"

namespace weir {

// Returns a variable [B, F, W] with the vectors of all inputs, [B, S, W] or [B, W] each, side by side: the only input,
// or
// "<layer>.vectors". Errors name the field `input`.
absl::StatusOr<v1::VarDesc> JoinVectors(ModelContext& ctx,
                                        const google::protobuf::RepeatedPtrField<std::string>& inputs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LAYERS_PARTS_VECTOR_PARTS_H_
