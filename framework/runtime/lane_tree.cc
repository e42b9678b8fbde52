#include "framework/runtime/lane_tree.h"

#include <algorithm>

#include "glog/logging.h"

namespace weir {

LaneRange LanesOfTrainer(int lanes, int trainers, int trainer) {
  CHECK(trainer >= 0 && trainer < trainers);
  if (lanes == 0) return {trainer, 1};
  const int base = lanes / trainers;
  const int longer = lanes % trainers;
  return {trainer * base + std::min(trainer, longer), base + (trainer < longer ? 1 : 0)};
}

std::vector<LaneRange> AlignedNodes(LaneRange range) {
  std::vector<LaneRange> nodes;
  int begin = range.begin;
  int left = range.count;
  while (left > 0) {
    int size = begin == 0 ? 1 << 30 : begin & -begin;
    while (size > left) size /= 2;
    nodes.push_back({begin, size});
    begin += size;
    left -= size;
  }
  return nodes;
}

std::vector<LaneRange> NodesOfTrainers(int lanes, int trainers, const std::vector<int>& of) {
  std::vector<LaneRange> nodes;
  for (size_t i = 0; i < of.size();) {
    LaneRange run = LanesOfTrainer(lanes, trainers, of[i]);
    while (++i < of.size() && of[i] == of[i - 1] + 1) run.count += LanesOfTrainer(lanes, trainers, of[i]).count;
    const std::vector<LaneRange> of_run = AlignedNodes(run);
    nodes.insert(nodes.end(), of_run.begin(), of_run.end());
  }
  return nodes;
}

std::vector<LaneAdd> TreeAdds(const std::vector<LaneRange>& present, int lanes) {
  std::vector<LaneAdd> adds;
  int root = 1;
  while (root < lanes) root *= 2;
  // Reduces present[first, last) under node [begin, begin + size) to its first member.
  auto reduce = [&](auto& self, int begin, int size, int first, int last) -> void {
    if (last - first <= 1) return;
    CHECK_GT(size, 1) << "nodes overlap";
    const int middle = begin + size / 2;
    int split = first;
    while (split < last && present[split].begin < middle) ++split;
    self(self, begin, size / 2, first, split);
    self(self, middle, size / 2, split, last);
    if (split > first && split < last) adds.push_back({first, split});
  };
  reduce(reduce, 0, root, 0, static_cast<int>(present.size()));
  return adds;
}

}  // namespace weir
