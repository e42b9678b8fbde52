// Exchange of one step among trainers that share the updates out (distribute.update is SHARDED), planned as
// pserver/channels does it: sums of gradients, and gradient rows, go to the trainers that update their blocks; the new
// values, and the rows that were updated, go to all. Every lane has examples.
#ifndef WEIR_TRANSPILER_EXPLAIN_SHARDED_TRAFFIC_H_
#define WEIR_TRANSPILER_EXPLAIN_SHARDED_TRAFFIC_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/explain.pb.h"
#include "proto/plan.pb.h"
#include "transpiler/explain/all_reduce_traffic.h"
#include "transpiler/explain/step_traffic.h"

namespace weir {

class ShardedTraffic {
 public:
  // Returns the names of the norms that the update of a parameter takes, by round.
  using NormRoundsOf = std::function<std::vector<std::set<std::string>>(const std::string& parameter)>;
  // `plan`: its blocks name trainers. `common`: of the same plan; borrowed. `with_tables`: names of norms that cover
  // dense parameters and tables. Everything else is borrowed for the call.
  ShardedTraffic(const v1::Plan& plan, const AllReduceTraffic& common, const NormRoundsOf& rounds,
                 const std::set<std::string>& with_tables);

  // Add a step: the gradient rows of trainers [first, first + count), each as `rows` says, for all trainers in turn;
  // then the number of distinct rows by which the step updates each block, by name.
  void AddRows(int first, int count, const StepRows& rows);
  void AddUpdates(const std::map<std::string, double, std::less<>>& rows);

  // Flows of a trainer in the mean step: sums of dense gradients, gradient rows, new values of dense blocks, rows that
  // were updated, norms with their headers, headers of all other operations.
  struct Flows {
    FlowSum sums, rows, values, updated_rows, norms, headers;
    FlowSum Total() const;
  };
  Flows FlowsOf(int trainer) const;
  // Returns the exchange of the copies before the first step, with headers.
  FlowSum Gather(int trainer) const;

  // Fill what a trainer exchanges, and the traffic and memory of its share.
  v1::TrainerExchange ExchangeOf(int trainer, const Link& link) const;
  void FillShare(int trainer, v1::UpdateShare* share) const;
  // Returns the bytes of gradient rows of a parameter that a trainer sends all others in a mean step, in the mean over
  // trainers.
  double RowBytes(const std::string& parameter) const;

 private:
  // A trainer's blocks, and its sums over the steps that were added.
  struct Trainer {
    int64_t dense = 0, rows = 0;  // bytes of its blocks with dense gradients, and with gradients by rows
    FlowSum row_flows, updated_flows;
    double held = 0;  // bytes of the gradient rows that it gets, its own too
  };
  // A block whose gradient comes as rows.
  struct RowBlock {
    std::string name;
    int trainer = 0, width = 0;
  };
  // An exchange in which every trainer gives bytes to all, by trainer.
  using Given = std::vector<double>;

  const Trainer& of(int trainer) const { return trainers_[static_cast<size_t>(trainer)]; }
  // Returns the flow of an exchange in which each of `count` trainers gives all others bytes, for one of them; without
  // headers.
  static FlowSum ToAll(double own, double all, int count);
  void AddRowsOfBucket(const AllReduceTraffic::Bucket& bucket, int first, int count, const TargetRows& rows);
  // Finds the exchanges of norms: of the sums of each round, and of what norms over tables take.
  void FindNorms(const v1::Plan& plan, const NormRoundsOf& rounds, const std::set<std::string>& with_tables);
  FlowSum Sums(int trainer) const;
  FlowSum Norms(int trainer) const;
  double DirectSeconds(const Flows& flows, const Link& link) const;
  int64_t BufferBytes(int trainer) const;

  const AllReduceTraffic& common_;
  int count_ = 1;                         // trainers
  int dense_buckets_ = 0;                 // operations that add dense gradients
  int row_exchanges_ = 0;                 // operations that bring gradient rows
  int64_t all_dense_ = 0, all_rows_ = 0;  // bytes, as in Trainer
  std::vector<Trainer> trainers_;
  std::vector<std::vector<int64_t>> owned_;  // by dense bucket and trainer: bytes
  std::vector<double> bucket_messages_;      // by dense bucket: of one addend to the owners of all slices
  std::vector<RowBlock> row_blocks_;
  std::vector<Given> norms_;
  std::map<std::string, double> row_bytes_;  // by parameter: to all others, summed over steps and trainers
  int64_t steps_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_SHARDED_TRAFFIC_H_
