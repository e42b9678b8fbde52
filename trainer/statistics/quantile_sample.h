// A uniform sample of the values of a column, for its quantiles.
#ifndef WEIR_TRAINER_STATISTICS_QUANTILE_SAMPLE_H_
#define WEIR_TRAINER_STATISTICS_QUANTILE_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace weir {

// Keeps the kMost values with the smallest keys; with fewer values it keeps all, and quantiles are exact. Keys are
// hashes of the places of values, so that the sample is a function of the data, in whatever parts it was taken. A
// quantile of the sample is one of the column up to 0.2 % of the values (one standard deviation).
class QuantileSample {
 public:
  static constexpr size_t kMost = 65536;

  void Add(uint64_t key, double value) {
    if (key > limit_) return;
    kept_.emplace_back(key, value);
    if (kept_.size() >= 2 * kMost) Shrink();
  }
  void Add(const QuantileSample& other) {
    for (const auto& [key, value] : other.kept_) Add(key, value);
  }
  // Returns what is kept, by key.
  std::vector<std::pair<uint64_t, double>> Sorted() const;
  // Returns up to n - 1 boundaries, ascending, between n parts of about equally many values: value v is in the part
  // that the number of boundaries <= v says, and no part is empty. Empty: all values are equal, or there are none.
  std::vector<double> Boundaries(int n) const;

 private:
  void Shrink();

  std::vector<std::pair<uint64_t, double>> kept_;
  uint64_t limit_ = std::numeric_limits<uint64_t>::max();  // keys above it are never kept
};

}  // namespace weir

#endif  // WEIR_TRAINER_STATISTICS_QUANTILE_SAMPLE_H_
