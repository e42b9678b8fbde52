// Where a server's Unix-domain socket lies, for clients on its own machine.
//
//   <TMPDIR or /tmp>/weir-<uid>/<pid>-<16 random hex digits>.sock       directory 0700, socket 0600
//
// A server tells its clients the name over TCP, and nobody else has a socket of that name: who can connect to it is on
// the same machine (and in the same container), talking to the same process.
#ifndef WEIR_PSERVER_NETWORK_UNIX_SOCKET_H_
#define WEIR_PSERVER_NETWORK_UNIX_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// A name for a new socket. Makes the directory; sockets in it that nobody listens on any more are removed.
// FailedPrecondition: the directory cannot be made, is not this user's alone, or its name is too long for a socket.
absl::StatusOr<std::string> NewUnixSocketPath();
// The same below another directory than /tmp.
absl::StatusOr<std::string> NewUnixSocketPath(const std::string& directory);

// Whether somebody listens at `path`, a socket of this user.
bool ListensAt(const std::string& path);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_UNIX_SOCKET_H_
