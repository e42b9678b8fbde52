#include "pserver/protocol/transport.h"

namespace weir {

std::string_view MethodName(Method method) {
  switch (method) {
    case Method::kJoin:
      return "Join";
    case Method::kHeartbeat:
      return "Heartbeat";
    case Method::kPush:
      return "Push";
    case Method::kPull:
      return "Pull";
    case Method::kExchange:
      return "Exchange";
    case Method::kControl:
      return "Control";
    case Method::kNorms:
      return "Norms";
  }
  return "?";
}

}  // namespace weir
