#include "tools/host_names.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"

namespace weir {
namespace {

// Bytes of an IPv4 or IPv6 address; empty for other families. An IPv4 address in an IPv6 one is the IPv4 one.
std::string BytesOf(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const in_addr bytes = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  }
  if (address->sa_family != AF_INET6) return "";
  const in6_addr bytes = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  const std::string text(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  return IN6_IS_ADDR_V4MAPPED(&bytes) ? text.substr(12) : text;
}

// Bytes of an address that is written as such; empty for a name.
std::string BytesOf(const std::string& name) {
  in_addr v4;
  if (inet_pton(AF_INET, name.c_str(), &v4) == 1) return std::string(reinterpret_cast<const char*>(&v4), sizeof v4);
  in6_addr v6;
  if (inet_pton(AF_INET6, name.c_str(), &v6) == 1) return std::string(reinterpret_cast<const char*>(&v6), sizeof v6);
  return "";
}

bool IsLoopbackBytes(const std::string& bytes) {
  if (bytes.size() == 4) return bytes[0] == 127;
  return bytes.size() == 16 && bytes == std::string(15, '\0') + '\1';
}

std::set<std::string> AddressesHere() {
  std::set<std::string> addresses;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return addresses;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (std::string bytes = BytesOf(each->ifa_addr); !bytes.empty()) addresses.insert(std::move(bytes));
  }
  freeifaddrs(interfaces);
  return addresses;
}

// A look-up that is under way on a thread of the C library, which writes into it until it has ended.
struct LookUp {
  std::string name;
  gaicb request = {};
};

// Addresses of each name; none for a name that is not found in time.
std::vector<std::set<std::string>> Resolve(const std::vector<std::string>& names, absl::Duration deadline) {
  std::vector<std::unique_ptr<LookUp>> look_ups;
  std::vector<gaicb*> requests;
  for (const std::string& name : names) {
    look_ups.push_back(std::make_unique<LookUp>());
    look_ups.back()->name = name;
    look_ups.back()->request.ar_name = look_ups.back()->name.c_str();
    requests.push_back(&look_ups.back()->request);
  }
  std::vector<std::set<std::string>> found(names.size());
  if (requests.empty() || getaddrinfo_a(GAI_NOWAIT, requests.data(), static_cast<int>(requests.size()), nullptr) != 0) {
    return found;
  }
  const absl::Time end = Clock::Real()->Now() + deadline;
  for (size_t i = 0; i < requests.size(); ++i) {
    while (gai_error(requests[i]) == EAI_INPROGRESS && Clock::Real()->Now() < end) {
      const gaicb* const waits[] = {requests[i]};
      const timespec left = absl::ToTimespec(end - Clock::Real()->Now());
      gai_suspend(waits, 1, &left);
    }
    if (gai_error(requests[i]) == EAI_INPROGRESS && gai_cancel(requests[i]) != EAI_CANCELED) {
      // The thread still writes there; the process is short of a few bytes until its end.
      static_cast<void>(look_ups[i].release());
      continue;
    }
    for (const addrinfo* each = requests[i]->ar_result; each != nullptr; each = each->ai_next) {
      found[i].insert(BytesOf(each->ai_addr));
    }
    if (requests[i]->ar_result != nullptr) freeaddrinfo(requests[i]->ar_result);
  }
  return found;
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

bool IsAddress(const std::string& name) { return !BytesOf(name).empty(); }

bool IsLoopback(const std::string& name) {
  return absl::EqualsIgnoreCase(name, "localhost") || IsLoopbackBytes(BytesOf(name));
}

std::vector<bool> AreThisMachine(const std::vector<std::string>& names, absl::Duration deadline) {
  const std::set<std::string> here = AddressesHere();
  std::vector<bool> result(names.size());
  std::vector<std::string> unknown;
  std::vector<size_t> places;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string bytes = BytesOf(names[i]);
    result[i] = IsLoopback(names[i]) || IsOwnName(names[i]) || here.contains(bytes);
    if (result[i] || !bytes.empty()) continue;
    unknown.push_back(names[i]);
    places.push_back(i);
  }
  const std::vector<std::set<std::string>> found = Resolve(unknown, deadline);
  for (size_t i = 0; i < found.size(); ++i) {
    for (const std::string& bytes : found[i]) {
      if (IsLoopbackBytes(bytes) || here.contains(bytes)) result[places[i]] = true;
    }
  }
  return result;
}

}  // namespace weir
