// Names of elements (ElementRun, framework/graph/op_registry.h): how they are put together, and common naming rules.
#ifndef WEIR_FRAMEWORK_GRAPH_ELEMENTS_H_
#define WEIR_FRAMEWORK_GRAPH_ELEMENTS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/string_views.h"
#include "framework/graph/op_registry.h"

namespace weir {
namespace internal {

inline void Append(ElementRun run, ElementAxis* axis) {
  if (run.count <= 0) return;
  if (!axis->empty() && axis->back().of == run.of && axis->back().first + axis->back().count == run.first) {
    axis->back().count += run.count;
  } else {
    axis->push_back(std::move(run));
  }
}

// Returns "of" for the only element of a run that begins at 0, so that names of slots and columns have no number.
inline std::string PartName(const ElementRun& run, int64_t k) {
  return run.first == 0 && run.count == 1 ? run.of : absl::StrCat(run.of, "[", run.first + k, "]");
}

inline ElementAxes OwnAxes(const v1::VarDesc& var) {
  ElementAxes axes;
  for (int d = 1; d < var.dims_size(); ++d) {
    axes.push_back({{.of = var.name(), .count = std::max<int64_t>(var.dims(d), 0)}});
  }
  return axes;
}

}  // namespace internal

// Returns the number of elements.
inline int64_t AxisSize(const ElementAxis& axis) {
  int64_t size = 0;
  for (const ElementRun& run : axis) size += run.count;
  return size;
}

// Returns the axis "<of>[0]" to "<of>[count - 1]".
inline ElementAxis AxisOf(std::string of, int64_t count) { return {{.of = std::move(of), .first = 0, .count = count}}; }

// Returns elements [begin, begin + count). Requires: they exist.
inline ElementAxis SliceAxis(const ElementAxis& axis, int64_t begin, int64_t count) {
  ElementAxis slice;
  int64_t at = 0;
  for (const ElementRun& run : axis) {
    const int64_t from = std::max(begin, at), to = std::min(begin + count, at + run.count);
    if (from < to) internal::Append({.of = run.of, .first = run.first + from - at, .count = to - from}, &slice);
    at += run.count;
  }
  return slice;
}

// Returns each element of `outer` with all of `inner`: the axis of both flattened, row-major.
inline ElementAxis FlattenAxes(const ElementAxis& outer, const ElementAxis& inner) {
  ElementAxis flat;
  for (const ElementRun& run : outer) {
    for (int64_t k = 0; k < run.count; ++k) {
      const std::string part = internal::PartName(run, k);
      for (const ElementRun& each : inner) {
        internal::Append({.of = absl::StrCat(part, "/", each.of), .first = each.first, .count = each.count}, &flat);
      }
    }
  }
  return flat;
}

// Returns axes [begin, end) as one; one element without a name if there are none.
inline ElementAxis FlattenAxes(absl::Span<const ElementAxis> axes) {
  if (axes.empty()) return AxisOf("", 1);
  ElementAxis flat = axes.back();
  for (size_t i = axes.size() - 1; i-- > 0;) flat = FlattenAxes(axes[i], flat);
  return flat;
}

// Returns the axis with `part` in front of each name.
inline ElementAxis PrefixAxis(std::string_view part, const ElementAxis& axis) {
  ElementAxis named = axis;
  for (ElementRun& run : named) run.of = absl::StrCat(Av(part), "/", run.of);
  return named;
}

// Returns the name of one element: "of" where it is the only one of its name, else "of[3]".
inline std::string ElementName(const ElementAxis& axis, int64_t index) {
  for (const ElementRun& run : axis) {
    if (index < run.count) return internal::PartName(run, index);
    index -= run.count;
  }
  return "";
}

// Rules: the output has the names of the input.
inline ElementRule SameElements(std::string input = "X", std::string output = "Out") {
  return [input = std::move(input), output = std::move(output)](ElementContext& ctx) {
    ctx.NameOutput(output, ctx.Names(input));
  };
}

// Elements are those of the output itself, known by their places: "logit[0]".
inline ElementRule OwnElements(std::string output = "Out") {
  return [output = std::move(output)](ElementContext& ctx) {
    ctx.NameOutput(output, internal::OwnAxes(ctx.Output(output)));
  };
}

// The output has the names of X; parameters `parameters` [last dim of X] those of its last axis.
inline ElementRule LastAxisElements(std::vector<std::string> parameters) {
  return [parameters = std::move(parameters)](ElementContext& ctx) {
    const ElementAxes& x = ctx.Names("X");
    if (!x.empty()) {
      for (const std::string& slot : parameters) ctx.NameParameter(slot, {x.back()});
    }
    ctx.NameOutput("Out", x);
  };
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_ELEMENTS_H_
