#include "framework/graph/elements.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/string_views.h"

namespace weir {
namespace {

void Append(ElementRun run, ElementAxis* axis) {
  if (run.count <= 0) return;
  if (!axis->empty() && axis->back().of == run.of && axis->back().first + axis->back().count == run.first) {
    axis->back().count += run.count;
  } else {
    axis->push_back(std::move(run));
  }
}

// Returns "of" for the only element of a run that begins at 0, so that names of slots and columns have no number.
std::string PartName(const ElementRun& run, int64_t k) {
  return run.first == 0 && run.count == 1 ? run.of : absl::StrCat(run.of, "[", run.first + k, "]");
}

ElementAxes OwnAxes(const v1::VarDesc& var) {
  ElementAxes axes;
  for (int d = 1; d < var.dims_size(); ++d) axes.push_back(AxisOf(var.name(), std::max<int64_t>(var.dims(d), 0)));
  return axes;
}

}  // namespace

int64_t AxisSize(const ElementAxis& axis) {
  int64_t size = 0;
  for (const ElementRun& run : axis) size += run.count;
  return size;
}

ElementAxis AxisOf(std::string of, int64_t count) { return {{.of = std::move(of), .first = 0, .count = count}}; }

ElementAxis SliceAxis(const ElementAxis& axis, int64_t begin, int64_t count) {
  ElementAxis slice;
  int64_t at = 0;
  for (const ElementRun& run : axis) {
    const int64_t from = std::max(begin, at), to = std::min(begin + count, at + run.count);
    if (from < to) Append({.of = run.of, .first = run.first + from - at, .count = to - from}, &slice);
    at += run.count;
  }
  return slice;
}

ElementAxis FlattenAxes(const ElementAxis& outer, const ElementAxis& inner) {
  ElementAxis flat;
  for (const ElementRun& run : outer) {
    for (int64_t k = 0; k < run.count; ++k) {
      const std::string part = PartName(run, k);
      for (const ElementRun& each : inner) {
        Append({.of = absl::StrCat(part, "/", each.of), .first = each.first, .count = each.count}, &flat);
      }
    }
  }
  return flat;
}

ElementAxis FlattenAxes(absl::Span<const ElementAxis> axes) {
  if (axes.empty()) return AxisOf("", 1);
  ElementAxis flat = axes.back();
  for (size_t i = axes.size() - 1; i-- > 0;) flat = FlattenAxes(axes[i], flat);
  return flat;
}

ElementAxis PrefixAxis(std::string_view part, const ElementAxis& axis) {
  ElementAxis named = axis;
  for (ElementRun& run : named) run.of = absl::StrCat(Av(part), "/", run.of);
  return named;
}

std::string ElementName(const ElementAxis& axis, int64_t index) {
  for (const ElementRun& run : axis) {
    if (index < run.count) return PartName(run, index);
    index -= run.count;
  }
  return "";
}

ElementRule SameElements(std::string input, std::string output) {
  return [input = std::move(input), output = std::move(output)](ElementContext& ctx) {
    ctx.NameOutput(output, ctx.Names(input));
  };
}

ElementRule OwnElements(std::string output) {
  return [output = std::move(output)](ElementContext& ctx) { ctx.NameOutput(output, OwnAxes(ctx.Output(output))); };
}

ElementRule LastAxisElements(std::vector<std::string> parameters) {
  return [parameters = std::move(parameters)](ElementContext& ctx) {
    const ElementAxes& x = ctx.Names("X");
    if (!x.empty()) {
      for (const std::string& slot : parameters) ctx.NameParameter(slot, {x.back()});
    }
    ctx.NameOutput("Out", x);
  };
}

}  // namespace weir
