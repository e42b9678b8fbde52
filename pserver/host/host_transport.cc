#include "pserver/host/host_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace weir {

void HostTransport::Relay(std::vector<bool> relayed, ToRelay relay, std::string name) {
  CHECK(way_ == nullptr);
  way_ = std::make_unique<const Way>(Way{std::move(relayed), std::move(relay), std::move(name)});
  relay_.store(way_.get(), std::memory_order_release);
}

bool HostTransport::relays(int server) const {
  const Way* const way = relay_.load(std::memory_order_acquire);
  return way != nullptr && way->relayed[static_cast<size_t>(server)];
}

void HostTransport::Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) {
  if (!IsRelayed(method) || !relays(server)) {
    return servers_.Call(server, method, std::move(request), timeout, std::move(done));
  }
  const Way& way = *relay_.load(std::memory_order_acquire);
  if (way.send(method, server, request, timeout, done)) return;
  done(absl::UnavailableError(
      absl::StrCat(way.name, ", which speaks to ", Describe(server), " for this host, takes no calls")));
}

void HostTransport::CallPatiently(int server, Method method, Slices request, absl::Duration timeout,
                                  ReplyCallback done) {
  if (IsRelayed(method) && relays(server)) return Call(server, method, std::move(request), timeout, std::move(done));
  servers_.CallPatiently(server, method, std::move(request), timeout, std::move(done));
}

}  // namespace weir
