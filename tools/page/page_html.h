// The page of a running job: one document without further files, which asks for "state.json" beside it every second.
#ifndef WEIR_TOOLS_PAGE_PAGE_HTML_H_
#define WEIR_TOOLS_PAGE_PAGE_HTML_H_

#include <string_view>

namespace weir {

// Returns tools/page/page.html, in UTF-8. Valid until the process ends.
//
// Serve it as "text/html; charset=utf-8". It needs script-src and style-src 'unsafe-inline' and connect-src 'self', and
// nothing else.
std::string_view PageHtml();

}  // namespace weir

#endif  // WEIR_TOOLS_PAGE_PAGE_HTML_H_
