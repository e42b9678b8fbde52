// Rules that make one derived variable each (v1::Derived). framework/formats/derived.cc puts them around a reader.
#ifndef WEIR_FRAMEWORK_FORMATS_DERIVED_RULE_H_
#define WEIR_FRAMEWORK_FORMATS_DERIVED_RULE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/example.h"
#include "framework/formats/example_input.h"
#include "framework/formats/learned.h"
#include "framework/formats/schema.h"
#include "proto/columns.pb.h"

namespace weir {

// Ids by slot of an example whose last slots are not there yet. Only slots below `needed`, and those set since, can be
// asked for.
class DerivedSlots {
 public:
  // `slots`: number of slots whose ids are there.
  DerivedSlots(Example* example, size_t slots, size_t needed) : example_(*example), first_(example->scratch_slots) {
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

  // Continues with the slots of the reader that an earlier one has found in the example.
  explicit DerivedSlots(Example* example) : example_(*example), first_(example->scratch_slots) {
    if (first_.size() < example_.counts.size()) first_.resize(example_.counts.size());
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
class DerivedRule {
 public:
  virtual ~DerivedRule() = default;
  virtual absl::Status Add(size_t place, DerivedSlots* view) const = 0;
  // Returns the slot whose ids Add looks up in a large list; -1: none.
  virtual int64_t looked_up() const { return -1; }
  // Returns the memory that Add reads for an id of that slot, for a prefetch.
  virtual const void* PlaceOf(int64_t) const { return nullptr; }
};
using DerivedRulePtr = std::unique_ptr<const DerivedRule>;

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

// Finds an input of ids. InvalidArgument at `field`: as FindInput, or the input is a float; `way_out` says what to do.
absl::StatusOr<ExampleInput> FindIds(const std::vector<Column>& columns, const std::string& name,
                                     const std::string& field, const std::string& way_out, const SettingErrors& errors);
// Returns OK if the input is known before the pass that learns: nothing can be learned in it of what it learns.
absl::Status ExpectKnown(const ExampleInput& input, const std::string& field, const SettingErrors& errors);
// Returns a rule that gives no id: of a variable that is yet to be learned.
DerivedRulePtr NoIds();

// Return the rule of a variable of one kind. `columns`: those of the reader and of earlier variables. `path`: place of
// the kind's message in the job, "derived[0].cross". `list`: null where it is not known yet. InvalidArgument: wrong
// settings.
//
// derived_columns.cc: values computed from the example alone, or from learned boundaries, which the settings hold.
absl::StatusOr<DerivedRulePtr> MakeCrossRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                             const std::string& path, const SettingErrors& errors);
absl::StatusOr<DerivedRulePtr> MakeHashRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                            const std::string& path, const SettingErrors& errors);
absl::StatusOr<DerivedRulePtr> MakeBucketizeRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                                 const std::string& path, const SettingErrors& errors);
absl::StatusOr<DerivedRulePtr> MakeTimeRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                            const std::string& path, const SettingErrors& errors);
// derived_lists.cc: of lists of ids, and drawn.
absl::StatusOr<DerivedRulePtr> MakeVocabularyRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                                  std::shared_ptr<const IdList> list, const std::string& path,
                                                  const SettingErrors& errors);
absl::StatusOr<DerivedRulePtr> MakeFrequencyRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                                 std::shared_ptr<const IdList> list, const std::string& path,
                                                 const SettingErrors& errors);
absl::StatusOr<DerivedRulePtr> MakeNegativesRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                                 std::shared_ptr<const IdList> list, const std::string& path,
                                                 const SettingErrors& errors);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_DERIVED_RULE_H_
