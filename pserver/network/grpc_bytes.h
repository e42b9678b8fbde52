// Conversion between Slices and gRPC's buffers, without a copy of slices that have an owner.
#ifndef WEIR_PSERVER_NETWORK_GRPC_BYTES_H_
#define WEIR_PSERVER_NETWORK_GRPC_BYTES_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "framework/profile/profiler.h"
#include "framework/wire/slices.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace weir {

// Converts slices to a gRPC buffer. A slice without an owner is copied, because gRPC may hold the bytes a little longer
// than the call lasts (a write in progress when a deadline passes).
grpc::ByteBuffer ToByteBuffer(const Slices& slices);
// Converts a gRPC buffer to slices that share its memory and keep it alive.
Slices FromByteBuffer(const grpc::ByteBuffer& buffer);

// Channel and server arguments of both ends, for large messages.
inline constexpr int kGrpcMaxFrame = 4 << 20;     // HTTP/2 frame size: fewer pieces per message
inline constexpr int kGrpcReadChunk = 256 << 10;  // bytes asked of the system at once

// Key in the initial metadata of the answer to a Join: path of the server's socket for clients on its machine.
inline constexpr char kUnixSocketKey[] = "weir-unix-socket";

// Key in the initial metadata of that answer and of a stream (open_stream.h) if the server takes tensors through plain
// sockets (socket_link.h) at its endpoint, too.
inline constexpr char kPlainSocketsKey[] = "weir-plain-sockets";

// Key in the metadata of a call that the profiler records: the call's number and step.
inline constexpr char kProfiledCallKey[] = "weir-profiled-call";
std::string ProfiledCallText(const ProfiledCall& call);
// Parses the value of kProfiledCallKey. Malformed text gives a call that is not recorded.
ProfiledCall ParseProfiledCall(std::string_view text);

// Makes this process keep up to 256 MiB of freed memory. gRPC receives into memory that it frees with the message.
// glibc would return the top of the heap to the system each time and get it back as zeroed pages, a third of the time
// of a call of 3.4 MB. Calls after the first do nothing.
void KeepFreedMemory();

// Most bytes of the text of an error of another process, whoever it is.
inline constexpr size_t kMostReceivedText = 3800;

// Returns the text of an error as it is sent: cut at a little under 2 KB.
std::string SentText(const absl::Status& error);
// Converts a Status for gRPC. Cuts the text at a little under 2 KB: gRPC sends it in a header, and drops large headers
// together with the status.
grpc::Status ToGrpcStatus(const absl::Status& status);
// Converts a gRPC status. Codes that gRPC gives to broken connections and cancelled calls become Unavailable.
absl::Status FromGrpcStatus(const grpc::Status& status);
// Returns whether the error was made by ToGrpcStatus at the other side, not by the network.
bool SaidByServer(const grpc::Status& status);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_BYTES_H_
