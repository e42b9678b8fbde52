// Plans of pushes: how the gradients that a step sends to one server are cut into tensors, and these packed into parts.
//
// Pure functions of sizes, names and formats. A client fills the payloads and sends the parts; `explain` only weighs
// them.
#ifndef WEIR_FRAMEWORK_WIRE_PUSH_PLAN_H_
#define WEIR_FRAMEWORK_WIRE_PUSH_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
#include "proto/table.pb.h"

namespace weir {

// Lanes [lane, lane + lanes), whose gradients one tensor sums.
struct PushNode {
  int lane = 0;
  int lanes = 1;
};

struct PlannedTensor {
  v1::PushItem item;  // without offset
  size_t bytes = 0;   // in the payload
};

// Elements [begin, begin + count) of a dense gradient, all nodes of which go into one part.
struct PlannedDense {
  int64_t begin = 0, count = 0;
  std::vector<PlannedTensor> tensors;  // by node
};
// Cuts a dense gradient of `count` elements.
std::vector<PlannedDense> PlanDensePush(std::string_view name, int64_t count, absl::Span<const PushNode> nodes,
                                        v1::WireFormat format);

// Form of gradient rows in a push.
struct RowForm {
  int width = 0;
  v1::WireFormat format = v1::WIRE_FLOAT32;
  bool counts = false;  // rows come with shows and clicks
};
// Returns the most rows of each node that go into one part.
size_t RowsPerPush(const RowForm& form, size_t nodes);

// Offsets in the bytes of a tensor of rows: ids, from 0; values; shows and clicks, if there are any.
struct PushRowLayout {
  size_t ids_end = 0;
  size_t values_begin = 0, values_end = 0;
  size_t counts_begin = 0;
};
// Rows of one node.
struct PlannedRows {
  PlannedTensor tensor;
  PushRowLayout layout;
};
PlannedRows PlanRowsPush(std::string_view name, const PushNode& node, size_t rows, const RowForm& form);

// Part that is being packed. Each tensor begins at a multiple of kAlignment.
class PushPart {
 public:
  // Returns true if tensors of so many bytes, each rounded up to kAlignment, leave at once in a part of their own;
  // smaller ones are gathered in a common part.
  static bool LeavesAtOnce(size_t bytes);
  // Returns true if a part of gathered tensors has room for so many bytes more.
  bool HasRoomFor(size_t bytes) const;
  // Appends a tensor and returns its offset in the payload.
  size_t Add(v1::PushItem item, size_t bytes);
  // Returns the size of the payload.
  size_t bytes() const { return bytes_; }
  // Moves the items into the header of the part with this number, from 0. `last`: the step has no further part.
  void FillHeader(int number, bool last, v1::PushRequest* header) &&;

 private:
  std::vector<v1::PushItem> items_;
  size_t bytes_ = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_PUSH_PLAN_H_
