// Statistics from one pass over the training files: mean and deviation of float columns, and the id values that occur
// at least min_count times. The bits are equal for any number of trainers: moments are taken per stream in double and
// in file order, and added in the lane tree; counts are integers.
//
//   if (NeedsStatistics(spec.config)) {
//     every trainer:  mine = CollectStatistics(spec, train, spec.StreamsOf(id), pool)   // bytes
//     all = exchange(mine)
//     every trainer:  statistics = MergeStatistics(spec, all)
//   }
//
// A checkpoint stores them as Serialize() returns them; Parse() reads them back.
#ifndef WEIR_TRAINER_DATA_STATISTICS_H_
#define WEIR_TRAINER_DATA_STATISTICS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "formats/line_parser.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/lane_tree.h"
#include "trainer/data/data_set.h"
#include "trainer/data/data_spec.h"

namespace weir {

// Count, mean and sum of squared distances from the mean of the values present.
struct Moments {
  int64_t count = 0;
  double mean = 0;
  double m2 = 0;

  void Add(double x);
  // Adds the values of `other` behind these: not commutative in bits.
  void Add(const Moments& other);
  // Returns sqrt(m2 / count); 1 if that is 0, so that a constant column becomes 0.
  double Deviation() const;
};

// Immutable; thread-safe.
class DataStatistics {
 public:
  // Moments by position among all float columns side by side. Empty if the job standardises nothing.
  const std::vector<Moments>& moments() const { return moments_; }
  // Smallest number of occurrences that keeps an id; 0: no dictionary, every id is kept.
  int64_t min_count() const { return min_count_; }
  // Number of distinct values seen at least min_count times.
  int64_t kept() const { return static_cast<int64_t>(kept_.size()); }
  // Returns true if the id is kept. `key` is SaltId(salt of the slot, raw id), for shared slots too.
  bool Keeps(uint64_t key) const;

  std::string Serialize() const;
  // DataLoss if the bytes are not what Serialize wrote.
  static absl::StatusOr<DataStatistics> Parse(std::string_view bytes);

 private:
  friend absl::StatusOr<DataStatistics> MergeStatistics(const DataSpec&, const std::vector<std::string>&);
  void BuildIndex();

  std::vector<Moments> moments_;
  int64_t min_count_ = 0;
  std::vector<uint64_t> kept_;  // ascending
  // First position in kept_ of keys by their top bits. Keys are mixed, so a run is about one key long.
  std::vector<uint32_t> index_;
  int index_shift_ = 63;
};

// Returns true if any column is standardised or min_count is above 1.
bool NeedsStatistics(const DataSpec& spec);

// Returns this trainer's contribution, from its streams. Streams run in parallel on `pool` (borrowed for the call; may
// be null). `cancelled` (may be empty) is called now and then; true ends the pass with Cancelled. Errors as
// LaneReader::Next.
absl::StatusOr<std::string> CollectStatistics(const DataSpec& spec, const DataSet& train, LaneRange streams,
                                              ThreadPool* pool, const std::function<bool()>& cancelled = {});

// Merges the contributions of all trainers, in any order. A pure function. DataLoss: bytes that no trainer wrote; a
// stream that is there twice or not at all.
absl::StatusOr<DataStatistics> MergeStatistics(const DataSpec& spec, const std::vector<std::string>& contributions);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_STATISTICS_H_
