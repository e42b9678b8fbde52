// Servers embedded in this process, behind the usual Transport: local mode, verification, tests.
#ifndef WEIR_PSERVER_INSIDE_IN_PROCESS_H_
#define WEIR_PSERVER_INSIDE_IN_PROCESS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "pserver/protocol/transport.h"
#include "pserver/server/server_core.h"

namespace weir {

class InProcessServers : public Transport {
 public:
  // Creates one core per element. Requires: all have the same clock. tick_thread: a thread named "weir-tick" calls Tick
  // every 100 ms. Requires: without it the owner calls Tick. check_payloads: set if something between client and
  // servers may corrupt bytes (a test transport).
  static absl::StatusOr<std::unique_ptr<InProcessServers>> Create(std::vector<ServerOptions> servers, bool tick_thread,
                                                                  bool check_payloads = false);
  virtual ServerCore& server(int i) = 0;
  virtual void Tick() = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_INSIDE_IN_PROCESS_H_
