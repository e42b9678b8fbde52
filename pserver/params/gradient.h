// Gradients that trainers pushed in one step, checked (pserver/params/push_parser.h).
#ifndef WEIR_PSERVER_PARAMS_GRADIENT_H_
#define WEIR_PSERVER_PARAMS_GRADIENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/runtime/lane_tree.h"

namespace weir {

// A checked tensor of a push: part of a node's gradient of one block or table.
struct Gradient {
  bool of_table = false;
  int target = 0;  // index of the block or table
  LaneRange node;
  // Dense: elements [begin, begin + count) of the block. Rows: `count` rows, with their ids in `ids`.
  int64_t begin = 0;
  int64_t count = 0;
  int width = 0;  // 0 = dense
  const float* values = nullptr;
  const int64_t* ids = nullptr;
  // Shows and clicks of each row, [count, 2], for tables that count them; else null.
  const float* counts = nullptr;
  // Positions by ascending MixId; empty if the ids are already in that order.
  std::vector<uint32_t> order;
  std::shared_ptr<const void> keep;  // owner of the memory of values, ids and counts
  size_t decoded_bytes = 0;          // memory of values that were decoded out of the payload
  int64_t arrival = 0;               // order of arrival among all gradients of this server
};

// Gradients that one trainer pushed in one step.
struct TrainerGradients {
  int trainer = 0;
  int64_t samples = 0;
  std::vector<Gradient> gradients;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_GRADIENT_H_
