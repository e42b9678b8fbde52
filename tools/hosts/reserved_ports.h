// Ports of this machine for processes that have to know each other's addresses before they listen.
#ifndef WEIR_TOOLS_HOSTS_RESERVED_PORTS_H_
#define WEIR_TOOLS_HOSTS_RESERVED_PORTS_H_

#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// Draws ports at which nobody listens, at any IPv4 address. Other objects of this class, in any process, do not draw
// them while this one lives: it holds the UDP ports of the same numbers. Ports are below those that the system gives to
// connections, so no connection takes one before its process listens.
class ReservedPorts {
 public:
  ReservedPorts() = default;
  ~ReservedPorts();
  ReservedPorts(ReservedPorts&& other) noexcept;
  ReservedPorts& operator=(ReservedPorts&& other) noexcept;

  // Draws `count` different ports. Unavailable if there are too few.
  static absl::StatusOr<ReservedPorts> Draw(int count);

  const std::vector<int>& ports() const { return ports_; }

 private:
  std::vector<int> ports_;
  std::vector<int> sockets_;
};

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_RESERVED_PORTS_H_
