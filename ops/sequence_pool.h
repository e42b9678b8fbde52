// The attribute `type` of sequence_pool.
#ifndef WEIR_OPS_SEQUENCE_POOL_H_
#define WEIR_OPS_SEQUENCE_POOL_H_

#include <string>

#include "absl/status/statusor.h"
#include "ops/sequence_pool_math.h"

namespace weir {

// Parses the attribute; InvalidArgument lists the names.
absl::StatusOr<SequencePooling> ParseSequencePooling(const std::string& name);

}  // namespace weir

#endif  // WEIR_OPS_SEQUENCE_POOL_H_
