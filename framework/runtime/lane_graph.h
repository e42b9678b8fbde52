// Dependencies between the ops of a lane, and the queue of those that are ready, so that ops that are independent of
// one another run at the same time.
#ifndef WEIR_FRAMEWORK_RUNTIME_LANE_GRAPH_H_
#define WEIR_FRAMEWORK_RUNTIME_LANE_GRAPH_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/mutex.h"

namespace weir {

// Orders nodes by the memory that they read and write: each waits for those before it that write what it reads or
// writes, and for those that read what it writes. Constant after construction.
class LaneGraph {
 public:
  // Names of memory. Two nodes that name the same memory use the same name.
  struct Access {
    std::vector<std::string_view> reads, writes;
  };

  LaneGraph() = default;
  // Nodes in the order of the program. Names are not kept.
  explicit LaneGraph(absl::Span<const Access> nodes);

  int size() const { return static_cast<int>(nodes_.size()); }
  // Returns true if some node does not wait for the one before it.
  bool independent() const { return independent_; }
  // Number of nodes that a node waits for.
  int waits(int node) const { return nodes_[static_cast<size_t>(node)].waits; }
  // Nodes that wait for a node, in the order of the program.
  absl::Span<const int> after(int node) const { return nodes_[static_cast<size_t>(node)].after; }

 private:
  struct Node {
    std::vector<int> after;
    int waits = 0;
  };
  std::vector<Node> nodes_;
  bool independent_ = false;
};

// Hands out the nodes of a graph that are ready, once for each lane, to several threads. Thread-safe.
class LaneGraphQueue {
 public:
  struct Node {
    int lane = 0;
    int index = 0;
  };

  // Begins a run of the graph in lanes [0, lanes). The run before it must be over. `graph` is borrowed until every node
  // is done.
  void Begin(const LaneGraph* graph, int lanes);
  // Waits until a node is ready, and returns it. Returns nullopt when all nodes of all lanes are done.
  std::optional<Node> Take();
  // Reports that a node was run: those that waited for it alone are ready.
  void Done(Node node);

 private:
  Mutex mu_;
  CondVar changed_;
  const LaneGraph* graph_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::deque<Node> ready_ ABSL_GUARDED_BY(mu_);
  // Nodes that are still waited for, by lane and node.
  std::vector<std::vector<int>> waits_ ABSL_GUARDED_BY(mu_);
  int64_t to_run_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_LANE_GRAPH_H_
