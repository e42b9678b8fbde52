#include "pserver/tables/sparse_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "pserver/tables/disk_tier.h"
#include "pserver/tables/row_updates.h"
#include "pserver/tables/row_walk.h"
#include "pserver/tables/row_words.h"
#include "pserver/tables/step_border.h"
#include "pserver/tables/stripe.h"
#include "pserver/tables/stripe_batch.h"
#include "pserver/tables/stripe_copy.h"

namespace weir {

namespace {

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

// Returns the maximum number of rows on this server (SparseTableOptions::capacity).
int64_t LimitOf(const SparseTableOptions& options, const LifecycleRules& rules) {
  if (options.capacity == 0 || rules.evicts()) return 0;
  const uint32_t owned = options.shard_end - options.shard_begin;
  if (owned == options.logical_shards) return options.capacity;
  const double share = static_cast<double>(options.capacity) * owned / options.logical_shards;
  return std::min(options.capacity, static_cast<int64_t>(share + 6 * std::sqrt(share) + 8));
}

}  // namespace

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
    ASSIGN_OR_RETURN(std::unique_ptr<ColdRows> store, table->options_.disk.open(table->layout_.stored_bytes()));
    table->disk_ = std::make_unique<DiskTier>(table->name(), table->layout_, std::move(store),
                                              table->options_.disk.memory_bytes, table->stripes());
    for (int s = 0; s < table->stripes(); ++s) {
      Stripe& stripe = table->stripes_[s];
      MutexLock lock(&stripe.mu);
      table->disk_->Init(&stripe);
    }
  }
  return table;
}

SparseTable::SparseTable(SparseTableOptions options)
    : options_(std::move(options)),
      rules_(options_.lifecycle, options_.seed, options_.name, options_.capacity, options_.logical_shards),
      map_(options_.logical_shards, options_.shard_begin, options_.shard_end, options_.stripes),
      layout_(options_.width, RowValues(options_.values, options_.seed, options_.name), options_.rule.get(),
              rules_.row_words(), options_.disk.open != nullptr),
      count_(LimitOf(options_, rules_)),
      stripes_(std::make_unique<Stripe[]>(static_cast<size_t>(map_.stripes()))) {
  const auto init = [this](int s, int kind, int64_t row_bytes, RowStore* store) {
    std::unique_ptr<ChunkMemory>& chunks = chunks_[kind];
    if (chunks == nullptr) {
      chunks = std::make_unique<ChunkMemory>(static_cast<size_t>(row_bytes) << ChunkLog2(row_bytes));
    }
    store->Init(chunks.get(), &pages_, row_bytes, map_.StripeBegin(s), map_.prefix_bits(),
                static_cast<double>(s) / map_.stripes());
  };
  for (int s = 0; s < map_.stripes(); ++s) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    stripe.count = &count_;
    stripe.lifecycle.Init(&rules_, &map_);
    init(s, 0, layout_.row_bytes(), &stripe.rows);
    for (const Memory memory : {kCandidates, kTombstones}) {
      const int64_t entry_bytes = 4 * rules_.words(memory).size;
      if (entry_bytes > 0) init(s, 1 + memory, entry_bytes, &stripe.lifecycle.memory(memory));
    }
  }
}

SparseTable::~SparseTable() = default;

const ColdRows* SparseTable::disk() const { return disk_ == nullptr ? nullptr : &disk_->store(); }

absl::Status SparseTable::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("table ", options_.name, ": ", status.message()));
}

absl::Status SparseTable::Full() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("table ", options_.name, " is full: this server holds ", count_.rows(), " rows, its limit is ",
                   count_.limit(), " of the table's capacity ", options_.capacity,
                   "; raise dict_size of the table, or 0 for no limit, or set lifecycle.when_full to evict rows"));
}

void SparseTable::SetZeroColumns(int begin, int end) {
  zero_columns_.store(static_cast<uint64_t>(begin) << 32 | static_cast<uint32_t>(end), std::memory_order_relaxed);
}

void SparseTable::FillValues(int64_t id, absl::Span<float> values) const {
  options_.initializer.Fill(id, values);
  const uint64_t zeros = zero_columns_.load(std::memory_order_relaxed);
  if (zeros == 0) return;
  std::fill(values.begin() + static_cast<int64_t>(zeros >> 32),
            values.begin() + static_cast<int64_t>(zeros & UINT32_MAX), 0.0f);
}

void SparseTable::InitRow(int64_t id, char* row) const {
  const size_t width = static_cast<size_t>(options_.width);
  if (layout_.values().is_float32()) {
    FillValues(id, absl::MakeSpan(layout_.Values(row), width));
  } else {
    static thread_local std::vector<float> initial;
    initial.resize(width);
    FillValues(id, absl::MakeSpan(initial));
    layout_.values().StoreNearest(initial.data(), options_.width, row);
  }
  if (options_.rule != nullptr) {
    options_.rule->InitState(options_.width, reinterpret_cast<float*>(layout_.State(row)));
  }
  InitWords(layout_.Words(row));
}

void SparseTable::InitWords(char* row_words) const {
  const LifecycleRules::Words& words = rules_.row_words();
  for (int i = 0; i < words.size; ++i) SetWord(row_words, i, 0);
  // The steps before this one, in which it was a candidate.
  if (words.count >= 0 && rules_.admission() == LifecycleRules::Admission::kCount) {
    SetWord(row_words, words.count, static_cast<uint32_t>(rules_.admit_after() - 1));
  }
}

void SparseTable::InitialValues(absl::Span<const int64_t> ids, int begin, int end, float* rows, size_t stride) const {
  std::vector<float> whole(static_cast<size_t>(options_.width));
  for (const int64_t id : ids) {
    FillValues(id, absl::MakeSpan(whole));
    std::copy(whole.begin() + begin, whole.begin() + end, rows);
    rows += stride;
  }
}

std::vector<float> SparseTable::InitialState() const {
  std::vector<float> state(static_cast<size_t>(state_width()), 0.0f);
  const int words = rules_.row_words().size;
  if (options_.rule != nullptr) options_.rule->InitState(options_.width, state.data());
  if (words > 0) InitWords(reinterpret_cast<char*>(state.data() + state_width() - words));
  return state;
}

char* SparseTable::Insert(Stripe& stripe, int64_t id, uint64_t mixed, absl::Status* status)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  if (!count_.Add()) {
    *status = Full();
    return nullptr;
  }
  char* const row = stripe.rows.Insert(mixed);
  if (row == nullptr) {
    count_.Remove(1);
    *status = Named(absl::ResourceExhaustedError(
        absl::StrCat("a stripe has ", stripe.rows.size(), " rows and can have no more; use more servers")));
    return nullptr;
  }
  InitRow(id, row);
  stripe.lifecycle.RowMade(mixed);
  if (disk_ != nullptr) disk_->RowMade(stripe, row);
  ++stripe.exist;
  ++stripe.made;
  return row;
}

template <typename Fn>
absl::Status SparseTable::ForEachStripe(absl::Span<const int64_t> ids, ThreadPool* pool, const Fn& fn) {
  if (ids.empty()) return absl::OkStatus();
  if (ids.size() > UINT32_MAX) {
    return Named(absl::InvalidArgumentError(absl::StrCat(ids.size(), " ids in one call")));
  }
  // Kept between calls so that a step allocates nothing; taken out while in use, for a pool task may call another
  // table.
  static thread_local StripeMap::Sections kept;
  StripeMap::Sections sections = std::move(kept);
  absl::Status status;
  if (const std::optional<int64_t> foreign = map_.Partition(ids, &sections); foreign.has_value()) {
    status = Named(absl::InvalidArgumentError(
        absl::StrCat("id ", *foreign, " is in logical shard ", map_.ShardOf(MixId(static_cast<uint64_t>(*foreign))),
                     "; this server holds shards ", map_.shard_begin(), " to ", int64_t{map_.shard_end()} - 1)));
  } else {
    Mutex mu;
    const auto run = [&](int64_t s) {
      const StripeIds section = sections.Of(static_cast<int>(s), ids);
      if (section.size == 0) return;
      absl::Status done = fn(static_cast<int>(s), section);
      if (done.ok()) return;
      MutexLock lock(&mu);
      if (status.ok()) status = std::move(done);
    };
    if (pool == nullptr || static_cast<int64_t>(ids.size()) < kParallelIds) {
      for (int64_t s = 0; s < map_.stripes(); ++s) run(s);
    } else {
      pool->ParallelFor(map_.stripes(), run);
    }
  }
  kept = std::move(sections);
  return status;
}

absl::Status SparseTable::PullStripe(Stripe& stripe, const StripeIds& ids, bool create, float* out) {
  const int width = options_.width;
  const bool as_they_lie = layout_.values().is_float32();
  const bool remember = ids.order == nullptr && disk_ == nullptr;
  absl::Status status;
  const auto copy = [&](int64_t i, uint64_t mixed, char* row) __attribute__((always_inline)) {
    stripe.mu.AssertHeld();
    float* const to = out + i * width;
    if (remember && row != nullptr) stripe.seen.Add(mixed, row);
    if (row == nullptr && create) {
      row = Insert(stripe, ids.ids[i], mixed, &status);
      if (row == nullptr) return false;
    }
    if (row != nullptr && as_they_lie) {
      CopyFloats(to, layout_.Values(row), width);
    } else if (row != nullptr) {
      layout_.values().Load(row, width, to);
    } else {
      FillValues(ids.ids[i], absl::MakeSpan(to, static_cast<size_t>(width)));
    }
    return true;
  };
  StripeBatch batch(&stripe, disk_.get());
  RETURN_IF_ERROR(batch.BringIn(ids));
  if (remember) stripe.seen.Reserve(ids.size);
  batch.Walk<FetchLevel::kFirst>(ids, layout_.value_bytes(), copy);
  return batch.Finish(status);
}

absl::Status SparseTable::Pull(absl::Span<const int64_t> ids, bool create, float* out, ThreadPool* pool) {
  return ForEachStripe(ids, pool,
                       [&](int s, const StripeIds& section) { return PullStripe(stripes_[s], section, create, out); });
}

absl::Status SparseTable::UpdateStripe(int stripe_number, absl::Span<const int64_t> ids, const float* const* grads,
                                       float divisor, float learning_rate, const RowTime& time,
                                       const float* const* shows) {
  if (options_.rule == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("table ", options_.name, " has no optimizer and cannot be updated"));
  }
  Stripe& stripe = stripes_[stripe_number];
  RowUpdates updates(layout_, *options_.rule, rules_, divisor, learning_rate, time);
  const bool all = rules_.admission() == LifecycleRules::Admission::kAll;
  // Kept between calls so that a step allocates nothing; nothing below comes back here.
  static thread_local std::vector<uint32_t> missing;
  static thread_local std::vector<StripeLifecycle::Earlier> earlier;  // of those that are admitted
  missing.clear();
  earlier.clear();
  const auto shows_of = [shows](int64_t k) { return shows == nullptr ? nullptr : shows[k]; };
  absl::Status status;
  const auto insert = [&](int64_t k, uint64_t mixed, const StripeLifecycle::Earlier& before) {
    stripe.mu.AssertHeld();
    const int64_t id = ids[static_cast<size_t>(k)];
    char* const row = Insert(stripe, id, mixed, &status);
    if (row == nullptr) return false;
    if (const LifecycleRules::Words& words = rules_.row_words(); words.shows >= 0) {
      SetFloatWord(layout_.Words(row), words.shows, before.shows);
      SetFloatWord(layout_.Words(row), words.clicks, before.clicks);
    }
    updates.Add(id, row, grads[k], shows_of(k));
    return true;
  };
  const StripeIds section{.ids = ids.data(), .size = static_cast<int64_t>(ids.size())};
  StripeBatch batch(&stripe, disk_.get());
  RETURN_IF_ERROR(batch.BringIn(section));
  if (!stripe.changes.all()) {
    for (const int64_t id : ids) stripe.changes.Add(MixId(static_cast<uint64_t>(id)));
  }
  batch.WalkSeen(section, layout_.row_bytes(), [&](int64_t k, uint64_t mixed, char* row) {
    if (row != nullptr) {
      updates.Add(ids[static_cast<size_t>(k)], row, grads[k], shows_of(k));
      return true;
    }
    if (all) return insert(k, mixed, {});
    missing.push_back(static_cast<uint32_t>(k));
    return true;
  });
  if (!missing.empty()) {
    RETURN_IF_ERROR(Named(stripe.lifecycle.Admit(ids, time, shows, &missing, &earlier)));
    for (size_t i = 0; i < missing.size(); ++i) {
      if (!insert(missing[i], MixId(static_cast<uint64_t>(ids[missing[i]])), earlier[i])) break;
    }
  }
  updates.Flush();
  status.Update(Named(updates.status()));
  return batch.Finish(status);
}

absl::Status SparseTable::Update(absl::Span<const int64_t> ids, const float* grads, float divisor, float learning_rate,
                                 ThreadPool* pool, const RowTime& time, const float* shows) {
  return ForEachStripe(ids, pool, [&](int s, const StripeIds& section) {
    static thread_local std::vector<const float*> pointers, show_pointers;
    static thread_local std::vector<int64_t> ordered;
    const size_t n = static_cast<size_t>(section.size);
    pointers.resize(n);
    show_pointers.resize(shows == nullptr ? 0 : n);
    for (size_t i = 0; i < n; ++i) {
      const int64_t place = section.Position(static_cast<int64_t>(i));
      pointers[i] = grads + place * int64_t{options_.width};
      if (shows != nullptr) show_pointers[i] = shows + 2 * place;
    }
    const float* const* const own_shows = shows == nullptr ? nullptr : show_pointers.data();
    absl::Span<const int64_t> own_ids = ids.subspan(static_cast<size_t>(section.begin), n);
    if (section.order != nullptr) {
      ordered.resize(n);
      for (size_t i = 0; i < n; ++i) ordered[i] = section.Id(static_cast<int64_t>(i));
      own_ids = ordered;
    }
    return UpdateStripe(s, own_ids, pointers.data(), divisor, learning_rate, time, own_shows);
  });
}

absl::Status SparseTable::EndStep(int stripe_number, const RowTime& time) {
  if (!rules_.expires() && !rules_.evicts() && !rules_.decays()) return absl::OkStatus();
  Stripe& stripe = stripes_[stripe_number];
  const auto [begin, end] = map_.ShardsOf(stripe_number);
  if (disk_ != nullptr) {
    return StepBorderOnDisk(rules_, map_, layout_, disk_.get(), &stripe, time).Run(begin, end);
  }
  StepBorder(rules_, map_, layout_, &stripe, time).Run(begin, end);
  return absl::OkStatus();
}

void SparseTable::BeginChanges(bool record) {
  if (!records_changes_.exchange(record) && !record) return;
  for (int s = 0; s < map_.stripes(); ++s) {
    MutexLock lock(&stripes_[s].mu);
    stripes_[s].changes.Begin(record);
  }
}

void SparseTable::FindChanged(Stripe* stripe, const StripeIds& ids, std::vector<uint32_t>* positions) {
  MutexLock lock(&stripe->mu);
  StripeChanges& changes = stripe->changes;
  if (changes.all()) {
    for (int64_t k = 0; k < ids.size; ++k) positions->push_back(static_cast<uint32_t>(ids.Position(k)));
    return;
  }
  const absl::Span<const uint64_t> changed = changes.Sorted();
  auto at = changed.begin();
  uint64_t last = 0;
  for (int64_t k = 0; k < ids.size; ++k) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(ids.Id(k)));
    if (mixed < last) at = std::lower_bound(changed.begin(), changed.end(), mixed);  // the ids are not in order
    last = mixed;
    while (at != changed.end() && *at < mixed) ++at;
    if (at != changed.end() && *at == mixed) positions->push_back(static_cast<uint32_t>(ids.Position(k)));
  }
}

absl::Status SparseTable::PullChanged(absl::Span<const int64_t> ids, std::vector<uint32_t>* positions,
                                      std::vector<float>* rows) {
  positions->clear();
  RETURN_IF_ERROR(ForEachStripe(ids, nullptr, [&](int s, const StripeIds& section) {
    FindChanged(&stripes_[s], section, positions);
    return absl::OkStatus();
  }));
  std::sort(positions->begin(), positions->end());
  std::vector<int64_t> changed;
  changed.reserve(positions->size());
  for (const uint32_t position : *positions) changed.push_back(ids[position]);
  rows->resize(changed.size() * static_cast<size_t>(options_.width));
  return Pull(changed, /*create=*/false, rows->data(), nullptr);
}

absl::Status SparseTable::AddToValues(absl::Span<const int64_t> ids, const float* changes) {
  if (!layout_.values().is_float32()) {
    return absl::FailedPreconditionError(absl::StrCat("table ", options_.name, " has ", v1::DType_Name(options_.values),
                                                      " values; differences are added to FLOAT32 alone"));
  }
  return ForEachStripe(ids, nullptr, [&](int s, const StripeIds& section) {
    int64_t missing = -1;
    Stripe& stripe = stripes_[s];
    StripeBatch batch(&stripe, disk_.get());
    RETURN_IF_ERROR(batch.BringIn(section));
    batch.Walk(section, layout_.row_bytes(), [&](int64_t i, uint64_t mixed, char* row) {
      stripe.mu.AssertHeld();
      if (row == nullptr) {
        missing = i;
        return true;
      }
      const float* const change = changes + i * options_.width;
      for (int j = 0; j < options_.width; ++j) layout_.Values(row)[j] += change[j];
      layout_.MarkChanged(row);
      stripe.changes.Add(mixed);
      return true;
    });
    RETURN_IF_ERROR(batch.Finish(absl::OkStatus()));
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
  return ForEachStripe(ids, nullptr, [&](int s, const StripeIds& section) {
    Stripe& stripe = stripes_[s];
    absl::Status status;
    StripeBatch batch(&stripe, disk_.get());
    if (look_on_disk) RETURN_IF_ERROR(batch.BringIn(section));
    const int64_t made = stripe.made;
    batch.Walk(section, layout_.row_bytes(), [&](int64_t i, uint64_t mixed, char* row) {
      stripe.mu.AssertHeld();
      if (row == nullptr) row = Insert(stripe, ids[static_cast<size_t>(i)], mixed, &status);
      if (row == nullptr) return false;
      layout_.SetFloats(rows + i * layout_.floats(), row);
      layout_.MarkChanged(row);
      stripe.changes.Add(mixed);
      return true;
    });
    stripe.made = made;
    return batch.Finish(status);
  });
}

void SparseTable::ClearStripes() {
  for (int s = 0; s < map_.stripes(); ++s) {
    Stripe& stripe = stripes_[s];
    // A call that is about to write rows to the disk ends first; none changes rows after that.
    MutexLock disk_lock(&stripe.disk_mu);
    MutexLock lock(&stripe.mu);
    stripe.Clear();
  }
}

absl::Status SparseTable::Clear() {
  ClearStripes();
  if (disk_ != nullptr) {
    RETURN_IF_ERROR(disk_->Clear());
    // Forget rows that were read meanwhile.
    ClearStripes();
  }
  for (const std::unique_ptr<ChunkMemory>& chunks : chunks_) {
    if (chunks != nullptr) chunks->Clear();
  }
  return absl::OkStatus();
}

absl::Status SparseTable::CopyStripe(int stripe_number, std::vector<int64_t>* ids, std::vector<float>* rows) const {
  Stripe& stripe = stripes_[stripe_number];
  if (disk_ != nullptr)
    return CopyFromBoth(*disk_, stripe, map_.StripeRange(stripe_number), layout_, options_.logical_shards, ids, rows);
  MutexLock lock(&stripe.mu);
  CopyRows(stripe.rows, layout_, options_.logical_shards, ids, rows);
  return absl::OkStatus();
}

absl::Status SparseTable::VisitStripe(int stripe_number, const std::function<void(int64_t, const float*)>& fn) const {
  Stripe& stripe = stripes_[stripe_number];
  std::vector<float> scratch;
  const auto visit = [&](int64_t id, const char* row) { fn(id, layout_.Floats(row, &scratch)); };
  if (disk_ != nullptr) {
    MutexLock disk_lock(&stripe.disk_mu);
    const auto [first, last] = map_.StripeRange(stripe_number);
    return disk_->Visit(stripe, first, last, visit, visit);
  }
  MutexLock lock(&stripe.mu);
  stripe.rows.Visit(0, std::numeric_limits<uint64_t>::max(), visit);
  return absl::OkStatus();
}

void SparseTable::CopyMemory(Memory memory, int stripe_number, std::vector<int64_t>* ids,
                             std::vector<float>* words) const {
  Stripe& stripe = stripes_[stripe_number];
  MutexLock lock(&stripe.mu);
  CopyEntries(stripe.lifecycle.memory(memory), rules_.words(memory).size, options_.logical_shards, ids, words);
}

absl::Status SparseTable::SetMemory(Memory memory, absl::Span<const int64_t> ids, const float* words) {
  return ForEachStripe(ids, nullptr, [&](int s, const StripeIds& section) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    for (int64_t k = 0; k < section.size; ++k) {
      const uint64_t mixed = MixId(static_cast<uint64_t>(section.Id(k)));
      const float* const entry = words + section.Position(k) * rules_.words(memory).size;
      RETURN_IF_ERROR(Named(stripe.lifecycle.Set(memory, mixed, entry)));
    }
    return absl::OkStatus();
  });
}

int64_t SparseTable::bytes() const {
  int64_t sum = static_cast<int64_t>(pages_.bytes());
  for (const std::unique_ptr<ChunkMemory>& chunks : chunks_) {
    if (chunks != nullptr) sum += static_cast<int64_t>(chunks->bytes());
  }
  for (int s = 0; s < map_.stripes(); ++s) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    sum += static_cast<int64_t>(stripe.rows.bytes() + stripe.seen.bytes() + stripe.lifecycle.bytes());
  }
  if (disk_ != nullptr) sum += disk_->store().counts().memory_bytes;
  return sum;
}

SparseTable::Counts SparseTable::counts() const {
  Counts sum;
  for (int s = 0; s < map_.stripes(); ++s) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    sum.rows += stripe.exist;
    sum.made += stripe.made;
    const StripeLifecycle::Counts& gone = stripe.lifecycle.counts();
    sum.expired += gone.expired;
    sum.evicted += gone.evicted;
    sum.faded += gone.faded;
    sum.dropped += gone.dropped;
    sum.candidates += stripe.lifecycle.candidates();
    sum.tombstones += stripe.lifecycle.tombstones();
    sum.in_memory += static_cast<int64_t>(stripe.rows.size());
    sum.used += stripe.on_disk.used;
    sum.read += stripe.on_disk.read;
    sum.written += stripe.on_disk.written;
  }
  sum.bytes = bytes();
  return sum;
}

}  // namespace weir
