#include "framework/watch/http_answers.h"

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

// The library of the system is built with these; the layout of its structs depends on them.
#define CPPHTTPLIB_BROTLI_SUPPORT
#define CPPHTTPLIB_OPENSSL_SUPPORT
#define CPPHTTPLIB_ZLIB_SUPPORT
#include "httplib.h"

namespace weir {
namespace {

constexpr char kText[] = "text/plain; charset=utf-8";
// "httplib.h" sends this text for no status of its own.
constexpr char kTooLarge[] =
    "HTTP/1.1 431 Request Header Fields Too Large\r\n"
    "Connection: close\r\n"
    "Content-Length: 0\r\n\r\n";

// Gives the library a request that has been read, and takes its answer.
class TextStream : public httplib::Stream {
 public:
  explicit TextStream(std::string_view in) : in_(in) {}

  bool is_readable() const override { return !in_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const size_t n = in_.copy(to, size);
    in_.remove_prefix(n);
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    out_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { Nowhere(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { Nowhere(ip, port); }
  socket_t socket() const override { return 0; }

  std::string TakeOut() { return std::move(out_); }

 private:
  static void Nowhere(std::string& ip, int& port) {
    ip.clear();
    port = 0;
  }

  std::string_view in_;
  std::string out_;
};

// "localhost:8080" -> "localhost", "[::1]:8080" -> "[::1]".
std::string HostOf(std::string_view header) {
  const size_t name_end = header.substr(0, 1) == "[" ? header.find(']') : 0;
  const size_t colon = header.find(':', name_end == std::string_view::npos ? 0 : name_end);
  return absl::AsciiStrToLower(std::string(header.substr(0, colon)));
}

bool HasBody(const httplib::Request& request) {
  if (request.has_header("Transfer-Encoding")) return true;
  const auto [begin, end] = request.headers.equal_range("Content-Length");
  return std::any_of(begin, end, [](const auto& header) { return header.second != "0"; });
}

int HttpStatus(const absl::Status& status) {
  if (absl::IsNotFound(status)) return 404;
  return absl::IsUnavailable(status) ? 503 : 500;
}

void Refuse(int status, const std::string& why, httplib::Response& response) {
  response.status = status;
  response.set_content(absl::StrCat(why, "\n"), kText);
}

}  // namespace

class HttpAnswers::Engine : public httplib::Server {
 public:
  Engine(std::vector<WatchPage> pages, std::string address, bool local_only)
      : address_(std::move(address)), local_only_(local_only) {
    for (WatchPage& page : pages) {
      std::string path = page.path;
      pages_.emplace(std::move(path), std::move(page));
    }
    set_default_headers({{"Accept-Ranges", "none"},
                         {"Cache-Control", "no-store"},
                         {"Content-Security-Policy", "default-src 'self' 'unsafe-inline'"},
                         {"X-Content-Type-Options", "nosniff"}});
    // Before the library's own routing, whose regular expressions are thus never reached.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      Route(request, response);
      return HandlerResponse::Handled;
    });
    set_error_handler(Handler([](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty()) response.set_content("the request is damaged\n", kText);
    }));
    set_exception_handler([](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
      Refuse(500, "the page cannot be made", response);
    });
  }

  std::string Answer(std::string_view head) {
    TextStream stream(head);
    bool closed = false;
    // Without what the library would do by itself.
    const auto simplify = [](httplib::Request& request) {
      request.headers.erase("Accept-Encoding");
      request.headers.erase("Expect");
      request.ranges.clear();
    };
    process_request(stream, /*close_connection=*/true, closed, simplify);
    return stream.TakeOut();
  }

 private:
  void Route(const httplib::Request& request, httplib::Response& response) const {
    const bool head = request.method == "HEAD";
    if (request.method != "GET" && !head) {
      response.set_header("Allow", "GET, HEAD");
      return Refuse(405, "the method is " + request.method + "; pages are asked for by GET or HEAD", response);
    }
    if (HasBody(request)) return Refuse(413, "the request has a body; those of pages have none", response);
    if (!MayAsk(request, response)) return;
    const size_t mark = request.target.find('?');
    const auto page = pages_.find(request.target.substr(0, mark));
    if (page == pages_.end()) return Refuse(404, "there is no such page", response);
    const absl::StatusOr<std::string> content = page->second.content(
        mark == std::string::npos ? std::string_view() : std::string_view(request.target).substr(mark + 1));
    if (!content.ok()) {
      return Refuse(HttpStatus(content.status()), std::string(content.status().message()), response);
    }
    response.set_content(*content, page->second.content_type);
  }

  // Checks the name by which the server was asked. Sets the response if it is refused.
  bool MayAsk(const httplib::Request& request, httplib::Response& response) const {
    const size_t hosts = request.get_header_value_count("Host");
    if (hosts > 1 || (hosts == 0 && request.version != "HTTP/1.0")) {
      Refuse(400, absl::StrCat("the request has ", hosts, " headers \"Host\"; expected one"), response);
      return false;
    }
    if (hosts == 0 || !local_only_) return true;
    const std::string host = HostOf(request.get_header_value("Host"));
    if (host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == address_) return true;
    Refuse(403, "this server answers on this machine only, by the names localhost, 127.0.0.1 and [::1]", response);
    return false;
  }

  std::map<std::string, WatchPage> pages_;  // by path; constant after construction
  const std::string address_;
  const bool local_only_;
};

namespace {

// The constructor of the library's server makes the whole process ignore SIGPIPE, and programs that it starts inherit
// that.
template <typename Make>
auto WithSignalKept(const Make& make) {
  struct sigaction before = {};
  ::sigaction(SIGPIPE, nullptr, &before);
  auto made = make();
  ::sigaction(SIGPIPE, &before, nullptr);
  return made;
}

}  // namespace

HttpAnswers::HttpAnswers(std::vector<WatchPage> pages, std::string address, bool local_only)
    : engine_(
          WithSignalKept([&] { return std::make_unique<Engine>(std::move(pages), std::move(address), local_only); })) {}

HttpAnswers::~HttpAnswers() = default;

std::string HttpAnswers::Answer(std::string_view head) {
  if (head.size() > kMaxHead) return kTooLarge;
  return engine_->Answer(head);
}

}  // namespace weir
