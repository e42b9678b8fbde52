#include "framework/watch/http_get.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "httplib.h"

namespace weir {

absl::StatusOr<std::string> HttpGet(const std::string& url, const std::string& path, absl::Duration limit) {
  httplib::Client client(url);
  const auto most = absl::ToChronoMicroseconds(limit);
  client.set_connection_timeout(most);
  client.set_read_timeout(most);
  client.set_write_timeout(most);
  const httplib::Result result = client.Get(path.c_str());
  if (!result) return absl::UnavailableError(absl::StrCat(url, path, ": ", httplib::to_string(result.error())));
  if (result->status == 200) return result->body;
  return absl::UnavailableError(absl::StrCat(url, path, ": HTTP ", result->status, ": ", result->body.substr(0, 200)));
}

}  // namespace weir
