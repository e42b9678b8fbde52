// Operations that move values and change none: all-gather, gather, all-to-all, broadcast, barrier. Each function is one
// operation on one rank (framework/collective/collective.h says what it does).
#ifndef WEIR_FRAMEWORK_COLLECTIVE_MOVES_H_
#define WEIR_FRAMEWORK_COLLECTIVE_MOVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/collective/hosts.h"
#include "framework/collective/operation.h"

namespace weir {

// Rank r has bytes [begins[r], begins[r + 1]) of `all`; every rank gets the rest.
absl::Status MoveAllGather(Operation* operation, const std::vector<int64_t>& begins, int64_t message_bytes, char* all);
// Do the same where ranks share hosts, and every rank with bytes for every other: what comes from another host comes
// once, to one rank of this host, which hands it on.
absl::Status MoveHostedAllGather(Operation* operation, const Hosts& hosts, const std::vector<int64_t>& begins,
                                 int64_t message_bytes, char* all);
absl::Status MoveHostedAllGatherBytes(Operation* operation, const Hosts& hosts, const std::string& own,
                                      int64_t message_bytes, std::vector<std::string>* all);
// to[r] goes to rank r. from[r]: what rank r has sent here.
absl::Status MoveAllToAll(Operation* operation, const std::vector<const std::string*>& to, int64_t message_bytes,
                          std::vector<std::string>* from);
absl::Status MoveBroadcast(Operation* operation, int root, int64_t bytes, int64_t message_bytes, char* values);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_MOVES_H_
