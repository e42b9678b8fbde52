#include "framework/formats/derived.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/types/span.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/alias_table.h"
#include "framework/formats/example_input.h"

namespace weir {
namespace {

constexpr size_t kMostCrossed = 8;
constexpr int kMinutesOfDay = 24 * 60;

// Ids by slot of an example whose last slots are not there yet. Only slots below `needed`, and those set since, can be
// asked for.
class SlotView {
 public:
  // `slots`: number of slots whose ids are there.
  SlotView(Example* example, size_t slots, size_t needed) : example_(*example), first_(example->scratch_slots) {
    if (first_.size() < example_.counts.size()) first_.resize(example_.counts.size());
    uint16_t* const counts = example_.counts.data();
    // In most data every slot has one id.
    if (example_.ids.size() == slots && OneEach({counts, slots})) {
      for (size_t slot = 0; slot < needed; ++slot) first_[slot] = static_cast<uint32_t>(slot);
      return;
    }
    uint32_t at = 0;
    for (size_t slot = 0; slot < needed; ++slot) {
      first_[slot] = at;
      at += counts[slot];
    }
  }

  uint64_t draw() const { return example_.draw; }
  float Float(size_t position) const { return example_.floats[position]; }
  void SetFloat(size_t position, float value) { example_.floats[position] = value; }
  size_t count(size_t slot) const { return example_.counts[slot]; }
  // Valid until the next Append.
  const int64_t* ids(size_t slot) const { return example_.ids.data() + first_[slot]; }
  // Makes room for `count` ids of the next slot, behind those of all slots before it. Returns where they belong; the
  // ids of earlier slots are elsewhere from here on.
  int64_t* Append(size_t slot, size_t count) {
    const size_t before = example_.ids.size();
    first_[slot] = static_cast<uint32_t>(before);
    example_.counts[slot] = static_cast<uint16_t>(count);
    example_.ids.resize(before + count);
    if (!example_.weights.empty()) example_.weights.resize(before + count, 1.0f);
    return example_.ids.data() + before;
  }
  // Takes back all but the first `count` ids of the slot that was appended last.
  void Shorten(size_t slot, size_t count) {
    const size_t size = first_[slot] + count;
    example_.counts[slot] = static_cast<uint16_t>(count);
    example_.ids.resize(size);
    if (!example_.weights.empty()) example_.weights.resize(size);
  }

 private:
  Example& example_;
  std::vector<uint32_t>& first_;
};

// Sets the values of one variable: the ids of slot `place`, or the float at that position. Thread-safe.
class Rule {
 public:
  virtual ~Rule() = default;
  virtual absl::Status Add(size_t place, SlotView* view) const = 0;
};
using RulePtr = std::unique_ptr<const Rule>;

// xxh3-64 of ids, taken by buckets. The rest of a division by a number that is always the same takes a few products
// (Lemire, Kaser and Kurz 2019: the fraction x / buckets as 128 bits behind the point, times buckets).
class IdHash {
 public:
  IdHash(uint64_t seed, uint64_t buckets)
      : seed_(seed), buckets_(buckets), inverse_(buckets == 0 ? 0 : ~Wide{0} / buckets + 1) {}
  int64_t operator()(const int64_t* values, size_t count) const {
    const uint64_t hash = StableHash(values, count * sizeof(int64_t), seed_);
    return static_cast<int64_t>(buckets_ == 0 ? hash : Rest(hash));
  }

 private:
  __extension__ using Wide = unsigned __int128;
  uint64_t Rest(uint64_t x) const {
    const Wide fraction = inverse_ * x;
    const Wide low = static_cast<Wide>(static_cast<uint64_t>(fraction)) * buckets_ >> 64;
    return static_cast<uint64_t>((low + static_cast<Wide>(static_cast<uint64_t>(fraction >> 64)) * buckets_) >> 64);
  }

  uint64_t seed_;
  uint64_t buckets_;
  Wide inverse_;  // 2^128 / buckets, rounded up; 0 for one bucket
};

absl::StatusOr<ExampleInput> FindIds(const std::vector<Column>& columns, const std::string& name,
                                     const std::string& field, const std::string& way_out,
                                     const SettingErrors& errors) {
  ASSIGN_OR_RETURN(ExampleInput input, FindInput(columns, name, field, errors));
  if (input.ids) return input;
  return errors.Error(field, absl::StrCat("'", name, "' is a float, not ids; ", way_out));
}

absl::Status CheckBuckets(int64_t buckets, const std::string& path, const SettingErrors& errors) {
  if (buckets >= 0) return absl::OkStatus();
  return errors.Error(path + ".buckets", absl::StrCat("must be at least 0, got ", buckets));
}

// The number of several small ones, the last of which counts by one.
class MixedRadix {
 public:
  explicit MixedRadix(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {}
  int64_t operator()(const int64_t* values, size_t count) const {
    int64_t number = 0;
    for (size_t i = 0; i < count; ++i) number = number * sizes_[i] + values[i];
    return number;
  }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  std::vector<int64_t> sizes_;
};

// `Combine` makes an id of one id of each input.
template <typename Combine>
class CrossRule : public Rule {
 public:
  CrossRule(std::string name, std::vector<ExampleInput> inputs, Combine combine)
      : name_(std::move(name)), inputs_(std::move(inputs)), combine_(std::move(combine)) {
    for (const ExampleInput& input : inputs_) slots_.push_back(input.place);
  }

  absl::Status Add(size_t slot, SlotView* view) const override {
    size_t all = 1;
    for (const size_t in : slots_) {
      // Too many stay too many, unless a later input has none.
      all = std::min(all * view->count(in), size_t{Example::kMaxSlotIds} + 1);
    }
    if (all > size_t{Example::kMaxSlotIds}) return TooMany();
    if constexpr (std::is_same_v<Combine, MixedRadix>) RETURN_IF_ERROR(CheckSizes(*view));
    int64_t* out = view->Append(slot, all);
    if (all == 0) return absl::OkStatus();
    const int64_t* of[kMostCrossed];
    int64_t key[kMostCrossed];
    const size_t n = slots_.size();
    for (size_t i = 0; i < n; ++i) {
      of[i] = view->ids(slots_[i]);
      key[i] = of[i][0];
    }
    *out++ = combine_(key, n);
    if (all == 1) return absl::OkStatus();
    size_t at[kMostCrossed] = {};
    while (--all > 0) {
      // Counts up, the last input first.
      for (size_t i = n; i-- > 0;) {
        at[i] = at[i] + 1 < view->count(slots_[i]) ? at[i] + 1 : 0;
        key[i] = of[i][at[i]];
        if (at[i] != 0) break;
      }
      *out++ = combine_(key, n);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckSizes(const SlotView& view) const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const auto size = static_cast<uint64_t>(combine_.sizes()[i]);
      const int64_t* const ids = view.ids(slots_[i]);
      for (size_t k = 0; k < view.count(slots_[i]); ++k) {
        if (static_cast<uint64_t>(ids[k]) < size) continue;
        return absl::InvalidArgumentError(absl::StrCat("'", name_, "' crosses ids of '", inputs_[i].name,
                                                       "' from 0 to ", size - 1, ", got ", ids[k]));
      }
    }
    return absl::OkStatus();
  }
  absl::Status TooMany() const {
    return absl::InvalidArgumentError(absl::StrCat("'", name_, "' would have more than ", Example::kMaxSlotIds,
                                                   " ids: the lists that it crosses are too long"));
  }

  const std::string name_;
  const std::vector<ExampleInput> inputs_;
  std::vector<size_t> slots_;
  const Combine combine_;
};

// Sizes of the inputs of an exact cross.
absl::StatusOr<MixedRadix> ExactSizes(const v1::Derived::Cross& cross, const std::string& path,
                                      const SettingErrors& errors) {
  if (cross.sizes_size() != cross.of_size()) {
    return errors.Error(path + ".sizes", absl::StrCat("needs a size for each of the ", cross.of_size(), " inputs, got ",
                                                      cross.sizes_size()));
  }
  if (cross.has_buckets() || cross.has_seed()) {
    return errors.Error(path + (cross.has_buckets() ? ".buckets" : ".seed"),
                        "is for a hash; with sizes every combination has an id of its own");
  }
  std::vector<int64_t> sizes(cross.sizes().begin(), cross.sizes().end());
  int64_t all = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::string field = absl::StrCat(path, ".sizes[", i, "]");
    if (sizes[i] < 1) return errors.Error(field, absl::StrCat("must be at least 1, got ", sizes[i]));
    if (__builtin_mul_overflow(all, sizes[i], &all)) {
      return errors.Error(field,
                          "makes more combinations than there are ids, 2^63 - 1; leave sizes out, and ids are "
                          "hashes of 64 bits");
    }
  }
  return MixedRadix(std::move(sizes));
}

absl::StatusOr<RulePtr> MakeCross(const std::vector<Column>& columns, const v1::Derived& derived,
                                  const std::string& path, const SettingErrors& errors) {
  const v1::Derived::Cross& cross = derived.cross();
  const auto count = static_cast<size_t>(cross.of_size());
  if (count < 2 || count > kMostCrossed) {
    return errors.Error(path, absl::StrCat("needs `of` two to ", kMostCrossed, " times, got ", count));
  }
  RETURN_IF_ERROR(CheckBuckets(cross.buckets(), path, errors));
  std::vector<ExampleInput> inputs;
  for (int i = 0; i < cross.of_size(); ++i) {
    const std::string field = absl::StrCat(path, ".of[", i, "]");
    ASSIGN_OR_RETURN(ExampleInput input,
                     FindIds(columns, cross.of(i), field, "make ids of it first, with bucketize", errors));
    if (cross.sizes_size() > 0 && input.id_kind == IdKind::kText) {
      return errors.Error(field,
                          absl::StrCat("'", input.name, "' is texts, whose ids are hashes and not below a size; ",
                                       "give them places first, with vocabulary"));
    }
    inputs.push_back(std::move(input));
  }
  if (cross.sizes_size() > 0) {
    ASSIGN_OR_RETURN(MixedRadix sizes, ExactSizes(cross, path, errors));
    return std::make_unique<CrossRule<MixedRadix>>(derived.name(), std::move(inputs), std::move(sizes));
  }
  return std::make_unique<CrossRule<IdHash>>(derived.name(), std::move(inputs),
                                             IdHash(cross.seed(), static_cast<uint64_t>(cross.buckets())));
}

class HashRule : public Rule {
 public:
  HashRule(size_t in, IdHash hash) : in_(in), hash_(hash) {}
  absl::Status Add(size_t slot, SlotView* view) const override {
    const size_t count = view->count(in_);
    int64_t* const out = view->Append(slot, count);
    const int64_t* const ids = view->ids(in_);
    for (size_t i = 0; i < count; ++i) out[i] = hash_(ids + i, 1);
    return absl::OkStatus();
  }

 private:
  const size_t in_;
  const IdHash hash_;
};

absl::StatusOr<RulePtr> MakeHash(const std::vector<Column>& columns, const v1::Derived& derived,
                                 const std::string& path, const SettingErrors& errors) {
  RETURN_IF_ERROR(CheckBuckets(derived.hash().buckets(), path, errors));
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, derived.hash().of(), path + ".of", "make ids of it first, with bucketize", errors));
  return std::make_unique<HashRule>(input.place,
                                    IdHash(derived.hash().seed(), static_cast<uint64_t>(derived.hash().buckets())));
}

class BucketizeRule : public Rule {
 public:
  BucketizeRule(ExampleInput in, std::vector<double> boundaries)
      : in_(std::move(in)), boundaries_(std::move(boundaries)) {}
  absl::Status Add(size_t slot, SlotView* view) const override {
    if (in_.ids) {
      const size_t count = view->count(in_.place);
      int64_t* const out = view->Append(slot, count);
      const int64_t* const ids = view->ids(in_.place);
      for (size_t i = 0; i < count; ++i) out[i] = BucketOf(static_cast<double>(ids[i]));
      return absl::OkStatus();
    }
    const float x = view->Float(in_.place);
    const bool missing = std::isnan(x);
    int64_t* const out = view->Append(slot, missing ? 0 : 1);
    if (!missing) *out = BucketOf(x);
    return absl::OkStatus();
  }

 private:
  int64_t BucketOf(double x) const {
    return std::upper_bound(boundaries_.begin(), boundaries_.end(), x) - boundaries_.begin();
  }

  const ExampleInput in_;
  const std::vector<double> boundaries_;
};

// No id: a variable that is yet to be learned.
class NothingRule : public Rule {
 public:
  absl::Status Add(size_t slot, SlotView* view) const override {
    view->Append(slot, 0);
    return absl::OkStatus();
  }
};

// What is learned from the data is learned from the values of its columns.
absl::Status ExpectKnown(const ExampleInput& input, const std::string& field, const SettingErrors& errors) {
  if (!input.learned) return absl::OkStatus();
  return errors.Error(field,
                      absl::StrCat("'", input.name, "' is learned from the data itself, or made of what is; one ",
                                   "pass cannot learn of it: name what it is made of"));
}

absl::StatusOr<RulePtr> MakeQuantiles(const std::vector<Column>& columns, const v1::Derived::Bucketize& bucketize,
                                      const std::string& path, const SettingErrors& errors) {
  constexpr int kMost = 10000;
  if (bucketize.quantiles() < 2 || bucketize.quantiles() > kMost) {
    return errors.Error(path + ".quantiles",
                        absl::StrCat("must be from 2 to ", kMost, ", got ", bucketize.quantiles()));
  }
  ASSIGN_OR_RETURN(const ExampleInput input, FindInput(columns, bucketize.of(), path + ".of", errors));
  RETURN_IF_ERROR(ExpectNumber(input, path + ".of", errors));
  RETURN_IF_ERROR(ExpectKnown(input, path + ".of", errors));
  return std::make_unique<NothingRule>();
}

absl::StatusOr<RulePtr> MakeBucketize(const std::vector<Column>& columns, const v1::Derived& derived,
                                      const std::string& path, const SettingErrors& errors) {
  const v1::Derived::Bucketize& bucketize = derived.bucketize();
  std::vector<double> boundaries(bucketize.boundaries().begin(), bucketize.boundaries().end());
  if (boundaries.empty() != bucketize.has_quantiles()) {
    return errors.Error(path, "needs boundaries, or the number of quantiles to learn, and not both");
  }
  if (bucketize.has_quantiles()) return MakeQuantiles(columns, bucketize, path, errors);
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const std::string field = absl::StrCat(path, ".boundaries[", i, "]");
    if (std::isnan(boundaries[i])) return errors.Error(field, "is no number");
    if (i == 0 || boundaries[i - 1] < boundaries[i]) continue;
    return errors.Error(field,
                        absl::StrCat("must be above the one before, ", boundaries[i - 1], ", got ", boundaries[i]));
  }
  ASSIGN_OR_RETURN(ExampleInput input, FindInput(columns, bucketize.of(), path + ".of", errors));
  RETURN_IF_ERROR(ExpectNumber(input, path + ".of", errors));
  return std::make_unique<BucketizeRule>(std::move(input), std::move(boundaries));
}

int64_t FloorDiv(int64_t x, int64_t by) { return x / by - (x % by < 0 ? 1 : 0); }

int64_t PartOf(v1::Derived::Time::Part part, int64_t seconds) {
  constexpr int64_t kDay = 86400, kHour = 3600;
  const int64_t day = FloorDiv(seconds, kDay), hour = (seconds - day * kDay) / kHour;
  // 1970 began on a Thursday.
  const int64_t weekday = (day % 7 + 7 + 3) % 7;
  switch (part) {
    case v1::Derived::Time::HOUR:
      return hour;
    case v1::Derived::Time::WEEKDAY:
      return weekday;
    case v1::Derived::Time::HOUR_OF_WEEK:
      return 24 * weekday + hour;
    case v1::Derived::Time::DAY:
      return (absl::CivilDay(1970, 1, 1) + day).day();
    case v1::Derived::Time::MONTH:
      return (absl::CivilDay(1970, 1, 1) + day).month();
  }
  return 0;
}

class TimeRule : public Rule {
 public:
  TimeRule(std::string name, size_t in, const v1::Derived::Time& time)
      : name_(std::move(name)),
        in_(in),
        part_(time.part()),
        unit_(time.unit() == v1::Derived::Time::MILLISECONDS ? 1000 : 1),
        offset_(int64_t{60} * time.utc_offset_minutes()) {}
  absl::Status Add(size_t slot, SlotView* view) const override {
    // From the year 0 to the end of 9999: milliseconds of today are far behind that if they are taken for seconds.
    constexpr int64_t kFirst = -62167219200, kEnd = 253402300800;
    const size_t count = view->count(in_);
    int64_t* const out = view->Append(slot, count);
    const int64_t* const ids = view->ids(in_);
    for (size_t i = 0; i < count; ++i) {
      const int64_t seconds = FloorDiv(ids[i], unit_);
      if (seconds < kFirst || seconds >= kEnd) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", name_, "': ", ids[i], unit_ == 1 ? " seconds" : " milliseconds",
                         " since 1970 are not in the years 0 to 9999; is the unit right?"));
      }
      out[i] = PartOf(part_, seconds + offset_);
    }
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const size_t in_;
  const v1::Derived::Time::Part part_;
  const int64_t unit_;
  const int64_t offset_;  // seconds
};

absl::StatusOr<RulePtr> MakeTime(const std::vector<Column>& columns, const v1::Derived& derived,
                                 const std::string& path, const SettingErrors& errors) {
  const v1::Derived::Time& time = derived.time();
  if (time.utc_offset_minutes() <= -kMinutesOfDay || time.utc_offset_minutes() >= kMinutesOfDay) {
    return errors.Error(path + ".utc_offset_minutes",
                        absl::StrCat("must be less than a day, got ", time.utc_offset_minutes()));
  }
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, time.of(), path + ".of",
                           "a float holds no seconds since 1970 exactly: read the column as an ID", errors));
  RETURN_IF_ERROR(ExpectNumber(input, path + ".of", errors));
  return std::make_unique<TimeRule>(derived.name(), input.place, time);
}

class VocabularyRule : public Rule {
 public:
  VocabularyRule(std::string name, size_t in, std::shared_ptr<const IdList> list, const v1::Derived::Vocabulary& config)
      : name_(std::move(name)),
        in_(in),
        list_(std::move(list)),
        has_buckets_(config.unknown_buckets() > 0),
        refuses_(config.refuse_unknown()),
        hash_(0, static_cast<uint64_t>(config.unknown_buckets())) {}
  absl::Status Add(size_t slot, SlotView* view) const override {
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

absl::StatusOr<RulePtr> MakeVocabulary(const std::vector<Column>& columns, const v1::Derived& derived,
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
  if (list == nullptr) return std::make_unique<NothingRule>();
  return std::make_unique<VocabularyRule>(derived.name(), input.place, std::move(list), vocabulary);
}

class FrequencyRule : public Rule {
 public:
  FrequencyRule(std::string name, std::string of, size_t in, std::shared_ptr<const IdList> list)
      : name_(std::move(name)), of_(std::move(of)), in_(in), list_(std::move(list)) {}
  absl::Status Add(size_t position, SlotView* view) const override {
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

 private:
  const std::string name_;
  const std::string of_;
  const size_t in_;
  const std::shared_ptr<const IdList> list_;
};

absl::StatusOr<RulePtr> MakeFrequency(const std::vector<Column>& columns, const v1::Derived& derived,
                                      std::shared_ptr<const IdList> list, const std::string& path,
                                      const SettingErrors& errors) {
  ASSIGN_OR_RETURN(const ExampleInput input, FindIds(columns, derived.frequency().of(), path + ".of",
                                                     "make ids of it first, with bucketize", errors));
  RETURN_IF_ERROR(ExpectKnown(input, path + ".of", errors));
  return std::make_unique<FrequencyRule>(derived.name(), input.name, input.place, std::move(list));
}

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
    // Of the largest, so that no power of it overflows.
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
class NegativesRule : public Rule {
 public:
  NegativesRule(std::string name, size_t of, int count, Ids ids)
      : name_(std::move(name)),
        of_(of),
        count_(static_cast<size_t>(count)),
        ids_(std::move(ids)),
        key_(StableHash(name_)) {}
  absl::Status Add(size_t slot, SlotView* view) const override {
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

absl::StatusOr<RulePtr> MakePopular(const std::vector<Column>& columns, const v1::Derived& derived,
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
  if (list == nullptr) return std::make_unique<NothingRule>();
  return std::make_unique<NegativesRule<PopularIds>>(derived.name(), input.place, negatives.count(),
                                                     PopularIds(std::move(list), popularity.alpha()));
}

absl::StatusOr<RulePtr> MakeUniform(const std::vector<Column>& columns, const v1::Derived& derived,
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

absl::StatusOr<RulePtr> MakeNegatives(const std::vector<Column>& columns, const v1::Derived& derived,
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

absl::StatusOr<RulePtr> MakeRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                 std::shared_ptr<const IdList> list, const std::string& path,
                                 const SettingErrors& errors) {
  switch (derived.kind_case()) {
    case v1::Derived::kCross:
      return MakeCross(columns, derived, path + ".cross", errors);
    case v1::Derived::kHash:
      return MakeHash(columns, derived, path + ".hash", errors);
    case v1::Derived::kBucketize:
      return MakeBucketize(columns, derived, path + ".bucketize", errors);
    case v1::Derived::kTime:
      return MakeTime(columns, derived, path + ".time", errors);
    case v1::Derived::kNegatives:
      return MakeNegatives(columns, derived, std::move(list), path + ".negatives", errors);
    case v1::Derived::kVocabulary:
      return MakeVocabulary(columns, derived, std::move(list), path + ".vocabulary", errors);
    case v1::Derived::kFrequency:
      return MakeFrequency(columns, derived, std::move(list), path + ".frequency", errors);
    case v1::Derived::KIND_NOT_SET:
      break;
  }
  return errors.Error(path, "needs one of cross, hash, bucketize, time, negatives, vocabulary, frequency");
}

// Names of the inputs of a variable.
std::vector<std::string> InputsOf(const v1::Derived& derived) {
  switch (derived.kind_case()) {
    case v1::Derived::kCross:
      return {derived.cross().of().begin(), derived.cross().of().end()};
    case v1::Derived::kHash:
      return {derived.hash().of()};
    case v1::Derived::kBucketize:
      return {derived.bucketize().of()};
    case v1::Derived::kTime:
      return {derived.time().of()};
    case v1::Derived::kNegatives:
      return {derived.negatives().of()};
    case v1::Derived::kVocabulary:
      return {derived.vocabulary().of()};
    case v1::Derived::kFrequency:
      return {derived.frequency().of()};
    case v1::Derived::KIND_NOT_SET:
      break;
  }
  return {};
}

// Returns whether the values of a variable, whose settings are right, are not known before the pass over the data.
absl::StatusOr<bool> IsLearned(const std::vector<Column>& columns, const v1::Derived& derived, bool has_quantiles,
                               const SettingErrors& errors) {
  if (derived.has_frequency() || derived.vocabulary().has_learned() || has_quantiles ||
      (derived.negatives().has_popularity() && derived.negatives().popularity().file().empty())) {
    return true;
  }
  for (const std::string& of : InputsOf(derived)) {
    ASSIGN_OR_RETURN(const ExampleInput input, FindInput(columns, of, "", errors));
    if (input.learned) return true;
  }
  return false;
}

// Gives a column the ids of an input that FindInput has found.
void ShareIds(const std::vector<Column>& columns, const std::string& input, Column* shared) {
  for (const Column& column : columns) {
    if (column.kind != v1::IDS) continue;
    for (size_t slot = 0; slot < column.slot_names.size(); ++slot) {
      if ((column.width == 1 ? column.name : column.slot_names[slot]) != input) continue;
      shared->ids_of = column.ids_of.empty() ? column.name : column.ids_of;
      shared->slot_names = {column.slot_names[slot]};
      if (!column.id_kinds.empty()) shared->id_kinds = {column.id_kinds[slot]};
    }
  }
}

// The rules of a job, in order. Immutable.
struct Rules {
  struct Placed {
    RulePtr rule;
    size_t place;  // a slot, or a position among all floats
  };
  std::vector<Placed> all;
  size_t needed = 0;  // slots of the reader, from the first on, that the rules read
};

class DerivedParser : public LineParser {
 public:
  DerivedParser(std::vector<Column> columns, std::shared_ptr<const LineParser> reader,
                std::shared_ptr<const Rules> rules)
      : LineParser(std::move(columns)), reader_(std::move(reader)), rules_(std::move(rules)) {}

  absl::Status Parse(std::string_view line, Example* example) const override {
    HideDerived(example);
    const absl::Status parsed = reader_->Parse(line, example);
    return AddDerived(parsed, example);
  }
  absl::Status ParsePlain(std::string_view line, Example* example) const override {
    HideDerived(example);
    const absl::Status parsed = reader_->ParsePlain(line, example);
    return AddDerived(parsed, example);
  }
  bool has_header() const override { return reader_->has_header(); }
  absl::StatusOr<std::unique_ptr<LineParser>> ForHeader(std::string_view header,
                                                        const std::vector<int64_t>& may_be_absent) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const LineParser> reader, reader_->ForHeader(header, may_be_absent));
    return std::make_unique<DerivedParser>(columns(), std::move(reader), rules_);
  }
  absl::StatusOr<std::unique_ptr<LineParser>> ForExampleRecords(const std::vector<Column>& columns) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const LineParser> reader, reader_->ForExampleRecords(columns));
    return std::make_unique<DerivedParser>(this->columns(), std::move(reader), rules_);
  }

 private:
  // The reader sees an example of its own sizes.
  void HideDerived(Example* example) const {
    example->counts.resize(static_cast<size_t>(reader_->slots()));
    example->floats.resize(static_cast<size_t>(reader_->floats()));
  }
  absl::Status AddDerived(const absl::Status& parsed, Example* example) const {
    example->counts.resize(static_cast<size_t>(slots()));
    example->floats.resize(static_cast<size_t>(floats()));
    RETURN_IF_ERROR(parsed);
    SlotView view(example, static_cast<size_t>(reader_->slots()), rules_->needed);
    for (const Rules::Placed& placed : rules_->all) RETURN_IF_ERROR(placed.rule->Add(placed.place, &view));
    return absl::OkStatus();
  }

  const std::shared_ptr<const LineParser> reader_;
  const std::shared_ptr<const Rules> rules_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> Derive(std::unique_ptr<LineParser> reader, const DerivedList& derived,
                                                   const Learned* learned, const SettingErrors& errors) {
  std::vector<Column> columns = reader->columns();
  auto rules = std::make_shared<Rules>();
  rules->needed = static_cast<size_t>(reader->slots());
  auto slots = static_cast<size_t>(reader->slots()), floats = static_cast<size_t>(reader->floats());
  for (int i = 0; i < derived.size(); ++i) {
    const std::string path = absl::StrCat("derived[", i, "]");
    const std::string& name = derived[i].name();
    if (name.empty()) return errors.Error(path, "needs a name");
    if (std::any_of(columns.begin(), columns.end(), [&](const Column& column) { return column.name == name; })) {
      return errors.Error(path + ".name", absl::StrCat("'", name, "' is a variable of the data already"));
    }
    ASSIGN_OR_RETURN(RulePtr rule,
                     MakeRule(columns, derived[i], learned == nullptr ? nullptr : learned->ListOf(i), path, errors));
    Column column{.name = name, .kind = v1::IDS, .width = 1, .slot_names = {name}, .id_kinds = {IdKind::kInteger}};
    if (derived[i].has_frequency()) column = {.name = name};
    if (derived[i].has_negatives()) ShareIds(columns, derived[i].negatives().of(), &column);
    // The boundaries that have been learned stand in the settings, as if the job had given them.
    const bool has_quantiles =
        derived[i].bucketize().has_quantiles() || (learned != nullptr && learned->Has(Lesson::kQuantiles, i));
    ASSIGN_OR_RETURN(column.learned, IsLearned(columns, derived[i], has_quantiles, errors));
    rules->all.push_back({std::move(rule), column.kind == v1::IDS ? slots++ : floats++});
    columns.push_back(std::move(column));
  }
  return std::make_unique<DerivedParser>(std::move(columns), std::move(reader), std::move(rules));
}

}  // namespace weir
