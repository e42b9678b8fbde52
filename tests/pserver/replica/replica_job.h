// Programs of trainers that hold the dense parameters of a job (distribute.dense is ALL_REDUCE), without its model and
// passes: what replicas and their channels read of them, and no more. replica_job_test compares them with what the
// transpiler makes of the same jobs.
#ifndef WEIR_TESTS_PSERVER_REPLICA_REPLICA_JOB_H_
#define WEIR_TESTS_PSERVER_REPLICA_REPLICA_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

struct ReplicaPrograms {
  v1::ProgramDesc main, startup;
};

struct ReplicaJob {
  struct Parameter {
    std::string name;
    std::vector<int64_t> dims;
    // Makes its values; what depends on its blocks is added.
    v1::OpDesc initial;
    // Of its gradient, ascending.
    int64_t bucket = 0;
    // Its gradient comes as rows.
    bool rows = false;
    // No optimizer updates it: it is a running average.
    bool average = false;
  };
  enum class Optimizer { kSgd, kMomentum, kAdagrad, kAdam, kLamb, kLarsMomentum };
  enum class Clip { kNone, kByNorm, kByGlobalNorm };

  std::string name;
  // In the order in which a step has their gradients.
  std::vector<Parameter> parameters;
  Optimizer optimizer = Optimizer::kAdam;
  double learning_rate = 0.01;
  // Op that makes the rate of a step; without a type it is constant.
  v1::OpDesc schedule;
  Clip clip = Clip::kNone;
  double max_norm = 0;
  // True if tables have a part in the global norm.
  bool norm_with_tables = false;
  double l2_decay = 0;

  uint64_t seed = 1;
  int64_t batch_size = 32;
  int lanes = 8;
  int trainers = 1;
  // distribute.update is SHARDED; distribute.reproducible is false; distribute.all_reduce; distribute.local_sgd.
  bool sharded = false;
  bool any_order = false;
  bool adasum = false;
  v1::DType compression = v1::DTYPE_UNSET;
  int64_t local_steps = 0;

  ReplicaPrograms Programs() const;
};

// Returns the exponential schedule.
v1::OpDesc ExponentialRate(double learning_rate, int64_t decay_steps, double decay_rate);

// The jobs of the tests.
//
// kSlotJob (tests/testing/jobs/slot_job.h): out.b, out.w, deep.b and deep.w, updated by adam.
ReplicaJob SlotReplica();
// Three layers that sgd updates, with a clip by the norm of all gradients, those of tables among them.
ReplicaJob ClippedReplica();
// Matrices of 33 x 96 and 96 x 64 elements that are cut, a table of 700 rows that is, biases that are not. The first
// has adam with a clip, decay and a schedule, the others lamb, lars_momentum, momentum with a clip, and sgd.
std::vector<ReplicaJob> CutReplicas();
// The same with matrices of 33 x 2000 and 2000 x 64 elements, and adam alone.
ReplicaJob WideReplica();
// The model of deepfm_bench.
ReplicaJob DeepFmReplica();
// examples/fashion_mnist/cnn.textproto.
ReplicaJob CnnReplica();

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_REPLICA_REPLICA_JOB_H_
