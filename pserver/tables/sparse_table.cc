#include "pserver/tables/sparse_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Rows in a chunk fill about this much: large enough that chunks are rare, small enough that a small table stays small.
constexpr int64_t kChunkBytes = 64 << 10;
// The index grows when it is this full, by kGrowth.
constexpr double kMaxLoad = 0.8;
constexpr double kGrowth = 1.5;
constexpr double kFirstSlots = 256;
// How far ahead of use memory is fetched: first the index slot, then the row. Rings hold twice that, a power of two.
constexpr int64_t kIndexAhead = 16;
constexpr int64_t kRowAhead = 16;
constexpr int64_t kRing = 64;
// Rows handed to one call of the rule: their lines are still in the first-level cache.
constexpr int64_t kUpdateBatch = 64;
// Below this many ids a batch is not worth a second thread.
constexpr int64_t kParallelIds = 4096;

int64_t RowId(const char* row) {
  int64_t id;
  std::memcpy(&id, row, sizeof(id));
  return id;
}
float* RowValues(char* row) { return reinterpret_cast<float*>(row + sizeof(int64_t)); }
const float* RowValues(const char* row) { return reinterpret_cast<const float*>(row + sizeof(int64_t)); }

// A copy whose length the compiler knows, for the usual widths.
void CopyFloats(float* to, const float* from, int n) {
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

void PrefetchRow(const char* row, int64_t bytes) {
  // The row may start anywhere in a line.
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
  __builtin_prefetch(row + bytes - 1);
}

}  // namespace

// Index slot: 0 is empty; else the row's number plus 1 in the low row_bits, and bits of the hash above them, so that a slot of
// another id is seldom mistaken for ours and its row seldom touched in vain.
struct alignas(64) SparseTable::Stripe {
  mutable Mutex mu;
  SlotArray index ABSL_GUARDED_BY(mu);
  int row_bits ABSL_GUARDED_BY(mu) = 1;
  uint64_t rows ABSL_GUARDED_BY(mu) = 0;
  uint64_t max_rows ABSL_GUARDED_BY(mu) = 0;
  std::vector<char*> chunks ABSL_GUARDED_BY(mu);  // of chunks_

  char* Row(uint64_t row, int chunk_log2, int64_t row_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const uint64_t within = row & ((uint64_t{1} << chunk_log2) - 1);
    return chunks[row >> chunk_log2] + within * static_cast<uint64_t>(row_bytes);
  }
  // Low bits of the hash choose the slot, the bits above them the tag; the highest ones have chosen shard and stripe.
  uint64_t Slot(uint64_t mixed) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return (mixed & 0xffffffffu) * index.size() >> 32;
  }
  uint32_t Tag(uint64_t mixed) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    return static_cast<uint32_t>((mixed >> 32) << row_bits);
  }
  uint32_t RowMask() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return (uint32_t{1} << row_bits) - 1; }

  // The next row whose tag fits, from `slot` on; leaves slot behind it. False at an empty slot.
  bool NextCandidate(uint64_t mixed, uint64_t* slot, uint64_t* row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    const uint32_t tag = Tag(mixed);
    const uint32_t mask = RowMask();
    uint64_t at = *slot;
    while (true) {
      const uint32_t entry = index[at];
      if (entry == 0) {
        *slot = at;
        return false;
      }
      if (++at == index.size()) at = 0;
      if ((entry & ~mask) == tag) {
        *slot = at;
        *row = (entry & mask) - 1;
        return true;
      }
    }
  }

  // The row of the id, or nullptr.
  char* Find(int64_t id, uint64_t mixed, int chunk_log2, int64_t row_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    uint64_t slot = Slot(mixed);
    uint64_t row;
    while (NextCandidate(mixed, &slot, &row)) {
      char* const found = Row(row, chunk_log2, row_bytes);
      if (RowId(found) == id) return found;
    }
    return nullptr;
  }

  void Place(uint64_t mixed, uint64_t row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    uint64_t slot = Slot(mixed);
    while (index[slot] != 0) {
      if (++slot == index.size()) slot = 0;
    }
    index[slot] = Tag(mixed) | static_cast<uint32_t>(row + 1);
  }

  void Resize(uint64_t slots, int chunk_log2, int64_t row_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    index.Reset(slots);
    max_rows = static_cast<uint64_t>(static_cast<double>(slots) * kMaxLoad);
    row_bits = std::bit_width(max_rows);  // row + 1 <= max_rows
    uint64_t pending[kIndexAhead];
    for (uint64_t row = 0; row < rows + kIndexAhead; ++row) {
      if (row >= kIndexAhead) Place(pending[row % kIndexAhead], row - kIndexAhead);
      if (row >= rows) continue;
      const uint64_t mixed = MixId(static_cast<uint64_t>(RowId(Row(row, chunk_log2, row_bytes))));
      pending[row % kIndexAhead] = mixed;
      __builtin_prefetch(&index[Slot(mixed)], 1);
    }
  }
};

absl::StatusOr<std::unique_ptr<SparseTable>> SparseTable::Create(SparseTableOptions options) {
  const auto wrong = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("table ", options.name, ": ", absl::string_view(what.data(), what.size())));
  };
  if (options.width <= 0 || options.width > (1 << 20)) {
    return wrong(absl::StrCat("width is ", options.width, "; 1 to 1048576 is possible"));
  }
  if (!std::has_single_bit(options.logical_shards) || options.logical_shards > (1u << 20)) {
    return wrong(absl::StrCat("logical_shards is ", options.logical_shards, "; a power of two up to 1048576 is needed"));
  }
  if (options.shard_begin > options.shard_end || options.shard_end > options.logical_shards) {
    return wrong(absl::StrCat("shards [", options.shard_begin, ", ", options.shard_end, ") of ", options.logical_shards));
  }
  if (options.capacity < 0) return wrong(absl::StrCat("capacity is ", options.capacity, "; 0 is no limit"));
  return std::unique_ptr<SparseTable>(new SparseTable(std::move(options)));
}

SparseTable::SparseTable(SparseTableOptions options)
    : options_(std::move(options)),
      state_width_(options_.rule == nullptr ? 0 : options_.rule->state_width(options_.width)),
      row_bytes_((static_cast<int64_t>(sizeof(int64_t)) + 4 * (int64_t{options_.width} + state_width_) + 7) / 8 * 8) {
  while (chunk_log2_ < 20 && (row_bytes_ << (chunk_log2_ + 1)) <= kChunkBytes) ++chunk_log2_;
  chunks_ = std::make_unique<ChunkMemory>(static_cast<size_t>(row_bytes_) << chunk_log2_);

  const uint32_t owned = options_.shard_end - options_.shard_begin;
  while ((owned >> (group_log2_ + 1)) >= static_cast<uint32_t>(std::max(1, options_.stripes))) ++group_log2_;
  first_group_ = options_.shard_begin >> group_log2_;
  stripe_count_ = owned == 0 ? 0 : static_cast<int>(((options_.shard_end - 1) >> group_log2_) - first_group_ + 1);

  if (options_.capacity > 0) {
    const double share = static_cast<double>(options_.capacity) * owned / options_.logical_shards;
    limit_ = owned == options_.logical_shards
                 ? options_.capacity
                 : std::min(options_.capacity, static_cast<int64_t>(share + 6 * std::sqrt(share) + 8));
  }

  stripes_ = std::make_unique<Stripe[]>(static_cast<size_t>(stripe_count_));
  for (int s = 0; s < stripe_count_; ++s) {
    MutexLock lock(&stripes_[s].mu);
    const double spread = std::pow(kGrowth, static_cast<double>(s) / stripe_count_);
    stripes_[s].Resize(static_cast<uint64_t>(kFirstSlots * spread), chunk_log2_, row_bytes_);
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

bool SparseTable::Owns(int64_t id) const {
  const uint32_t shard = Shard(MixId(static_cast<uint64_t>(id)));
  return shard >= options_.shard_begin && shard < options_.shard_end;
}

absl::Status SparseTable::Full() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "table ", options_.name, " is full: this server holds ", rows_.load(), " rows, its limit is ", limit_,
      " of the table's capacity ", options_.capacity, "; raise dict_size of the table, or 0 for no limit"));
}

absl::StatusOr<char*> SparseTable::Insert(Stripe& stripe, int64_t id, uint64_t mixed)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  if (rows_.fetch_add(1, std::memory_order_relaxed) >= limit_ && limit_ > 0) {
    rows_.fetch_sub(1, std::memory_order_relaxed);
    return Full();
  }
  // Row numbers run to max_rows - 1.
  if (stripe.rows + 1 >= stripe.max_rows) {
    const double slots = static_cast<double>(stripe.index.size()) * kGrowth;
    // Row numbers keep below 31 bits, so that a slot has room for a tag.
    if (slots > 2.6e9) {
      rows_.fetch_sub(1, std::memory_order_relaxed);
      return absl::ResourceExhaustedError(absl::StrCat("table ", options_.name, ": a stripe has ", stripe.rows,
                                                       " rows and can have no more; use more servers"));
    }
    stripe.Resize(static_cast<uint64_t>(slots), chunk_log2_, row_bytes_);
  }
  const uint64_t number = stripe.rows;
  if (number >> chunk_log2_ == stripe.chunks.size()) {
    stripe.chunks.push_back(chunks_->Take());
  }
  ++stripe.rows;
  char* const row = stripe.Row(number, chunk_log2_, row_bytes_);
  std::memcpy(row, &id, sizeof(id));
  float* const values = RowValues(row);
  options_.initializer.Fill(id, absl::MakeSpan(values, static_cast<size_t>(options_.width)));
  if (state_width_ > 0) options_.rule->InitState(options_.width, values + options_.width);
  stripe.Place(mixed, number);
  return row;
}

template <typename Id, typename Fn>
absl::Status SparseTable::Walk(Stripe& stripe, int64_t n, bool create, int64_t touched_bytes, const Id& id, const Fn& fn)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  uint64_t mixed[kRing];
  char* candidate[kRing];
  for (int64_t i = 0; i < n + kIndexAhead + kRowAhead; ++i) {
    if (i < n) {
      const uint64_t m = MixId(static_cast<uint64_t>(id(i)));
      mixed[i % kRing] = m;
      __builtin_prefetch(&stripe.index[stripe.Slot(m)]);
    }
    const int64_t j = i - kIndexAhead;
    if (j >= 0 && j < n) {
      uint64_t slot = stripe.Slot(mixed[j % kRing]);
      uint64_t row;
      char* found = nullptr;
      if (stripe.NextCandidate(mixed[j % kRing], &slot, &row)) {
        found = stripe.Row(row, chunk_log2_, row_bytes_);
        PrefetchRow(found, touched_bytes);
      }
      candidate[j % kRing] = found;
    }
    const int64_t k = j - kRowAhead;
    if (k < 0) continue;
    // Rows never move, so a candidate seen before an insertion still is one; a miss is looked up again.
    char* row = candidate[k % kRing];
    if (row == nullptr || RowId(row) != id(k)) {
      row = stripe.Find(id(k), mixed[k % kRing], chunk_log2_, row_bytes_);
      if (row == nullptr && create) {
        ASSIGN_OR_RETURN(row, Insert(stripe, id(k), mixed[k % kRing]));
      }
    }
    fn(k, row);
  }
  return absl::OkStatus();
}

absl::Status SparseTable::Partition(absl::Span<const int64_t> ids, Sections* sections) const {
  sections->begins.assign(static_cast<size_t>(stripe_count_) + 1, 0);
  sections->order.clear();
  bool sorted = true;
  int last = 0;
  for (int64_t id : ids) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    const uint32_t shard = Shard(mixed);
    if (shard < options_.shard_begin || shard >= options_.shard_end) {
      return absl::InvalidArgumentError(absl::StrCat("table ", options_.name, ": id ", id, " is in logical shard ", shard,
                                                     "; this server holds shards ", options_.shard_begin, " to ",
                                                     static_cast<int64_t>(options_.shard_end) - 1));
    }
    const int stripe = StripeOf(mixed);
    ++sections->begins[static_cast<size_t>(stripe) + 1];
    sorted &= stripe >= last;
    last = stripe;
  }
  for (int s = 0; s < stripe_count_; ++s) sections->begins[s + 1] += sections->begins[s];
  if (sorted) return absl::OkStatus();
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
  // Kept between calls so that a step allocates nothing; taken out while in use, for a pool task may call another table.
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
  const int64_t touched = static_cast<int64_t>(sizeof(int64_t)) + 4 * int64_t{width};
  return ForEachSection(ids, pool, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    Stripe& stripe = stripes_[s];
    const auto copy = [&](int64_t i, const char* row) {
      float* const to = out + i * width;
      if (row != nullptr) {
        CopyFloats(to, RowValues(row), width);
      } else {
        options_.initializer.Fill(ids[static_cast<size_t>(i)], absl::MakeSpan(to, static_cast<size_t>(width)));
      }
    };
    MutexLock lock(&stripe.mu);
    if (order == nullptr) {
      return Walk(
          stripe, end - begin, create, touched, [&](int64_t k) { return ids[static_cast<size_t>(begin + k)]; },
          [&](int64_t k, const char* row) { copy(begin + k, row); });
    }
    return Walk(
        stripe, end - begin, create, touched, [&](int64_t k) { return ids[order[begin + k]]; },
        [&](int64_t k, const char* row) { copy(order[begin + k], row); });
  });
}

absl::Status SparseTable::UpdateStripe(int stripe_number, absl::Span<const int64_t> ids, const float* const* grads,
                                       float divisor, float learning_rate) {
  if (options_.rule == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("table ", options_.name, " has no optimizer and cannot be updated"));
  }
  Stripe& stripe = stripes_[stripe_number];
  float* rows[kUpdateBatch];
  int64_t count = 0;
  int64_t first = 0;
  const auto flush = [&] {
    options_.rule->UpdateIds(ids.data() + first, options_.width, learning_rate, divisor, count, rows, grads + first);
    first += count;
    count = 0;
  };
  MutexLock lock(&stripe.mu);
  RETURN_IF_ERROR(Walk(
      stripe, static_cast<int64_t>(ids.size()), /*create=*/true, row_bytes_,
      [&](int64_t k) { return ids[static_cast<size_t>(k)]; },
      [&](int64_t, char* row) {
        rows[count++] = RowValues(row);
        if (count == kUpdateBatch) flush();
      }));
  if (count > 0) flush();
  return absl::OkStatus();
}

absl::Status SparseTable::Update(absl::Span<const int64_t> ids, const float* grads, float divisor, float learning_rate,
                                 ThreadPool* pool) {
  return ForEachSection(ids, pool, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    static thread_local std::vector<const float*> pointers;
    static thread_local std::vector<int64_t> ordered;
    const size_t n = static_cast<size_t>(end - begin);
    pointers.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const int64_t at = begin + static_cast<int64_t>(i);
      pointers[i] = grads + (order == nullptr ? at : order[at]) * int64_t{options_.width};
    }
    if (order == nullptr) {
      return UpdateStripe(s, ids.subspan(static_cast<size_t>(begin), n), pointers.data(), divisor, learning_rate);
    }
    ordered.resize(n);
    for (size_t i = 0; i < n; ++i) ordered[i] = ids[order[begin + static_cast<int64_t>(i)]];
    return UpdateStripe(s, ordered, pointers.data(), divisor, learning_rate);
  });
}

absl::Status SparseTable::AddToValues(absl::Span<const int64_t> ids, const float* changes) {
  return ForEachSection(ids, nullptr, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    Stripe& stripe = stripes_[s];
    const auto at = [&](int64_t k) { return order == nullptr ? begin + k : int64_t{order[begin + k]}; };
    int64_t missing = -1;
    MutexLock lock(&stripe.mu);
    RETURN_IF_ERROR(Walk(
        stripe, end - begin, /*create=*/false, row_bytes_, [&](int64_t k) { return ids[static_cast<size_t>(at(k))]; },
        [&](int64_t k, char* row) {
          if (row == nullptr) {
            missing = at(k);
            return;
          }
          const float* const change = changes + at(k) * options_.width;
          for (int j = 0; j < options_.width; ++j) RowValues(row)[j] += change[j];
        }));
    if (missing < 0) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat("table ", options_.name, " has no row ", ids[static_cast<size_t>(missing)], " to change"));
  });
}

absl::Status SparseTable::SetRows(absl::Span<const int64_t> ids, const float* rows) {
  const int64_t floats = int64_t{options_.width} + state_width_;
  return ForEachSection(ids, nullptr, [&](int s, int64_t begin, int64_t end, const uint32_t* order) {
    Stripe& stripe = stripes_[s];
    const auto at = [&](int64_t k) { return order == nullptr ? begin + k : int64_t{order[begin + k]}; };
    MutexLock lock(&stripe.mu);
    return Walk(
        stripe, end - begin, /*create=*/true, row_bytes_, [&](int64_t k) { return ids[static_cast<size_t>(at(k))]; },
        [&](int64_t k, char* row) {
          std::memcpy(RowValues(row), rows + at(k) * floats, static_cast<size_t>(floats) * sizeof(float));
        });
  });
}

void SparseTable::Clear() {
  for (int s = 0; s < stripe_count_; ++s) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    rows_.fetch_sub(static_cast<int64_t>(stripe.rows), std::memory_order_relaxed);
    stripe.rows = 0;
    stripe.index.Reset(stripe.index.size());
    stripe.chunks.clear();
  }
  chunks_->Clear();
}

void SparseTable::CopyStripe(int stripe_number, std::vector<int64_t>* ids, std::vector<float>* rows) const {
  const size_t floats = static_cast<size_t>(options_.width) + static_cast<size_t>(state_width_);
  struct Place {
    uint32_t shard;
    int64_t id;
    uint64_t row;
    bool operator<(const Place& other) const { return shard != other.shard ? shard < other.shard : id < other.id; }
  };
  Stripe& stripe = stripes_[stripe_number];
  MutexLock lock(&stripe.mu);
  std::vector<Place> places(stripe.rows);
  for (uint64_t row = 0; row < stripe.rows; ++row) {
    const int64_t id = RowId(stripe.Row(row, chunk_log2_, row_bytes_));
    places[row] = {Shard(MixId(static_cast<uint64_t>(id))), id, row};
  }
  std::sort(places.begin(), places.end());
  ids->resize(places.size());
  rows->resize(places.size() * floats);
  for (size_t i = 0; i < places.size(); ++i) {
    (*ids)[i] = places[i].id;
    std::memcpy(rows->data() + i * floats, RowValues(stripe.Row(places[i].row, chunk_log2_, row_bytes_)),
                floats * sizeof(float));
  }
}

void SparseTable::VisitStripe(int stripe_number, const std::function<void(int64_t, const float*)>& fn) const {
  Stripe& stripe = stripes_[stripe_number];
  MutexLock lock(&stripe.mu);
  for (uint64_t row = 0; row < stripe.rows; ++row) {
    const char* const at = stripe.Row(row, chunk_log2_, row_bytes_);
    fn(RowId(at), RowValues(at));
  }
}

int64_t SparseTable::bytes() const {
  int64_t sum = static_cast<int64_t>(chunks_->bytes());
  for (int s = 0; s < stripe_count_; ++s) {
    Stripe& stripe = stripes_[s];
    MutexLock lock(&stripe.mu);
    sum += static_cast<int64_t>(stripe.index.bytes() + stripe.chunks.capacity() * sizeof(char*));
  }
  return sum;
}

}  // namespace weir
