#include "pserver/network/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weir {

namespace {

// Returns the numeric address; "" for a family that is neither IPv4 nor IPv6.
std::string AddressText(const sockaddr* address) {
  if (address == nullptr) return "";
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return "";
  }
  char text[INET6_ADDRSTRLEN] = "";
  return ::inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr ? "" : text;
}

bool IsIpv6(const std::string& address) { return absl::StrContains(address, ':'); }

bool IsOfTheLink(const std::string& address) {
  in6_addr bytes;
  return IsIpv6(address) && ::inet_pton(AF_INET6, address.c_str(), &bytes) == 1 && IN6_IS_ADDR_LINKLOCAL(&bytes);
}

// Returns the address to give to others; "" if there is none.
std::string BestAddress(const NetworkInterface& interface) {
  for (const bool ipv6 : {false, true}) {
    for (const std::string& address : interface.addresses) {
      if (IsIpv6(address) == ipv6 && !IsOfTheLink(address)) return address;
    }
  }
  return "";
}

absl::StatusOr<std::string> FirstWithout(const std::vector<NetworkInterface>& interfaces, absl::string_view words) {
  const std::vector<std::string> excluded = absl::StrSplit(words, ',', absl::SkipEmpty());
  for (const NetworkInterface& each : interfaces) {
    const bool out = std::any_of(excluded.begin(), excluded.end(),
                                 [&](const std::string& word) { return absl::StartsWith(each.name, word); });
    if (!out && each.up && !BestAddress(each).empty()) return BestAddress(each);
  }
  return absl::NotFoundError(absl::StrCat("no network interface but those that begin with ",
                                          absl::StrJoin(excluded, " or "), " is up and has an address; there are ",
                                          InterfacesText(interfaces)));
}

}  // namespace

absl::StatusOr<std::vector<NetworkInterface>> NetworkInterfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) {
    return absl::InternalError(absl::StrCat("the system does not list its network interfaces: ", std::strerror(errno)));
  }
  std::map<std::string, NetworkInterface> by_name;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    NetworkInterface& interface = by_name[each->ifa_name];
    interface.name = each->ifa_name;
    interface.up = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_RUNNING) != 0;
    interface.loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
    if (std::string text = AddressText(each->ifa_addr); !text.empty()) interface.addresses.push_back(std::move(text));
  }
  ::freeifaddrs(all);
  std::vector<NetworkInterface> interfaces;
  interfaces.reserve(by_name.size());
  for (auto& [name, interface] : by_name) interfaces.push_back(std::move(interface));
  return interfaces;
}

std::string InterfacesText(const std::vector<NetworkInterface>& interfaces) {
  if (interfaces.empty()) return "none";
  return absl::StrJoin(interfaces, ", ", [](std::string* out, const NetworkInterface& each) {
    const std::string addresses = each.addresses.empty() ? "no address" : absl::StrJoin(each.addresses, ", ");
    absl::StrAppend(out, each.name, " (", each.up ? addresses : "down", ")");
  });
}

absl::StatusOr<std::string> AddressOfInterface(const std::vector<NetworkInterface>& interfaces, std::string_view name) {
  const std::string wanted(name);
  if (!wanted.empty() && wanted[0] == '^') return FirstWithout(interfaces, absl::string_view(wanted).substr(1));
  const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                  [&](const NetworkInterface& each) { return each.name == wanted; });
  const std::string there = absl::StrCat("; there are ", InterfacesText(interfaces));
  if (found == interfaces.end()) {
    return absl::NotFoundError(absl::StrCat("this machine has no network interface '", wanted, "'", there));
  }
  if (!found->up) return absl::FailedPreconditionError(absl::StrCat("network interface '", wanted, "' is down", there));
  if (std::string address = BestAddress(*found); !address.empty()) return address;
  return absl::FailedPreconditionError(
      absl::StrCat("network interface '", wanted, "' has no address that other machines can use", there));
}

}  // namespace weir
