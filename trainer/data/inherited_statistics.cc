#include "trainer/data/inherited_statistics.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/formats/derived.h"
#include "framework/formats/learned.h"
#include "trainer/data/features.h"

namespace weir {
namespace {

// Names of the floats of an example, by position.
std::vector<std::string> FloatNames(const std::vector<Column>& columns) {
  std::vector<std::string> names;
  for (const Column& column : columns) {
    if (column.kind != v1::DENSE) continue;
    for (int64_t i = 0; i < column.width; ++i) {
      const auto at = static_cast<size_t>(i);
      names.push_back(
          absl::StrCat(column.name, ".", column.value_names.empty() ? absl::StrCat(i) : column.value_names[at]));
    }
  }
  return names;
}

// A checkpoint's statistics, by names.
struct Source {
  DataStatistics statistics;
  std::map<std::string, size_t> floats;  // positions
  std::set<std::string> slots;           // "variable\nslot"
};

absl::StatusOr<Source> ReadSource(const v1::InheritedStatistics& inherited) {
  v1::Data data;
  if (!data.ParseFromString(inherited.data())) {
    return absl::DataLossError("the data settings of a checkpoint's job cannot be read");
  }
  Source source;
  ASSIGN_OR_RETURN(source.statistics, DataStatistics::Parse(inherited.statistics()));
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(data));
  const std::vector<std::string> names = FloatNames(parser->columns());
  for (size_t i = 0; i < names.size(); ++i) source.floats.emplace(names[i], i);
  for (const Column& column : parser->columns()) {
    for (const std::string& slot : column.slot_names) source.slots.insert(absl::StrCat(column.name, "\n", slot));
  }
  return source;
}

}  // namespace

absl::StatusOr<StatisticsHeritage> StatisticsHeritage::Create(
    const DataSpec& spec, const google::protobuf::RepeatedPtrField<v1::InheritedStatistics>& inherited) {
  StatisticsHeritage heritage;
  std::vector<Source> sources;
  for (const v1::InheritedStatistics& each : inherited) {
    ASSIGN_OR_RETURN(Source source, ReadSource(each));
    sources.push_back(std::move(source));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(spec.config));
  ASSIGN_OR_RETURN(const Features features, Features::Create(spec, *parser));
  DataStatistics& taken = heritage.taken_;
  const std::vector<std::string> names = FloatNames(features.columns());
  taken.moments_.resize(names.size());
  heritage.has_moments_.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (features.floats()[i].transform != v1::DenseTransform::STANDARDIZE) continue;
    for (const Source& source : sources) {
      const auto found = source.floats.find(names[i]);
      if (found == source.floats.end() || found->second >= source.statistics.moments().size()) continue;
      const Moments& moments = source.statistics.moments()[found->second];
      if (moments.count == 0) continue;
      taken.moments_[i] = moments;
      heritage.has_moments_[i] = true;
      break;
    }
    if (!heritage.has_moments_[i]) heritage.missing_.push_back(names[i]);
  }
  taken.min_count_ = spec.config.ids().min_count();
  if (taken.min_count_ > 1) {
    std::set<const Source*> used;
    size_t slot = 0;
    for (const Column& column : features.columns()) {
      for (const std::string& name : column.slot_names) {
        if (!features.slots()[slot++].counted) continue;
        const std::string key = absl::StrCat(column.name, "\n", name);
        const auto found = std::find_if(sources.begin(), sources.end(), [&](const Source& source) {
          return source.statistics.min_count() == taken.min_count_ && source.slots.count(key) > 0;
        });
        if (found == sources.end()) {
          heritage.missing_.push_back(absl::StrCat(column.name, ".", name));
        } else {
          heritage.uncounted_.insert(key);
          used.insert(&*found);
        }
      }
    }
    for (const Source* const source : used) {
      std::vector<uint64_t> all;
      std::set_union(taken.kept_.begin(), taken.kept_.end(), source->statistics.kept_.begin(),
                     source->statistics.kept_.end(), std::back_inserter(all));
      taken.kept_ = std::move(all);
    }
  }
  for (const Lesson& lesson : Lessons(spec.config)) {
    Learned::One one{.kind = lesson.kind, .index = lesson.index, .name = lesson.name, .of = lesson.of};
    bool has = false;
    for (const Source& source : sources) {
      const std::vector<Learned::One>& theirs = source.statistics.learned().lessons;
      const auto found = std::find_if(theirs.begin(), theirs.end(), [&](const Learned::One& each) {
        return each.kind == lesson.kind && each.name == lesson.name && each.of == lesson.of;
      });
      if (found == theirs.end()) continue;
      one = *found;
      one.index = lesson.index;
      has = true;
      break;
    }
    if (!has) heritage.missing_.push_back(lesson.name);
    taken.learned_.lessons.push_back(std::move(one));
    heritage.has_lesson_.push_back(has);
  }
  return heritage;
}

DataStatistics StatisticsHeritage::Join(const DataStatistics* measured) const {
  DataStatistics joined = taken_;
  if (measured != nullptr) {
    for (size_t i = 0; i < joined.moments_.size() && i < measured->moments_.size(); ++i) {
      if (!has_moments_[i]) joined.moments_[i] = measured->moments_[i];
    }
    std::vector<uint64_t> all;
    std::set_union(joined.kept_.begin(), joined.kept_.end(), measured->kept_.begin(), measured->kept_.end(),
                   std::back_inserter(all));
    joined.kept_ = std::move(all);
    for (size_t i = 0; i < joined.learned_.lessons.size() && i < measured->learned_.lessons.size(); ++i) {
      if (!has_lesson_[i]) joined.learned_.lessons[i] = measured->learned_.lessons[i];
    }
  }
  joined.BuildIndex();
  return joined;
}

}  // namespace weir
