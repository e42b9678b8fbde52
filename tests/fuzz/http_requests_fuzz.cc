// Any bytes as a request for a page of framework/watch. Each is answered once and whole, and the page leaves only by
// GET and for a local name.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "framework/watch/http_answers.h"
#include "tests/fuzz/input.h"

namespace {

constexpr char kContent[] = "the content of the page";

weir::HttpAnswers* Answers() {
  static auto* const answers =
      new weir::HttpAnswers({{.path = "/page",
                              .content_type = "text/plain",
                              .content = [](std::string_view) { return absl::StatusOr<std::string>(kContent); }}},
                            "127.0.0.1", /*local_only=*/true);
  return answers;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

void CheckAllowed(const std::string& request) {
  const std::string lower = absl::AsciiStrToLower(request);
  // Blanks before and after the method count for nothing.
  const std::string line(absl::StripAsciiWhitespace(request.substr(0, request.find('\n'))));
  if (line.substr(0, 4) != "GET " || !Contains(line, " /page")) std::abort();
  // The library decodes "%6c" in values of headers; browsers write no such host.
  if (Contains(lower, "http/1.0") || Contains(lower, "%")) return;
  if (!Contains(lower, "host:")) std::abort();
  if (!Contains(lower, "localhost") && !Contains(lower, "127.0.0.1") && !Contains(lower, "[::1]")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string request = weir::FuzzInput(data, size).Rest();
  const std::string answer = Answers()->Answer(request);
  if (answer.empty()) {
    // A connection that ends before its first byte.
    if (!request.empty()) std::abort();
    return 0;
  }
  const std::string_view text = answer;
  if (text.substr(0, 9) != "HTTP/1.1 ") std::abort();
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) std::abort();
  const std::string_view head = text.substr(0, end), body = text.substr(end + 4);
  if (Contains(head.substr(1), "HTTP/1.1 ")) std::abort();
  const size_t length = head.find("\r\nContent-Length: ");
  if (length == std::string_view::npos || head.find("\r\nContent-Length: ", length + 1) != std::string_view::npos) {
    std::abort();
  }
  if (!Contains(head, "\r\nConnection: close")) std::abort();
  if (Contains(body, kContent)) CheckAllowed(request);
  return 0;
}
