// Address of this machine that another machine can reach.
#ifndef WEIR_PSERVER_NETWORK_LOCAL_ADDRESS_H_
#define WEIR_PSERVER_NETWORK_LOCAL_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace weir {

// Returns the address, without port and brackets, from which this machine sends to `endpoint` ("host:port" or
// "[IPv6 address]:port"). Sends nothing. InvalidArgument: `endpoint` has neither form.
// Unavailable: the host is unknown, or no route leads there.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& endpoint);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_LOCAL_ADDRESS_H_
