#include "ops/parallel_deduper.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

// Below, handing out costs more than the threads save.
constexpr int64_t kFewestIds = 16 * 1024;
// Beside the one that asks. Dealing takes half as much time again as one table.
constexpr int kFewestThreads = 3;
// Ids of a chunk: enough for a task, few enough for several tasks a thread.
constexpr size_t kChunk = 8 * 1024;
// Ids of a bucket on average: their table and the ids themselves fit the first-level cache.
constexpr size_t kBucket = 2 * 1024;
constexpr size_t kMostBuckets = 1024;

uint64_t HashOf(int64_t id) {
  uint64_t h = static_cast<uint64_t>(id);
  h ^= h >> 32;
  return h * 0x9E3779B97F4A7C15u;
}

// Returns what a slot holds after an id has come to it. Without a branch: whether an id is new cannot be predicted.
uint32_t FilledBy(uint32_t slot, uint32_t fresh) { return slot | (fresh & (slot == 0 ? ~uint32_t{0} : 0)); }

// Returns the bucket of an id; `mask`: their number less 1. Takes bits below those that choose a slot, and above those
// that depend on few bits of an id.
size_t BucketOf(int64_t id, size_t mask) { return (HashOf(id) >> 36) & mask; }

}  // namespace

bool ParallelDeduper::Pays(int64_t ids, const ThreadPool* pool) {
  return pool != nullptr && pool->threads() >= kFewestThreads && ids >= kFewestIds;
}

void ParallelDeduper::Cut(absl::Span<const Run> runs) {
  used_chunks_ = 0;
  size_t total = 0;
  size_t room = 0;  // in the last chunk
  for (Run run : runs) {
    while (run.n > 0) {
      if (room == 0) {
        if (chunks_.size() == used_chunks_) chunks_.emplace_back();
        Chunk& fresh = chunks_[used_chunks_++];
        fresh.runs.clear();
        fresh.begin = total;
        fresh.ids = 0;
        room = kChunk;
      }
      Chunk& chunk = chunks_[used_chunks_ - 1];
      const size_t taken = std::min(room, static_cast<size_t>(run.n));
      chunk.runs.push_back({run.ids, static_cast<int64_t>(taken), run.index});
      chunk.ids += taken;
      room -= taken;
      total += taken;
      run = {run.ids + taken, run.n - static_cast<int64_t>(taken), run.index + taken};
    }
  }
  CHECK_LT(total, static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  dealt_.resize(total);
  firsts_.resize(total);
  places_.resize(total);
  buckets_ = std::min(std::bit_ceil(total / kBucket + 1), kMostBuckets);
  if (slots_.size() < buckets_) slots_.resize(buckets_);
}

void ParallelDeduper::Deal(Chunk* chunk) {
  const size_t mask = buckets_ - 1;
  // Counts two places behind each bucket, so that the begins stand where they belong when the ids are dealt.
  chunk->begins.assign(buckets_ + 2, 0);
  uint32_t* const counts = chunk->begins.data() + 2;
  for (const Run& run : chunk->runs) {
    for (int64_t i = 0; i < run.n; ++i) ++counts[BucketOf(run.ids[i], mask)];
  }
  chunk->begins[1] = static_cast<uint32_t>(chunk->begin);
  for (size_t b = 0; b < buckets_; ++b) chunk->begins[b + 2] += chunk->begins[b + 1];
  uint32_t* const next = chunk->begins.data() + 1;
  int64_t* const ids = dealt_.data();
  chunk->dealt.resize(chunk->ids);
  uint32_t* dealt = chunk->dealt.data();
  for (const Run& run : chunk->runs) {
    for (int64_t i = 0; i < run.n; ++i) {
      const uint32_t at = next[BucketOf(run.ids[i], mask)]++;
      ids[at] = run.ids[i];
      *dealt++ = at;
    }
  }
  chunk->begins[0] = static_cast<uint32_t>(chunk->begin);
}

void ParallelDeduper::FindFirsts(size_t bucket, std::vector<uint32_t>* slots_of) {
  size_t n = 0;
  for (size_t c = 0; c < used_chunks_; ++c) n += chunks_[c].begins[bucket + 1] - chunks_[c].begins[bucket];
  // At most a quarter full. A slot has the place in dealt_ plus 1 of an id that stands first; 0 is empty.
  const int bits = static_cast<int>(std::bit_width(n)) + 2;
  const size_t mask = (size_t{1} << bits) - 1;
  slots_of->assign(mask + 1, 0);
  uint32_t* const slots = slots_of->data();
  const int64_t* const ids = dealt_.data();
  uint32_t* const firsts = firsts_.data();
  for (size_t c = 0; c < used_chunks_; ++c) {
    const uint32_t end = chunks_[c].begins[bucket + 1];
    for (uint32_t i = chunks_[c].begins[bucket]; i < end; ++i) {
      // An empty slot counts as a match, as in IdDeduper: this costs one well-predicted branch.
      const int64_t id = ids[i];
      size_t at = HashOf(id) >> (64 - bits);
      uint32_t slot = FilledBy(slots[at], i + 1);
      while (ids[slot - 1] != id) {
        at = (at + 1) & mask;
        slot = FilledBy(slots[at], i + 1);
      }
      slots[at] = slot;
      firsts[i] = slot - 1;
    }
  }
}

void ParallelDeduper::CountFirsts(Chunk* chunk) const {
  const uint32_t* const firsts = firsts_.data() + chunk->begin;
  const uint32_t begin = static_cast<uint32_t>(chunk->begin), n = static_cast<uint32_t>(chunk->ids);
  uint32_t fresh = 0;
  for (uint32_t i = 0; i < n; ++i) fresh += firsts[i] == begin + i ? 1 : 0;
  chunk->fresh = fresh;
}

void ParallelDeduper::Number(const Chunk& chunk, int64_t* unique) {
  const uint32_t* dealt = chunk.dealt.data();
  const uint32_t* const firsts = firsts_.data();
  uint32_t* const places = places_.data();
  size_t place = chunk.first;
  const size_t end = chunk.first + chunk.fresh;
  for (const Run& run : chunk.runs) {
    // Stores each id as if it were new, which spares a branch. What follows the last new one belongs to the next chunk.
    for (int64_t i = 0; i < run.n && place < end; ++i) {
      const uint32_t at = *dealt++;
      unique[place] = run.ids[i];
      places[at] = static_cast<uint32_t>(place);
      place += firsts[at] == at ? 1 : 0;
    }
  }
}

void ParallelDeduper::WriteIndex(const Chunk& chunk) const {
  const uint32_t* dealt = chunk.dealt.data();
  const uint32_t* const firsts = firsts_.data();
  const uint32_t* const places = places_.data();
  for (const Run& run : chunk.runs) {
    for (int64_t i = 0; i < run.n; ++i) run.index[i] = static_cast<int32_t>(places[firsts[*dealt++]]);
  }
}

void ParallelDeduper::Find(absl::Span<const Run> runs, ThreadPool* pool, std::vector<int64_t>* unique) {
  Cut(runs);
  const auto by_chunk = [&](auto fn) {
    pool->ParallelFor(static_cast<int64_t>(used_chunks_), [&](int64_t c) { fn(&chunks_[static_cast<size_t>(c)]); });
  };
  by_chunk([this](Chunk* chunk) { Deal(chunk); });
  pool->ParallelFor(static_cast<int64_t>(buckets_),
                    [this](int64_t b) { FindFirsts(static_cast<size_t>(b), &slots_[static_cast<size_t>(b)]); });
  by_chunk([this](Chunk* chunk) { CountFirsts(chunk); });
  size_t used = 0;
  for (size_t c = 0; c < used_chunks_; ++c) {
    chunks_[c].first = used;
    used += chunks_[c].fresh;
  }
  unique->resize(used);
  by_chunk([this, unique](Chunk* chunk) { Number(*chunk, unique->data()); });
  by_chunk([this](Chunk* chunk) { WriteIndex(*chunk); });
}

}  // namespace weir
