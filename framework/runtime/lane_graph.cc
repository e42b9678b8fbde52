#include "framework/runtime/lane_graph.h"

#include <map>
#include <set>

namespace weir {

LaneGraph::LaneGraph(absl::Span<const Access> nodes) : nodes_(nodes.size()) {
  // The node that wrote some memory last, and those that have read it since.
  struct Uses {
    int writer = -1;
    std::vector<int> readers;
  };
  std::map<std::string_view, Uses> uses;
  for (int i = 0; i < size(); ++i) {
    const Access& access = nodes[static_cast<size_t>(i)];
    std::set<int> wait_for;
    for (const std::string_view name : access.reads) {
      Uses& of = uses[name];
      if (of.writer >= 0) wait_for.insert(of.writer);
      of.readers.push_back(i);
    }
    for (const std::string_view name : access.writes) {
      Uses& of = uses[name];
      if (of.writer >= 0) wait_for.insert(of.writer);
      wait_for.insert(of.readers.begin(), of.readers.end());
      of = {.writer = i};
    }
    wait_for.erase(i);
    independent_ |= i > 0 && !wait_for.contains(i - 1);
    nodes_[static_cast<size_t>(i)].waits = static_cast<int>(wait_for.size());
    for (const int earlier : wait_for) nodes_[static_cast<size_t>(earlier)].after.push_back(i);
  }
}

void LaneGraphQueue::Begin(const LaneGraph* graph, int lanes) {
  MutexLock lock(&mu_);
  graph_ = graph;
  to_run_ = static_cast<int64_t>(graph->size()) * lanes;
  waits_.resize(static_cast<size_t>(lanes));
  for (int lane = 0; lane < lanes; ++lane) {
    std::vector<int>& waits = waits_[static_cast<size_t>(lane)];
    waits.clear();
    for (int i = 0; i < graph->size(); ++i) {
      waits.push_back(graph->waits(i));
      if (waits.back() == 0) ready_.push_back({lane, i});
    }
  }
}

std::optional<LaneGraphQueue::Node> LaneGraphQueue::Take() {
  MutexLock lock(&mu_);
  while (ready_.empty() && to_run_ > 0) changed_.Wait(&mu_);
  if (to_run_ == 0) return std::nullopt;
  const Node next = ready_.front();
  ready_.pop_front();
  return next;
}

void LaneGraphQueue::Done(Node node) {
  MutexLock lock(&mu_);
  const size_t ready_before = ready_.size();
  // Nodes go to the front, in their order: values just written are in this thread's cache.
  const absl::Span<const int> after = graph_->after(node.index);
  for (auto later = after.rbegin(); later != after.rend(); ++later) {
    if (--waits_[static_cast<size_t>(node.lane)][static_cast<size_t>(*later)] == 0) {
      ready_.push_front({node.lane, *later});
    }
  }
  // One of the new ones is for the calling thread.
  if (--to_run_ == 0 || ready_.size() > ready_before + 1) changed_.SignalAll();
}

}  // namespace weir
