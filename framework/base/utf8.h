// Valid UTF-8 for readers that refuse a whole file over one byte.
#ifndef WEIR_FRAMEWORK_BASE_UTF8_H_
#define WEIR_FRAMEWORK_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

bool IsAscii(std::string_view text);

// Returns the number of bytes of the character at the begin of `text`; 0 if there is none, or it is no UTF-8.
size_t Utf8SequenceLength(std::string_view text);

// Returns `text` with a '?' in place of each byte that belongs to no character.
std::string ToUtf8(std::string_view text);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_UTF8_H_
