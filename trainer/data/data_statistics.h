// Statistics of float columns and ids that the transforms of examples use, and what derived variables have learned.
// trainer/data/statistics.h obtains them.
#ifndef WEIR_TRAINER_DATA_DATA_STATISTICS_H_
#define WEIR_TRAINER_DATA_DATA_STATISTICS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/formats/learned.h"
#include "trainer/data/data_spec.h"
#include "trainer/statistics/moments.h"

namespace weir {

// Immutable; thread-safe.
class DataStatistics {
 public:
  // Moments by position among all float columns side by side. Empty if the job standardises nothing.
  const std::vector<Moments>& moments() const { return moments_; }
  // Smallest number of occurrences that keeps an id; 0: no dictionary, every id is kept.
  int64_t min_count() const { return min_count_; }
  // Number of distinct values seen at least min_count times.
  int64_t kept() const { return static_cast<int64_t>(kept_.size()); }
  // Returns what the job's derived variables and columns of classes have learned (framework/formats/learned.h).
  const Learned& learned() const { return learned_; }
  // Returns true if the id is kept. `key` is SaltId(salt of the slot, raw id), for shared slots too.
  bool Keeps(uint64_t key) const;

  std::string Serialize() const;
  // DataLoss if the bytes are not what Serialize wrote.
  static absl::StatusOr<DataStatistics> Parse(std::string_view bytes);

 private:
  friend class StatisticsHeritage;
  friend absl::StatusOr<DataStatistics> MergeStatistics(const DataSpec&, const std::vector<std::string>&);
  void BuildIndex();

  std::vector<Moments> moments_;
  Learned learned_;
  int64_t min_count_ = 0;
  std::vector<uint64_t> kept_;  // ascending
  // First position in kept_ of keys by their top bits. Keys are mixed, so a run is about one key long.
  std::vector<uint32_t> index_;
  int index_shift_ = 63;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_DATA_STATISTICS_H_
