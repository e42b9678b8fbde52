// Way of a trainer to its servers, some of them through the relay of its host. Thread-safe.
#ifndef WEIR_PSERVER_HOST_HOST_TRANSPORT_H_
#define WEIR_PSERVER_HOST_HOST_TRANSPORT_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/wire/slices.h"
#include "pserver/protocol/transport.h"

namespace weir {

class HostTransport : public Transport {
 public:
  // Sends a Push or a Pull to the relay. Returns false if it has not been sent: the relay is gone, or has no room.
  using ToRelay =
      std::function<bool(Method method, int server, const Slices& request, absl::Duration timeout, ReplyCallback done)>;

  // Borrows the way to the servers themselves.
  explicit HostTransport(Transport* servers) : servers_(*servers) {}

  // Sends the pushes and pulls for servers with relayed[server] through the relay from now on. Called once, before the
  // first of them. `name`: of the process with the relay, for messages.
  void Relay(std::vector<bool> relayed, ToRelay relay, std::string name);
  // Returns true if pushes to the server, and pulls from it, go through the relay.
  bool relays(int server) const;

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override;
  void CallPatiently(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override;
  std::string Describe(int server) const override { return servers_.Describe(server); }
  int servers() const override { return servers_.servers(); }
  // The relay answers when others have come.
  bool answers_inside() const override { return relay_ == nullptr && servers_.answers_inside(); }
  bool checks_payloads() const override { return servers_.checks_payloads(); }
  // What goes to the relay does not leave the host.
  bool is_own(int server, Method method) const override {
    return (IsRelayed(method) && relays(server)) || servers_.is_own(server, method);
  }
  bool shares_memory(int server) const override { return servers_.shares_memory(server); }

 private:
  static bool IsRelayed(Method method) { return method == Method::kPush || method == Method::kPull; }

  struct Way {
    std::vector<bool> relayed;
    ToRelay send;
    std::string name;
  };

  Transport& servers_;
  std::unique_ptr<const Way> way_;          // written before relays_
  std::atomic<const Way*> relay_{nullptr};  // atomic: set once while other threads send heart-beats
};

}  // namespace weir

#endif  // WEIR_PSERVER_HOST_HOST_TRANSPORT_H_
