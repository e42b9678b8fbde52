#include "trainer/data/statistics.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "framework/base/feature_id.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/features.h"
#include "trainer/data/lines_ahead.h"

namespace weir {
namespace {

constexpr uint32_t kContributionMagic = 0x31435357;  // "WSC1"
constexpr uint32_t kStatisticsMagic = 0x31545357;    // "WST1"

// Little-endian values one after the other, and a checksum over all of them at the end.
class Writer {
 public:
  template <typename T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void PutVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void PutMoments(const Moments& m) {
    Put(m.count);
    Put(m.mean);
    Put(m.m2);
  }
  std::string Finish() && {
    Put(StableHash(bytes_));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Whether a column of floats can have such moments. Sums of a few thousand of them stay far from the ends of their
// types.
bool CanBe(const Moments& m) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  constexpr double kMostExamples = int64_t{1} << 48;
  return m.count >= 0 && static_cast<double>(m.count) <= kMostExamples && std::abs(m.mean) <= kLargest && m.m2 >= 0 &&
         m.m2 <= 4 * kLargest * kLargest * kMostExamples;
}

class Reader {
 public:
  // Any wrong byte makes ok() false; the values read are then zeros.
  Reader(std::string_view bytes, uint32_t magic) : rest_(bytes) {
    uint64_t sum = 0;
    ok_ = bytes.size() >= sizeof(sum);
    if (!ok_) return;
    rest_ = bytes.substr(0, bytes.size() - sizeof(sum));
    std::memcpy(&sum, bytes.data() + rest_.size(), sizeof(sum));
    ok_ = sum == StableHash(rest_) && Get<uint32_t>() == magic;
  }
  template <typename T>
  T Get() {
    T value{};
    ok_ = ok_ && rest_.size() >= sizeof(T);
    if (!ok_) return value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  uint64_t GetVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = Get<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  Moments GetMoments() {
    Moments m;
    m.count = Get<int64_t>();
    m.mean = Get<double>();
    m.m2 = Get<double>();
    ok_ = ok_ && CanBe(m);
    return ok_ ? m : Moments();
  }
  // A number of things of at least `size` bytes each that follow; 0 when so many cannot follow.
  size_t GetCount(size_t size) {
    const uint64_t n = Get<uint64_t>();
    ok_ = ok_ && n <= rest_.size() / size;
    return ok_ ? static_cast<size_t>(n) : 0;
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = false;
};

struct StreamStatistics {
  std::vector<Moments> moments;
  std::vector<std::pair<uint64_t, uint64_t>> counts;  // key, count; sorted by key
};

struct Pass {
  const DataSpec& spec;
  const DataSet& data;
  const LineParser& parser;
  const Features& features;
  const std::function<bool()>& cancelled;
  const std::unique_ptr<LinesAhead> ahead;
  const int first_stream;
  std::atomic<int64_t> skipped = 0;  // a counter that is read when all streams are through
};

absl::StatusOr<StreamStatistics> CollectStream(Pass& pass, int stream) {
  ExampleStream examples({.data = &pass.data,
                          .parser = &pass.parser,
                          .stream = stream,
                          .streams = pass.spec.streams(),
                          .bad_line = pass.spec.config.bad_line(),
                          .required = pass.features.required(),
                          .label_ranges = pass.features.label_ranges(),
                          .skipped = &pass.skipped,
                          .ahead = pass.ahead.get(),
                          .lane = stream - pass.first_stream});
  StreamStatistics result;
  std::vector<size_t> standardized;
  for (size_t i = 0; i < pass.features.floats().size(); ++i) {
    if (pass.features.floats()[i].transform == v1::DenseTransform::STANDARDIZE) standardized.push_back(i);
  }
  result.moments.resize(pass.features.floats().size());
  const bool counting = pass.spec.config.ids().min_count() > 1;
  // Its order is never looked at.
  absl::flat_hash_map<uint64_t, uint64_t> counts;
  Example example;
  ExampleStream::Prepare(pass.parser, &example);
  InputPosition position;
  for (int64_t n = 0; examples.Next(&example, &position); ++n) {
    if (n % 4096 == 0 && pass.cancelled && pass.cancelled())
      return absl::CancelledError("the data statistics were cancelled");
    for (const size_t i : standardized) {
      if (!std::isnan(example.floats[i])) result.moments[i].Add(example.floats[i]);
    }
    if (!counting) continue;
    size_t id = 0;
    for (size_t slot = 0; slot < example.counts.size(); ++slot) {
      for (uint16_t i = 0; i < example.counts[slot]; ++i, ++id) {
        ++counts[static_cast<uint64_t>(SaltId(pass.features.slots()[slot].salt, example.ids[id]))];
      }
    }
  }
  RETURN_IF_ERROR(examples.status());
  result.counts.assign(counts.begin(), counts.end());
  std::sort(result.counts.begin(), result.counts.end());
  return result;
}

// Adds counts of equal keys; both sorted.
void AddCounts(const std::vector<std::pair<uint64_t, uint64_t>>& other,
               std::vector<std::pair<uint64_t, uint64_t>>* counts) {
  std::vector<std::pair<uint64_t, uint64_t>> sum;
  sum.reserve(counts->size() + other.size());
  std::merge(counts->begin(), counts->end(), other.begin(), other.end(), std::back_inserter(sum));
  size_t out = 0;
  for (const auto& entry : sum) {
    if (out > 0 && sum[out - 1].first == entry.first) {
      sum[out - 1].second += entry.second;
    } else {
      sum[out++] = entry;
    }
  }
  sum.resize(out);
  *counts = std::move(sum);
}

absl::Status Damaged() { return absl::DataLossError("data statistics: the bytes are cut or damaged"); }

}  // namespace

void Moments::Add(double x) {
  ++count;
  const double distance = x - mean;
  mean += distance / static_cast<double>(count);
  m2 += distance * (x - mean);
}

void Moments::Add(const Moments& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  const double a = static_cast<double>(count);
  const double b = static_cast<double>(other.count);
  const double distance = other.mean - mean;
  mean += distance * (b / (a + b));
  m2 += other.m2 + distance * distance * (a * b / (a + b));
  count += other.count;
}

double Moments::Deviation() const {
  const double deviation = count == 0 ? 0 : std::sqrt(m2 / static_cast<double>(count));
  return deviation > 0 ? deviation : 1;
}

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
  Writer out;
  out.Put(kStatisticsMagic);
  out.Put<uint64_t>(moments_.size());
  for (const Moments& m : moments_) out.PutMoments(m);
  out.Put(min_count_);
  out.Put<uint64_t>(kept_.size());
  for (const uint64_t key : kept_) out.Put(key);
  return std::move(out).Finish();
}

absl::StatusOr<DataStatistics> DataStatistics::Parse(std::string_view bytes) {
  Reader in(bytes, kStatisticsMagic);
  DataStatistics statistics;
  statistics.moments_.resize(in.GetCount(24));
  for (Moments& m : statistics.moments_) m = in.GetMoments();
  statistics.min_count_ = in.Get<int64_t>();
  statistics.kept_.resize(in.GetCount(8));
  for (uint64_t& key : statistics.kept_) key = in.Get<uint64_t>();
  if (!in.done() || !std::is_sorted(statistics.kept_.begin(), statistics.kept_.end())) return Damaged();
  statistics.BuildIndex();
  return statistics;
}

bool NeedsStatistics(const DataSpec& spec) {
  if (spec.config.ids().min_count() > 1) return true;
  if (spec.config.dense().transform() == v1::DenseTransform::STANDARDIZE) return true;
  for (const auto& column : spec.config.dense().column()) {
    if (column.transform() == v1::DenseTransform::STANDARDIZE) return true;
  }
  return false;
}

absl::StatusOr<std::string> CollectStatistics(const DataSpec& spec, const DataSet& train, LaneRange streams,
                                              ThreadPool* pool, const std::function<bool()>& cancelled) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(spec.config));
  ASSIGN_OR_RETURN(const Features features, Features::Create(spec, *parser));
  const int threads = std::min(streams.count, pool != nullptr ? pool->threads() + 1 : 1);
  Pass pass = {spec,         train, *parser, features, cancelled, LinesAhead::For(train, streams.count, threads),
               streams.begin};
  std::vector<absl::StatusOr<StreamStatistics>> collected(static_cast<size_t>(streams.count),
                                                          absl::UnknownError("not collected"));
  const auto collect = [&](int64_t i) {
    collected[static_cast<size_t>(i)] = CollectStream(pass, streams.begin + static_cast<int>(i));
  };
  if (pool != nullptr) {
    pool->ParallelFor(streams.count, collect);
  } else {
    for (int64_t i = 0; i < streams.count; ++i) collect(i);
  }
  if (const int64_t skipped = pass.skipped.load(); skipped > 0) {
    LOG(WARNING) << skipped << " lines did not parse and are left out of the data statistics (data.bad_line: SKIP)";
  }
  Writer out;
  out.Put(kContributionMagic);
  out.Put<uint64_t>(static_cast<uint64_t>(streams.count));
  std::vector<std::pair<uint64_t, uint64_t>> counts;
  for (int i = 0; i < streams.count; ++i) {
    const absl::StatusOr<StreamStatistics>& stream = collected[static_cast<size_t>(i)];
    RETURN_IF_ERROR(stream.status());
    out.Put<uint64_t>(static_cast<uint64_t>(streams.begin + i));
    out.Put<uint64_t>(stream->moments.size());
    for (const Moments& m : stream->moments) out.PutMoments(m);
    AddCounts(stream->counts, &counts);
  }
  // More than min_count of one contribution cannot change the verdict.
  const uint64_t enough = static_cast<uint64_t>(std::max<int64_t>(spec.config.ids().min_count(), 1));
  out.Put<uint64_t>(counts.size());
  uint64_t last = 0;
  for (const auto& [key, count] : counts) {
    out.PutVarint(key - last);
    out.PutVarint(std::min(count, enough));
    last = key;
  }
  return std::move(out).Finish();
}

absl::StatusOr<DataStatistics> MergeStatistics(const DataSpec& spec, const std::vector<std::string>& contributions) {
  const size_t streams = static_cast<size_t>(spec.streams());
  std::vector<std::vector<Moments>> moments(streams);
  std::vector<bool> there(streams, false);
  std::vector<std::pair<uint64_t, uint64_t>> counts;
  for (const std::string& contribution : contributions) {
    Reader in(contribution, kContributionMagic);
    for (size_t n = in.GetCount(16); n > 0; --n) {
      const uint64_t stream = in.Get<uint64_t>();
      std::vector<Moments> of_stream(in.GetCount(24));
      for (Moments& m : of_stream) m = in.GetMoments();
      if (!in.ok() || stream >= streams) return Damaged();
      if (there[stream])
        return absl::DataLossError(absl::StrCat("data statistics: stream ", stream, " is there twice"));
      there[stream] = true;
      moments[stream] = std::move(of_stream);
    }
    std::vector<std::pair<uint64_t, uint64_t>> more(in.GetCount(2));
    uint64_t last = 0;
    for (auto& [key, count] : more) {
      key = last += in.GetVarint();
      count = in.GetVarint();
    }
    if (!in.done() || !std::is_sorted(more.begin(), more.end())) return Damaged();
    AddCounts(more, &counts);
  }
  std::vector<LaneRange> present;
  for (size_t s = 0; s < streams; ++s) {
    if (!there[s]) return absl::DataLossError(absl::StrCat("data statistics: stream ", s, " is missing"));
    if (moments[s].size() != moments[0].size()) return Damaged();
    present.push_back({static_cast<int>(s), 1});
  }
  for (const LaneAdd& add : TreeAdds(present, static_cast<int>(streams))) {
    std::vector<Moments>& left = moments[static_cast<size_t>(add.left)];
    const std::vector<Moments>& right = moments[static_cast<size_t>(add.right)];
    for (size_t i = 0; i < left.size(); ++i) left[i].Add(right[i]);
  }
  if (!std::all_of(moments[0].begin(), moments[0].end(), CanBe)) return Damaged();
  DataStatistics merged;
  merged.moments_ = std::move(moments[0]);
  merged.min_count_ = spec.config.ids().min_count();
  for (const auto& [key, count] : counts) {
    if (count >= static_cast<uint64_t>(std::max<int64_t>(merged.min_count_, 1))) merged.kept_.push_back(key);
  }
  merged.BuildIndex();
  return merged;
}

}  // namespace weir
