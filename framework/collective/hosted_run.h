// Reduces slices as ReduceRun does, with the same bits, where ranks share hosts: what leaves a host for the owner of a
// slice is added there before, and what comes back comes once for the host.
//
// On each host one rank, the proxy, speaks to the owner of a slice on another host (Hosts::Proxy). The ranks of a host
// send their addends of the slice to their proxy; it adds those that are neighbours in the lane tree, over whole
// subtrees, and sends the sums to the owner. The owner adds the rest and sends results to the proxies of other hosts,
// which hand them on, and to the ranks of its own.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_HOSTED_RUN_H_
#define WEIR_FRAMEWORK_COLLECTIVE_HOSTED_RUN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/collective/addend_nodes.h"
#include "framework/collective/hosts.h"
#include "framework/collective/operation.h"
#include "framework/collective/reduce_run.h"
#include "framework/collective/reduction.h"
#include "framework/collective/slice_parts.h"

namespace weir {

// Nodes of the lane tree that one host has all lanes of, as far as anybody has them: they can be added there.
struct HostNode {
  int host = 0;
  LaneRange lanes;            // the smallest aligned node that has them all
  std::vector<size_t> nodes;  // positions in the nodes that were given
  uint64_t present = 0;       // segments of any of them
};
// Returns the largest such groups, by lane. `nodes`: by lane. lanes: leaves of the tree.
std::vector<HostNode> HostNodesOf(const std::vector<AddendNode>& nodes, int lanes, const Hosts& hosts);

// A reduction on one rank.
class HostedRun {
 public:
  struct Options {
    ReduceRun::Options reduction;  // reader: kAll or kNobody; no values of 16 bits
    const Hosts* hosts = nullptr;  // borrowed
  };
  // Returns whether the messages of such a reduction can be numbered. Equal on all ranks.
  static bool Fits(const ReduceRun::Options& reduction, const Hosts& hosts);
  // `operation` is borrowed, with its header complete. Requires: Fits.
  HostedRun(Operation* operation, Options options);

  absl::Status Run();
  // Return what they return of a ReduceRun.
  uint64_t present() const { return present_; }
  int64_t samples() const { return samples_; }

 private:
  using Part = SliceParts::Part;
  using Messages = std::vector<Operation::Message>;
  // Sum of some lanes, and the place of its values of a message.
  struct Addend {
    LaneRange lanes;
    uint64_t present = 0;
    const char* values = nullptr;
  };
  // A message of a slice that this rank adds, all of it or the part of its host.
  struct Arriving {
    MessageMemory::Block bytes;
    Messages messages;
    std::vector<Addend> addends;  // by lane
  };
  // Sums of this host that are on their way.
  struct Merged {
    MessageMemory::Block bytes;
    Messages messages;
  };

  absl::Status TakeHeaders(const std::vector<v1::CollectiveHeader>& headers);
  int64_t Number(int64_t m, int slice, size_t place, size_t run) const;
  size_t Bytes(int64_t elements) const { return parts_.Bytes(elements); }
  bool IsProxy(int slice) const { return slice != rank_ && hosts_.Proxy(host_, slice) == rank_; }
  bool SharesResults() const { return options_.reader == ReduceRun::kAll; }

  absl::Status Begin();
  void SendAddends(int64_t m);
  // Asks for the addends of message m of a slice that this rank adds.
  Arriving ReceiveAddends(int64_t m, int slice);
  void Receive(int64_t m);
  void ReceiveResults(int64_t m);
  absl::Status Reduce(int64_t m);
  absl::Status MergeForOwners(int64_t m);
  absl::Status ReduceOwn(int64_t m);
  absl::Status Forward(int64_t m);
  // Adds the addends to out, the part of a message.
  void Add(TreeReducer* reducer, const Part& part, absl::Span<const Addend> addends, char* out) const;

  Operation& operation_;
  const ReduceRun::Options options_;
  const Hosts& hosts_;
  const int rank_, host_;
  const SliceParts parts_;
  bool in_place_ = false;           // results go to memory from which addends are sent
  std::vector<AddendNode> nodes_;   // all ranks' addends, by lane
  std::vector<HostNode> of_hosts_;  // by lane
  uint64_t present_ = 0;
  int64_t samples_ = 0;
  TreeReducer whole_, partial_;
  std::vector<int> proxied_;                      // slices of other hosts that this rank speaks for
  std::deque<Arriving> own_;                      // by message
  std::deque<std::vector<Arriving>> for_owners_;  // by message, then slice in proxied_
  std::deque<std::vector<Messages>> to_forward_;  // likewise: results that are handed on
  Messages results_;                              // all other results
  std::deque<Messages> addend_sends_, result_sends_, forward_sends_;
  std::deque<std::vector<Merged>> merged_sends_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_HOSTED_RUN_H_
