#include "tools/hosts/host_names.h"

#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/net/resolve.h"

namespace weir {
namespace {

std::set<std::string> AddressesHere() {
  std::set<std::string> addresses;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (std::string bytes = IpBytes(each->ifa_addr); !bytes.empty()) addresses.insert(std::move(bytes));
  }
  freeifaddrs(interfaces);
  return addresses;
}

// Returns whether it is the name that this machine gives itself, in full or without its domain.
bool IsOwnName(const std::string& name) {
  char own[256] = {};
  if (gethostname(own, sizeof own - 1) != 0) return false;
  const std::string whole = own;
  return absl::EqualsIgnoreCase(name, whole) || absl::EqualsIgnoreCase(name, whole.substr(0, whole.find('.')));
}

}  // namespace

std::string EndpointHost(const std::string& name) {
  return name.find(':') == std::string::npos ? name : absl::StrCat("[", name, "]");
}

bool IsAddress(const std::string& name) { return !name.starts_with('[') && !IpBytes(name).empty(); }

std::vector<bool> AreThisMachine(const std::vector<std::string>& names, absl::Duration deadline) {
  const std::set<std::string> here = AddressesHere();
  std::vector<bool> result(names.size());
  std::vector<std::string> unknown;
  std::vector<size_t> places;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string bytes = IpBytes(names[i]);
    result[i] = IsLoopback(names[i]) || IsOwnName(names[i]) || here.contains(bytes);
    if (result[i] || !bytes.empty()) continue;
    unknown.push_back(names[i]);
    places.push_back(i);
  }
  const std::vector<Resolved> found = ResolveAll(unknown, deadline);
  for (size_t i = 0; i < found.size(); ++i) {
    for (const SocketAddress& address : found[i].addresses) {
      if (IsLoopback(address.raw()) || here.contains(IpBytes(address.raw()))) result[places[i]] = true;
    }
  }
  return result;
}

}  // namespace weir
