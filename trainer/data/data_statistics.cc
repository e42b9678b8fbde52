#include "trainer/data/data_statistics.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "trainer/data/statistics_bytes.h"

namespace weir {
namespace {

constexpr uint32_t kStatisticsMagic = 0x31545357;  // "WST1"

}  // namespace

bool DataStatistics::Keeps(uint64_t key) const {
  if (min_count_ <= 1) return true;
  for (size_t i = index_[key >> index_shift_]; i < kept_.size() && kept_[i] <= key; ++i) {
    if (kept_[i] == key) return true;
  }
  return false;
}

void DataStatistics::BuildIndex() {
  int bits = 1;
  while ((size_t{1} << bits) < kept_.size() && bits < 31) ++bits;
  index_shift_ = 64 - bits;
  index_.resize(size_t{1} << bits);
  size_t at = 0;
  for (size_t top = 0; top < index_.size(); ++top) {
    while (at < kept_.size() && kept_[at] >> index_shift_ < top) ++at;
    index_[top] = static_cast<uint32_t>(at);
  }
}

std::string DataStatistics::Serialize() const {
  StatisticsWriter out(kStatisticsMagic);
  out.Put<uint64_t>(moments_.size());
  for (const Moments& m : moments_) out.PutMoments(m);
  out.Put(min_count_);
  out.Put<uint64_t>(kept_.size());
  for (const uint64_t key : kept_) out.Put(key);
  return std::move(out).Finish();
}

absl::StatusOr<DataStatistics> DataStatistics::Parse(std::string_view bytes) {
  StatisticsReader in(bytes, kStatisticsMagic);
  DataStatistics statistics;
  statistics.moments_.resize(in.GetCount(24));
  for (Moments& m : statistics.moments_) m = in.GetMoments();
  statistics.min_count_ = in.Get<int64_t>();
  statistics.kept_.resize(in.GetCount(8));
  for (uint64_t& key : statistics.kept_) key = in.Get<uint64_t>();
  if (!in.done() || !std::is_sorted(statistics.kept_.begin(), statistics.kept_.end())) return DamagedStatistics();
  statistics.BuildIndex();
  return statistics;
}

}  // namespace weir
