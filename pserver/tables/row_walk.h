// Walks over the rows of a batch of ids, with prefetches.
#ifndef WEIR_PSERVER_TABLES_ROW_WALK_H_
#define WEIR_PSERVER_TABLES_ROW_WALK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/base/stable_hash.h"
#include "pserver/tables/row_store.h"

namespace weir {

// Level of cache that a walk of rows together prefetches into. The second one can have more lines under way, and is for
// walks that change rows. Those that copy rows out run with it at 40 million rows a second for some milliseconds and
// then, in most processes, at 13 (AMD Zen 4, a million rows); with the first one they keep 32. Updates run at 40
// and 25.
enum class FetchLevel { kFirst, kSecond };

// Returns whether prefetches should stand together. On AMD a prefetch that has to read the page tables first delays the
// instructions behind it, as far as the processor looks ahead. So addresses are computed for several rows first, and
// then the prefetches stand in loops of nothing else, where many are under way at once. One prefetch as soon as each
// address is known, into the first level, gives 37 million look-ups a second of a million rows (Zen 4), where this
// gives 32, but 14 of ten million rows, where this gives 20. Intel does not wait: with each prefetch by itself a
// look-up takes 27 ns, with groups 32 (Xeon with AMX, a million rows).
inline bool FetchesTogether() {
  static const bool amd = __builtin_cpu_is("amd");
  return amd;
}

// Returns the number of rows whose memory is prefetched together. With 12, look-ups of uniform ids are slower (28
// million a second), those of Zipf-distributed ones faster (47 instead of 43).
constexpr int64_t RowsTogether(FetchLevel level) { return level == FetchLevel::kFirst ? 8 : 16; }

// Forced inline: a function that only prefetches has no effect that GCC knows of, and calls to it are dropped.
template <FetchLevel kLevel>
__attribute__((always_inline)) inline void FetchLine(const void* line) {
  __builtin_prefetch(line, 0, kLevel == FetchLevel::kFirst ? 3 : 2);
}
template <FetchLevel kLevel>
__attribute__((always_inline)) inline void FetchRow(const char* row, int64_t touched) {
  const char* const end = row + touched;
  for (const char* line = row - reinterpret_cast<uintptr_t>(row) % 64; line < end; line += 64) FetchLine<kLevel>(line);
}

// Rows that pulls have found since the last update, ascending by MixId. The update of a step concerns the rows that its
// pulls returned, so it finds them here without reading the index. Rows never move, so entries stay valid until a row
// is erased.
class SeenRows {
 public:
  // Makes room for `more` entries, so that Add allocates nothing.
  void Reserve(int64_t more) {
    const size_t wanted = std::min(kMost, size_ + static_cast<size_t>(more));
    if (entries_.size() < wanted) entries_.resize(wanted);
  }
  // Adds a row if there is room and its MixId is above the last one.
  void Add(uint64_t mixed, char* row) {
    if (size_ == entries_.size() || mixed <= last_) return;
    last_ = mixed;
    entries_[size_++] = {mixed, row};
  }
  void Clear() { last_ = size_ = 0; }
  bool empty() const { return size_ == 0; }
  size_t bytes() const { return entries_.capacity() * sizeof(Entry); }
  // Returns the row, or nullptr if it is not in this list. Ids must be asked for in ascending order of MixId; `at`
  // starts at 0.
  char* Find(uint64_t mixed, size_t* at) const {
    while (*at < size_ && entries_[*at].mixed < mixed) ++*at;
    return *at < size_ && entries_[*at].mixed == mixed ? entries_[*at].row : nullptr;
  }

 private:
  // Maximum number of entries of one stripe: a trainer's batch has fewer, and the rest is looked up in the index.
  static constexpr size_t kMost = size_t{1} << 15;
  struct Entry {
    uint64_t mixed;
    char* row;
  };

  std::vector<Entry> entries_;  // those before size_ are in use
  size_t size_ = 0;
  uint64_t last_ = 0;  // MixId of the last entry; 0 without one
};

// Walks with groups of prefetches.
template <FetchLevel kLevel, typename Id, typename Fn>
void WalkTogether(const RowStore& store, int64_t n, int64_t touched, const Id& id, const Fn& fn, const SeenRows& seen) {
  constexpr int64_t kTogether = RowsTogether(kLevel);
  struct Group {
    int64_t begin = 0, size = 0;
    uint64_t mixed[kTogether];
    char* rows[kTogether];
  };
  // While fn handles the first group, rows of the second and buckets of the third are being fetched.
  Group groups[3];
  int64_t next = 0;
  size_t seen_at = 0;
  const auto fetch_buckets = [&](Group* group) {
    group->begin = next;
    group->size = std::min(kTogether, n - next);
    next += group->size;
    const void* lines[kTogether];
    int64_t unseen = 0;
    for (int64_t i = 0; i < group->size; ++i) {
      const uint64_t mixed = group->mixed[i] = MixId(static_cast<uint64_t>(id(group->begin + i)));
      group->rows[i] = seen.empty() ? nullptr : seen.Find(mixed, &seen_at);
      if (group->rows[i] == nullptr) lines[unseen++] = store.BucketOf(mixed);
    }
    for (int64_t i = 0; i < unseen; ++i) FetchLine<kLevel>(lines[i]);
  };
  const auto fetch_rows = [&](Group* group) {
    const char* lines[kTogether];
    int64_t found = 0;
    for (int64_t i = 0; i < group->size; ++i) {
      if (group->rows[i] == nullptr) group->rows[i] = store.Find(group->mixed[i]);
      if (group->rows[i] != nullptr) lines[found++] = group->rows[i];
    }
    for (int64_t i = 0; i < found; ++i) FetchRow<kLevel>(lines[i], touched);
  };
  fetch_buckets(&groups[0]);
  fetch_buckets(&groups[1]);
  fetch_rows(&groups[0]);
  for (int64_t round = 0; groups[round % 3].size > 0; ++round) {
    fetch_buckets(&groups[(round + 2) % 3]);
    fetch_rows(&groups[(round + 1) % 3]);
    Group& group = groups[round % 3];
    for (int64_t i = 0; i < group.size; ++i) {
      char* row = group.rows[i];
      if (row == nullptr) row = store.Find(group.mixed[i]);
      if (!fn(group.begin + i, group.mixed[i], row)) return;
    }
  }
}

// Walks with each prefetch by itself, into the second level: on Intel it is no slower for copies, either.
template <typename Id, typename Fn>
void WalkEach(const RowStore& store, int64_t n, int64_t touched, const Id& id, const Fn& fn, const SeenRows& seen) {
  // Every id goes through four steps, each some ids behind the one before: its bucket is fetched; the row is looked for
  // there, and fetched; a row that lies elsewhere, in a bucket that has come meanwhile, is fetched; fn is called.
  // A core of the Xeon has 16 lines under way: rows 8 and 24 ids ahead are a little slower, 32 a sixth.
  constexpr int64_t kBucket = 32, kRow = 16, kElsewhere = 8;
  constexpr int64_t kRing = 64;  // above kBucket
  uint64_t mixed[kRing];
  char* rows[kRing];
  const bool some_seen = !seen.empty();
  size_t seen_at = 0;
  const auto fetch_bucket = [&](int64_t k) __attribute__((always_inline)) {
    const uint64_t m = mixed[k % kRing] = MixId(static_cast<uint64_t>(id(k)));
    char* const row = rows[k % kRing] = some_seen ? seen.Find(m, &seen_at) : nullptr;
    if (row == nullptr) FetchLine<FetchLevel::kSecond>(store.BucketOf(m));
  };
  const auto fetch_row = [&](int64_t k) __attribute__((always_inline)) {
    char* row = rows[k % kRing];
    if (row == nullptr) row = rows[k % kRing] = store.FindAtHome(mixed[k % kRing]);
    if (row != nullptr) FetchRow<FetchLevel::kSecond>(row, touched);
  };
  const auto fetch_elsewhere = [&](int64_t k) __attribute__((always_inline)) {
    if (rows[k % kRing] != nullptr) return;
    char* const row = rows[k % kRing] = store.Find(mixed[k % kRing]);
    if (row != nullptr) FetchRow<FetchLevel::kSecond>(row, touched);
  };
  for (int64_t k = 0; k < std::min(n, kBucket); ++k) fetch_bucket(k);
  for (int64_t k = 0; k < std::min(n, kRow); ++k) fetch_row(k);
  for (int64_t k = 0; k < std::min(n, kElsewhere); ++k) fetch_elsewhere(k);
  for (int64_t k = 0; k < n; ++k) {
    const uint64_t m = mixed[k % kRing];
    char* row = rows[k % kRing];
    if (k + kBucket < n) fetch_bucket(k + kBucket);
    if (k + kRow < n) fetch_row(k + kRow);
    if (k + kElsewhere < n) fetch_elsewhere(k + kElsewhere);
    if (row == nullptr) row = store.Find(m);
    if (!fn(k, m, row)) return;
  }
}

// Calls fn(k, MixId, row or nullptr) for each of n ids until it returns false. Prefetches buckets and the first
// `touched` bytes of rows. fn may insert; rows never move, and a miss is looked up again. `seen`: list to search before
// the index, for ids that ascend by MixId.
template <FetchLevel kLevel = FetchLevel::kSecond, typename Id, typename Fn>
void Walk(const RowStore& store, int64_t n, int64_t touched, const Id& id, const Fn& fn,
          const SeenRows& seen = SeenRows()) {
  if (FetchesTogether()) {
    WalkTogether<kLevel>(store, n, touched, id, fn, seen);
  } else {
    WalkEach(store, n, touched, id, fn, seen);
  }
}

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_WALK_H_
