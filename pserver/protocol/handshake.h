// Versions and limits that two processes must agree on before they work together.
#ifndef WEIR_PSERVER_PROTOCOL_HANDSHAKE_H_
#define WEIR_PSERVER_PROTOCOL_HANDSHAKE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

// Version of the messages of proto/parameter_server.proto and proto/membership.proto; a peer with another one is
// refused.
inline constexpr uint32_t kWireVersion = 4;
// Version of this build; a peer with another one is refused. Changes whenever the arithmetic or the meaning of a plan
// may change.
inline constexpr std::string_view kBuild = "weir 0.1.0";

// Largest step or version. Sums and differences of steps stay far from the ends of int64.
inline constexpr int64_t kMaxStep = int64_t{1} << 60;
// Most parts of one step of one trainer: more is a mistake of the caller, not a large model.
inline constexpr int kMaxParts = 1 << 20;
// Memory of a trainer for residuals of the rows of one table and lane node (pserver/client/residuals.h).
inline constexpr size_t kResidualBytes = size_t{32} << 20;

// Returns the first line that differs between two plan texts ("path: value" lines), as "path: 2 here, 3 there"; "" when
// they are equal.
std::string FirstPlanDifference(std::string_view here, std::string_view there);

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_HANDSHAKE_H_
