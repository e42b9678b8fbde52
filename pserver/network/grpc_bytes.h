// Our slices as gRPC's and back, without copying what has an owner.
#ifndef WEIR_PSERVER_NETWORK_GRPC_BYTES_H_
#define WEIR_PSERVER_NETWORK_GRPC_BYTES_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "framework/runtime/profiler.h"
#include "framework/wire/slices.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace weir {

// gRPC may hold bytes a little longer than a call lasts (a write in progress when a deadline passes), so a slice
// without an owner is copied.
grpc::ByteBuffer ToByteBuffer(const Slices& slices);
// Pieces share the buffer's memory and keep it alive.
Slices FromByteBuffer(const grpc::ByteBuffer& buffer);

// Channel and server arguments that both ends want for large messages.
inline constexpr int kGrpcMaxFrame = 4 << 20;     // of HTTP/2: fewer pieces to a message
inline constexpr int kGrpcReadChunk = 256 << 10;  // asked of the system at once

// In the initial metadata of the answer to a Join: where the server listens for clients on its machine.
inline constexpr char kUnixSocketKey[] = "weir-unix-socket";

// In the metadata of a call that the profiler records: its number and step.
inline constexpr char kProfiledCallKey[] = "weir-profiled-call";
std::string ProfiledCallText(const ProfiledCall& call);
// A call that is not recorded when the text makes no sense.
ProfiledCall ParseProfiledCall(std::string_view text);

// What gRPC receives lies in memory that it frees with the message. glibc would give the top of the heap back to the
// system each time, and get it back as zeroed pages: a third of the time of a call of 3.4 MB. From now on this process
// keeps up to 256 MiB of freed memory. Calls after the first do nothing.
void KeepFreedMemory();

// The text is cut at a little under 2 KB: gRPC sends it in a header, and large headers are dropped with the status.
grpc::Status ToGrpcStatus(const absl::Status& status);
// Codes that gRPC gives to broken connections and cancelled calls become Unavailable.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_BYTES_H_
