// Answers HTTP requests with pages that a process makes when they are asked for. Knows no sockets.
//
// The library cpp-httplib parses requests and writes answers. Features that a page does not need and a client could
// misuse are off: bodies of requests, ranges, compression, more than one request per connection.
#ifndef WEIR_FRAMEWORK_WATCH_HTTP_ANSWERS_H_
#define WEIR_FRAMEWORK_WATCH_HTTP_ANSWERS_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct WatchPage {
  std::string path;          // "/metrics"; compared with the bytes of the request as a whole
  std::string content_type;  // "text/plain; charset=utf-8"
  // Called with what follows '?' in the request, for each of them, on a thread of the server and by several at a time.
  // Must return within a second. NotFound, Unavailable and other errors are answers 404, 503 and 500 with the message.
  std::function<absl::StatusOr<std::string>(std::string_view query)> content;
};

// Thread-safe.
class HttpAnswers {
 public:
  // Bytes of a request line and its headers. Browsers send all cookies of the host, also those of other ports.
  static constexpr size_t kMaxHead = 16 << 10;

  // local_only: a page asked for by a name other than `address`, localhost, 127.0.0.1 or [::1] is refused. It keeps the
  // page of another site, whose name leads to this machine (DNS rebinding), from reading ours in a local browser.
  HttpAnswers(std::vector<WatchPage> pages, std::string address, bool local_only);
  ~HttpAnswers();
  HttpAnswers(const HttpAnswers&) = delete;
  HttpAnswers& operator=(const HttpAnswers&) = delete;

  // Returns the whole answer to a request, after which the connection must be closed. `head`: its first line and its
  // headers, up to the blank line. Any bytes are answered: 400, or 431 if there are more than kMaxHead.
  std::string Answer(std::string_view head);

 private:
  class Engine;
  const std::unique_ptr<Engine> engine_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_HTTP_ANSWERS_H_
