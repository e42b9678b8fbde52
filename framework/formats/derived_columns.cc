// Derived variables that an example's values alone make: cross, hash, bucketize, time.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "framework/base/status_macros.h"
#include "framework/formats/derived_rule.h"
#include "framework/formats/float_bound.h"

namespace weir {
namespace {

constexpr size_t kMostCrossed = 8;
constexpr int kMinutesOfDay = 24 * 60;

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
class CrossRule : public DerivedRule {
 public:
  CrossRule(std::string name, std::vector<ExampleInput> inputs, Combine combine)
      : name_(std::move(name)), inputs_(std::move(inputs)), combine_(std::move(combine)) {
    for (const ExampleInput& input : inputs_) slots_.push_back(input.place);
  }

  absl::Status Add(size_t slot, DerivedSlots* view) const override {
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
  absl::Status CheckSizes(const DerivedSlots& view) const {
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

}  // namespace

absl::StatusOr<DerivedRulePtr> MakeCrossRule(const std::vector<Column>& columns, const v1::Derived& derived,
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

namespace {

class HashRule : public DerivedRule {
 public:
  HashRule(size_t in, IdHash hash) : in_(in), hash_(hash) {}
  absl::Status Add(size_t slot, DerivedSlots* view) const override {
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

}  // namespace

absl::StatusOr<DerivedRulePtr> MakeHashRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                            const std::string& path, const SettingErrors& errors) {
  RETURN_IF_ERROR(CheckBuckets(derived.hash().buckets(), path, errors));
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, derived.hash().of(), path + ".of", "make ids of it first, with bucketize", errors));
  return std::make_unique<HashRule>(input.place,
                                    IdHash(derived.hash().seed(), static_cast<uint64_t>(derived.hash().buckets())));
}

namespace {

class BucketizeRule : public DerivedRule {
 public:
  BucketizeRule(ExampleInput in, std::vector<double> boundaries)
      : in_(std::move(in)), boundaries_(std::move(boundaries)) {
    for (const double boundary : boundaries_) floats_.push_back(NearestFloat(boundary));
  }
  absl::Status Add(size_t slot, DerivedSlots* view) const override {
    if (in_.ids) {
      const size_t count = view->count(in_.place);
      int64_t* const out = view->Append(slot, count);
      const int64_t* const ids = view->ids(in_.place);
      for (size_t i = 0; i < count; ++i) {
        const auto above = std::partition_point(boundaries_.begin(), boundaries_.end(),
                                                [&](double boundary) { return IsFrom(ids[i], boundary); });
        out[i] = above - boundaries_.begin();
      }
      return absl::OkStatus();
    }
    const float x = view->Float(in_.place);
    const bool missing = std::isnan(x);
    int64_t* const out = view->Append(slot, missing ? 0 : 1);
    if (!missing) *out = std::upper_bound(floats_.begin(), floats_.end(), x) - floats_.begin();
    return absl::OkStatus();
  }

 private:
  const ExampleInput in_;
  const std::vector<double> boundaries_;
  std::vector<float> floats_;  // boundaries of floats
};

absl::StatusOr<DerivedRulePtr> MakeQuantiles(const std::vector<Column>& columns,
                                             const v1::Derived::Bucketize& bucketize, const std::string& path,
                                             const SettingErrors& errors) {
  constexpr int kMost = 10000;
  if (bucketize.quantiles() < 2 || bucketize.quantiles() > kMost) {
    return errors.Error(path + ".quantiles",
                        absl::StrCat("must be from 2 to ", kMost, ", got ", bucketize.quantiles()));
  }
  ASSIGN_OR_RETURN(const ExampleInput input, FindInput(columns, bucketize.of(), path + ".of", errors));
  RETURN_IF_ERROR(ExpectNumber(input, path + ".of", errors));
  RETURN_IF_ERROR(ExpectKnown(input, path + ".of", errors));
  return NoIds();
}

}  // namespace

absl::StatusOr<DerivedRulePtr> MakeBucketizeRule(const std::vector<Column>& columns, const v1::Derived& derived,
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
  for (size_t i = 1; i < boundaries.size() && !input.ids; ++i) {
    if (NearestFloat(boundaries[i - 1]) < NearestFloat(boundaries[i])) continue;
    return errors.Error(absl::StrCat(path, ".boundaries[", i, "]"), SameFloats(boundaries[i - 1], boundaries[i]));
  }
  return std::make_unique<BucketizeRule>(std::move(input), std::move(boundaries));
}

namespace {

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

class TimeRule : public DerivedRule {
 public:
  TimeRule(std::string name, size_t in, const v1::Derived::Time& time)
      : name_(std::move(name)),
        in_(in),
        part_(time.part()),
        unit_(time.unit() == v1::Derived::Time::MILLISECONDS ? 1000 : 1),
        offset_(int64_t{60} * time.utc_offset_minutes()) {}
  absl::Status Add(size_t slot, DerivedSlots* view) const override {
    // First second of the year 0, and the end of 9999: present-day milliseconds, taken for seconds, are far behind
    // that.
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

}  // namespace

absl::StatusOr<DerivedRulePtr> MakeTimeRule(const std::vector<Column>& columns, const v1::Derived& derived,
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

}  // namespace weir
