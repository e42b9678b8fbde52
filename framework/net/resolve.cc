#include "framework/net/resolve.h"

#include <netdb.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"

namespace weir {
namespace {

// Look-ups that wait for the name service at a time.
constexpr size_t kThreads = 16;

// Returns "::1" for "[::1]".
std::string BareHost(const std::string& host) {
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return brackets ? host.substr(1, host.size() - 2) : host;
}

Resolved Failed(const std::string& host, const std::string& why, bool again) {
  return {.addresses = {}, .status = absl::UnavailableError(absl::StrCat("host ", host, ": ", why)), .again = again};
}

// Waits for the name service as long as the C library does. `flags` are those of getaddrinfo.
Resolved LookUp(const std::string& host, int flags) {
  addrinfo hints = {};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return Failed(host, ::gai_strerror(error), error == EAI_AGAIN);
  Resolved resolved;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    SocketAddress& to = resolved.addresses.emplace_back();
    to.bytes = each->ai_addrlen;
    std::memcpy(&to.address, each->ai_addr, each->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return resolved.addresses.empty() ? Failed(host, "it has no IP address", false) : resolved;
}

// Names that threads look up. The threads own it together with the caller, who leaves at the deadline, while a thread
// may be inside the C library for longer. (getaddrinfo_a has threads of its own, which ThreadSanitizer does not know.)
class NameLookUps {
 public:
  explicit NameLookUps(std::vector<std::string> names) : names_(std::move(names)), ended_(names_.size()) {}

  static void Start(const std::shared_ptr<NameLookUps>& of) {
    for (size_t i = 0; i < std::min(kThreads, of->names_.size()); ++i)
      StartThread("weir-resolve", [of] { of->Run(); }).detach();
  }

  // Returns those that have ended by `end`, and the others as not answered within `deadline`, and starts no more.
  std::vector<Resolved> Wait(absl::Time end, absl::Duration deadline) {
    MutexLock lock(&mu_);
    while (left_ > 0 && Clock::Real()->Now() < end) changed_.WaitWithTimeout(&mu_, end - Clock::Real()->Now());
    next_ = names_.size();
    std::vector<Resolved> resolved;
    for (size_t i = 0; i < names_.size(); ++i) {
      resolved.push_back(ended_[i] != nullptr ? *ended_[i]
                                              : Failed(names_[i],
                                                       absl::StrCat("the name service has not answered within ",
                                                                    absl::FormatDuration(deadline)),
                                                       true));
    }
    return resolved;
  }

 private:
  void Run() {
    for (;;) {
      size_t mine = 0;
      {
        MutexLock lock(&mu_);
        if (next_ >= names_.size()) return;
        mine = next_++;
      }
      auto found = std::make_unique<Resolved>(LookUp(names_[mine], 0));
      MutexLock lock(&mu_);
      ended_[mine] = std::move(found);
      if (--left_ == 0) changed_.SignalAll();
    }
  }

  const std::vector<std::string> names_;
  Mutex mu_;
  CondVar changed_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  size_t left_ ABSL_GUARDED_BY(mu_) = names_.size();
  std::vector<std::unique_ptr<Resolved>> ended_ ABSL_GUARDED_BY(mu_);  // null while a look-up goes on
};

}  // namespace

std::vector<Resolved> ResolveAll(const std::vector<std::string>& hosts, absl::Duration deadline) {
  const absl::Time end = Clock::Real()->Now() + deadline;
  std::vector<Resolved> resolved(hosts.size());
  std::vector<std::string> names;
  std::vector<size_t> places;  // of names in `hosts`
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string host = BareHost(hosts[i]);
    if (!IpBytes(hosts[i]).empty()) {
      resolved[i] = LookUp(host, AI_NUMERICHOST);
    } else {
      names.push_back(host);
      places.push_back(i);
    }
  }
  if (names.empty()) return resolved;
  const auto look_ups = std::make_shared<NameLookUps>(std::move(names));
  NameLookUps::Start(look_ups);
  std::vector<Resolved> found = look_ups->Wait(end, deadline);
  for (size_t i = 0; i < places.size(); ++i) resolved[places[i]] = std::move(found[i]);
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
