// Fetches a page of another process of the job over HTTP.
#ifndef WEIR_FRAMEWORK_WATCH_HTTP_GET_H_
#define WEIR_FRAMEWORK_WATCH_HTTP_GET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

// Returns the content of `path` at `url` ("http://127.0.0.1:9100"). Unavailable: nobody answers within `limit`, or the
// answer is an error.
absl::StatusOr<std::string> HttpGet(const std::string& url, const std::string& path, absl::Duration limit);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_HTTP_GET_H_
