// A line at a border of the memory that its reader may touch.
#ifndef WEIR_TESTS_FRAMEWORK_FORMATS_GUARDED_LINE_H_
#define WEIR_TESTS_FRAMEWORK_FORMATS_GUARDED_LINE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "framework/formats/line_parser.h"
#include "glog/logging.h"

namespace weir {

enum class Guard { kInFront, kBehind };

// The line and LineParser::kPadding bytes behind it, which must not count. What touches the byte in front of the line,
// or the one behind the padding, dies. Lives until the next call.
inline std::string_view Guarded(std::string_view line, Guard guard) {
  constexpr size_t kRoom = size_t{1} << 20;
  constexpr size_t kPadding = LineParser::kPadding;
  static char* const room = [] {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* const all = mmap(nullptr, page + kRoom + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    char* const begin = static_cast<char*>(all) + page;
    CHECK_EQ(mprotect(begin, kRoom, PROT_READ | PROT_WRITE), 0);
    return begin;
  }();
  CHECK_LE(line.size() + kPadding, kRoom);
  char* const place = guard == Guard::kInFront ? room : room + kRoom - kPadding - line.size();
  if (!line.empty()) std::memcpy(place, line.data(), line.size());
  // Digits that would change a number, were they read.
  for (size_t i = 0; i < kPadding; ++i) place[line.size() + i] = guard == Guard::kInFront && i % 2 == 1 ? 'f' : '9';
  return {place, line.size()};
}

}  // namespace weir

#endif  // WEIR_TESTS_FRAMEWORK_FORMATS_GUARDED_LINE_H_
