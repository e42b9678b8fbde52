// Path of a server's Unix-domain socket, for clients on its own machine.
//
//   <TMPDIR or /tmp>/weir-<uid>/<pid>-<16 random hex digits>.sock       directory 0700, socket 0600
//
// If weir-<uid> is there and not a directory of this user alone, it is weir-<uid>-<6 random characters>.
//
// A server tells its clients the path over TCP, and no other process has a socket of that name. So a client that can
// connect to it is on the same machine (and in the same container), and talks to the same process.
#ifndef WEIR_PSERVER_SOCKETS_UNIX_SOCKET_H_
#define WEIR_PSERVER_SOCKETS_UNIX_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Returns a path for a new socket. Makes the directory and removes sockets in it that no process listens on.
// FailedPrecondition: the directory cannot be made, or its name is too long for a socket.
absl::StatusOr<std::string> NewUnixSocketPath();
// Likewise, in `directory` instead of /tmp.
absl::StatusOr<std::string> NewUnixSocketPath(const std::string& directory);

// Returns the path of the socket beside it for tensors (socket_link.h).
std::string TensorPathOf(const std::string& unix_socket);

// Returns true if a process listens at `path`, a socket of this user.
bool ListensAt(const std::string& path);

// Sockets of `type`, SOCK_STREAM or SOCK_SEQPACKET, that block; the caller closes the descriptor.
// Connects, within two seconds. Unavailable: nobody answers at `path`, or it is not a socket of this user.
absl::StatusOr<int> ConnectTo(const std::string& path, int type);
// Listens at a new `path`. FailedPrecondition: it cannot.
absl::StatusOr<int> ListenOn(const std::string& path, int type);

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_UNIX_SOCKET_H_
