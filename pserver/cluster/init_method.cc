#include "pserver/cluster/init_method.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/invalid.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr char kTcp[] = "tcp://";
constexpr char kFile[] = "file://";
constexpr int kLastPort = 65535;

// Checks an address at which trainer 0 shall listen and to which all others connect.
absl::StatusOr<Endpoint> ParseMeetingPoint(const std::string& text, const std::string& source) {
  absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
  if (!endpoint.ok()) return Invalid(source, ": ", endpoint.status().message());
  if (endpoint->port == 0) return Invalid(source, ": port 0, where nobody can find trainer 0; name a free port");
  if (endpoint->IsWildcard()) {
    return Invalid(source, ": ", endpoint->host,
                   " is no address to which others can connect; name the host of trainer 0");
  }
  return endpoint;
}

absl::StatusOr<InitMethod> FromEnvironment(const Environment& environment, bool agent_has_master_port) {
  const MaybeSourced host = ReadVariable(environment, "MASTER_ADDR");
  const MaybeSourced port = ReadVariable(environment, "MASTER_PORT");
  if (!host.has_value() || !port.has_value()) {
    return Invalid("--init_method=env:// needs the variables MASTER_ADDR and MASTER_PORT: the host of trainer 0 and a ",
                   "free port there; ", host.has_value() ? "MASTER_PORT" : "MASTER_ADDR", " is not set");
  }
  InitMethod method = {.source = absl::StrCat("MASTER_ADDR=", host->value, " and MASTER_PORT=", port->value)};
  if (absl::StrContains(host->value, "://")) {
    return Invalid(method.source, ": MASTER_ADDR is a URL; it must be a host name or an address, without a scheme");
  }
  const bool bare_ipv6 = absl::StrContains(host->value, ':') && !absl::StartsWith(host->value, "[");
  const std::string text =
      bare_ipv6 ? absl::StrCat("[", host->value, "]:", port->value) : absl::StrCat(host->value, ":", port->value);
  ASSIGN_OR_RETURN(method.address, ParseMeetingPoint(text, method.source));
  if (!agent_has_master_port) return method;
  ++method.address.port;
  method.ports = kPortsBehindAgent;
  if (method.address.port + method.ports - 1 > kLastPort) {
    return Invalid(method.source, ": torchrun's agent listens there, and trainer 0 at one of the ", kPortsBehindAgent,
                   " ports behind it, of which there are too few; choose a --master-port below ",
                   kLastPort - kPortsBehindAgent + 1);
  }
  return method;
}

}  // namespace

std::string InitMethod::ToString() const {
  if (kind == Kind::kFile) return absl::StrCat(kFile, directory);
  const std::string first = absl::StrCat(kTcp, address.ToString());
  return ports == 1 ? first : absl::StrCat(first, " to ", address.port + ports - 1);
}

absl::StatusOr<InitMethod> ParseInitMethod(const std::string& text, const Environment& environment,
                                           bool agent_has_master_port) {
  if (text == "env://") return FromEnvironment(environment, agent_has_master_port);
  InitMethod method = {.source = absl::StrCat("--init_method=", text)};
  if (absl::StartsWith(text, kTcp)) {
    ASSIGN_OR_RETURN(method.address, ParseMeetingPoint(text.substr(sizeof(kTcp) - 1), method.source));
    return method;
  }
  if (absl::StartsWith(text, kFile)) {
    method.kind = InitMethod::Kind::kFile;
    method.directory = text.substr(sizeof(kFile) - 1);
    while (method.directory.size() > 1 && method.directory.back() == '/') method.directory.pop_back();
    if (method.directory.size() < 2 || method.directory[0] != '/') {
      return Invalid(method.source, ": the path must be absolute, file:///PATH, a directory that all processes see");
    }
    return method;
  }
  return Invalid(method.source, ": must be env://, tcp://HOST:PORT or file:///PATH");
}

}  // namespace weir
