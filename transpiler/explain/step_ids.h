// Numbers of distinct ids of a step. They are the same in any cluster with the same trainers, hosts and lanes, so they
// are counted once, for the job and for what explain compares it with.
#ifndef WEIR_TRANSPILER_EXPLAIN_STEP_IDS_H_
#define WEIR_TRANSPILER_EXPLAIN_STEP_IDS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/tensor/tensor.h"
#include "proto/plan.pb.h"
#include "transpiler/explain/step_traffic.h"

namespace weir {

// Input of one lane in one batch: ids by the name of their variable, borrowed.
struct LaneInput {
  int64_t examples = 0;
  std::map<std::string, const IdBatch*, std::less<>> ids;
};
// By lane of the whole job.
using BatchInput = std::vector<LaneInput>;
// One batch, or train.accumulate_steps of them.
using StepInput = std::vector<BatchInput>;

// A set of ids, as far as its distribution over servers or blocks needs it.
struct DistinctIds {
  int64_t count = 0;
  std::vector<uint32_t> by_shard;  // of a table: ids of each logical shard
  std::vector<int64_t> ids;        // of another target, ascending

  // Returns the number of ids of each server (of a table) or block.
  std::vector<double> ByPlace(const SparseTarget& target, int servers) const;
};

class StepIds {
 public:
  // Ids of one target that one trainer has, or all trainers of a host together.
  struct OfSender {
    std::vector<DistinctIds> pulled;  // by batch of the step
    std::vector<DistinctIds> pushed;  // by node of the lanes
    std::vector<double> lane_rows;    // by lane: the most of one batch
    int64_t distinct_pushed = 0;
  };
  struct OfTarget {
    std::vector<OfSender> trainers;
    std::vector<OfSender> hosts;  // empty with one trainer per host
    DistinctIds updated;          // pushed by anyone
  };

  // Reads all of `step`, and does not need it afterwards. Counts the ids of trainers and of HostsOf(plan,
  // trainers_per_host).
  StepIds(const StepInput& step, const std::vector<SparseTarget>& targets, const v1::Plan& plan,
          int trainers_per_host = 1);

  // Requires: a target of the constructor had the same ids, and as many shards.
  const OfTarget& Of(const SparseTarget& target) const;
  // Requires besides: `trainers` is one trainer or one of the hosts.
  const OfSender& Of(const SparseTarget& target, const TrainerRange& trainers) const;
  // Returns the bytes of a trainer's ids by their variable, and of the indices that look-ups make of them.
  const std::map<std::string, int64_t>& id_bytes(int trainer) const { return id_bytes_[static_cast<size_t>(trainer)]; }

 private:
  struct Key {
    std::vector<SparseTarget::Source> pulled_by, pushed_by;
    uint32_t shards = 0;  // 0: no table
    auto operator<=>(const Key&) const = default;
  };
  static Key KeyOf(const SparseTarget& target);

  const int trainers_per_host_;
  std::map<Key, OfTarget> targets_;
  std::vector<std::map<std::string, int64_t>> id_bytes_;  // by trainer
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_STEP_IDS_H_
