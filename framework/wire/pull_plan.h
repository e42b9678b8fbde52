// Plans of pulls: how the tensors that a step reads from one server are cut into messages.
//
// Pure functions of sizes, names and formats. A client fills the payloads and sends the messages; `explain` only weighs
// them.
#ifndef WEIR_FRAMEWORK_WIRE_PULL_PLAN_H_
#define WEIR_FRAMEWORK_WIRE_PULL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
#include "proto/table.pb.h"

namespace weir {

// Rows with one list of ids, of one block or table, or of several tables that are asked for the same ids.
struct RowsToPull {
  struct Tensor {
    std::string_view name;
    int width = 0;
    v1::WireFormat format = v1::WIRE_FLOAT32;
  };
  std::vector<Tensor> tensors;
  size_t rows = 0;
};

struct BlockToPull {
  std::string_view name;
  int64_t count = 0;  // elements
};

// One message. The payload of its request is ids, if it asks for rows; that of its answer is values.
struct PlannedPull {
  // Part of one tensor, in the order of the items. In the answer each begins at the next multiple of kAlignment.
  struct Piece {
    size_t asked = 0;   // index of the RowsToPull or BlockToPull
    size_t tensor = 0;  // index of the tensor of a RowsToPull
    size_t begin = 0;   // first row or element
    size_t count = 0;   // rows or elements
    size_t bytes = 0;   // in the answer
    size_t ids_at = 0;  // offset of its ids in the payload; tensors with the same ids have them in common
  };
  v1::PullRequest request;  // items only
  std::vector<Piece> pieces;
  size_t id_bytes = 0;      // of the payload
  size_t answer_bytes = 0;  // of the answer's payload
};

// Cuts rows into messages with at most `most_bytes` of floats each, or one row: each list of ids in pieces of equal
// size, several small lists in one message.
std::vector<PlannedPull> PlanRowPulls(absl::Span<const RowsToPull> asked, size_t most_bytes);

// Cuts blocks into messages with at most `most_bytes` of floats each.
std::vector<PlannedPull> PlanBlockPulls(absl::Span<const BlockToPull> asked, v1::WireFormat format, size_t most_bytes);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_PULL_PLAN_H_
