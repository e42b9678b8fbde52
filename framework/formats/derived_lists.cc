// Derived variables of lists of ids: vocabularies, frequencies, and negatives that are drawn from a list or a range.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/status_macros.h"
#include "framework/formats/alias_table.h"
#include "framework/formats/derived_rule.h"

namespace weir {
namespace {

class VocabularyRule : public DerivedRule {
 public:
  VocabularyRule(std::string name, size_t in, std::shared_ptr<const IdList> list, const v1::Derived::Vocabulary& config)
      : name_(std::move(name)),
        in_(in),
        list_(std::move(list)),
        has_buckets_(config.unknown_buckets() > 0),
        refuses_(config.refuse_unknown()),
        hash_(0, static_cast<uint64_t>(config.unknown_buckets())) {}
  absl::Status Add(size_t slot, DerivedSlots* view) const override {
    const size_t count = view->count(in_);
    int64_t* const out = view->Append(slot, count);
    const int64_t* const ids = view->ids(in_);
    size_t known = 0;
    for (size_t i = 0; i < count; ++i) {
      int64_t place = list_->Find(ids[i]);
      if (place < 0) {
        if (refuses_) return Unknown(ids[i]);
        if (!has_buckets_) continue;
        place = static_cast<int64_t>(list_->ids().size()) + hash_(ids + i, 1);
      }
      out[known++] = place;
    }
    if (known < count) view->Shorten(slot, known);
    return absl::OkStatus();
  }
  int64_t looked_up() const override { return list_->is_large() ? static_cast<int64_t>(in_) : -1; }
  const void* PlaceOf(int64_t id) const override { return list_->PlaceOf(id); }

 private:
  absl::Status Unknown(int64_t id) const {
    return absl::InvalidArgumentError(absl::StrCat("'", name_, "': the vocabulary of ", list_->ids().size(),
                                                   " values does not have this one, whose id is ", id,
                                                   " (data.derived.vocabulary.refuse_unknown)"));
  }

  const std::string name_;
  const size_t in_;
  const std::shared_ptr<const IdList> list_;
  const bool has_buckets_;
  const bool refuses_;
  const IdHash hash_;
};

}  // namespace

absl::StatusOr<DerivedRulePtr> MakeVocabularyRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                                  std::shared_ptr<const IdList> list, const std::string& path,
                                                  const SettingErrors& errors) {
  const v1::Derived::Vocabulary& vocabulary = derived.vocabulary();
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, vocabulary.of(), path + ".of", "make ids of it first, with bucketize", errors));
  if (!vocabulary.has_learned() && vocabulary.file().empty()) {
    return errors.Error(path, "needs a file, or learned {}: the values that have a place");
  }
  if (vocabulary.has_learned()) {
    RETURN_IF_ERROR(ExpectKnown(input, path + ".of", errors));
    if (vocabulary.learned().min_count() < 1) {
      return errors.Error(path + ".learned.min_count",
                          absl::StrCat("must be at least 1, got ", vocabulary.learned().min_count()));
    }
    if (vocabulary.learned().most() < 0) {
      return errors.Error(path + ".learned.most",
                          absl::StrCat("must be at least 0, got ", vocabulary.learned().most()));
    }
  }
  if (vocabulary.unknown_buckets() < 0) {
    return errors.Error(path + ".unknown_buckets",
                        absl::StrCat("must be at least 0, got ", vocabulary.unknown_buckets()));
  }
  if (vocabulary.unknown_buckets() > 0 && vocabulary.refuse_unknown()) {
    return errors.Error(path + ".refuse_unknown", "leaves nothing for unknown_buckets; set one of them");
  }
  if (list == nullptr) return NoIds();
  return std::make_unique<VocabularyRule>(derived.name(), input.place, std::move(list), vocabulary);
}

namespace {

class FrequencyRule : public DerivedRule {
 public:
  FrequencyRule(std::string name, std::string of, size_t in, std::shared_ptr<const IdList> list)
      : name_(std::move(name)), of_(std::move(of)), in_(in), list_(std::move(list)) {}
  absl::Status Add(size_t position, DerivedSlots* view) const override {
    const size_t count = view->count(in_);
    if (count > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", name_, "': '", of_, "' has ", count, " ids; a frequency is of one"));
    }
    if (list_ == nullptr) {
      // A number that no loss refuses: the pass that learns looks at the lines as training does.
      view->SetFloat(position, 1);
      return absl::OkStatus();
    }
    const int64_t place = count == 0 ? -1 : list_->Find(*view->ids(in_));
    const double times = place < 0 ? 1 : list_->weights()[static_cast<size_t>(place)];
    view->SetFloat(position, static_cast<float>(times / list_->total()));
    return absl::OkStatus();
  }
  int64_t looked_up() const override { return list_ != nullptr && list_->is_large() ? static_cast<int64_t>(in_) : -1; }
  const void* PlaceOf(int64_t id) const override { return list_->PlaceOf(id); }

 private:
  const std::string name_;
  const std::string of_;
  const size_t in_;
  const std::shared_ptr<const IdList> list_;
};

}  // namespace

absl::StatusOr<DerivedRulePtr> MakeFrequencyRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                                 std::shared_ptr<const IdList> list, const std::string& path,
                                                 const SettingErrors& errors) {
  ASSIGN_OR_RETURN(const ExampleInput input, FindIds(columns, derived.frequency().of(), path + ".of",
                                                     "make ids of it first, with bucketize", errors));
  RETURN_IF_ERROR(ExpectKnown(input, path + ".of", errors));
  return std::make_unique<FrequencyRule>(derived.name(), input.name, input.place, std::move(list));
}

namespace {

// Raw ids from `first` on, each as often.
class UniformIds {
 public:
  explicit UniformIds(const v1::Derived::Negatives::Range& range)
      : first_(range.first()), items_(static_cast<uint64_t>(range.items())) {}
  int64_t Draw(uint64_t bits) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<int64_t>(static_cast<uint64_t>(first_) +
                                static_cast<uint64_t>(static_cast<Wide>(bits) * items_ >> 64));
  }
  uint64_t size() const { return items_; }

 private:
  int64_t first_;
  uint64_t items_;
};

// The ids of a list, each as often as its weight to the power of alpha says.
class PopularIds {
 public:
  PopularIds(std::shared_ptr<const IdList> list, double alpha)
      : list_(std::move(list)), table_(std::make_shared<AliasTable>(Powers(list_->weights(), alpha))) {}
  int64_t Draw(uint64_t bits) const { return list_->ids()[table_->Draw(bits)]; }
  uint64_t size() const { return list_->ids().size(); }

 private:
  static std::vector<double> Powers(const std::vector<double>& weights, double alpha) {
    // Weights are divided by the largest, so that no power overflows.
    const double largest = *std::max_element(weights.begin(), weights.end());
    std::vector<double> powers(weights.size());
    // Learned lists are in order of their counts, most of which are small and stand there many times.
    for (size_t i = 0; i < weights.size(); ++i) {
      powers[i] = i > 0 && weights[i] == weights[i - 1] ? powers[i - 1] : Power(weights[i] / largest, alpha);
    }
    return powers;
  }

  std::shared_ptr<const IdList> list_;
  std::shared_ptr<const AliasTable> table_;
};

template <typename Ids>
class NegativesRule : public DerivedRule {
 public:
  NegativesRule(std::string name, size_t of, int count, Ids ids)
      : name_(std::move(name)),
        of_(of),
        count_(static_cast<size_t>(count)),
        ids_(std::move(ids)),
        key_(StableHash(name_)) {}
  absl::Status Add(size_t slot, DerivedSlots* view) const override {
    // An example that has nearly all ids would draw for ever.
    constexpr uint64_t kMostDraws = 1000;
    constexpr ptrdiff_t kSearched = 32;  // more are sorted first
    int64_t* const out = view->Append(slot, count_);
    const int64_t* own = view->ids(of_);
    const int64_t* own_end = own + view->count(of_);
    std::vector<int64_t> sorted;
    if (own_end - own > kSearched) {
      sorted.assign(own, own_end);
      std::sort(sorted.begin(), sorted.end());
      own = sorted.data();
      own_end = own + sorted.size();
    }
    const auto has = [&](int64_t id) {
      return sorted.empty() ? std::find(own, own_end, id) != own_end : std::binary_search(own, own_end, id);
    };
    uint64_t draws = 0;
    for (size_t i = 0; i < count_; ++i) {
      do {
        if (draws == kMostDraws * (i + 1)) {
          return absl::InvalidArgumentError(absl::StrCat(
              "'", name_, "': ", own_end - own, " ids of the example leave too few of ", ids_.size(), " to draw from"));
        }
        const PhiloxBlock random = Philox(key_ ^ view->draw(), draws++, 0);
        const uint64_t bits = static_cast<uint64_t>(random.v[1]) << 32 | random.v[0];
        out[i] = ids_.Draw(bits);
      } while (has(out[i]));
    }
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const size_t of_;
  const size_t count_;
  const Ids ids_;
  const uint64_t key_;
};

absl::StatusOr<DerivedRulePtr> MakePopular(const std::vector<Column>& columns, const v1::Derived& derived,
                                           std::shared_ptr<const IdList> list, const std::string& path,
                                           const SettingErrors& errors) {
  constexpr double kMostAlpha = 16;
  const v1::Derived::Negatives& negatives = derived.negatives();
  const v1::Derived::Negatives::Popularity& popularity = negatives.popularity();
  if (!(popularity.alpha() >= 0 && popularity.alpha() <= kMostAlpha)) {
    return errors.Error(path + ".popularity.alpha",
                        absl::StrCat("must be from 0 to ", kMostAlpha, ", got ", popularity.alpha()));
  }
  if (popularity.has_file() && popularity.file().empty()) {
    return errors.Error(path + ".popularity.file", "is empty; leave it out to draw as often as data.train has the ids");
  }
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, negatives.of(), path + ".of", "read the column as ids", errors));
  if (popularity.file().empty()) RETURN_IF_ERROR(ExpectKnown(input, path + ".of", errors));
  if (list == nullptr) return NoIds();
  return std::make_unique<NegativesRule<PopularIds>>(derived.name(), input.place, negatives.count(),
                                                     PopularIds(std::move(list), popularity.alpha()));
}

absl::StatusOr<DerivedRulePtr> MakeUniform(const std::vector<Column>& columns, const v1::Derived& derived,
                                           const std::string& path, const SettingErrors& errors) {
  const v1::Derived::Negatives& negatives = derived.negatives();
  const v1::Derived::Negatives::Range& range = negatives.uniform();
  if (range.items() < 2) {
    return errors.Error(path + ".uniform.items",
                        absl::StrCat("must be at least 2, one to be chosen and one to be none; got ", range.items()));
  }
  if (range.first() > std::numeric_limits<int64_t>::max() - range.items()) {
    return errors.Error(path + ".uniform.items", "goes beyond the largest id");
  }
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, negatives.of(), path + ".of", "read the column as ids", errors));
  if (input.id_kind == IdKind::kText) {
    return errors.Error(path + ".of", absl::StrCat("'", input.name,
                                                   "' is texts, whose ids are no range of numbers: read "
                                                   "the column as ids, or draw them by popularity"));
  }
  return std::make_unique<NegativesRule<UniformIds>>(derived.name(), input.place, negatives.count(), UniformIds(range));
}

}  // namespace

absl::StatusOr<DerivedRulePtr> MakeNegativesRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                                 std::shared_ptr<const IdList> list, const std::string& path,
                                                 const SettingErrors& errors) {
  const v1::Derived::Negatives& negatives = derived.negatives();
  if (negatives.count() < 1 || negatives.count() > Example::kMaxSlotIds) {
    return errors.Error(path + ".count",
                        absl::StrCat("must be from 1 to ", Example::kMaxSlotIds, ", got ", negatives.count()));
  }
  if (negatives.has_uniform()) return MakeUniform(columns, derived, path, errors);
  if (negatives.has_popularity()) return MakePopular(columns, derived, std::move(list), path, errors);
  return errors.Error(path, "needs uniform or popularity: the ids to draw from");
}

}  // namespace weir
