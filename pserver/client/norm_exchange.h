// Norms over parameters that lie on several servers: collects the servers' sums and brings them the norms. Not
// thread-safe.
#ifndef WEIR_PSERVER_CLIENT_NORM_EXCHANGE_H_
#define WEIR_PSERVER_CLIENT_NORM_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/calls.h"
#include "pserver/member/waits.h"
#include "pserver/protocol/norm_party.h"
#include "pserver/protocol/norm_rounds.h"

namespace weir {

class NormExchange {
 public:
  // `calls` and `waits` are borrowed.
  NormExchange(Calls* calls, Waits* waits) : calls_(*calls), waits_(*waits) {}

  // Runs the rounds of a step. Requires: all pushes of the step are acknowledged. `rounds`: number of rounds in which
  // each server takes part, by server. `party`: holds parts of the first round, too; may be null. Returns when every
  // server has the norms (in async: has applied the step).
  absl::Status Run(int64_t step, const std::vector<int>& rounds, NormParty* party = nullptr);

 private:
  // Asks a server for the sums of a round, and brings it the norms computed from the previous round's sums.
  CallPtr NewCall(int server, int64_t step, int round, const Norms& norms, v1::NormsReply* reply);

  Calls& calls_;
  Waits& waits_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_NORM_EXCHANGE_H_
