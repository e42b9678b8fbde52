// Statistics that a run takes from the checkpoints it starts from (JobConfig.start_from), so that inputs keep the
// meaning that its weights and rows were trained with.
#ifndef WEIR_TRAINER_DATA_INHERITED_STATISTICS_H_
#define WEIR_TRAINER_DATA_INHERITED_STATISTICS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/trainer.pb.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/data_statistics.h"

namespace weir {

// Not thread-safe.
class StatisticsHeritage {
 public:
  // `inherited`: Beginning.inherited; of what several have, the first counts. DataLoss if it cannot be read.
  static absl::StatusOr<StatisticsHeritage> Create(
      const DataSpec& spec, const google::protobuf::RepeatedPtrField<v1::InheritedStatistics>& inherited);

  // Names of what the job learns and none of them has: "dense.I3", "cat.C7". Empty: there is nothing to measure.
  const std::vector<std::string>& missing() const { return missing_; }
  // DataSpec.uncounted_slots for measuring the rest.
  const std::set<std::string>& uncounted_slots() const { return uncounted_; }
  // Returns the statistics of the job: what is inherited, and of the rest `measured`, of a spec with uncounted_slots().
  // Requires: `measured` is there if something is missing; else it may be null.
  DataStatistics Join(const DataStatistics* measured) const;

 private:
  StatisticsHeritage() = default;
  DataStatistics taken_;
  std::vector<bool> has_moments_, has_lesson_;
  std::set<std::string> uncounted_;
  std::vector<std::string> missing_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_INHERITED_STATISTICS_H_
