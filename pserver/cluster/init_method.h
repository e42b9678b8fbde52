// Meeting point at which the processes of a job learn each other's addresses: --init_method, as in PyTorch.
#ifndef WEIR_PSERVER_CLUSTER_INIT_METHOD_H_
#define WEIR_PSERVER_CLUSTER_INIT_METHOD_H_

#include <string>

#include "absl/status/statusor.h"
#include "pserver/cluster/endpoint.h"
#include "pserver/cluster/environment.h"

namespace weir {

struct InitMethod {
  enum class Kind {
    // Trainer 0 listens at an address.
    kTcp,
    // Processes leave files in a directory that all of them see.
    kFile,
  };
  Kind kind = Kind::kTcp;
  // kTcp: trainer 0 listens at the first free one of `ports` ports, from address.port.
  Endpoint address;
  int ports = 1;
  // kFile: an absolute path.
  std::string directory;
  // The user's own words, for messages: "--init_method=tcp://10.0.0.1:6170", "MASTER_ADDR and MASTER_PORT".
  std::string source;

  // "tcp://10.0.0.1:6170", "tcp://10.0.0.1:29501 to 29516", "file:///shared/meet".
  std::string ToString() const;
};

// --run_id of a trainer that takes part in the run of trainer 0, whatever its name is, and learns it at the meeting
// point.
inline constexpr char kAnyRun[] = "*";

// Ports behind MASTER_PORT that trainer 0 tries under torchrun, whose agent listens at MASTER_PORT itself.
inline constexpr int kPortsBehindAgent = 16;

// Parses "env://", "tcp://HOST:PORT" or "file:///PATH". env:// is MASTER_ADDR and MASTER_PORT, or, if
// agent_has_master_port, the ports behind it.
//
// InvalidArgument: another scheme, a missing variable, port 0, 0.0.0.0, a path that is not absolute, too few ports
// behind MASTER_PORT.
absl::StatusOr<InitMethod> ParseInitMethod(const std::string& text, const Environment& environment,
                                           bool agent_has_master_port);

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_INIT_METHOD_H_
