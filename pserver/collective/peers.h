// Statements of the trainers of a job about themselves before they connect as ranks of a collective group.
#ifndef WEIR_PSERVER_COLLECTIVE_PEERS_H_
#define WEIR_PSERVER_COLLECTIVE_PEERS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/trainer.pb.h"

namespace weir {

// Reads a serialized CollectivePeer of each trainer, in the order of trainers. Internal names a trainer whose bytes are
// none. FailedPrecondition: one names another backend than trainer 0, or its address is of its own machine alone and
// that of trainer 0 is not, or vice versa.
absl::StatusOr<std::vector<v1::CollectivePeer>> ReadPeers(const std::vector<std::string>& all);

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_PEERS_H_
