#include "pserver/tables/row_store.h"

#include <cmath>
#include <utility>

#include "glog/logging.h"

namespace weir {

namespace {

constexpr int64_t kChunkBytes = 64 << 10;
// The index grows when it is this full, by kGrowth: 5.6 bytes a row over a step's mean, and one id in a hundred not in
// its home bucket. A larger step would be paid in memory, and in the pause it makes.
constexpr double kMaxLoad = 0.8;
constexpr double kGrowth = 1.25;
constexpr double kFirstBuckets = 16;
// Row numbers keep below 31 bits, so that a slot has room for a tag.
constexpr uint64_t kMostRows = (uint64_t{1} << 31) - 2;

}  // namespace

int ChunkLog2(int64_t row_bytes) {
  int log2 = 0;
  while (log2 < 20 && (row_bytes << (log2 + 1)) <= kChunkBytes) ++log2;
  return log2;
}

void RowStore::Init(ChunkMemory* chunks, ChunkMemory* pages, int64_t row_bytes, int prefix_bits, double spread) {
  chunks_ = chunks;
  pages_ = pages;
  row_bytes_ = row_bytes;
  chunk_log2_ = ChunkLog2(row_bytes);
  prefix_bits_ = prefix_bits;
  SetBuckets(kFirstBuckets * std::pow(kGrowth, spread));
}

void RowStore::SetBuckets(double wanted) {
  // Not rounded, or stores that start with few buckets would all come to the same sizes.
  wanted_buckets_ = wanted;
  buckets_ = static_cast<uint64_t>(wanted);
  page_of_.clear();
  for (uint64_t at = 0; at < buckets_; at += kPageBuckets) {
    page_of_.push_back(reinterpret_cast<uint32_t*>(pages_->Take()));
    std::memset(page_of_.back(), 0, kIndexPageBytes);
  }
  max_rows_ = std::min(kMostRows, static_cast<uint64_t>(static_cast<double>(kSlots) * wanted * kMaxLoad));
  row_bits_ = std::bit_width(max_rows_);  // number + 1 <= max_rows
}

void RowStore::Grow() {
  const std::vector<uint32_t*> old = std::move(page_of_);
  const uint64_t old_buckets = buckets_;
  const uint32_t old_mask = RowMask();
  page_of_ = {};
  SetBuckets(wanted_buckets_ * kGrowth);
  // In the order of the old index, which is about that of the new one: only the ids are read at random places, ahead of
  // use.
  constexpr size_t kAhead = 32;
  uint64_t numbers[kAhead];
  size_t waiting = 0;
  const auto place = [&] {
    for (size_t i = 0; i < waiting; ++i) Place(Mixed(Row(numbers[i])), numbers[i]);
    waiting = 0;
  };
  for (uint64_t slot = 0; slot < old_buckets * kSlots; ++slot) {
    const uint32_t entry = old[slot / (kPageBuckets * kSlots)][slot % (kPageBuckets * kSlots)];
    if (entry == 0) continue;
    numbers[waiting] = (entry & old_mask) - 1;
    const char* const row = Row(numbers[waiting]);
    // The id may stand across two lines.
    __builtin_prefetch(row);
    __builtin_prefetch(row + sizeof(int64_t) - 1);
    if (++waiting == kAhead) place();
  }
  place();
  for (uint32_t* page : old) pages_->Give(reinterpret_cast<char*>(page));
}

char* RowStore::Insert(int64_t id, uint64_t mixed) {
  uint64_t number;
  char* row;
  if (free_rows_ > 0) {
    number = first_free_ - 1;
    row = Row(number);
    std::memcpy(&first_free_, row, sizeof(first_free_));
    --free_rows_;
  } else {
    // Row numbers run to max_rows - 1.
    if (rows_ + 1 >= max_rows_) {
      if (max_rows_ == kMostRows) return nullptr;
      Grow();
    }
    number = rows_++;
    if (number >> chunk_log2_ == chunk_of_.size()) chunk_of_.push_back(chunks_->Take());
    row = Row(number);
  }
  std::memcpy(row, &id, sizeof(id));
  Place(mixed, number);
  return row;
}

void RowStore::Erase(int64_t id, uint64_t mixed) {
  uint64_t hole = Home(mixed);
  uint32_t* slot = nullptr;
  bool was_full = false;
  while (true) {
    uint32_t* const bucket = Bucket(hole);
    const uint32_t used = Used(bucket);
    was_full = used == kFull;
    for (uint32_t fits = Fits(bucket, Tag(mixed)) & used; fits != 0 && slot == nullptr; fits &= fits - 1) {
      uint32_t* const each = bucket + std::countr_zero(fits);
      if (Id(Row((*each & RowMask()) - 1)) == id) slot = each;
    }
    if (slot != nullptr) break;
    CHECK(was_full) << "no row " << id << " to erase";
    hole = Next(hole);
  }
  const uint64_t number = (*slot & RowMask()) - 1;
  std::memcpy(Row(number), &first_free_, sizeof(first_free_));
  first_free_ = number + 1;
  ++free_rows_;
  *slot = 0;
  // Behind a full bucket may stand what belongs in it, or before it: that moves into the hole, and leaves one.
  for (uint64_t at = Next(hole); was_full; at = Next(at)) {
    uint32_t* const bucket = Bucket(at);
    const uint32_t used = Used(bucket);
    was_full = used == kFull;
    const uint64_t distance = (at + buckets_ - hole) % buckets_;
    for (uint32_t rest = used; rest != 0; rest &= rest - 1) {
      uint32_t* const each = bucket + std::countr_zero(rest);
      const uint64_t home = Home(Mixed(Row((*each & RowMask()) - 1)));
      if ((at + buckets_ - home) % buckets_ < distance) continue;
      *slot = *each;
      *each = 0;
      slot = each;
      hole = at;
      break;
    }
  }
}

void RowStore::Clear() {
  for (uint32_t* page : page_of_) std::memset(page, 0, kIndexPageBytes);
  chunk_of_.clear();
  rows_ = free_rows_ = first_free_ = 0;
}

}  // namespace weir
