// Style of the page of an explanation.
#ifndef WEIR_TRANSPILER_EXPLAIN_EXPLAIN_CSS_H_
#define WEIR_TRANSPILER_EXPLAIN_EXPLAIN_CSS_H_

#include <string_view>

namespace weir {

// Returns transpiler/explain/explain.css. Valid until the process ends.
std::string_view ExplainCss();

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_EXPLAIN_CSS_H_
