#include "pserver/cluster/endpoint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/invalid.h"
#include "framework/base/printable.h"
#include "framework/net/socket_address.h"

namespace weir {

std::string Endpoint::ToString() const { return absl::StrCat(host, ":", port); }

bool Endpoint::IsWildcard() const { return host == "0.0.0.0" || host == "[::]"; }

bool Endpoint::IsLoopback() const { return weir::IsLoopback(host); }

std::string Endpoint::BareHost() const {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  const std::string quoted = absl::StrCat("'", Printable(text), "'");
  if (text.empty()) return Invalid("blank, must be host:port");
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isspace(c); })) {
    return Invalid(quoted, " has a blank in it, must be host:port");
  }
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    const std::string_view before = text.substr(0, scheme);
    // "10.0.0.1:tcp://10.0.0.2:80" is of a host and a port that are given apart.
    if (before.find(':') != std::string_view::npos) {
      return Invalid(
          quoted,
          " has a URL where the port belongs, which is a number alone; Kubernetes sets variables such "
          "as PADDLE_PORT=tcp://HOST:PORT for a Service of that name, unless the pod has enableServiceLinks: "
          "false");
    }
    return Invalid(quoted, " is a URL; an address is host:port without a scheme such as ", std::string(before), "://");
  }
  const size_t colon = text.rfind(':');
  const bool bracketed = text.front() == '[';
  const size_t bracket = text.find(']');
  if (colon == std::string_view::npos || (bracketed && bracket != std::string_view::npos && colon < bracket)) {
    return Invalid(quoted, " has no port, must be host:port");
  }
  Endpoint endpoint{.host = std::string(text.substr(0, colon))};
  if (endpoint.host.empty()) return Invalid(quoted, " has no host, must be host:port");
  if (bracketed) {
    const bool address = bracket == colon - 1 && bracket > 1 &&
                         std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bracket),
                                     [](unsigned char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; });
    if (!address) return Invalid(quoted, " is no [IPv6 address]:port");
  } else {
    if (endpoint.host.find(':') != std::string::npos) {
      return Invalid(quoted, " has more than one ':'; an IPv6 address stands in brackets, [::1]:6170");
    }
    const bool name = std::all_of(endpoint.host.begin(), endpoint.host.end(), [](unsigned char c) {
      return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
    });
    if (!name) return Invalid(quoted, " has no host name or address before the port");
  }
  const std::string port(text.substr(colon + 1));
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  int32_t number = 0;
  if (!digits || !absl::SimpleAtoi(port, &number) || number > 65535) {
    return Invalid(quoted, ": the port must be a number from 1 to 65535", port.empty() ? "" : ", got ",
                   Printable(port));
  }
  endpoint.port = number;
  return endpoint;
}

std::string JoinHostPort(std::string_view host, int port) {
  const std::string text(host);
  const bool bare_ipv6 = text.find(':') != std::string::npos && !text.starts_with('[');
  return bare_ipv6 ? absl::StrCat("[", text, "]:", port) : absl::StrCat(text, ":", port);
}

}  // namespace weir
