#include "trainer/data/statistics.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/feature_id.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/derived.h"
#include "framework/formats/learned.h"
#include "glog/logging.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/features.h"
#include "trainer/data/records_ahead.h"
#include "trainer/statistics/quantile_sample.h"
#include "trainer/statistics/statistics_bytes.h"

namespace weir {
namespace {

constexpr uint32_t kContributionMagic = 0x31435357;  // "WSC1"
constexpr uint32_t kWithLessons = 0x32435357;        // "WSC2": with what was found for lessons behind the rest
constexpr size_t kMostClasses = 65536;               // of one column

using Counts = std::vector<std::pair<uint64_t, uint64_t>>;  // key, count; sorted by key

// Raw ids as keys that have the same order.
constexpr uint64_t kSign = uint64_t{1} << 63;
uint64_t KeyOf(int64_t id) { return static_cast<uint64_t>(id) ^ kSign; }
int64_t IdOf(uint64_t key) { return static_cast<int64_t>(key ^ kSign); }

// Holds what was found in data for a lesson.
struct Found {
  Counts counts;                  // of KeyOf(id), for lists
  QuantileSample sample;          // for quantiles
  std::set<std::string> classes;  // for classes
};

struct StreamStatistics {
  std::vector<Moments> moments;
  std::vector<Found> lessons;  // without counts
};

// A lesson that takes data, with the place of its input.
struct Task {
  Lesson lesson;
  ExampleInput of;
};

struct Pass {
  const DataSpec& spec;
  const DataSet& data;
  const LineParser& parser;
  const RowFilter& where;
  const Features& features;
  const std::function<bool()>& cancelled;
  const std::unique_ptr<RecordsAhead> ahead;
  const int first_stream;
  const std::vector<Task>& tasks;
  std::atomic<int64_t> skipped = 0;  // a counter that is read when all streams are through
};

Counts Sorted(const absl::flat_hash_map<uint64_t, uint64_t>& counts) {
  Counts sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

absl::Status TooManyClasses(const Lesson& lesson) {
  return lesson.Error(absl::StrCat("data.train has more than ", kMostClasses,
                                   " different texts; these are no classes: read the column as TEXT"));
}

// Counts of one thread over all streams. They are sums of whole numbers, so they do not depend on which thread counted
// which examples.
struct Counted {
  // The order of the maps is never looked at.
  using Map = absl::flat_hash_map<uint64_t, uint64_t>;
  Map ids;                   // salted
  std::vector<Map> lessons;  // by task
};

// Takes examples of one stream for the lessons of a job.
class Student {
 public:
  Student(const std::vector<Task>& tasks, int stream)
      : tasks_(tasks), stream_(static_cast<uint64_t>(stream)), found_(tasks.size()) {
    for (const Task& task : tasks) slots_ = std::max(slots_, task.of.ids ? task.of.place + 1 : 0);
    first_.resize(slots_ + 1);
  }

  // `n`: number of the example in its stream.
  absl::Status Take(const Example& example, int64_t n, std::vector<Counted::Map>* counts) {
    for (size_t slot = 0; slot < slots_; ++slot) first_[slot + 1] = first_[slot] + example.counts[slot];
    size_t column = 0;  // of classes
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const Task& task = tasks_[i];
      if (task.lesson.kind == Lesson::kClasses) {
        const std::string& text = example.texts[column++];
        if (!text.empty()) found_[i].classes.insert(text);
        if (found_[i].classes.size() > kMostClasses) return TooManyClasses(task.lesson);
        continue;
      }
      // The example's place among those of its stream is the same in every copy of the data.
      const uint64_t key = MixId(MixId(stream_) ^ static_cast<uint64_t>(n));
      if (!task.of.ids) {
        if (const float x = example.floats[task.of.place]; !std::isnan(x)) found_[i].sample.Add(key, x);
        continue;
      }
      for (size_t at = first_[task.of.place]; at < first_[task.of.place + 1]; ++at) {
        if (task.lesson.kind == Lesson::kQuantiles) {
          found_[i].sample.Add(MixId(key ^ (at - first_[task.of.place])), static_cast<double>(example.ids[at]));
        } else {
          ++(*counts)[i][KeyOf(example.ids[at])];
        }
      }
    }
    return absl::OkStatus();
  }

  std::vector<Found> Finish() && { return std::move(found_); }

 private:
  const std::vector<Task>& tasks_;
  const uint64_t stream_;
  size_t slots_ = 0;           // those that inputs are among, from the first on
  std::vector<size_t> first_;  // of their ids
  std::vector<Found> found_;
};

// Collects what one stream has, a piece at a time.
class StreamPass {
 public:
  StreamPass(Pass* pass, int stream)
      : pass_(*pass),
        examples_({.data = &pass->data,
                   .parser = &pass->parser,
                   .stream = stream,
                   .streams = pass->spec.streams(),
                   .scheme = pass->spec.stream_scheme,
                   .seed = pass->spec.seed,
                   .bad_line = pass->spec.config.bad_line(),
                   .where = &pass->where,
                   .required = pass->features.required(),
                   .label_ranges = pass->features.label_ranges(),
                   .skipped = &pass->skipped,
                   .ahead = pass->ahead.get(),
                   .lane = stream - pass->first_stream}),
        counting_(pass->spec.config.ids().min_count() > 1),
        student_(pass->tasks, stream) {
    for (size_t i = 0; i < pass_.features.floats().size(); ++i) {
      if (pass_.features.floats()[i].transform == v1::DenseTransform::STANDARDIZE) standardized_.push_back(i);
    }
    moments_.resize(pass_.features.floats().size());
    ExampleStream::Prepare(pass_.parser, &example_);
  }

  // Takes up to `most` examples. Returns true at the end of the stream.
  absl::StatusOr<bool> Work(int64_t most, Counted* counted) {
    if (pass_.cancelled && pass_.cancelled()) return absl::CancelledError("the data statistics were cancelled");
    InputPosition position;
    for (const int64_t end = read_ + most; read_ < end; ++read_) {
      if (!examples_.Next(&example_, &position)) {
        RETURN_IF_ERROR(examples_.status());
        return true;
      }
      for (const size_t i : standardized_) {
        if (!std::isnan(example_.floats[i])) moments_[i].Add(example_.floats[i]);
      }
      if (!pass_.tasks.empty()) RETURN_IF_ERROR(student_.Take(example_, read_, &counted->lessons));
      if (counting_) Count(&counted->ids);
    }
    return false;
  }
  int64_t read() const { return read_; }

  StreamStatistics Finish() && { return {.moments = std::move(moments_), .lessons = std::move(student_).Finish()}; }

 private:
  void Count(Counted::Map* ids) const {
    const std::vector<Features::Slot>& slots = pass_.features.slots();
    size_t id = 0;
    for (size_t slot = 0; slot < example_.counts.size(); ++slot) {
      if (!slots[slot].counted) {
        id += example_.counts[slot];
        continue;
      }
      for (uint16_t i = 0; i < example_.counts[slot]; ++i, ++id) {
        ++(*ids)[static_cast<uint64_t>(SaltId(slots[slot].salt, example_.ids[id]))];
      }
    }
  }

  Pass& pass_;
  ExampleStream examples_;
  const bool counting_;
  Student student_;
  std::vector<size_t> standardized_;
  std::vector<Moments> moments_;
  Example example_;
  int64_t read_ = 0;
};

// Collects streams on several threads, a piece of the one that has read least at a time: streams that are far from each
// other would read their common files one by one, or keep them in memory.
class AllStreams {
 public:
  AllStreams(Pass* pass, LaneRange streams) : lessons_(pass->tasks.size()) {
    for (int i = 0; i < streams.count; ++i) turns_.push_back({std::make_unique<StreamPass>(pass, streams.begin + i)});
  }

  // Works until all streams have ended. Called by every thread.
  void Work() {
    Counted counted;
    counted.lessons.resize(lessons_);
    mu_.Lock();
    while (Turn* const turn = Pick()) {
      if (turn->busy) {
        changed_.Wait(&mu_);
        continue;
      }
      turn->busy = true;
      mu_.Unlock();
      absl::StatusOr<bool> ended = turn->pass->Work(kPiece, &counted);
      std::optional<absl::StatusOr<StreamStatistics>> result;
      if (!ended.ok()) {
        result = ended.status();
      } else if (*ended) {
        result = std::move(*turn->pass).Finish();
      }
      const int64_t read = turn->pass->read();
      if (result.has_value()) turn->pass = nullptr;
      mu_.Lock();
      turn->busy = false;
      turn->read = read;
      turn->result = std::move(result);
      changed_.SignalAll();
    }
    counted_.push_back(std::move(counted));
    mu_.Unlock();
  }

  // Returns the results by stream and the counts by thread. Requires: all threads have left Work.
  std::pair<std::vector<absl::StatusOr<StreamStatistics>>, std::vector<Counted>> Take() && {
    MutexLock lock(&mu_);
    std::vector<absl::StatusOr<StreamStatistics>> results;
    for (Turn& turn : turns_) results.push_back(*std::move(turn.result));
    return {std::move(results), std::move(counted_)};
  }

 private:
  static constexpr int64_t kPiece = 512;  // records, as of lanes (trainer/data/lane.cc)
  struct Turn {
    std::unique_ptr<StreamPass> pass;  // of the thread that has set `busy`
    int64_t read = 0;
    bool busy = false;
    std::optional<absl::StatusOr<StreamStatistics>> result = std::nullopt;
  };

  // Returns the stream that is behind, of those that are not busy if there are any; null if all have ended.
  Turn* Pick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Turn* picked = nullptr;
    for (Turn& turn : turns_) {
      if (turn.result.has_value()) continue;
      if (picked == nullptr || std::pair(turn.busy, turn.read) < std::pair(picked->busy, picked->read)) picked = &turn;
    }
    return picked;
  }

  const size_t lessons_;
  Mutex mu_;
  CondVar changed_;
  std::vector<Turn> turns_ ABSL_GUARDED_BY(mu_);
  std::vector<Counted> counted_ ABSL_GUARDED_BY(mu_);
};

// Adds counts of equal keys; both sorted.
void AddCounts(const Counts& other, Counts* counts) {
  if (other.empty()) return;
  Counts sum;
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

// Counts above `enough` are written as `enough`.
void PutCounts(const Counts& counts, uint64_t enough, StatisticsWriter* out) {
  out->Put<uint64_t>(counts.size());
  uint64_t last = 0;
  for (const auto& [key, count] : counts) {
    out->PutVarint(key - last);
    out->PutVarint(std::min(count, enough));
    last = key;
  }
}

// Adds the counts that PutCounts wrote. Returns false if it did not.
bool GetCounts(StatisticsReader* in, Counts* counts) {
  Counts more(in->GetCount(2));
  uint64_t last = 0;
  for (auto& [key, count] : more) {
    key = last += in->GetVarint();
    count = in->GetVarint();
  }
  if (!in->ok() || !std::is_sorted(more.begin(), more.end())) return false;
  AddCounts(more, counts);
  return true;
}

uint64_t DigestOf(const IdList& list) {
  const uint64_t ids = StableHash(list.ids().data(), list.ids().size() * sizeof(int64_t), 0);
  return StableHash(list.weights().data(), list.weights().size() * sizeof(double), ids);
}

// A contribution to a lesson: of a list in a file its digest, and its ids only from the trainer of stream 0.
void PutFound(const Lesson& lesson, const IdList* of_file, bool whole, const Found& found, StatisticsWriter* out) {
  if (of_file != nullptr) {
    out->Put(DigestOf(*of_file));
    out->Put<uint64_t>(whole ? of_file->ids().size() : 0);
    if (!whole) return;
    for (const int64_t id : of_file->ids()) out->Put(id);
    for (const double weight : of_file->weights()) out->Put(weight);
  } else if (lesson.kind == Lesson::kQuantiles) {
    const std::vector<std::pair<uint64_t, double>> sample = found.sample.Sorted();
    out->Put<uint64_t>(sample.size());
    for (const auto& [key, value] : sample) {
      out->Put(key);
      out->Put(value);
    }
  } else if (lesson.kind == Lesson::kClasses) {
    out->Put<uint64_t>(found.classes.size());
    for (const std::string& text : found.classes) out->PutText(text);
  } else {
    PutCounts(found.counts, std::numeric_limits<uint64_t>::max(), out);
  }
}

// Holds what all trainers have contributed to a lesson.
struct Sum {
  Found found;
  std::shared_ptr<const IdList> of_file;
  std::optional<uint64_t> digest;  // of the file
  bool differs = false;            // trainers have files with other content
};

// Adds what PutFound wrote. Returns false if it did not.
bool AddFound(const Lesson& lesson, StatisticsReader* in, Sum* sum) {
  if (!lesson.from_data()) {
    const auto digest = in->Get<uint64_t>();
    sum->differs |= sum->digest.has_value() && *sum->digest != digest;
    sum->digest = digest;
    std::vector<int64_t> ids(in->GetCount(sizeof(int64_t)));
    std::vector<double> weights(lesson.kind == Lesson::kPopularity ? ids.size() : 0);
    for (int64_t& id : ids) id = in->Get<int64_t>();
    for (double& weight : weights) {
      weight = in->Get<double>();
      if (!std::isfinite(weight) || weight <= 0) return false;
    }
    if (!in->ok() || ids.empty()) return in->ok();
    auto list = std::make_shared<IdList>(std::move(ids), std::move(weights));
    if (list->different() != list->ids().size() || sum->of_file != nullptr) return false;
    sum->of_file = std::move(list);
    return true;
  }
  if (lesson.kind == Lesson::kQuantiles) {
    for (size_t n = in->GetCount(16); n > 0; --n) {
      const auto key = in->Get<uint64_t>();
      const auto value = in->Get<double>();
      if (!std::isfinite(value)) return false;
      sum->found.sample.Add(key, value);
    }
    return in->ok();
  }
  if (lesson.kind == Lesson::kClasses) {
    for (size_t n = in->GetCount(sizeof(uint64_t)); n > 0; --n) sum->found.classes.insert(in->GetText());
    return in->ok();
  }
  return GetCounts(in, &sum->found.counts);
}

// The ids with at least min_count, the most frequent first, of equally frequent ones the smallest id, at most `most`.
std::shared_ptr<const IdList> ByFrequency(const Counts& counts, uint64_t min_count, size_t most) {
  Counts kept;
  for (const auto& entry : counts) {
    if (entry.second >= min_count) kept.push_back(entry);
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (kept.size() > most) kept.resize(most);
  std::vector<int64_t> ids;
  std::vector<double> weights;
  for (const auto& [key, count] : kept) {
    ids.push_back(IdOf(key));
    weights.push_back(static_cast<double>(count));
  }
  return std::make_shared<IdList>(std::move(ids), std::move(weights));
}

absl::StatusOr<Learned::One> Learn(const v1::Data& data, const Lesson& lesson, const Sum& sum) {
  Learned::One one = {.kind = lesson.kind, .index = lesson.index, .name = lesson.name, .of = lesson.of};
  if (!lesson.from_data()) {
    if (sum.differs) {
      return lesson.Error(
          absl::StrCat("trainers have different contents of the file ", lesson.file, "; give all of them the same"));
    }
    if (sum.of_file == nullptr) return DamagedStatistics();
    one.list = sum.of_file;
    return one;
  }
  if (lesson.kind == Lesson::kClasses) {
    one.classes.assign(sum.found.classes.begin(), sum.found.classes.end());
    if (one.classes.empty()) return lesson.Error("data.train has no text to make a class of");
    if (one.classes.size() > kMostClasses) return TooManyClasses(lesson);
    return one;
  }
  if (lesson.kind == Lesson::kQuantiles) {
    one.boundaries = sum.found.sample.Boundaries(data.derived(lesson.index).bucketize().quantiles());
    if (!one.boundaries.empty()) return one;
    const std::vector<std::pair<uint64_t, double>> values = sum.found.sample.Sorted();
    return lesson.Error(absl::StrCat("'", lesson.of, "' has ",
                                     values.empty() ? "no value" : absl::StrCat("one value, ", values[0].second, ","),
                                     " in data.train, and so no quantiles; take the variable out of the job, or give "
                                     "boundaries"));
  }
  uint64_t min_count = 1;
  size_t most = std::numeric_limits<size_t>::max();
  if (lesson.kind == Lesson::kVocabulary) {
    const v1::Derived::Vocabulary::Learned& wanted = data.derived(lesson.index).vocabulary().learned();
    min_count = static_cast<uint64_t>(wanted.min_count());
    if (wanted.most() > 0) most = static_cast<size_t>(wanted.most());
  }
  one.list = ByFrequency(sum.found.counts, min_count, most);
  if (!one.list->ids().empty()) return one;
  return lesson.Error(
      absl::StrCat("data.train has no value of '", lesson.of, "'",
                   min_count > 1 ? absl::StrCat(" that is there ", min_count, " times (min_count)") : "",
                   lesson.kind == Lesson::kPopularity  ? ": there is nothing to draw"
                   : lesson.kind == Lesson::kFrequency ? ": there is nothing to count"
                                                       : ": the vocabulary would be empty"));
}

// Reads the lists in files, by lesson; null where there is none.
absl::StatusOr<std::vector<std::shared_ptr<const IdList>>> ReadLists(const DataSpec& spec,
                                                                     const std::vector<Task>& tasks) {
  std::vector<std::shared_ptr<const IdList>> lists(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Lesson& lesson = tasks[i].lesson;
    if (lesson.from_data()) continue;
    const std::string path = spec.directory.empty() ? lesson.file : JoinPath(spec.directory, lesson.file);
    const absl::StatusOr<std::string> text = ReadWholeFile(path);
    if (!text.ok()) {
      return absl::Status(text.status().code(), lesson.Error(std::string(text.status().message())).message());
    }
    absl::StatusOr<IdList> list =
        ParseIdList(*text, lesson.file, tasks[i].of.id_kind, lesson.kind == Lesson::kPopularity);
    if (!list.ok()) return lesson.Error(std::string(list.status().message()));
    lists[i] = std::make_shared<IdList>(*std::move(list));
  }
  return lists;
}

// Returns whether statistics take more than files with lists.
bool NeedsPass(const DataSpec& spec) {
  if (spec.config.ids().min_count() > 1) return true;
  if (spec.config.dense().transform() == v1::DenseTransform::STANDARDIZE) return true;
  for (const auto& column : spec.config.dense().column()) {
    if (column.transform() == v1::DenseTransform::STANDARDIZE) return true;
  }
  const std::vector<Lesson> lessons = Lessons(spec.config);
  return std::any_of(lessons.begin(), lessons.end(), [](const Lesson& lesson) { return lesson.from_data(); });
}

// Returns the lessons of a job with the places of their inputs.
absl::StatusOr<std::vector<Task>> Tasks(const DataSpec& spec, const LineParser& parser) {
  std::vector<Task> tasks;
  for (Lesson& lesson : Lessons(spec.config)) {
    Task task = {.lesson = std::move(lesson)};
    if (task.lesson.kind != Lesson::kClasses) {
      ASSIGN_OR_RETURN(task.of, FindInput(parser.columns(), task.lesson.of, "of", PlainSettingErrors("data.derived")));
    }
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace

bool NeedsStatistics(const DataSpec& spec) { return NeedsPass(spec) || !Lessons(spec.config).empty(); }

absl::StatusOr<std::string> CollectStatistics(const DataSpec& spec, const DataSet& train, LaneRange streams,
                                              ThreadPool* pool, const std::function<bool()>& cancelled) {
  // Variables of lists in files have their values already in the pass.
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> plain, MakeLineParser(spec.config));
  ASSIGN_OR_RETURN(const std::vector<Task> tasks, Tasks(spec, *plain));
  for (const Task& task : tasks) {
    for (const DataFile& file : train.files()) {
      if (task.lesson.kind != Lesson::kClasses || file.examples == nullptr) continue;
      return task.lesson.Error(
          absl::StrCat(file.name, " is an example file, which holds numbers and no texts to learn ",
                       "classes of: list the classes (classes), as the job it was converted with"));
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<const IdList>> lists, ReadLists(spec, tasks));
  Learned of_files;
  std::vector<Task> of_data;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Lesson& lesson = tasks[i].lesson;
    if (lists[i] != nullptr) {
      of_files.lessons.push_back({.kind = lesson.kind, .index = lesson.index, .list = lists[i]});
    } else {
      of_data.push_back(tasks[i]);
    }
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(spec.config, &of_files));
  ASSIGN_OR_RETURN(const RowFilter where,
                   RowFilter::Create(parser->columns(), train.where(), train.where_path(), PlainSettingErrors("")));
  ASSIGN_OR_RETURN(const Features features, Features::Create(spec, *parser));
  const int threads = std::min(streams.count, pool != nullptr ? pool->threads() + 1 : 1);
  Pass pass = {spec,
               train,
               *parser,
               where,
               features,
               cancelled,
               RecordsAhead::For(spec, train, /*follows=*/false, streams, threads),
               streams.begin,
               of_data};
  std::vector<absl::StatusOr<StreamStatistics>> collected(
      static_cast<size_t>(streams.count), StreamStatistics{.moments = std::vector<Moments>(features.floats().size())});
  std::vector<Counted> counted;
  if (NeedsPass(spec)) {
    AllStreams all(&pass, streams);
    if (pool != nullptr) {
      pool->ParallelFor(threads, [&](int64_t) { all.Work(); });
    } else {
      all.Work();
    }
    std::tie(collected, counted) = std::move(all).Take();
  }
  if (const int64_t skipped = pass.skipped.load(); skipped > 0) {
    LOG(WARNING) << skipped << " lines did not parse and are left out of the data statistics (data.bad_line: SKIP)";
  }
  StatisticsWriter out(tasks.empty() ? kContributionMagic : kWithLessons);
  out.Put<uint64_t>(static_cast<uint64_t>(streams.count));
  Counts counts;
  std::vector<Found> found(of_data.size());
  for (int i = 0; i < streams.count; ++i) {
    const absl::StatusOr<StreamStatistics>& stream = collected[static_cast<size_t>(i)];
    RETURN_IF_ERROR(stream.status());
    out.Put<uint64_t>(static_cast<uint64_t>(streams.begin + i));
    out.Put<uint64_t>(stream->moments.size());
    for (const Moments& m : stream->moments) out.PutMoments(m);
    for (size_t t = 0; t < stream->lessons.size(); ++t) {
      found[t].sample.Add(stream->lessons[t].sample);
      found[t].classes.insert(stream->lessons[t].classes.begin(), stream->lessons[t].classes.end());
    }
  }
  for (Counted& of_thread : counted) {
    AddCounts(Sorted(std::exchange(of_thread.ids, {})), &counts);
    for (size_t t = 0; t < of_thread.lessons.size(); ++t) AddCounts(Sorted(of_thread.lessons[t]), &found[t].counts);
  }
  // More than min_count of one contribution cannot change the verdict.
  PutCounts(counts, static_cast<uint64_t>(std::max<int64_t>(spec.config.ids().min_count(), 1)), &out);
  size_t next = 0;  // of `found`
  for (size_t i = 0; i < tasks.size(); ++i) {
    static const Found* const kNothing = new Found;
    PutFound(tasks[i].lesson, lists[i].get(), streams.begin == 0, lists[i] != nullptr ? *kNothing : found[next++],
             &out);
  }
  return std::move(out).Finish();
}

absl::StatusOr<DataStatistics> MergeStatistics(const DataSpec& spec, const std::vector<std::string>& contributions) {
  const size_t streams = static_cast<size_t>(spec.streams());
  std::vector<std::vector<Moments>> moments(streams);
  std::vector<bool> there(streams, false);
  Counts counts;
  const std::vector<Lesson> lessons = Lessons(spec.config);
  std::vector<Sum> sums(lessons.size());
  for (const std::string& contribution : contributions) {
    StatisticsReader in(contribution, lessons.empty() ? kContributionMagic : kWithLessons);
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
    if (!GetCounts(&in, &counts)) return DamagedStatistics();
    for (size_t i = 0; i < lessons.size(); ++i) {
      if (!AddFound(lessons[i], &in, &sums[i])) return DamagedStatistics();
    }
    if (!in.done()) return DamagedStatistics();
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
  for (size_t i = 0; i < lessons.size(); ++i) {
    ASSIGN_OR_RETURN(Learned::One one, Learn(spec.config, lessons[i], sums[i]));
    merged.learned_.lessons.push_back(std::move(one));
  }
  merged.BuildIndex();
  return merged;
}

}  // namespace weir
