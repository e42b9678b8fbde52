// ndcg, hit_rate, recall and mrr: what stands at the top of a group of examples, or of all items of a catalogue.
#include <cmath>
#include <cstdint>

#include "transpiler/metrics/rules.h"

namespace weir {
namespace {

constexpr char kNoPositives[] = "no group has an example with label 1";

// sums: figures of the items.
MetricRule RuleOfCatalogue(int k, std::function<double(int64_t)> gain) {
  return {.undefined = "no example has label 1",
          .one_number = false,
          .gain = std::move(gain),
          .last_rank = k,
          .figures = [](const SliceSums& sums) -> std::vector<Figure> {
            return {{"", Ratio(sums.sums[0].value(), sums.Examples())}};
          },
          .sums = 1};
}
double GainOfOne(int64_t) { return 1; }

MetricRule NdcgRule(const v1::Metric& metric) {
  const v1::Metric::Ndcg& ndcg = metric.ndcg();
  if (ndcg.has_catalogue()) {
    return RuleOfCatalogue(ndcg.k(), [](int64_t rank) { return 1 / std::log2(static_cast<double>(rank + 1)); });
  }
  return RuleOfGroups(ndcg.key(), "no group has a label above 0",
                      [k = ndcg.k(), exponential = ndcg.gain() == v1::Metric::Ndcg::EXPONENTIAL](
                          const ScoredGroup& group) { return Ndcg(group.examples, k, exponential); });
}
REGISTER_METRIC(ndcg, {.weighs_groups = false, .rule = NdcgRule});

// `figure`: of the first k of a group.
MetricRule TopRule(const v1::Metric::TopOfGroup& top, double (*figure)(absl::Span<const Scored>, int),
                   double (*gain)(int64_t)) {
  if (top.has_catalogue()) return RuleOfCatalogue(top.k(), gain);
  return RuleOfGroups(top.key(), kNoPositives,
                      [k = top.k(), figure](const ScoredGroup& group) { return figure(group.examples, k); });
}

MetricRule HitRateRule(const v1::Metric& metric) { return TopRule(metric.hit_rate(), HitRate, GainOfOne); }
REGISTER_METRIC(hit_rate, {.weighs_groups = false, .rule = HitRateRule});

MetricRule RecallRule(const v1::Metric& metric) { return TopRule(metric.recall(), RecallAt, GainOfOne); }
REGISTER_METRIC(recall, {.weighs_groups = false, .rule = RecallRule});

MetricRule MrrRule(const v1::Metric& metric) {
  return TopRule(metric.mrr(), ReciprocalRank, [](int64_t rank) { return 1 / static_cast<double>(rank); });
}
REGISTER_METRIC(mrr, {.weighs_groups = false, .rule = MrrRule});

}  // namespace
}  // namespace weir
