// Valid UTF-8 for readers that refuse a whole file over one byte.
#ifndef WEIR_FRAMEWORK_WATCH_UTF8_H_
#define WEIR_FRAMEWORK_WATCH_UTF8_H_

#include <string>
#include <string_view>

namespace weir {

bool IsAscii(std::string_view text);

// Returns `text` with a '?' in place of each byte that belongs to no character.
std::string ToUtf8(std::string_view text);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_UTF8_H_
