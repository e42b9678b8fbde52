#include "framework/formats/learned.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/numbers.h"
#include "glog/logging.h"

namespace weir {

IdList::IdList(std::vector<int64_t> ids, std::vector<double> weights)
    : ids_(std::move(ids)), weights_(std::move(weights)) {
  CHECK(weights_.empty() || weights_.size() == ids_.size());
  entries_.resize(std::bit_ceil(ids_.size() + ids_.size() / 3 + 2));
  mask_ = entries_.size() - 1;
  for (size_t i = 0; i < ids_.size(); ++i) {
    size_t at = Home(ids_[i]);
    while (entries_[at].place >= 0 && entries_[at].id != ids_[i]) at = (at + 1) & mask_;
    if (entries_[at].place >= 0) continue;
    entries_[at] = {.id = ids_[i], .place = static_cast<int64_t>(i)};
    ++different_;
  }
  for (const double weight : weights_) total_ += weight;
}

absl::Status Lesson::Error(std::string_view text) const {
  return absl::InvalidArgumentError(absl::StrCat(kind == kClasses ? "data.csv.column[" : "data.derived[", index, "]: '",
                                                 name, "': ", std::string(text)));
}

std::vector<Lesson> Lessons(const v1::Data& data) {
  std::vector<Lesson> lessons;
  for (int i = 0; i < data.derived_size(); ++i) {
    const v1::Derived& derived = data.derived(i);
    Lesson lesson = {.index = i, .name = derived.name()};
    if (derived.has_vocabulary()) {
      lesson.kind = Lesson::kVocabulary;
      lesson.of = derived.vocabulary().of();
      lesson.file = derived.vocabulary().file();
    } else if (derived.has_frequency()) {
      lesson.kind = Lesson::kFrequency;
      lesson.of = derived.frequency().of();
    } else if (derived.has_negatives() && derived.negatives().has_popularity()) {
      lesson.kind = Lesson::kPopularity;
      lesson.of = derived.negatives().of();
      lesson.file = derived.negatives().popularity().file();
    } else if (derived.has_bucketize() && derived.bucketize().has_quantiles()) {
      lesson.kind = Lesson::kQuantiles;
      lesson.of = derived.bucketize().of();
    } else {
      continue;
    }
    lessons.push_back(std::move(lesson));
  }
  for (int i = 0; data.has_csv() && i < data.csv().column_size(); ++i) {
    const v1::Csv::Column& column = data.csv().column(i);
    if (!column.learn_classes() || column.type() == v1::Csv::Column::SKIP) continue;
    lessons.push_back({.kind = Lesson::kClasses, .index = i, .name = column.name(), .of = column.name()});
  }
  return lessons;
}

bool Learned::Has(Lesson::Kind kind, int index) const {
  return std::any_of(lessons.begin(), lessons.end(),
                     [&](const One& one) { return one.kind == kind && one.index == index; });
}

std::shared_ptr<const IdList> Learned::ListOf(int derived) const {
  for (const One& one : lessons) {
    if (one.kind != Lesson::kClasses && one.index == derived) return one.list;
  }
  return nullptr;
}

bool Learned::IsOf(const v1::Data& data) const {
  const std::vector<Lesson> wanted = Lessons(data);
  if (wanted.size() != lessons.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Lesson& lesson = wanted[i];
    const One& one = lessons[i];
    if (lesson.kind != one.kind || lesson.index != one.index || lesson.name != one.name || lesson.of != one.of)
      return false;
  }
  return true;
}

Learned Learned::For(const v1::Data& data) const {
  Learned usable;
  for (const Lesson& lesson : Lessons(data)) {
    for (const One& one : lessons) {
      if (one.kind == lesson.kind && one.index == lesson.index) usable.lessons.push_back(one);
    }
  }
  return usable;
}

v1::Data WithLearned(const v1::Data& data, const Learned& learned) {
  v1::Data with = data;
  for (const Learned::One& one : learned.lessons) {
    if (one.kind == Lesson::kClasses) {
      v1::Csv::Column* const column = with.mutable_csv()->mutable_column(one.index);
      // Still to be seen: that they are learned.
      column->clear_classes();
      for (const std::string& text : one.classes) column->add_classes()->add_text(text);
    } else if (one.kind == Lesson::kQuantiles) {
      v1::Derived::Bucketize* const bucketize = with.mutable_derived(one.index)->mutable_bucketize();
      bucketize->clear_quantiles();
      bucketize->mutable_boundaries()->Assign(one.boundaries.begin(), one.boundaries.end());
    }
  }
  return with;
}

namespace {

std::string_view WithoutBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Parses an id as it stands in the data.
bool IdOf(std::string_view text, IdKind kind, int64_t* id) {
  if (kind == IdKind::kText) {
    *id = static_cast<int64_t>(StableHash(text));
    return true;
  }
  if (kind != IdKind::kHex) return ParseId(text, id);
  uint64_t bits = 0;
  if (!absl::SimpleHexAtoi(absl::string_view(text.data(), text.size()), &bits)) return false;
  *id = static_cast<int64_t>(bits);
  return true;
}

}  // namespace

absl::StatusOr<IdList> ParseIdList(std::string_view text, const std::string& name, IdKind kind, bool weights) {
  constexpr size_t kShown = 40;
  text = WithoutByteOrderMark(text);
  std::vector<int64_t> ids;
  std::vector<double> of_ids;
  absl::flat_hash_map<int64_t, size_t> lines;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.ends_with('\r')) word.remove_suffix(1);
    const auto error = [&](std::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(name, ":", line, ": ", std::string(what)));
    };
    double weight = 0;
    if (weights) {
      word = WithoutBlanks(word);
      const size_t blank = word.find_last_of(" \t");
      const std::string_view last = blank == std::string_view::npos ? "" : word.substr(blank + 1);
      if (!ParseWhole(WithoutPlus(last), &weight) || !std::isfinite(weight) || weight <= 0) {
        return error(absl::StrCat("expected an id, blanks and a weight above 0, got '",
                                  std::string(word.substr(0, kShown)), "'"));
      }
      word = WithoutBlanks(word.substr(0, blank));
    }
    if (word.empty()) return error("is empty; an example without a value is missing, and in no list");
    int64_t id = 0;
    if (!IdOf(word, kind, &id)) {
      return error(absl::StrCat("'", std::string(word.substr(0, kShown)), "' is no ",
                                kind == IdKind::kHex ? "hexadecimal number" : "64-bit integer",
                                ", as the ids of the column are"));
    }
    const auto [before, fresh] = lines.try_emplace(id, line);
    if (!fresh) {
      return error(
          absl::StrCat("'", std::string(word.substr(0, kShown)), "' stands in line ", before->second, ", too"));
    }
    ids.push_back(id);
    if (weights) of_ids.push_back(weight);
  }
  if (ids.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": has no line"));
  return IdList(std::move(ids), std::move(of_ids));
}

}  // namespace weir
