// Names of elements (ElementRun, framework/graph/op_registry.h): how they are put together, and common naming rules.
#ifndef WEIR_FRAMEWORK_GRAPH_ELEMENTS_H_
#define WEIR_FRAMEWORK_GRAPH_ELEMENTS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "framework/graph/op_registry.h"

namespace weir {

// Returns the number of elements.
int64_t AxisSize(const ElementAxis& axis);
// Returns the axis "<of>[0]" to "<of>[count - 1]".
ElementAxis AxisOf(std::string of, int64_t count);
// Returns elements [begin, begin + count). Requires: they exist.
ElementAxis SliceAxis(const ElementAxis& axis, int64_t begin, int64_t count);
// Returns each element of `outer` with all of `inner`: the axis of both flattened, row-major.
ElementAxis FlattenAxes(const ElementAxis& outer, const ElementAxis& inner);
// Returns axes [begin, end) as one; one element without a name if there are none.
ElementAxis FlattenAxes(absl::Span<const ElementAxis> axes);
// Returns the axis with `part` in front of each name.
ElementAxis PrefixAxis(std::string_view part, const ElementAxis& axis);
// Returns the name of one element: "of" where it is the only one of its name, else "of[3]".
std::string ElementName(const ElementAxis& axis, int64_t index);

// Rules: the output has the names of the input.
ElementRule SameElements(std::string input = "X", std::string output = "Out");
// Elements are those of the output itself, known by their places: "logit[0]".
ElementRule OwnElements(std::string output = "Out");
// The output has the names of X; parameters `parameters` [last dim of X] those of its last axis.
ElementRule LastAxisElements(std::vector<std::string> parameters);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_ELEMENTS_H_
