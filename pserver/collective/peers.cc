#include "pserver/collective/peers.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/net/socket_address.h"

namespace weir {

namespace {

// `endpoint`: a host, perhaps with a port.
bool IsOfOneMachine(std::string_view endpoint) {
  const size_t colon = endpoint.rfind(':');
  const bool has_port = colon != std::string_view::npos && IpBytes(endpoint).empty();
  return IsLoopback(has_port ? endpoint.substr(0, colon) : endpoint);
}

// Checks that a trainer says nothing that cannot be true beside what trainer 0 says.
absl::Status CheckPeer(size_t trainer, const v1::CollectivePeer& peer, const v1::CollectivePeer& first) {
  if (peer.backend() != first.backend()) {
    return absl::FailedPreconditionError(absl::StrCat("comm.backend is ", first.backend(), " in trainer 0 and ",
                                                      peer.backend(), " in trainer ", trainer,
                                                      "; give all trainers the same"));
  }
  const bool other = IsOfOneMachine(peer.endpoint());
  if (other == IsOfOneMachine(first.endpoint())) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("trainer ", other ? trainer : 0, " is at ", (other ? peer : first).endpoint(),
                   ", an address of its own machine alone, and trainer ", other ? 0 : trainer, " at ",
                   (other ? first : peer).endpoint(),
                   "; name servers, or trainers that listen, by addresses that all machines reach, or the network "
                   "interface (comm.interface)"));
}

}  // namespace

absl::StatusOr<std::vector<v1::CollectivePeer>> ReadPeers(const std::vector<std::string>& all) {
  std::vector<v1::CollectivePeer> peers(all.size());
  for (size_t t = 0; t < all.size(); ++t) {
    if (!peers[t].ParseFromString(all[t]))
      return absl::InternalError(absl::StrCat("what trainer ", t, " says of its address cannot be read"));
    RETURN_IF_ERROR(CheckPeer(t, peers[t], peers[0]));
  }
  return peers;
}

}  // namespace weir
