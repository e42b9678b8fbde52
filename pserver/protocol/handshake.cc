#include "pserver/protocol/handshake.h"

#include "framework/base/printable.h"

namespace weir {

namespace {

std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

// Returns the line up to and with the colon behind the path.
std::string_view Path(std::string_view line) {
  const size_t colon = line.find(": ");
  return colon == std::string_view::npos ? std::string_view() : line.substr(0, colon);
}

std::string_view Value(std::string_view line) {
  const std::string_view path = Path(line);
  return path.empty() ? line : line.substr(path.size() + 2);
}

std::string Quoted(std::string_view text) { return text.empty() ? "nothing" : Printable(text, 200); }

}  // namespace

std::string FirstPlanDifference(std::string_view here, std::string_view there) {
  while (!here.empty() || !there.empty()) {
    const std::string_view ours = TakeLine(&here), theirs = TakeLine(&there);
    if (ours == theirs) continue;
    const std::string_view path = Path(ours);
    if (!path.empty() && path == Path(theirs)) {
      return Quoted(path) + ": " + Quoted(Value(ours)) + " here, " + Quoted(Value(theirs)) + " there";
    }
    return Quoted(ours) + " here, " + Quoted(theirs) + " there";
  }
  return "";
}

}  // namespace weir
