#include "framework/formats/derived.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/types/span.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/example_input.h"

namespace weir {
namespace {

constexpr size_t kMostCrossed = 8;
constexpr int kMinutesOfDay = 24 * 60;

// An example with the place of each slot's ids.
class SlotView {
 public:
  explicit SlotView(Example* example) : example_(*example), first_(example->scratch_slots) {
    first_.resize(example_.counts.size() + 1);
    uint32_t at = 0;
    for (size_t slot = 0; slot < example_.counts.size(); ++slot) {
      first_[slot] = at;
      at += example_.counts[slot];
    }
    first_.back() = at;
  }

  float Float(size_t position) const { return example_.floats[position]; }
  // Of the first `slots` slots, whose ids are there.
  absl::Span<const int64_t> Ids(size_t slot) const {
    return {example_.ids.data() + first_[slot], example_.counts[slot]};
  }
  // Sets the ids of the next slot, behind those of all slots before it.
  void Append(size_t slot, const std::vector<int64_t>& ids) {
    first_[slot] = static_cast<uint32_t>(example_.ids.size());
    example_.counts[slot] = static_cast<uint16_t>(ids.size());
    example_.ids.insert(example_.ids.end(), ids.begin(), ids.end());
    if (!example_.weights.empty()) example_.weights.resize(example_.ids.size(), 1.0f);
  }

 private:
  Example& example_;
  std::vector<uint32_t>& first_;
};

// Appends the ids of one variable.
using Rule = std::function<absl::Status(const SlotView& in, std::vector<int64_t>* ids)>;

int64_t HashId(const int64_t* values, size_t count, uint64_t seed, uint64_t buckets) {
  const uint64_t hash = StableHash(values, count * sizeof(int64_t), seed);
  return static_cast<int64_t>(buckets == 0 ? hash : hash % buckets);
}

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

absl::StatusOr<Rule> CrossRule(const std::vector<Column>& columns, const v1::Derived& derived, const std::string& path,
                               const SettingErrors& errors) {
  const v1::Derived::Cross& cross = derived.cross();
  const auto count = static_cast<size_t>(cross.of_size());
  if (count < 2 || count > kMostCrossed) {
    return errors.Error(path, absl::StrCat("needs `of` two to ", kMostCrossed, " times, got ", count));
  }
  RETURN_IF_ERROR(CheckBuckets(cross.buckets(), path, errors));
  std::vector<size_t> slots;
  for (int i = 0; i < cross.of_size(); ++i) {
    ASSIGN_OR_RETURN(const ExampleInput input, FindIds(columns, cross.of(i), absl::StrCat(path, ".of[", i, "]"),
                                                       "make ids of it first, with bucketize", errors));
    slots.push_back(input.place);
  }
  return Rule([slots, name = derived.name(), seed = cross.seed(), buckets = static_cast<uint64_t>(cross.buckets())](
                  const SlotView& in, std::vector<int64_t>* ids) -> absl::Status {
    absl::Span<const int64_t> of[kMostCrossed];
    int64_t key[kMostCrossed];
    size_t at[kMostCrossed] = {};
    size_t all = 1;
    for (size_t i = 0; i < slots.size(); ++i) {
      of[i] = in.Ids(slots[i]);
      all *= of[i].size();
      if (all == 0) return absl::OkStatus();
      if (all > size_t{Example::kMaxSlotIds}) {
        return absl::InvalidArgumentError(absl::StrCat("'", name, "' would have more than ", Example::kMaxSlotIds,
                                                       " ids: the lists that it crosses "
                                                       "are too long"));
      }
      key[i] = of[i][0];
    }
    for (; all > 0; --all) {
      ids->push_back(HashId(key, slots.size(), seed, buckets));
      // Counts up, the last input first.
      for (size_t i = slots.size(); i-- > 0;) {
        at[i] = at[i] + 1 < of[i].size() ? at[i] + 1 : 0;
        key[i] = of[i][at[i]];
        if (at[i] != 0) break;
      }
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Rule> HashRule(const std::vector<Column>& columns, const v1::Derived& derived, const std::string& path,
                              const SettingErrors& errors) {
  RETURN_IF_ERROR(CheckBuckets(derived.hash().buckets(), path, errors));
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, derived.hash().of(), path + ".of", "make ids of it first, with bucketize", errors));
  return Rule(
      [slot = input.place, seed = derived.hash().seed(), buckets = static_cast<uint64_t>(derived.hash().buckets())](
          const SlotView& in, std::vector<int64_t>* ids) {
        for (const int64_t id : in.Ids(slot)) ids->push_back(HashId(&id, 1, seed, buckets));
        return absl::OkStatus();
      });
}

absl::StatusOr<Rule> BucketizeRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                   const std::string& path, const SettingErrors& errors) {
  const std::vector<double> boundaries(derived.bucketize().boundaries().begin(),
                                       derived.bucketize().boundaries().end());
  if (boundaries.empty()) return errors.Error(path, "needs boundaries");
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const std::string field = absl::StrCat(path, ".boundaries[", i, "]");
    if (std::isnan(boundaries[i])) return errors.Error(field, "is no number");
    if (i == 0 || boundaries[i - 1] < boundaries[i]) continue;
    return errors.Error(field,
                        absl::StrCat("must be above the one before, ", boundaries[i - 1], ", got ", boundaries[i]));
  }
  ASSIGN_OR_RETURN(const ExampleInput input, FindInput(columns, derived.bucketize().of(), path + ".of", errors));
  return Rule([input, boundaries](const SlotView& in, std::vector<int64_t>* ids) {
    const auto add = [&](double x) {
      ids->push_back(std::upper_bound(boundaries.begin(), boundaries.end(), x) - boundaries.begin());
    };
    if (input.ids) {
      for (const int64_t id : in.Ids(input.place)) add(static_cast<double>(id));
    } else if (const float x = in.Float(input.place); !std::isnan(x)) {
      add(x);
    }
    return absl::OkStatus();
  });
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

absl::StatusOr<Rule> TimeRule(const std::vector<Column>& columns, const v1::Derived& derived, const std::string& path,
                              const SettingErrors& errors) {
  const v1::Derived::Time& time = derived.time();
  if (std::abs(time.utc_offset_minutes()) >= kMinutesOfDay) {
    return errors.Error(path + ".utc_offset_minutes",
                        absl::StrCat("must be less than a day, got ", time.utc_offset_minutes()));
  }
  ASSIGN_OR_RETURN(const ExampleInput input,
                   FindIds(columns, time.of(), path + ".of",
                           "a float holds no seconds since 1970 exactly: read the column as an ID", errors));
  const int64_t unit = time.unit() == v1::Derived::Time::MILLISECONDS ? 1000 : 1;
  return Rule([slot = input.place, part = time.part(), unit, offset = int64_t{60} * time.utc_offset_minutes(),
               name = derived.name()](const SlotView& in, std::vector<int64_t>* ids) -> absl::Status {
    // About 70,000 years, far inside the years that the calendar has.
    constexpr int64_t kMost = int64_t{1} << 41;
    for (const int64_t id : in.Ids(slot)) {
      const int64_t seconds = FloorDiv(id, unit);
      if (seconds < -kMost || seconds > kMost) {
        return absl::InvalidArgumentError(absl::StrCat("'", name, "': ", id, " is no time since 1970 in this unit"));
      }
      ids->push_back(PartOf(part, seconds + offset));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<Rule> RuleOf(const std::vector<Column>& columns, const v1::Derived& derived, const std::string& path,
                            const SettingErrors& errors) {
  switch (derived.kind_case()) {
    case v1::Derived::kCross:
      return CrossRule(columns, derived, path + ".cross", errors);
    case v1::Derived::kHash:
      return HashRule(columns, derived, path + ".hash", errors);
    case v1::Derived::kBucketize:
      return BucketizeRule(columns, derived, path + ".bucketize", errors);
    case v1::Derived::kTime:
      return TimeRule(columns, derived, path + ".time", errors);
    case v1::Derived::KIND_NOT_SET:
      break;
  }
  return errors.Error(path, "needs one of cross, hash, bucketize, time");
}

class DerivedParser : public LineParser {
 public:
  DerivedParser(std::vector<Column> columns, std::shared_ptr<const LineParser> reader,
                std::shared_ptr<const std::vector<Rule>> rules)
      : LineParser(std::move(columns)), reader_(std::move(reader)), rules_(std::move(rules)) {}

  absl::Status Parse(std::string_view line, Example* example) const override {
    ClearDerived(example);
    RETURN_IF_ERROR(reader_->Parse(line, example));
    return AddDerived(example);
  }
  absl::Status ParsePlain(std::string_view line, Example* example) const override {
    ClearDerived(example);
    RETURN_IF_ERROR(reader_->ParsePlain(line, example));
    return AddDerived(example);
  }
  bool has_header() const override { return reader_->has_header(); }
  absl::StatusOr<std::unique_ptr<LineParser>> ForHeader(std::string_view header,
                                                        const std::vector<int64_t>& may_be_absent) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const LineParser> reader, reader_->ForHeader(header, may_be_absent));
    return std::make_unique<DerivedParser>(columns(), std::move(reader), rules_);
  }

 private:
  // Readers that reorder ids look at all counts.
  void ClearDerived(Example* example) const {
    std::fill(example->counts.begin() + reader_->slots(), example->counts.end(), uint16_t{0});
  }
  absl::Status AddDerived(Example* example) const {
    const auto first = static_cast<size_t>(reader_->slots());
    SlotView view(example);
    for (size_t i = 0; i < rules_->size(); ++i) {
      example->scratch_ids.clear();
      RETURN_IF_ERROR((*rules_)[i](view, &example->scratch_ids));
      view.Append(first + i, example->scratch_ids);
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const LineParser> reader_;
  const std::shared_ptr<const std::vector<Rule>> rules_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> Derive(std::unique_ptr<LineParser> reader, const DerivedList& derived,
                                                   const SettingErrors& errors) {
  std::vector<Column> columns = reader->columns();
  auto rules = std::make_shared<std::vector<Rule>>();
  for (int i = 0; i < derived.size(); ++i) {
    const std::string path = absl::StrCat("derived[", i, "]");
    const std::string& name = derived[i].name();
    if (name.empty()) return errors.Error(path, "needs a name");
    if (std::any_of(columns.begin(), columns.end(), [&](const Column& column) { return column.name == name; })) {
      return errors.Error(path + ".name", absl::StrCat("'", name, "' is a variable of the data already"));
    }
    ASSIGN_OR_RETURN(Rule rule, RuleOf(columns, derived[i], path, errors));
    rules->push_back(std::move(rule));
    columns.push_back({.name = name, .kind = v1::IDS, .width = 1, .slot_names = {name}});
  }
  return std::make_unique<DerivedParser>(std::move(columns), std::move(reader), std::move(rules));
}

}  // namespace weir
