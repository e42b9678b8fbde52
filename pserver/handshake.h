// What two processes must agree on before they work together.
#ifndef WEIR_PSERVER_HANDSHAKE_H_
#define WEIR_PSERVER_HANDSHAKE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

// Version of the messages of proto/parameter_server.proto; another one is refused.
inline constexpr uint32_t kWireVersion = 1;
// Of this build; another one is refused. Changes whenever the arithmetic or the meaning of a plan may change.
inline constexpr std::string_view kBuild = "weir 0.1.0";

// The first line that differs between two plan texts ("path: value" lines), as "path: 2 here, 3 there"; "" when equal.
std::string FirstPlanDifference(std::string_view here, std::string_view there);

}  // namespace weir

#endif  // WEIR_PSERVER_HANDSHAKE_H_
