#include "trainer/data/statistics.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "framework/base/feature_id.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/features.h"
#include "trainer/data/lines_ahead.h"
#include "trainer/data/statistics_bytes.h"

namespace weir {
namespace {

constexpr uint32_t kContributionMagic = 0x31435357;  // "WSC1"

struct StreamStatistics {
  std::vector<Moments> moments;
  std::vector<std::pair<uint64_t, uint64_t>> counts;  // key, count; sorted by key
};

struct Pass {
  const DataSpec& spec;
  const DataSet& data;
  const LineParser& parser;
  const RowFilter& where;
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
                          .seed = pass.spec.seed,
                          .bad_line = pass.spec.config.bad_line(),
                          .where = &pass.where,
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
      if (pass.features.slots()[slot].drawn) {
        id += example.counts[slot];
        continue;
      }
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

}  // namespace

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
  ASSIGN_OR_RETURN(const RowFilter where,
                   RowFilter::Create(parser->columns(), train.where(), train.where_path(), PlainSettingErrors("")));
  ASSIGN_OR_RETURN(const Features features, Features::Create(spec, *parser));
  const int threads = std::min(streams.count, pool != nullptr ? pool->threads() + 1 : 1);
  Pass pass = {spec,         train, *parser, where, features, cancelled, LinesAhead::For(train, streams.count, threads),
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
  StatisticsWriter out(kContributionMagic);
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
    StatisticsReader in(contribution, kContributionMagic);
    for (size_t n = in.GetCount(16); n > 0; --n) {
      const uint64_t stream = in.Get<uint64_t>();
      std::vector<Moments> of_stream(in.GetCount(24));
      for (Moments& m : of_stream) m = in.GetMoments();
      if (!in.ok() || stream >= streams) return DamagedStatistics();
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
    if (!in.done() || !std::is_sorted(more.begin(), more.end())) return DamagedStatistics();
    AddCounts(more, &counts);
  }
  std::vector<LaneRange> present;
  for (size_t s = 0; s < streams; ++s) {
    if (!there[s]) return absl::DataLossError(absl::StrCat("data statistics: stream ", s, " is missing"));
    if (moments[s].size() != moments[0].size()) return DamagedStatistics();
    present.push_back({static_cast<int>(s), 1});
  }
  for (const LaneAdd& add : TreeAdds(present, static_cast<int>(streams))) {
    std::vector<Moments>& left = moments[static_cast<size_t>(add.left)];
    const std::vector<Moments>& right = moments[static_cast<size_t>(add.right)];
    for (size_t i = 0; i < left.size(); ++i) left[i].Add(right[i]);
  }
  if (!std::all_of(moments[0].begin(), moments[0].end(), [](const Moments& m) { return m.Plausible(); }))
    return DamagedStatistics();
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
