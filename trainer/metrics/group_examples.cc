#include "trainer/metrics/group_examples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

namespace weir {
namespace {

// Calls body(begin, end) for each run of entries that `same` says are alike.
template <typename Entries, typename Same, typename Body>
void ForRuns(const Entries& entries, size_t begin, size_t end, const Same& same, const Body& body) {
  while (begin < end) {
    size_t next = begin + 1;
    while (next < end && same(entries[begin], entries[next])) ++next;
    body(begin, next);
    begin = next;
  }
}

// Returns whether the message has as many numbers of each kind as its lists of groups and of examples say.
bool HasEqualSizes(const v1::EvaluationPart::Groups& groups, bool weighted) {
  return groups.key_size() == groups.slice_size() && groups.key_size() == groups.examples_size() &&
         groups.score_size() == groups.label_size() && groups.weight_size() == (weighted ? groups.score_size() : 0);
}

}  // namespace

GroupExamples::GroupExamples(bool weighted) {
  if (weighted) entries_.emplace<std::vector<WeightedEntry>>();
}

void GroupExamples::Add(uint64_t slice, uint64_t key, const Scored& scored, float weight) {
  const Entry entry = {slice, key, PlaceOf(scored)};
  if (auto* const plain = std::get_if<std::vector<Entry>>(&entries_); plain != nullptr) {
    plain->push_back(entry);
  } else {
    std::get<std::vector<WeightedEntry>>(entries_).push_back({entry, weight});
  }
  sorted_ = false;
}

void GroupExamples::Sort() {
  if (sorted_) return;
  std::visit([](auto& entries) { std::sort(entries.begin(), entries.end()); }, entries_);
  sorted_ = true;
}

void GroupExamples::Serialize(v1::EvaluationPart::Groups* out) {
  Sort();
  const auto same = [](const Entry& x, const Entry& y) { return x.slice == y.slice && x.key == y.key; };
  const auto write = [&](const auto& entries) {
    ForRuns(entries, 0, entries.size(), same, [&](size_t begin, size_t end) {
      out->add_slice(entries[begin].slice);
      out->add_key(entries[begin].key);
      out->add_examples(static_cast<int64_t>(end - begin));
    });
    for (const auto& entry : entries) {
      const Scored scored = AtPlace(entry.place);
      out->add_score(scored.score);
      out->add_label(scored.label);
      if constexpr (std::is_same_v<decltype(entry), const WeightedEntry&>) out->add_weight(entry.weight);
    }
  };
  std::visit(write, entries_);
}

template <typename E>
bool GroupExamples::MergeInto(const v1::EvaluationPart::Groups& groups, std::vector<E>* entries) {
  constexpr bool kWeighted = std::is_same_v<E, WeightedEntry>;
  if (!HasEqualSizes(groups, kWeighted)) return false;
  const auto mine = static_cast<std::ptrdiff_t>(entries->size());
  int at = 0;
  for (int g = 0; g < groups.key_size(); ++g) {
    if (groups.examples(g) < 1 || groups.examples(g) > groups.score_size() - at) return false;
    for (const int end = at + static_cast<int>(groups.examples(g)); at < end; ++at) {
      const Entry entry = {groups.slice(g), groups.key(g), PlaceOf({groups.score(at), groups.label(at)})};
      if constexpr (kWeighted) {
        const float weight = groups.weight(at);
        if (!(weight > 0) || !std::isfinite(weight)) return false;
        entries->push_back({entry, weight});
      } else {
        entries->push_back(entry);
      }
    }
  }
  const auto theirs = entries->begin() + mine;
  if (at != groups.score_size() || !std::is_sorted(theirs, entries->end())) return false;
  std::inplace_merge(entries->begin(), theirs, entries->end());
  return true;
}

bool GroupExamples::Merge(const v1::EvaluationPart::Groups& groups) {
  Sort();
  return std::visit([&](auto& entries) { return MergeInto(groups, &entries); }, entries_);
}

template <typename E>
GroupExamples::SliceFigure GroupExamples::FigureOf(const MetricRule& rule, const std::vector<E>& entries, size_t begin,
                                                   size_t end) {
  SliceFigure of_slice = {.slice = entries[begin].slice};
  std::vector<Scored> examples;
  std::vector<float> weights;
  double sum = 0, group_weights = 0;
  const auto same_key = [](const Entry& x, const Entry& y) { return x.key == y.key; };
  ForRuns(entries, begin, end, same_key, [&](size_t first, size_t last) {
    examples.clear();
    weights.clear();
    for (size_t i = first; i < last; ++i) {
      examples.push_back(AtPlace(entries[i].place));
      if constexpr (std::is_same_v<E, WeightedEntry>) weights.push_back(entries[i].weight);
    }
    const ScoredGroup group = {examples, weights};
    of_slice.examples += group.Weight();
    const double figure = rule.of_group(group);
    if (std::isnan(figure)) return;
    const double weight = rule.group_weight(group);
    sum += weight * figure;
    group_weights += weight;
  });
  of_slice.value = group_weights > 0 ? sum / group_weights : std::numeric_limits<double>::quiet_NaN();
  return of_slice;
}

std::vector<GroupExamples::SliceFigure> GroupExamples::Figures(const MetricRule& rule) {
  Sort();
  std::vector<SliceFigure> figures;
  const auto same_slice = [](const Entry& x, const Entry& y) { return x.slice == y.slice; };
  const auto make = [&](const auto& entries) {
    ForRuns(entries, 0, entries.size(), same_slice,
            [&](size_t begin, size_t end) { figures.push_back(FigureOf(rule, entries, begin, end)); });
  };
  std::visit(make, entries_);
  return figures;
}

}  // namespace weir
