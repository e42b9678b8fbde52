#include "pserver/protocol/transport.h"

#include "absl/strings/str_cat.h"

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
    case Method::kDeliver:
      return "Deliver";
  }
  return "?";
}

std::string MethodPath(Method method) {
  const char* const service = method == Method::kDeliver ? "Collective" : "ParameterServer";
  return absl::StrCat("/weir.v1.", service, "/", std::string(MethodName(method)));
}

}  // namespace weir
