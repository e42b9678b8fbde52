#include "trainer/metrics/metric_result.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weir {
namespace {

const Figure* FindFigure(const std::vector<Figure>& figures, std::string_view name) {
  const auto found =
      std::find_if(figures.begin(), figures.end(), [&](const Figure& figure) { return figure.name == name; });
  return found == figures.end() ? nullptr : &*found;
}

}  // namespace

double MetricResult::Measure(std::string_view name) const {
  const Figure* const measure = FindFigure(measures, name);
  return measure == nullptr ? std::numeric_limits<double>::quiet_NaN() : measure->value;
}

std::vector<Figure> MetricResult::All() const {
  std::vector<Figure> all;
  for (const Figure& measure : measures) {
    if (!HasFigure(measure.name)) all.push_back(measure);
  }
  all.insert(all.end(), figures.begin(), figures.end());
  return all;
}

const char* MetricResult::DefaultFigure() const { return FindFigure(measures, "auc") != nullptr ? "auc" : "loss"; }

std::string MetricResult::ToString() const {
  if (samples == 0) return "(loss is undefined: there are no examples)";
  std::vector<std::string> texts, notes;
  for (const Figure& figure : All()) {
    if (std::isnan(figure.value) && figure.name != "loss") {
      notes.push_back(absl::StrCat(" (", figure.name, " is undefined: ", figure.undefined, ")"));
      continue;
    }
    texts.push_back(FigureText(figure));
    if (figure.error.has_value()) texts.push_back(absl::StrFormat("%s_error=%.1e", figure.name, *figure.error));
  }
  return absl::StrCat(absl::StrJoin(texts, " "), absl::StrJoin(notes, ""));
}

std::optional<double> MetricResult::RankBy(std::string_view name) const {
  if (samples == 0) return std::nullopt;
  const std::vector<Figure> all = All();
  const Figure* const figure = FindFigure(all, name.empty() ? DefaultFigure() : name);
  if (figure == nullptr || !std::isfinite(figure->value)) return std::nullopt;
  return figure->lower_is_better ? -figure->value : figure->value;
}

bool MetricResult::HasFigure(std::string_view name) const { return FindFigure(figures, name) != nullptr; }

}  // namespace weir
