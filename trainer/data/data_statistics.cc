#include "trainer/data/data_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "trainer/statistics/statistics_bytes.h"

namespace weir {
namespace {

constexpr uint32_t kStatisticsMagic = 0x31545357;  // "WST1"
constexpr uint32_t kLearnedMagic = 0x32545357;     // "WST2": with what has been learned behind the rest

void PutLearned(const Learned::One& one, StatisticsWriter* out) {
  out->Put(static_cast<uint8_t>(one.kind));
  out->Put(static_cast<int32_t>(one.index));
  out->PutText(one.name);
  out->PutText(one.of);
  if (one.list != nullptr) {
    out->Put<uint64_t>(one.list->ids().size());
    for (const int64_t id : one.list->ids()) out->Put(id);
    out->Put<uint64_t>(one.list->weights().size());
    for (const double weight : one.list->weights()) out->Put(weight);
  } else if (one.kind == Lesson::kQuantiles) {
    out->Put<uint64_t>(one.boundaries.size());
    for (const double boundary : one.boundaries) out->Put(boundary);
  } else {
    out->Put<uint64_t>(one.classes.size());
    for (const std::string& text : one.classes) out->PutText(text);
  }
}

// Weights that a list may have: as many as ids, or none for a vocabulary; of a frequency, counts.
bool PlausibleWeights(const std::vector<double>& weights, size_t ids, Lesson::Kind kind) {
  if (ids == 0 || (weights.empty() ? kind != Lesson::kVocabulary : weights.size() != ids)) return false;
  return std::all_of(weights.begin(), weights.end(), [](double w) { return std::isfinite(w) && w > 0; });
}

// Reads what PutLearned wrote. Returns false if that cannot have been learned.
bool GetLearned(StatisticsReader* in, Learned::One* one) {
  const auto kind = in->Get<uint8_t>();
  if (kind > Lesson::kClasses) return false;
  one->kind = static_cast<Lesson::Kind>(kind);
  one->index = in->Get<int32_t>();
  one->name = in->GetText();
  one->of = in->GetText();
  if (one->kind == Lesson::kQuantiles) {
    one->boundaries.resize(in->GetCount(sizeof(double)));
    for (double& boundary : one->boundaries) boundary = in->Get<double>();
    return in->ok() && !one->boundaries.empty() &&
           std::adjacent_find(one->boundaries.begin(), one->boundaries.end(),
                              [](double a, double b) { return !(a < b); }) == one->boundaries.end();
  }
  if (one->kind == Lesson::kClasses) {
    one->classes.resize(in->GetCount(sizeof(uint64_t)));
    for (std::string& text : one->classes) text = in->GetText();
    return in->ok() &&
           std::adjacent_find(one->classes.begin(), one->classes.end(), std::greater_equal<>()) == one->classes.end();
  }
  std::vector<int64_t> ids(in->GetCount(sizeof(int64_t)));
  for (int64_t& id : ids) id = in->Get<int64_t>();
  std::vector<double> weights(in->GetCount(sizeof(double)));
  for (double& weight : weights) weight = in->Get<double>();
  if (!in->ok() || !PlausibleWeights(weights, ids.size(), one->kind)) return false;
  const size_t all = ids.size();
  auto list = std::make_shared<IdList>(std::move(ids), std::move(weights));
  if (list->different() != all) return false;
  one->list = std::move(list);
  return true;
}

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
  StatisticsWriter out(learned_.lessons.empty() ? kStatisticsMagic : kLearnedMagic);
  out.Put<uint64_t>(moments_.size());
  for (const Moments& m : moments_) out.PutMoments(m);
  out.Put(min_count_);
  out.Put<uint64_t>(kept_.size());
  for (const uint64_t key : kept_) out.Put(key);
  if (!learned_.lessons.empty()) {
    out.Put<uint64_t>(learned_.lessons.size());
    for (const Learned::One& one : learned_.lessons) PutLearned(one, &out);
  }
  return std::move(out).Finish();
}

absl::StatusOr<DataStatistics> DataStatistics::Parse(std::string_view bytes) {
  const bool with_learned = StatisticsMagic(bytes) == kLearnedMagic;
  StatisticsReader in(bytes, with_learned ? kLearnedMagic : kStatisticsMagic);
  DataStatistics statistics;
  statistics.moments_.resize(in.GetCount(24));
  for (Moments& m : statistics.moments_) m = in.GetMoments();
  statistics.min_count_ = in.Get<int64_t>();
  statistics.kept_.resize(in.GetCount(8));
  for (uint64_t& key : statistics.kept_) key = in.Get<uint64_t>();
  if (with_learned) {
    // A lesson is at least its kind, its index, two texts and a number of things.
    statistics.learned_.lessons.resize(in.GetCount(29));
    if (statistics.learned_.lessons.empty()) return DamagedStatistics();
    for (Learned::One& one : statistics.learned_.lessons) {
      if (!GetLearned(&in, &one)) return DamagedStatistics();
    }
  }
  if (!in.done() || !std::is_sorted(statistics.kept_.begin(), statistics.kept_.end())) return DamagedStatistics();
  statistics.BuildIndex();
  return statistics;
}

}  // namespace weir
