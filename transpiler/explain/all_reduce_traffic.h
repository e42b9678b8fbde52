// Exchange of one step among trainers that hold all dense parameters (distribute.dense is ALL_REDUCE), planned as
// pserver/channels and framework/collective do it: operations, and the messages of each. Every lane has examples.
// Where trainers share the updates out, transpiler/explain/sharded_traffic.h plans the messages.
#ifndef WEIR_TRANSPILER_EXPLAIN_ALL_REDUCE_TRAFFIC_H_
#define WEIR_TRANSPILER_EXPLAIN_ALL_REDUCE_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/graph/placement.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "transpiler/explain/step_traffic.h"

namespace weir {

// Link between two trainers, for times.
struct Link {
  double gbit = 10;  // 10^9 bits a second, in each direction
  double us = 50;    // microseconds until a message arrives

  double bytes_per_s() const { return gbit * 1e9 / 8; }
  double latency_s() const { return us * 1e-6; }
};

class AllReduceTraffic {
 public:
  // An operation of a step: the dense gradients of a bucket, or the gradient rows of one parameter; with local_sgd the
  // average of the replicas.
  struct Bucket {
    // A block whose gradient is in the bucket.
    struct Part {
      std::string block;
      int trainer = kEveryTrainer;  // that updates it
      size_t place = 0;             // among the blocks of its parameter
      int64_t elements = 0;         // of dense values
    };
    std::vector<std::string> parameters;
    std::vector<int> blocks;  // number of parts of each parameter
    std::vector<Part> parts;
    int64_t elements = 0;  // of dense values
    int width = 0;         // > 0: rows
  };

  // `main`: a trainer's main program, with its plan; borrowed for the call. `replica_elements`: dense values and
  // optimizer state that a trainer holds. `norms`: names of norms that cover dense parameters and tables. `wire`: the
  // messages are Weir's own, which few values can travel in whole (framework/collective/sizes.h).
  AllReduceTraffic(const v1::ProgramDesc& main, int64_t replica_elements, const std::set<std::string>& norms,
                   bool wire);

  // In the order in which they begin. Empty if servers hold the dense parameters.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Returns the bytes of dense values that an exchange adds (V).
  int64_t dense_bytes() const;
  size_t value_bytes() const { return value_bytes_; }
  // Returns local_sgd.every_steps, the steps between two averages; 0 without local_sgd.
  int64_t average_every_steps() const { return averages_ ? every_steps_ : 0; }
  // Returns the number of addends that a trainer brings to a sum (k), and of those of all trainers.
  int nodes(int trainer) const { return nodes_[static_cast<size_t>(trainer)]; }
  int all_nodes() const { return all_nodes_; }
  // Returns the number of lanes of each addend.
  const std::vector<int>& node_lanes(int trainer) const { return node_lanes_[static_cast<size_t>(trainer)]; }

  // Return what a trainer sends and receives in a mean step: dense values; headers of all operations.
  FlowSum Dense(int trainer) const;
  FlowSum Headers() const;
  // Returns what a trainer sends and receives for norms over dense parameters and tables, with headers; the first
  // trainer gives the norms to the others.
  FlowSum Norms(int trainer) const;
  // Returns what a trainer sends one other for these gradient rows of its own; of a bucket of rows.
  FlowSum RowsToOne(const Bucket& bucket, const StepRows& rows) const;
  // Returns the messages and the bytes of gradient rows of one block, by node of the sender's lanes.
  static FlowSum RowsOfBlock(int width, const std::vector<double>& by_node);
  // Returns the bytes of the norms that the first trainer gives to the others in a step; 0: there are none.
  double norm_bytes() const { return norm_bytes_; }

  // Bytes of dense values between hosts in a step, of all hosts together.
  struct BetweenHosts {
    double merged = 0;  // where the trainers of a host merge them
    double apart = 0;
  };
  // `host`: of each trainer; `nodes`: of the lane tree, of each host. Nullopt: the trainers of a host never merge.
  std::optional<BetweenHosts> DenseBetweenHosts(const std::vector<int>& host, const std::vector<int>& nodes) const;

  // Return the bytes that a rank sends for the dense values of a mean step: (k + 1)(p - 1)/p V, or k (p - 1) V of
  // buckets that go whole; and 2 (p - 1)/p V as a ring would.
  double DirectBytes(int trainer) const;
  double RingBytes() const;
  // Return the seconds of these exchanges, one bucket after the other: 2 latencies for a bucket, as messages of a phase
  // travel side by side, 1 for one that goes whole, 2 (p - 1) in a ring.
  double DirectSeconds(int trainer, const Link& link) const;
  double RingSeconds(const Link& link) const;

  // Returns the most bytes of memory of a trainer for sums on their way.
  int64_t BufferBytes(int trainer) const;
  // Returns the bytes of a trainer for addends that arrive: of all others, for a slice of so many bytes.
  int64_t ArrivingBytes(int trainer, int64_t slice) const;
  // Returns what a trainer sends and receives when the replicas are compared, before the first step and at each
  // checkpoint.
  FlowSum Check() const;

 private:
  // Returns whether every trainer gets the addends of the bucket from every other, behind its header.
  bool GoesWhole(const Bucket& bucket) const;
  // Returns the number of operations of a mean step that add dense values.
  double DensePerStep() const;

  int trainers_ = 1;
  bool averages_ = false;                     // local_sgd
  bool few_go_whole_ = false;                 // buckets with few values
  bool merges_ = false;                       // trainers of a host can
  int64_t gradient_bytes_ = 0;                // of dense gradients that stay here, with local_sgd
  size_t value_bytes_ = 4;                    // of a dense value on its way
  int64_t every_steps_ = 1;                   // from one exchange of dense values to the next
  std::vector<int> nodes_;                    // by trainer
  std::vector<std::vector<int>> node_lanes_;  // by trainer
  int all_nodes_ = 0;
  std::vector<Bucket> buckets_;
  size_t check_bytes_ = 0;  // of a trainer's digests
  double norm_bytes_ = 0;
};

// Returns whether trainers exchange Weir's own messages.
inline bool MovesByWire(const v1::Comm& comm) {
  return comm.backend() == v1::Comm::AUTO || comm.backend() == v1::Comm::WIRE;
}
// Returns the number of messages of so many bytes to one other trainer.
double OperationMessages(double bytes);

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_ALL_REDUCE_TRAFFIC_H_
