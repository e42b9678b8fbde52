#include "pserver/tables/lifecycle_rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"

namespace weir {

absl::Status LifecycleRules::Check(const v1::Lifecycle& settings) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto outside = [](const char* field, const auto& value, const char* range) {
    return absl::InvalidArgumentError(absl::StrCat("lifecycle.", field, " is ", value, "; it must be ", range));
  };
  if (settings.has_admit_after() && (settings.admit_after() < 1 || settings.admit_after() > kMost)) {
    return outside("admit_after", settings.admit_after(), "in [1, 2^30]");
  }
  if (settings.has_admit_probability() && !(settings.admit_probability() > 0 && settings.admit_probability() <= 1)) {
    return outside("admit_probability", settings.admit_probability(), "above 0 and at most 1");
  }
  if (settings.ttl_steps() < 0 || settings.ttl_steps() > kMost)
    return outside("ttl_steps", settings.ttl_steps(), "in [0, 2^30]");
  const double seconds = settings.ttl_seconds();
  if (seconds != 0 && !(seconds >= 1 && seconds <= static_cast<double>(kMost))) {
    return outside("ttl_seconds", seconds, "0 or in [1, 2^30]");
  }
  if (!settings.has_click() && (settings.has_admit_score() || settings.decay_every_steps() != 0)) {
    return absl::InvalidArgumentError("lifecycle: admit_score and decay_every_steps need click");
  }
  if (settings.decay_every_steps() < 0 || settings.decay_every_steps() > kMost) {
    return outside("decay_every_steps", settings.decay_every_steps(), "in [0, 2^30]");
  }
  if (!(settings.decay() >= 0 && settings.decay() <= 1)) return outside("decay", settings.decay(), "in [0, 1]");
  return absl::OkStatus();
}

LifecycleRules::LifecycleRules(const v1::Lifecycle& settings, uint64_t seed, std::string_view table, int64_t capacity,
                               uint32_t logical_shards)
    : shards_(logical_shards) {
  switch (settings.admission_case()) {
    case v1::Lifecycle::kAdmitAfter:
      admit_after_ = settings.admit_after();
      if (admit_after_ > 1) admission_ = Admission::kCount;
      break;
    case v1::Lifecycle::kAdmitProbability:
      probability_ = settings.admit_probability();
      if (probability_ < 1) admission_ = Admission::kChance;
      break;
    case v1::Lifecycle::kAdmitScore:
      admit_score_ = settings.admit_score();
      admission_ = Admission::kScore;
      break;
    default:
      break;
  }
  scores_ = settings.has_click();
  show_coefficient_ = settings.show_coefficient();
  click_coefficient_ = settings.click_coefficient();
  min_score_ = settings.min_score();
  decay_every_ = settings.decay_every_steps();
  decay_ = static_cast<float>(settings.decay());
  const std::string name = absl::StrCat("admission of ", absl::string_view(table.data(), table.size()));
  key_ = StableHash(name.data(), name.size(), seed);
  ttl_steps_ = settings.ttl_steps();
  period_ = std::clamp<int64_t>(ttl_steps_ / 4, 1, logical_shards);
  ttl_seconds_ = settings.ttl_seconds();
  if (capacity > 0 && settings.when_full() != v1::Lifecycle::REFUSE) {
    most_in_shard_ = std::max<int64_t>(1, capacity / logical_shards);
  }
  least_frequent_ = settings.when_full() == v1::Lifecycle::EVICT_LEAST_FREQUENT;

  const auto add = [](const char* name, Words* words) {
    words->names.push_back(name);
    return words->size++;
  };
  const bool steps = ttl_steps_ > 0 || evicts();
  const auto add_scores = [&](Words* words) {
    if (!scores_) return;
    words->shows = add("lifecycle.shows", words);
    words->clicks = add("lifecycle.clicks", words);
  };
  if (settings.tombstones()) tombstone_words_.step = add("lifecycle.step", &tombstone_words_);
  if (evicts() && least_frequent_ && !scores_) row_words_.count = add("lifecycle.count", &row_words_);
  if (steps || tombstones()) row_words_.step = add("lifecycle.step", &row_words_);
  if (ttl_seconds_ > 0) row_words_.second = add("lifecycle.second", &row_words_);
  add_scores(&row_words_);
  if (!keeps_candidates()) return;
  if (admission_ == Admission::kCount) candidate_words_.count = add("lifecycle.count", &candidate_words_);
  if (steps) candidate_words_.step = add("lifecycle.step", &candidate_words_);
  if (ttl_seconds_ > 0) candidate_words_.second = add("lifecycle.second", &candidate_words_);
  add_scores(&candidate_words_);
}

bool LifecycleRules::AdmittedByChance(int64_t id, int64_t step) const {
  const PhiloxBlock block = Philox(key_, static_cast<uint64_t>(step), static_cast<uint64_t>(id));
  const uint64_t bits = (uint64_t{block.v[0]} << 32 | block.v[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53 < probability_;
}

void LifecycleRules::ChooseGoing(Ranked* all) const {
  const auto go = static_cast<ptrdiff_t>(all->size()) - static_cast<ptrdiff_t>(kept_in_shard());
  // A checkpoint that names a row twice makes counts too high.
  if (go <= 0) return all->clear();
  std::nth_element(all->begin(), all->begin() + go, all->end());
  all->resize(static_cast<size_t>(go));
}

int64_t LifecycleRules::SecondsPosition(double now) const {
  return static_cast<int64_t>(std::floor(now / (ttl_seconds_ / 4) * static_cast<double>(shards_)));
}

}  // namespace weir
