// Holder of parts of norms beside the servers: trainers that hold the dense parameters (distribute.dense is
// ALL_REDUCE), in a job with a norm over dense parameters and tables.
#ifndef WEIR_PSERVER_PROTOCOL_NORM_PARTY_H_
#define WEIR_PSERVER_PROTOCOL_NORM_PARTY_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "pserver/protocol/norm_rounds.h"

namespace weir {

class NormParty {
 public:
  virtual ~NormParty() = default;

  // Sums returns the party's sums of the first round, under names that servers have too; Take gets the norms of that
  // round, of all names. Requires: the client that brings the norms calls each once, in this order, in a step that
  // takes effect, on the thread of its FinishSends.
  virtual absl::StatusOr<NormSums> Sums(int64_t step) = 0;
  virtual void Take(const Norms& norms) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_NORM_PARTY_H_
