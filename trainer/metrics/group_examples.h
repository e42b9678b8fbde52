// Examples by group, which several metrics of an evaluation share.
#ifndef WEIR_TRAINER_METRICS_GROUP_EXAMPLES_H_
#define WEIR_TRAINER_METRICS_GROUP_EXAMPLES_H_

#include <compare>
#include <cstdint>
#include <variant>
#include <vector>

#include "proto/evaluation.pb.h"
#include "transpiler/metrics/ranking.h"
#include "transpiler/metrics/rules.h"

namespace weir {

// Keeps 24 bytes of each example, 32 of each weighted one. Not thread-safe.
class GroupExamples {
 public:
  explicit GroupExamples(bool weighted);

  // `weight`: finite and above 0; 1 unless the examples are weighted.
  void Add(uint64_t slice, uint64_t key, const Scored& scored, float weight);
  // Writes the examples, sorted.
  void Serialize(v1::EvaluationPart::Groups* out);
  // Adds the examples of another. Returns false if the message is not one of Serialize, with weights if these have
  // some; *this is then unusable.
  bool Merge(const v1::EvaluationPart::Groups& groups);

  struct SliceFigure {
    uint64_t slice = 0;
    double examples = 0;  // their number, or the sum of their weights
    double value = 0;     // weighted mean over the groups that have a figure; NaN if none has
  };
  // Returns the figures of a metric of groups, ascending by slice.
  std::vector<SliceFigure> Figures(const MetricRule& rule);

 private:
  // An example: sorted by these numbers, groups and their orders follow each other.
  struct Entry {
    uint64_t slice = 0, key = 0;
    uint64_t place = 0;  // PlaceOf
    auto operator<=>(const Entry&) const = default;
  };
  struct WeightedEntry : Entry {
    float weight = 1;
    auto operator<=>(const WeightedEntry&) const = default;
  };
  template <typename E>
  static bool MergeInto(const v1::EvaluationPart::Groups& groups, std::vector<E>* entries);
  template <typename E>
  static SliceFigure FigureOf(const MetricRule& rule, const std::vector<E>& entries, size_t begin, size_t end);
  void Sort();

  std::variant<std::vector<Entry>, std::vector<WeightedEntry>> entries_;
  bool sorted_ = true;
};

}  // namespace weir

#endif  // WEIR_TRAINER_METRICS_GROUP_EXAMPLES_H_
