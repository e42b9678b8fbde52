// Any bytes as gradient rows of another trainer (pserver/replica/node_rows.h). The first byte chooses the width and
// the trainer's nodes.
#include <string>
#include <vector>

#include "pserver/replica/node_rows.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  FuzzInput input(data, size);
  const uint8_t which = input.Byte();
  const int width = 1 + which % 4;
  const std::vector<LaneRange> nodes = AlignedNodes(LanesOfTrainer(8, 3, which / 4 % 3));
  const std::string bytes = input.Rest();
  std::vector<Gradient> gradients;
  if (!ReadNodeRows(bytes, nodes, /*target=*/0, width, /*height=*/100, &gradients).ok()) return 0;
  // What was accepted lies inside the bytes.
  volatile float sum = 0;
  for (const Gradient& gradient : gradients) {
    for (int64_t r = 0; r < gradient.count; ++r) {
      if (gradient.ids[r] < 0 || gradient.ids[r] >= 100) std::abort();
      for (int j = 0; j < width; ++j) sum = sum + gradient.values[r * width + j];
    }
  }
  (void)sum;
  return 0;
}
