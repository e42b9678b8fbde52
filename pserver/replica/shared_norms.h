// Norms over dense parameters, which every trainer holds, and tables, which servers hold (attribute `with_tables` of
// whole_norm). Trainer 0, which brings norms to the servers, adds the sums of its replica to theirs and gives the norms
// to the other trainers; a table has only norms of the first round, so later rounds need no one else.
//
//   every trainer  Begin: tells the others its samples, by whose sum gradients are divided
//   trainer 0      Sums, Take: called by its client (pserver/protocol/norm_party.h) in a step that takes effect
//   every trainer  Finish: with `update: SHARDED` brings the sums of its share, which Sums waits for
//   every trainer  Exchange, in a step that takes effect
//
// Not thread-safe.
#ifndef WEIR_PSERVER_REPLICA_SHARED_NORMS_H_
#define WEIR_PSERVER_REPLICA_SHARED_NORMS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/collective/collective.h"
#include "proto/program.pb.h"
#include "pserver/params/gradient.h"
#include "pserver/protocol/norm_party.h"
#include "pserver/replica/dense_replica.h"

namespace weir {

class SharedNorms : public NormParty {
 public:
  // `replica` is borrowed. Null if the program has no such norm.
  static std::unique_ptr<SharedNorms> Create(const v1::ProgramDesc& main, DenseReplica* replica);
  // Waits for an exchange that is under way.
  ~SharedNorms() override;

  // Returns the gradients of the step, of all trainers; waits for them. samples: of all trainers.
  using Gradients = std::function<absl::StatusOr<TrainerGradients>(int64_t samples)>;
  // Begins a step. `gradients` is called by Sums. Requires: every trainer calls it, after it has begun all exchanges of
  // gradients.
  void Begin(int64_t samples, Gradients gradients);
  // Ends the sends of the step, with an effect or without. Requires: every trainer calls it, after its client's
  // FinishSends.
  absl::Status Finish(int64_t step);

  absl::StatusOr<NormSums> Sums(int64_t step) override;
  void Take(const Norms& norms) override { norms_ = norms; }

  // Returns the norms of the step under the names that tables have too, equal on all trainers. DataLoss: trainer 0 sent
  // something else. Requires: every trainer calls it after Finish, in a step that takes effect.
  absl::StatusOr<Norms> Exchange();

 private:
  SharedNorms(std::set<std::string> names, DenseReplica* replica) : names_(std::move(names)), replica_(*replica) {}
  // Waits for the samples of all.
  absl::Status Wait();
  // Returns the samples of all trainers.
  absl::StatusOr<int64_t> AllSamples();

  const std::set<std::string> names_;
  DenseReplica& replica_;
  Gradients gradients_;
  Collective::PendingPtr pending_;  // of samples_
  std::vector<std::string> samples_;
  bool summed_ = false;  // in this step
  Norms norms_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_SHARED_NORMS_H_
