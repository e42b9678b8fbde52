// Names and addresses of machines: their forms, and which of them are this machine.
#ifndef WEIR_TOOLS_HOSTS_HOST_NAMES_H_
#define WEIR_TOOLS_HOSTS_HOST_NAMES_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace weir {

// Returns the address in the form that stands before the port of an endpoint: IPv6 in brackets.
std::string EndpointHost(const std::string& name);

// Returns whether the text is an IPv4 or IPv6 address, without brackets.
bool IsAddress(const std::string& name);

// Returns for each name whether it is this machine: a loopback name, the machine's own, or one with an address of an
// interface here. Names are looked up together; one that is not found within `deadline` is another machine.
std::vector<bool> AreThisMachine(const std::vector<std::string>& names, absl::Duration deadline);

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_HOST_NAMES_H_
