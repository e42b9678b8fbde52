#include "framework/net/resolve.h"

#include <netdb.h>
#include <time.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"

namespace weir {
namespace {

// A look-up on a thread of the C library, which writes into it until it has ended.
struct LookUp {
  explicit LookUp(std::string_view host)
      : name(host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host) {
    hints.ai_socktype = SOCK_STREAM;
    request.ar_name = name.c_str();
    request.ar_request = &hints;
  }
  LookUp(const LookUp&) = delete;
  LookUp& operator=(const LookUp&) = delete;

  const std::string name;
  addrinfo hints = {};
  gaicb request = {};
};

Resolved Failed(const LookUp& of, const std::string& why, bool again) {
  return {.addresses = {}, .status = absl::UnavailableError(absl::StrCat("host ", of.name, ": ", why)), .again = again};
}

// Takes the addresses of a list, which it frees.
Resolved Take(const LookUp& of, addrinfo* found) {
  Resolved resolved;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    SocketAddress& to = resolved.addresses.emplace_back();
    to.bytes = each->ai_addrlen;
    std::memcpy(&to.address, each->ai_addr, each->ai_addrlen);
  }
  if (found != nullptr) ::freeaddrinfo(found);
  return resolved.addresses.empty() ? Failed(of, "it has no IP address", false) : resolved;
}

Resolved Ended(const LookUp& of, int error, addrinfo* found) {
  if (error == 0) return Take(of, found);
  return Failed(of, ::gai_strerror(error), error == EAI_AGAIN);
}

}  // namespace

std::vector<Resolved> ResolveAll(const std::vector<std::string>& hosts, absl::Duration deadline) {
  std::vector<Resolved> resolved(hosts.size());
  std::vector<std::unique_ptr<LookUp>> look_ups;
  std::vector<size_t> places;  // in `hosts`
  std::vector<gaicb*> requests;
  for (size_t i = 0; i < hosts.size(); ++i) {
    auto look_up = std::make_unique<LookUp>(hosts[i]);
    if (!IpBytes(hosts[i]).empty()) {
      look_up->hints.ai_flags = AI_NUMERICHOST;
      addrinfo* found = nullptr;
      const int error = ::getaddrinfo(look_up->name.c_str(), nullptr, &look_up->hints, &found);
      resolved[i] = Ended(*look_up, error, found);
      continue;
    }
    requests.push_back(&look_up->request);
    look_ups.push_back(std::move(look_up));
    places.push_back(i);
  }
  if (requests.empty()) return resolved;
  const int error = ::getaddrinfo_a(GAI_NOWAIT, requests.data(), static_cast<int>(requests.size()), nullptr);
  const absl::Time end = Clock::Real()->Now() + deadline;
  for (size_t i = 0; i < requests.size(); ++i) {
    Resolved& to = resolved[places[i]];
    if (error != 0) {
      to = Failed(*look_ups[i], ::gai_strerror(error), error == EAI_AGAIN);
      continue;
    }
    while (::gai_error(requests[i]) == EAI_INPROGRESS && Clock::Real()->Now() < end) {
      const gaicb* const waits[] = {requests[i]};
      const timespec left = absl::ToTimespec(end - Clock::Real()->Now());
      ::gai_suspend(waits, 1, &left);
    }
    if (::gai_error(requests[i]) != EAI_INPROGRESS) {
      to = Ended(*look_ups[i], ::gai_error(requests[i]), requests[i]->ar_result);
      continue;
    }
    to = Failed(*look_ups[i], absl::StrCat("the name service has not answered within ", absl::FormatDuration(deadline)),
                true);
    // The thread still writes there; the process is short of a few bytes until its end.
    if (::gai_cancel(requests[i]) != EAI_CANCELED) static_cast<void>(look_ups[i].release());
  }
  return resolved;
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(std::string_view host, int port, absl::Duration deadline,
                                                   bool* again) {
  Resolved resolved = std::move(ResolveAll({std::string(host)}, deadline)[0]);
  if (again != nullptr) *again = resolved.again;
  if (!resolved.status.ok()) return resolved.status;
  for (SocketAddress& address : resolved.addresses) address.set_port(port);
  return std::move(resolved.addresses);
}

}  // namespace weir
