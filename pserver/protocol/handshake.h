// Versions and limits that two processes must agree on before they work together.
#ifndef WEIR_PSERVER_PROTOCOL_HANDSHAKE_H_
#define WEIR_PSERVER_PROTOCOL_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

// Version of the messages of proto/parameter_server.proto; a peer with another one is refused.
inline constexpr uint32_t kWireVersion = 1;
// Version of this build; a peer with another one is refused. Changes whenever the arithmetic or the meaning of a plan
// may change.
inline constexpr std::string_view kBuild = "weir 0.1.0";

// Largest step or version. Sums and differences of steps stay far from the ends of int64.
inline constexpr int64_t kMaxStep = int64_t{1} << 60;
// Maximum number of chunks in one contribution to an exchange: 64 GiB in chunks of 64 MiB. A larger number is a
// mistake.
inline constexpr int kMaxExchangeChunks = 1024;
// Limits of a stream: bytes of a chunk, and number of chunks that have not been taken (ExchangeRequest.stream_to).
inline constexpr size_t kStreamChunk = size_t{4} << 20;
inline constexpr int kStreamWindow = 2;
// Maximum length of an exchange key, in bytes.
inline constexpr size_t kMaxExchangeKey = 1024;
// Memory of a trainer for residuals of the rows of one table and lane node (pserver/client/residuals.h).
inline constexpr size_t kResidualBytes = size_t{32} << 20;

// Suffix of a server's message to a caller whose lease has run out or has passed to another process. It ends that
// caller, not the job.
inline constexpr char kCannotGoOn[] = "cannot go on";

// Returns the first line that differs between two plan texts ("path: value" lines), as "path: 2 here, 3 there"; "" when
// they are equal.
std::string FirstPlanDifference(std::string_view here, std::string_view there);

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_HANDSHAKE_H_
