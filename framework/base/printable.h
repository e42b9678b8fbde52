// Texts from outside, such as names and messages of other processes, made safe for a log, a terminal or a page.
#ifndef WEIR_FRAMEWORK_BASE_PRINTABLE_H_
#define WEIR_FRAMEWORK_BASE_PRINTABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weir {

// Returns `text` with \xNN in place of each byte that belongs to no character of UTF-8, to a control character (a new
// line, the escape of a terminal), or to a character that is not to be seen or changes the order or the lines of what
// is shown. At most `most` bytes, at least 3: a longer result is cut and ends with "...". A text that it has returned
// stays as it is.
std::string Printable(std::string_view text, size_t most = SIZE_MAX);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_PRINTABLE_H_
