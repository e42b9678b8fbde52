#include "transpiler/explain/columns.h"

#include <algorithm>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "transpiler/job/check_metrics.h"

namespace weir {
namespace {

constexpr size_t kMostNames = 8;  // of slots, in a line

std::string Several(std::vector<std::string> names) {
  const size_t all = names.size();
  if (all > kMostNames) {
    names.resize(kMostNames);
    names.push_back(absl::StrCat("and ", all - kMostNames, " more"));
  }
  return absl::StrJoin(names, ", ");
}

const char* KindText(IdKind kind) {
  switch (kind) {
    case IdKind::kUnknown:
      return "ids";
    case IdKind::kInteger:
      return "integers";
    case IdKind::kHex:
      return "hexadecimal integers";
    case IdKind::kText:
      return "hashes of texts";
  }
  return "ids";
}

std::string BucketsText(int64_t buckets) { return buckets == 0 ? "64 bits" : absl::StrCat(buckets, " buckets"); }

std::string DrawnFrom(const v1::Derived::Negatives& negatives) {
  if (negatives.has_uniform()) {
    return absl::StrCat(negatives.uniform().first(), " to ",
                        negatives.uniform().first() + negatives.uniform().items() - 1);
  }
  const v1::Derived::Negatives::Popularity& popularity = negatives.popularity();
  return absl::StrCat(popularity.file().empty() ? "those of data.train by their number there"
                                                : absl::StrCat("those of ", popularity.file(), " by their weight"),
                      " to the power of ", popularity.alpha());
}

std::string VocabularyText(const v1::Derived::Vocabulary& vocabulary) {
  std::string text = absl::StrCat("place of ", vocabulary.of(), " in ");
  if (!vocabulary.has_learned()) {
    absl::StrAppend(&text, vocabulary.file());
  } else if (vocabulary.learned().most() > 0) {
    absl::StrAppend(&text, "the ", vocabulary.learned().most(), " most frequent values of data.train");
  } else {
    absl::StrAppend(&text, "the values of data.train, most frequent first");
  }
  if (vocabulary.learned().min_count() > 1) {
    absl::StrAppend(&text, " that are there ", vocabulary.learned().min_count(), " times");
  }
  return absl::StrCat(text, "; ",
                      vocabulary.refuse_unknown() ? "others are refused"
                      : vocabulary.unknown_buckets() > 0
                          ? absl::StrCat("others in ", vocabulary.unknown_buckets(), " buckets behind")
                          : "others are missing");
}

std::string DerivedText(const v1::Derived& derived) {
  switch (derived.kind_case()) {
    case v1::Derived::kCross:
      return absl::StrCat("cross of ", absl::StrJoin(derived.cross().of(), " x "), ", ",
                          derived.cross().sizes_size() > 0
                              ? absl::StrCat(absl::StrJoin(derived.cross().sizes(), " x "), ", one id each")
                              : BucketsText(derived.cross().buckets()));
    case v1::Derived::kHash:
      return absl::StrCat("hash of ", derived.hash().of(), ", ", BucketsText(derived.hash().buckets()));
    case v1::Derived::kBucketize:
      return derived.bucketize().has_quantiles()
                 ? absl::StrCat("quantile of ", derived.bucketize().of(), " in data.train, 0 to ",
                                derived.bucketize().quantiles() - 1)
                 : absl::StrCat("bucket of ", derived.bucketize().of(), ", 0 to ",
                                derived.bucketize().boundaries_size());
    case v1::Derived::kTime:
      return absl::StrCat(v1::Derived::Time::Part_Name(derived.time().part()), " of ", derived.time().of());
    case v1::Derived::kNegatives:
      return absl::StrCat(derived.negatives().count(), " ids that are not in ", derived.negatives().of(), ", of ",
                          DrawnFrom(derived.negatives()), ", drawn in every epoch");
    case v1::Derived::kVocabulary:
      return VocabularyText(derived.vocabulary());
    case v1::Derived::kFrequency:
      return absl::StrCat("part of all ids of ", derived.frequency().of(), " in data.train");
    case v1::Derived::KIND_NOT_SET:
      break;
  }
  return "";
}

// Returns where the values of a partition stand; "" for another variable.
std::string PartitionText(const Column& column, const v1::JobConfig& job) {
  for (const v1::Partition& partition : job.data().partition()) {
    if (partition.name() == column.name) return absl::StrCat(" of directories ", column.name, "=...");
  }
  return "";
}

std::string FloatsText(const Column& column, const v1::JobConfig& job) {
  for (const v1::Derived& derived : job.data().derived()) {
    if (derived.name() == column.name)
      return absl::StrCat(column.name, " [B, ", column.width, "]: float; ", DerivedText(derived));
  }
  const v1::DenseTransform& dense = job.data().dense();
  const auto& except = dense.except();
  const bool never = except.empty() ? IsLabelOrWeight(column.name, job)
                                    : std::find(except.begin(), except.end(), column.name) != except.end();
  const bool all = !never && dense.transform() != v1::DenseTransform::NONE;
  std::vector<std::string> transforms;
  transforms.push_back(all ? v1::DenseTransform::Transform_Name(dense.transform()) : "as in the file");
  for (const v1::DenseTransform::Column& one : dense.column()) {
    if (one.variable() != column.name) continue;
    transforms.push_back(absl::StrCat("[", one.index(), "] ", v1::DenseTransform::Transform_Name(one.transform())));
  }
  return absl::StrCat(column.name, " [B, ", column.width, "]: floats", PartitionText(column, job), "; ",
                      absl::StrJoin(transforms, ", "));
}

std::string IdsText(const Column& column, const v1::JobConfig& job) {
  const v1::IdTransform& ids = job.data().ids();
  std::string what;
  for (const v1::Derived& derived : job.data().derived()) {
    if (derived.name() == column.name) what = DerivedText(derived);
  }
  if (what.empty()) {
    std::vector<std::string> kinds;
    for (const IdKind kind : column.id_kinds.empty() ? std::vector<IdKind>{IdKind::kUnknown} : column.id_kinds) {
      if (std::find(kinds.begin(), kinds.end(), KindText(kind)) == kinds.end()) kinds.emplace_back(KindText(kind));
    }
    what = absl::StrCat(absl::StrJoin(kinds, " and "), PartitionText(column, job));
  }
  if (column.width > 1) absl::StrAppend(&what, " in ", column.width, " slots (", Several(column.slot_names), ")");
  const std::string& of = column.ids_of.empty() ? column.name : column.ids_of;
  const bool shared = std::find(ids.shared().begin(), ids.shared().end(), of) != ids.shared().end();
  absl::StrAppend(&what, "; ",
                  shared                   ? "one id space"
                  : !column.ids_of.empty() ? absl::StrCat("id space of ", of)
                  : column.width == 1      ? "an id space of its own"
                                           : "an id space for each slot");
  if (ids.min_count() > 1)
    absl::StrAppend(&what, "; one id for all that are seen less than ", ids.min_count(), " times");
  absl::StrAppend(&what,
                  ids.empty() == v1::IdTransform::ZERO ? "; empty slots add nothing" : "; empty slots have an id");
  return absl::StrCat(column.name, ": ", what);
}

}  // namespace

std::vector<std::string> ColumnTexts(const v1::JobConfig& job) {
  const absl::StatusOr<std::unique_ptr<LineParser>> parser = MakeLineParser(job.data());
  if (!parser.ok()) return {};
  std::vector<std::string> texts;
  for (const Column& column : (*parser)->columns()) {
    texts.push_back(column.kind == v1::IDS ? IdsText(column, job) : FloatsText(column, job));
  }
  return texts;
}

}  // namespace weir
