#include "pserver/tables/sparse_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "pserver/tables/sparse_table_impl.h"

namespace weir {

namespace {

// Rows handed to one call of the rule: their lines are still in the first-level cache.
constexpr int64_t kUpdateBatch = 64;
// Copies of rows that a call of the rule works on, of rows wider than 1024 fewer than kUpdateBatch.
constexpr int64_t kScratchFloats = int64_t{1} << 16;
// Below this many ids a batch is not worth a second thread.
constexpr int64_t kParallelIds = 4096;

// A copy whose length the compiler knows, for the usual widths.
inline void CopyFloats(float* to, const float* from, int n) {
  switch (n) {
    case 1:
      *to = *from;
      return;
    case 4:
      std::memcpy(to, from, 16);
      return;
    case 8:
      std::memcpy(to, from, 32);
      return;
    case 16:
      std::memcpy(to, from, 64);
      return;
    case 32:
      std::memcpy(to, from, 128);
      return;
    default:
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  }
}

}  // namespace

// Rows of one stripe on their way to the rule, a cache-full at a time.
class SparseTable::Updates {
 public:
  Updates(const SparseTable* table, float divisor, float learning_rate, const RowTime& time)
      : table_(table),
        wide_(!table->values_.is_float32()),
        divisor_(divisor),
        learning_rate_(learning_rate),
        time_(time) {
    if (!wide_) return;
    batch_ = std::clamp<int64_t>(kScratchFloats / RuleFloats(), 1, kUpdateBatch);
    GetScratch().resize(static_cast<size_t>(batch_ * RuleFloats()));
  }

  void Add(int64_t id, char* row, const float* grad, const float* shows) {
    shows_[count_] = shows;
    ids_[count_] = id;
    rows_[count_] = row;
    values_[count_] = wide_ ? Widened(row) : table_->Values(row);
    grads_[count_] = grad;
    if (++count_ == batch_) Flush();
  }
  void Flush() {
    if (count_ == 0) return;
    table_->options_.rule->UpdateIds(ids_, table_->options_.width, learning_rate_, divisor_, count_, values_, grads_);
    if (wide_) StoreBack();
    if (table_->disk_ != nullptr) {
      for (int64_t i = 0; i < count_; ++i) table_->Changed(rows_[i]);
    }
    if (table_->rules_.row_words().size > 0) {
      for (int64_t i = 0; i < count_; ++i)
        table_->Stamp(table_->WordsOf(rows_[i]), table_->rules_.row_words(), time_, shows_[i]);
    }
    count_ = 0;
  }

 private:
  // Values and state of the rule, as it sees them.
  int64_t RuleFloats() const { return table_->options_.width + StateBytes() / 4; }
  int64_t StateBytes() const { return table_->words_begin_ - table_->state_begin_; }
  // Rows whose values are no floats, as floats. Kept between calls so that a step allocates nothing; the rule does not
  // come back here.
  static std::vector<float>& GetScratch() {
    static thread_local std::vector<float> scratch;
    return scratch;
  }
  float* Widened(const char* row) const {
    const int width = table_->options_.width;
    float* const floats = GetScratch().data() + count_ * RuleFloats();
    table_->values_.Load(row, width, floats);
    std::memcpy(floats + width, row + table_->state_begin_, static_cast<size_t>(StateBytes()));
    return floats;
  }
  void StoreBack() const {
    char* to[kUpdateBatch];
    for (int64_t i = 0; i < count_; ++i) {
      to[i] = rows_[i];
      std::memcpy(rows_[i] + table_->state_begin_, values_[i] + table_->options_.width,
                  static_cast<size_t>(StateBytes()));
    }
    table_->values_.Store(time_.step, count_, ids_, table_->options_.width, values_, to);
  }

  const SparseTable* const table_;
  const bool wide_;
  const float divisor_, learning_rate_;
  const RowTime time_;
  int64_t batch_ = kUpdateBatch;
  int64_t count_ = 0;
  int64_t ids_[kUpdateBatch];
  char* rows_[kUpdateBatch];
  float* values_[kUpdateBatch];
  const float* grads_[kUpdateBatch];
  const float* shows_[kUpdateBatch];
};

absl::StatusOr<std::unique_ptr<SparseTable>> SparseTable::Create(SparseTableOptions options) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", options.name, ": ", absl::string_view(what.data(), what.size())));
  };
  if (options.width <= 0 || options.width > (1 << 20)) {
    return wrong(absl::StrCat("width is ", options.width, "; 1 to 1048576 is possible"));
  }
  if (!std::has_single_bit(options.logical_shards) || options.logical_shards > (1u << 20)) {
    return wrong(
        absl::StrCat("logical_shards is ", options.logical_shards, "; a power of two up to 1048576 is needed"));
  }
  if (options.shard_begin > options.shard_end || options.shard_end > options.logical_shards) {
    return wrong(
        absl::StrCat("shards [", options.shard_begin, ", ", options.shard_end, ") of ", options.logical_shards));
  }
  if (!RowValues::Has(options.values)) {
    return wrong(
        absl::StrCat("values are ", v1::DType_Name(options.values), "; FLOAT32, FLOAT16 or BFLOAT16 is possible"));
  }
  if (options.capacity < 0) return wrong(absl::StrCat("capacity is ", options.capacity, "; 0 is no limit"));
  if (const absl::Status lifecycle = LifecycleRules::Check(options.lifecycle); !lifecycle.ok()) {
    return wrong(std::string(lifecycle.message()));
  }
  std::unique_ptr<SparseTable> table(new SparseTable(std::move(options)));
  if (table->options_.disk.open != nullptr) {
    ASSIGN_OR_RETURN(table->disk_, table->options_.disk.open(table->use_begin_));
    table->SetGoal();
  }
  return table;
}

SparseTable::SparseTable(SparseTableOptions options)
    : options_(std::move(options)),
      rules_(options_.lifecycle, options_.seed, options_.name, options_.capacity, options_.logical_shards),
      values_(options_.values, options_.seed, options_.name) {
  if (options_.rule != nullptr) states_ = options_.rule->states(options_.width);
  for (const RowRule::State& state : states_) state_width_ += state.width;
  state_begin_ = values_.Bytes(options_.width);
  words_begin_ = state_begin_ + 4 * int64_t{state_width_};
  for (const std::string& name : rules_.row_words().names) states_.push_back({name, 1});
  state_width_ += rules_.row_words().size;
  row_bytes_ = use_begin_ = words_begin_ + 4 * rules_.row_words().size;
  if (options_.disk.open != nullptr) row_bytes_ += 4;
  word_names_[kCandidates] = rules_.candidate_words().names;
  if (rules_.tombstones()) word_names_[kTombstones] = {"lifecycle.step"};

  const uint32_t owned = options_.shard_end - options_.shard_begin;
  while ((owned >> (group_log2_ + 1)) >= static_cast<uint32_t>(std::max(1, options_.stripes))) ++group_log2_;
  first_group_ = options_.shard_begin >> group_log2_;
  stripe_count_ = owned == 0 ? 0 : static_cast<int>(((options_.shard_end - 1) >> group_log2_) - first_group_ + 1);

  if (options_.capacity > 0 && !rules_.evicts()) {
    const double share = static_cast<double>(options_.capacity) * owned / options_.logical_shards;
    limit_ = owned == options_.logical_shards
                 ? options_.capacity
                 : std::min(options_.capacity, static_cast<int64_t>(share + 6 * std::sqrt(share) + 8));
  }

  stripes_ = std::make_unique<Stripe[]>(static_cast<size_t>(stripe_count_));
  const int prefix_bits = std::countr_zero(options_.logical_shards) - group_log2_;
  const auto make = [&](int kind, int64_t row_bytes, RowStore Stripe::*store) {
    chunks_[kind] = std::make_unique<ChunkMemory>(static_cast<size_t>(row_bytes) << ChunkLog2(row_bytes));
    for (int s = 0; s < stripe_count_; ++s) {
      Stripe& stripe = stripes_[s];
      MutexLock lock(&stripe.mu);
      (stripe.*store)
          .Init(chunks_[kind].get(), &pages_, row_bytes, StripeBegin(s), prefix_bits,
                static_cast<double>(s) / stripe_count_);
    }
  };
  make(0, row_bytes_, &Stripe::rows);
  for (int memory : {kCandidates, kTombstones}) {
    if (word_names_[memory].empty()) continue;
    make(1 + memory, static_cast<int64_t>(4 * word_names_[memory].size()),
         memory == kCandidates ? &Stripe::candidates : &Stripe::tombstones);
  }
  for (int s = 0; options_.disk.open != nullptr && s < stripe_count_; ++s) {
    MutexLock lock(&stripes_[s].mu);
    stripes_[s].versions.assign(Stripe::kVersions, 0);
  }
  for (int s = 0; rules_.evicts() && s < stripe_count_; ++s) {
    MutexLock lock(&stripes_[s].mu);
    stripes_[s].shard_rows.assign(size_t{1} << group_log2_, 0);
    stripes_[s].shard_candidates.assign(size_t{1} << group_log2_, 0);
  }
}

SparseTable::~SparseTable() = default;

uint64_t SparseTable::StripeBegin(int stripe) const {
  const uint64_t shard = (static_cast<uint64_t>(first_group_) + static_cast<uint64_t>(stripe)) << group_log2_;
  const int shard_bits = std::countr_zero(options_.logical_shards);
  if (shard_bits == 0) return 0;
  // One past the last stripe of the last server there is no smallest value: callers ask for stripes only.
  return shard << (64 - shard_bits);
}

std::pair<uint64_t, uint64_t> SparseTable::ShardRange(uint32_t shard) const {
  const int shard_bits = std::countr_zero(options_.logical_shards);
  if (shard_bits == 0) return {0, std::numeric_limits<uint64_t>::max()};
  const uint64_t first = uint64_t{shard} << (64 - shard_bits);
  return {first, first | std::numeric_limits<uint64_t>::max() >> shard_bits};
}

std::pair<uint32_t, uint32_t> SparseTable::ShardsOf(int stripe) const {
  const uint32_t begin = (first_group_ + static_cast<uint32_t>(stripe)) << group_log2_;
  return {std::max(begin, options_.shard_begin), std::min(begin + (uint32_t{1} << group_log2_), options_.shard_end)};
}

bool SparseTable::Owns(int64_t id) const {
  const uint32_t shard = Shard(MixId(static_cast<uint64_t>(id)));
  return shard >= options_.shard_begin && shard < options_.shard_end;
}

absl::Status SparseTable::Full() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("table ", options_.name, " is full: this server holds ", rows_.load(), " rows, its limit is ",
                   limit_, " of the table's capacity ", options_.capacity,
                   "; raise dict_size of the table, or 0 for no limit, or set lifecycle.when_full to evict rows"));
}

char* SparseTable::Insert(Stripe& stripe, int64_t id, uint64_t mixed, absl::Status* status)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  if (rows_.fetch_add(1, std::memory_order_relaxed) >= limit_ && limit_ > 0) {
    rows_.fetch_sub(1, std::memory_order_relaxed);
    *status = Full();
    return nullptr;
  }
  char* const row = stripe.rows.Insert(mixed);
  if (row == nullptr) {
    rows_.fetch_sub(1, std::memory_order_relaxed);
    *status = absl::ResourceExhaustedError(absl::StrCat("table ", options_.name, ": a stripe has ", stripe.rows.size(),
                                                        " rows and can have no more; use more servers"));
    return nullptr;
  }
  const size_t width = static_cast<size_t>(options_.width);
  if (values_.is_float32()) {
    options_.initializer.Fill(id, absl::MakeSpan(Values(row), width));
  } else {
    static thread_local std::vector<float> initial;
    initial.resize(width);
    options_.initializer.Fill(id, absl::MakeSpan(initial));
    values_.StoreNearest(initial.data(), options_.width, row);
  }
  if (options_.rule != nullptr) {
    options_.rule->InitState(options_.width, reinterpret_cast<float*>(row + state_begin_));
  }
  const LifecycleRules::Words& words = rules_.row_words();
  for (int i = 0; i < words.size; ++i) SetWord(WordsOf(row), i, 0);
  // The steps before this one, in which it was a candidate.
  if (words.count >= 0 && rules_.admission() == LifecycleRules::Admission::kCount) {
    SetWord(WordsOf(row), words.count, static_cast<uint32_t>(rules_.admit_after() - 1));
  }
  if (rules_.evicts()) {
    const uint32_t shard = Shard(mixed);
    if (++stripe.shard_rows[shard % stripe.shard_rows.size()] == rules_.most_in_shard() + 1)
      stripe.over.push_back(shard);
  }
  if (rules_.tombstones() && stripe.tombstones.Find(mixed) != nullptr) stripe.tombstones.Erase(mixed);
  if (disk_ != nullptr) {
    Touch(row, stripe.clock);
    Changed(row);
  }
  ++stripe.exist;
  ++stripe.counts.made;
  return row;
}

absl::Status SparseTable::Partition(absl::Span<const int64_t> ids, Sections* sections) const {
  sections->begins.assign(static_cast<size_t>(stripe_count_) + 1, 0);
  sections->order.clear();
  const auto mixed = [&](size_t i) { return MixId(static_cast<uint64_t>(ids[i])); };
  const auto owned = [this](uint64_t m) { return OwnsShard(Shard(m)); };
  bool sorted = true;
  uint64_t last = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t m = mixed(i);
    sorted &= m >= last;
    last = m;
  }
  if (sorted && owned(mixed(0)) && owned(last)) {
    size_t begin = 0;
    for (int s = 1; s < stripe_count_; ++s) {
      const uint64_t first = StripeBegin(s);
      size_t end = ids.size();
      while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (mixed(middle) < first) {
          begin = middle + 1;
        } else {
          end = middle;
        }
      }
      sections->begins[static_cast<size_t>(s)] = static_cast<int64_t>(begin);
    }
    sections->begins[static_cast<size_t>(stripe_count_)] = static_cast<int64_t>(ids.size());
    return absl::OkStatus();
  }
  for (int64_t id : ids) {
    const uint64_t m = MixId(static_cast<uint64_t>(id));
    if (!owned(m)) {
      return absl::InvalidArgumentError(absl::StrCat("table ", options_.name, ": id ", id, " is in logical shard ",
                                                     Shard(m), "; this server holds shards ", options_.shard_begin,
                                                     " to ", static_cast<int64_t>(options_.shard_end) - 1));
    }
    ++sections->begins[static_cast<size_t>(StripeOf(m)) + 1];
  }
  for (int s = 0; s < stripe_count_; ++s) sections->begins[s + 1] += sections->begins[s];
  sections->order.resize(ids.size());
  std::vector<int64_t> next(sections->begins.begin(), sections->begins.end() - 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int stripe = StripeOf(MixId(static_cast<uint64_t>(ids[i])));
    sections->order[static_cast<size_t>(next[stripe]++)] = static_cast<uint32_t>(i);
  }
  return absl::OkStatus();
}

// fn(stripe, begin, end, order or nullptr) for every stripe that has ids: those at positions order[begin..end), or
// [begin, end) without an order.
template <typename Fn>
absl::Status SparseTable::ForEachSection(absl::Span<const int64_t> ids, ThreadPool* pool, const Fn& fn) {
  if (ids.empty()) return absl::OkStatus();
  if (ids.size() > UINT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("table ", options_.name, ": ", ids.size(), " ids in one call"));
  }
  // Kept between calls so that a step allocates nothing; taken out while in use, for a pool task may call another
  // table.
  static thread_local Sections kept;
  Sections sections = std::move(kept);
  absl::Status status = Partition(ids, &sections);
  if (status.ok()) {
    const uint32_t* const order = sections.order.empty() ? nullptr : sections.order.data();
    Mutex mu;
    const auto run = [&](int64_t s) {
      const int64_t begin = sections.begins[s], end = sections.begins[s + 1];
      if (begin == end) return;
      absl::Status done = fn(static_cast<int>(s), begin, end, order);
      if (done.ok()) return;
      MutexLock lock(&mu);
      if (status.ok()) status = std::move(done);
    };
    if (pool == nullptr || static_cast<int64_t>(ids.size()) < kParallelIds) {
      for (int64_t s = 0; s < stripe_count_; ++s) run(s);
    } else {
      pool->ParallelFor(stripe_count_, run);
    }
  }
  kept = std::move(sections);
  return status;
}

absl::Status SparseTable::Pull(absl::Span<const int64_t> ids, bool create, float* out, ThreadPool* pool) {
  const int width = options_.width;
  const int64_t touched = state_begin_;
  const bool as_they_lie = values_.is_float32();
  return ForEachSection(ids, pool, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    Stripe& stripe = stripes_[s];
    absl::Status status;
    const bool remember = order == nullptr && disk_ == nullptr;
    const auto copy = [&](int64_t i, uint64_t mixed, char* row) {
      stripe.mu.AssertHeld();
      float* const to = out + i * width;
      if (remember && row != nullptr) stripe.seen.Add(mixed, row);
      if (row == nullptr && create) {
        row = Insert(stripe, ids[static_cast<size_t>(i)], mixed, &status);
        if (row == nullptr) return false;
      }
      if (row != nullptr && as_they_lie) {
        CopyFloats(to, Values(row), width);
      } else if (row != nullptr) {
        values_.Load(row, width, to);
      } else {
        options_.initializer.Fill(ids[static_cast<size_t>(i)], absl::MakeSpan(to, static_cast<size_t>(width)));
      }
      return true;
    };
    bool crowded = false;
    {
      MutexLock lock(&stripe.mu);
      if (disk_ != nullptr) {
        RETURN_IF_ERROR(order == nullptr ? Fetch(stripe, ids.subspan(static_cast<size_t>(begin)), nullptr, end - begin)
                                         : Fetch(stripe, ids, order + begin, end - begin));
      }
      if (order == nullptr) {
        const int64_t* const section = ids.data() + begin;
        Walk(
            stripe.rows, end - begin, touched, [section](int64_t k) { return section[k]; },
            [&](int64_t k, uint64_t mixed, char* row) { return copy(begin + k, mixed, row); });
      } else {
        Walk(
            stripe.rows, end - begin, touched, [&](int64_t k) { return ids[order[begin + k]]; },
            [&](int64_t k, uint64_t mixed, char* row) { return copy(order[begin + k], mixed, row); });
      }
      RETURN_IF_ERROR(status);
      crowded = Crowded(stripe);
    }
    return crowded ? MakeRoom(stripe) : absl::OkStatus();
  });
}

absl::Status SparseTable::UpdateStripe(int stripe_number, absl::Span<const int64_t> ids, const float* const* grads,
                                       float divisor, float learning_rate, const RowTime& time,
                                       const float* const* shows) {
  if (options_.rule == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", options_.name, " has no optimizer and cannot be updated"));
  }
  Stripe& stripe = stripes_[stripe_number];
  Updates updates(this, divisor, learning_rate, time);
  const bool all = rules_.admission() == LifecycleRules::Admission::kAll;
  // Kept between calls so that a step allocates nothing; nothing below comes back here.
  static thread_local std::vector<uint32_t> missing;
  static thread_local std::vector<Earlier> earlier;  // of those that are admitted
  missing.clear();
  earlier.clear();
  const auto shows_of = [shows](int64_t k) { return shows == nullptr ? nullptr : shows[k]; };
  absl::Status status;
  bool crowded = false;
  {
    MutexLock lock(&stripe.mu);
    if (disk_ != nullptr) RETURN_IF_ERROR(Fetch(stripe, ids, nullptr, static_cast<int64_t>(ids.size())));
    const auto insert = [&](int64_t k, uint64_t mixed, const Earlier& before) {
      stripe.mu.AssertHeld();
      char* const row = Insert(stripe, ids[static_cast<size_t>(k)], mixed, &status);
      if (row == nullptr) return false;
      if (const LifecycleRules::Words& words = rules_.row_words(); words.shows >= 0) {
        SetFloatWord(WordsOf(row), words.shows, before.shows);
        SetFloatWord(WordsOf(row), words.clicks, before.clicks);
      }
      updates.Add(ids[static_cast<size_t>(k)], row, grads[k], shows_of(k));
      return true;
    };
    Walk(
        stripe.rows, static_cast<int64_t>(ids.size()), row_bytes_,
        [&](int64_t k) { return ids[static_cast<size_t>(k)]; },
        [&](int64_t k, uint64_t mixed, char* row) {
          if (row != nullptr) {
            updates.Add(ids[static_cast<size_t>(k)], row, grads[k], shows_of(k));
            return true;
          }
          if (all) return insert(k, mixed, {});
          missing.push_back(static_cast<uint32_t>(k));
          return true;
        },
        stripe.seen);
    stripe.seen.Clear();
    if (!missing.empty()) {
      RETURN_IF_ERROR(Admit(stripe, ids, time, shows, &missing, &earlier));
      earlier.resize(missing.size());  // chance remembers nothing
      for (size_t i = 0; i < missing.size(); ++i) {
        if (!insert(missing[i], MixId(static_cast<uint64_t>(ids[missing[i]])), earlier[i])) break;
      }
    }
    updates.Flush();
    crowded = Crowded(stripe);
  }
  if (crowded && status.ok()) status = MakeRoom(stripe);
  return status;
}

absl::Status SparseTable::Update(absl::Span<const int64_t> ids, const float* grads, float divisor, float learning_rate,
                                 ThreadPool* pool, const RowTime& time, const float* shows) {
  return ForEachSection(ids, pool, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    static thread_local std::vector<const float*> pointers, show_pointers;
    static thread_local std::vector<int64_t> ordered;
    const size_t n = static_cast<size_t>(end - begin);
    pointers.resize(n);
    show_pointers.resize(shows == nullptr ? 0 : n);
    for (size_t i = 0; i < n; ++i) {
      const int64_t at = begin + static_cast<int64_t>(i), place = order == nullptr ? at : order[at];
      pointers[i] = grads + place * int64_t{options_.width};
      if (shows != nullptr) show_pointers[i] = shows + 2 * place;
    }
    const float* const* const own_shows = shows == nullptr ? nullptr : show_pointers.data();
    if (order == nullptr) {
      return UpdateStripe(s, ids.subspan(static_cast<size_t>(begin), n), pointers.data(), divisor, learning_rate, time,
                          own_shows);
    }
    ordered.resize(n);
    for (size_t i = 0; i < n; ++i) ordered[i] = ids[order[begin + static_cast<int64_t>(i)]];
    return UpdateStripe(s, ordered, pointers.data(), divisor, learning_rate, time, own_shows);
  });
}

absl::Status SparseTable::AddToValues(absl::Span<const int64_t> ids, const float* changes) {
  if (!values_.is_float32()) {
    return absl::FailedPreconditionError(absl::StrCat("table ", options_.name, " has ", v1::DType_Name(options_.values),
                                                      " values; differences are added to FLOAT32 alone"));
  }
  return ForEachSection(ids, nullptr, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    Stripe& stripe = stripes_[s];
    const auto at = [&](int64_t k) { return order == nullptr ? begin + k : int64_t{order[begin + k]}; };
    int64_t missing = -1;
    bool crowded = false;
    {
      MutexLock lock(&stripe.mu);
      if (disk_ != nullptr) {
        RETURN_IF_ERROR(order == nullptr ? Fetch(stripe, ids.subspan(static_cast<size_t>(begin)), nullptr, end - begin)
                                         : Fetch(stripe, ids, order + begin, end - begin));
      }
      Walk(
          stripe.rows, end - begin, row_bytes_, [&](int64_t k) { return ids[static_cast<size_t>(at(k))]; },
          [&](int64_t k, uint64_t, char* row) {
            if (row == nullptr) {
              missing = at(k);
              return true;
            }
            const float* const change = changes + at(k) * options_.width;
            for (int j = 0; j < options_.width; ++j) Values(row)[j] += change[j];
            Changed(row);
            return true;
          });
      crowded = Crowded(stripe);
    }
    if (crowded) RETURN_IF_ERROR(MakeRoom(stripe));
    if (missing < 0) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat("table ", options_.name, " has no row ", ids[static_cast<size_t>(missing)], " to change"));
  });
}

absl::Status SparseTable::SetRows(absl::Span<const int64_t> ids, const float* rows) {
  return SetOrAddRows(ids, rows, /*look_on_disk=*/true);
}

absl::Status SparseTable::AddRows(absl::Span<const int64_t> ids, const float* rows) {
  return SetOrAddRows(ids, rows, /*look_on_disk=*/false);
}

absl::Status SparseTable::SetOrAddRows(absl::Span<const int64_t> ids, const float* rows, bool look_on_disk) {
  const int64_t floats = int64_t{options_.width} + state_width_;
  return ForEachSection(ids, nullptr, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    Stripe& stripe = stripes_[s];
    const auto at = [&](int64_t k) { return order == nullptr ? begin + k : int64_t{order[begin + k]}; };
    absl::Status status;
    bool crowded = false;
    {
      MutexLock lock(&stripe.mu);
      if (disk_ != nullptr && look_on_disk) {
        RETURN_IF_ERROR(order == nullptr ? Fetch(stripe, ids.subspan(static_cast<size_t>(begin)), nullptr, end - begin)
                                         : Fetch(stripe, ids, order + begin, end - begin));
      }
      const int64_t made = stripe.counts.made;
      Walk(
          stripe.rows, end - begin, row_bytes_, [&](int64_t k) { return ids[static_cast<size_t>(at(k))]; },
          [&](int64_t k, uint64_t mixed, char* row) {
            stripe.mu.AssertHeld();
            if (row == nullptr) row = Insert(stripe, ids[static_cast<size_t>(at(k))], mixed, &status);
            if (row == nullptr) return false;
            SetFloats(rows + at(k) * floats, row);
            Changed(row);
            return true;
          });
      stripe.counts.made = made;
      crowded = Crowded(stripe);
    }
    if (crowded && status.ok()) status = MakeRoom(stripe);
    return status;
  });
}

absl::Status SparseTable::Clear() {
  const auto clear = [this] {
    for (int s = 0; s < stripe_count_; ++s) {
      Stripe& stripe = stripes_[s];
      // Who is about to write rows to the disk is waited for; then none has changed.
      MutexLock disk_lock(&stripe.disk_mu);
      MutexLock lock(&stripe.mu);
      rows_.fetch_sub(stripe.exist, std::memory_order_relaxed);
      stripe.exist = 0;
      stripe.rows.Clear();
      stripe.seen.Clear();
      if (!word_names_[kCandidates].empty()) stripe.candidates.Clear();
      if (!word_names_[kTombstones].empty()) stripe.tombstones.Clear();
      std::fill(stripe.shard_rows.begin(), stripe.shard_rows.end(), 0);
      std::fill(stripe.shard_candidates.begin(), stripe.shard_candidates.end(), 0);
      stripe.over.clear();
      stripe.seconds_position = -1;
      // What readers have on their way from the disk.
      for (uint32_t& version : stripe.versions) ++version;
    }
  };
  clear();
  if (disk_ != nullptr) {
    RETURN_IF_ERROR(disk_->Clear());
    // Rows that were read meanwhile.
    clear();
  }
  for (const std::unique_ptr<ChunkMemory>& chunks : chunks_) {
    if (chunks != nullptr) chunks->Clear();
  }
  return absl::OkStatus();
}

namespace {

// Rows of a store by (logical shard, id): fn(i, row).
template <typename Fn>
void InOrder(const RowStore& store, uint32_t shards, std::vector<int64_t>* ids, const Fn& fn) {
  struct Place {
    uint32_t shard;
    int64_t id;
    const char* row;
    bool operator<(const Place& other) const { return shard != other.shard ? shard < other.shard : id < other.id; }
  };
  std::vector<Place> places;
  places.reserve(store.size());
  store.Visit(0, std::numeric_limits<uint64_t>::max(), [&](int64_t id, const char* row) {
    places.push_back({LogicalShard(id, shards), id, row});
  });
  std::sort(places.begin(), places.end());
  ids->resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) (*ids)[i] = places[i].id;
  for (size_t i = 0; i < places.size(); ++i) fn(i, places[i].row);
}

}  // namespace

const float* SparseTable::Floats(const char* row, std::vector<float>* scratch) const {
  if (values_.is_float32()) return reinterpret_cast<const float*>(row);
  const size_t width = static_cast<size_t>(options_.width), state = static_cast<size_t>(state_width_);
  scratch->resize(width + state);
  values_.Load(row, options_.width, scratch->data());
  std::memcpy(scratch->data() + width, row + state_begin_, state * sizeof(float));
  return scratch->data();
}

void SparseTable::SetFloats(const float* floats, char* row) const {
  values_.StoreNearest(floats, options_.width, row);
  std::memcpy(row + state_begin_, floats + options_.width, static_cast<size_t>(state_width_) * sizeof(float));
}

absl::Status SparseTable::CopyStripe(int stripe_number, std::vector<int64_t>* ids, std::vector<float>* rows) const {
  const size_t floats = static_cast<size_t>(options_.width) + static_cast<size_t>(state_width_);
  Stripe& stripe = stripes_[stripe_number];
  if (disk_ != nullptr) return CopyFromBoth(stripe_number, ids, rows);
  MutexLock lock(&stripe.mu);
  rows->resize(stripe.rows.size() * floats);
  std::vector<float> scratch;
  InOrder(stripe.rows, options_.logical_shards, ids, [&](size_t i, const char* row) {
    std::memcpy(rows->data() + i * floats, Floats(row, &scratch), floats * sizeof(float));
  });
  return absl::OkStatus();
}

absl::Status SparseTable::VisitStripe(int stripe_number, const std::function<void(int64_t, const float*)>& fn) const {
  constexpr uint64_t kLast = std::numeric_limits<uint64_t>::max();
  Stripe& stripe = stripes_[stripe_number];
  std::vector<float> scratch;
  const auto visit = [&](int64_t id, const char* row) { fn(id, Floats(row, &scratch)); };
  if (disk_ != nullptr) {
    MutexLock disk_lock(&stripe.disk_mu);
    return VisitBoth(stripe, StripeRange(stripe_number).first, StripeRange(stripe_number).second, visit,
                     [&](int64_t id, const char* values) { fn(id, Floats(values, &scratch)); });
  }
  MutexLock lock(&stripe.mu);
  stripe.rows.Visit(0, kLast, visit);
  return absl::OkStatus();
}

void SparseTable::CopyMemory(Memory memory, int stripe_number, std::vector<int64_t>* ids,
                             std::vector<float>* words) const {
  Stripe& stripe = stripes_[stripe_number];
  const size_t n = word_names_[memory].size();
  MutexLock lock(&stripe.mu);
  const RowStore& store = memory == kCandidates ? stripe.candidates : stripe.tombstones;
  words->resize(store.size() * n);
  InOrder(store, options_.logical_shards, ids,
          [&](size_t i, const char* row) { std::memcpy(words->data() + i * n, row, 4 * n); });
}

absl::Status SparseTable::SetMemory(Memory memory, absl::Span<const int64_t> ids, const float* words) {
  const size_t n = word_names_[memory].size();
  return ForEachSection(ids, nullptr, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    RowStore& store = memory == kCandidates ? stripe.candidates : stripe.tombstones;
    for (int64_t k = begin; k < end; ++k) {
      const size_t at = order == nullptr ? static_cast<size_t>(k) : order[k];
      const uint64_t mixed = MixId(static_cast<uint64_t>(ids[at]));
      char* row = store.Find(mixed);
      if (row == nullptr) {
        row = store.Insert(mixed);
        if (row == nullptr) {
          return absl::ResourceExhaustedError(
              absl::StrCat("table ", options_.name, ": a stripe remembers ", store.size(),
                           " ids without a row and can have no more; use more servers"));
        }
        const uint32_t shard = Shard(mixed);
        if (memory == kCandidates && rules_.evicts() &&
            ++stripe.shard_candidates[shard % stripe.shard_candidates.size()] == rules_.most_in_shard() + 1) {
          stripe.over.push_back(shard);
        }
      }
      std::memcpy(row, words + at * n, 4 * n);
    }
    return absl::OkStatus();
  });
}

int64_t SparseTable::bytes() const {
  int64_t sum = static_cast<int64_t>(pages_.bytes());
  for (const std::unique_ptr<ChunkMemory>& chunks : chunks_) {
    if (chunks != nullptr) sum += static_cast<int64_t>(chunks->bytes());
  }
  for (int s = 0; s < stripe_count_; ++s) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    sum += static_cast<int64_t>(stripe.rows.bytes() + stripe.candidates.bytes() + stripe.tombstones.bytes() +
                                stripe.seen.bytes());
  }
  if (disk_ != nullptr) sum += disk_->counts().memory_bytes;
  return sum;
}

SparseTable::Counts SparseTable::counts() const {
  Counts sum;
  for (int s = 0; s < stripe_count_; ++s) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    sum.rows += stripe.exist;
    sum.in_memory += static_cast<int64_t>(stripe.rows.size());
    sum.used += stripe.counts.used;
    sum.read += stripe.counts.read;
    sum.written += stripe.counts.written;
    sum.made += stripe.counts.made;
    sum.expired += stripe.counts.expired;
    sum.evicted += stripe.counts.evicted;
    sum.faded += stripe.counts.faded;
    sum.dropped += stripe.counts.dropped;
    sum.candidates += static_cast<int64_t>(stripe.candidates.size());
    sum.tombstones += static_cast<int64_t>(stripe.tombstones.size());
  }
  sum.bytes = bytes();
  return sum;
}

}  // namespace weir
