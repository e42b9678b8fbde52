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

// Level of cache that a walk prefetches into. The second one can have more lines under way, and is for walks that
// change rows. Those that copy rows out run with it at 40 million rows a second for some milliseconds and then, in most
// processes, at 13 (AMD Zen 4, a million rows); with the first one they keep 32. Updates run at 40 and 25.
enum class FetchLevel { kFirst, kSecond };

// Returns the number of rows whose memory is prefetched together. With 12, look-ups of uniform ids are slower (28
// million a second), those of Zipf-distributed ones faster (47 instead of 43).
constexpr int64_t RowsTogether(FetchLevel level) { return level == FetchLevel::kFirst ? 8 : 16; }

// Forced inline: a function that only prefetches has no effect that GCC knows of, and calls to it are dropped.
template <FetchLevel kLevel>
__attribute__((always_inline)) inline void FetchLine(const void* line) {
  __builtin_prefetch(line, 0, kLevel == FetchLevel::kFirst ? 3 : 2);
}

// Rows that pulls have found since the last update, ascending by MixId. The update of a step concerns the rows that its
// pulls returned, so it finds them here without reading the index. Rows never move, so entries stay valid until a row
// is erased.
class SeenRows {
 public:
  void Add(uint64_t mixed, char* row) {
    if (mixed_.size() == kMost || (!mixed_.empty() && mixed <= mixed_.back())) return;
    mixed_.push_back(mixed);
    rows_.push_back(row);
  }
  void Clear() {
    mixed_.clear();
    rows_.clear();
  }
  bool empty() const { return mixed_.empty(); }
  size_t bytes() const { return mixed_.capacity() * sizeof(uint64_t) + rows_.capacity() * sizeof(char*); }
  // Returns the row, or nullptr if it is not in this list. Ids must be asked for in ascending order of MixId; `at`
  // starts at 0.
  char* Find(uint64_t mixed, size_t* at) const {
    while (*at < mixed_.size() && mixed_[*at] < mixed) ++*at;
    return *at < mixed_.size() && mixed_[*at] == mixed ? rows_[*at] : nullptr;
  }

 private:
  // Maximum number of entries of one stripe: a trainer's batch has fewer, and the rest is looked up in the index.
  static constexpr size_t kMost = size_t{1} << 15;

  std::vector<uint64_t> mixed_;
  std::vector<char*> rows_;
};

// Calls fn(k, MixId, row or nullptr) for each of n ids until it returns false. Prefetches buckets and the first
// `touched` bytes of rows. fn may insert; rows never move, and a miss is looked up again. `seen`: list to search before
// the index, for ids that ascend by MixId.
//
// A prefetch that has to read the page tables first delays the instructions behind it, as far as the processor looks
// ahead. So addresses are computed for several rows first, and then the prefetches stand in loops of nothing else,
// where many are under way at once. One prefetch as soon as each address is known, into the first level, gives 37
// million look-ups a second of a million rows, where this gives 32, but 14 of ten million rows, where this gives 20.
template <FetchLevel kLevel = FetchLevel::kSecond, typename Id, typename Fn>
void Walk(const RowStore& store, int64_t n, int64_t touched, const Id& id, const Fn& fn,
          const SeenRows& seen = SeenRows()) {
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
    for (int64_t i = 0; i < found; ++i) {
      const char* const end = lines[i] + touched;
      for (const char* line = lines[i] - reinterpret_cast<uintptr_t>(lines[i]) % 64; line < end; line += 64)
        FetchLine<kLevel>(line);
    }
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

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_WALK_H_
