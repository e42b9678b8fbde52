#include "pserver/tables/row_store.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "glog/logging.h"

namespace weir {

namespace {

// The index grows when it is this full: then one id in thirty is outside its home bucket.
constexpr double kMaxLoad = 0.8;
// Growth of an index: kGrowth keeps it at 12.8 bytes a row, id included, averaged over a growth step, and its pauses
// short, but each id is placed anew four times. An index below kSmallBuckets (256 KiB) doubles, which places it once.
constexpr double kGrowth = 1.25;
constexpr double kSmallBuckets = 4096;
constexpr double kSmallGrowth = 2;
constexpr double kFirstBuckets = 16;
// A freed row stores the number of the next free row in four bytes.
constexpr uint64_t kMostRows = (uint64_t{1} << 31) - 2;

}  // namespace

void RowStore::Init(ChunkMemory* chunks, ChunkMemory* pages, int64_t row_bytes, uint64_t first, int prefix_bits,
                    double spread) {
  rows_.Init(chunks, row_bytes);
  pages_ = pages;
  first_ = first;
  prefix_bits_ = prefix_bits;
  SetBuckets(kFirstBuckets * std::pow(kSmallGrowth, spread));
  for (uint64_t* page : page_of_) std::memset(page, 0, kIndexPageBytes);
}

void RowStore::SetBuckets(double wanted) {
  // Not rounded, since otherwise stores that start with few buckets would all grow to the same sizes.
  wanted_buckets_ = wanted;
  buckets_ = static_cast<uint64_t>(wanted);
  page_of_.clear();
  for (uint64_t at = 0; at < buckets_ + kReach - 1; at += kPageBuckets) {
    page_of_.push_back(reinterpret_cast<uint64_t*>(pages_->Take()));
  }
  max_rows_ = std::min(kMostRows, static_cast<uint64_t>(static_cast<double>(kSlots) * wanted * kMaxLoad));
  row_bits_ = std::bit_width(max_rows_);  // number + 1 <= max_rows
  row_mask_ = (uint64_t{1} << row_bits_) - 1;
  // An entry keeps enough bits of MixId to tell apart all ids that can be in one bucket, which are those of kReach
  // homes: a home has 2^(64 - prefix_bits) / buckets ids, and buckets >= 2^(bit_width - 1).
  CHECK_GE(72 - row_bits_ + prefix_bits_ + std::bit_width(buckets_) - 1, 64 + std::countr_zero(kReach));
}

uint64_t RowStore::LeastIn(const Shape& shape, uint64_t bucket) const {
  const uint64_t home = bucket < kReach ? 0 : bucket - (kReach - 1);
  return first_ + (((home << 32) + shape.buckets - 1) / shape.buckets << (32 - prefix_bits_));
}

void RowStore::Place(uint64_t mixed, uint64_t number) {
  const uint64_t home = Home(mixed);
  for (uint64_t at = home; at < home + kReach; ++at) {
    uint64_t* const bucket = Bucket(at);
    if (const uint64_t i = FreeSlot(bucket); i < kSlots) {
      bucket[i] = mixed >> 8 << row_bits_ | (number + 1);
      Tags(bucket)[i] = static_cast<uint8_t>(mixed);
      return;
    }
    uint8_t& displaced = Tags(bucket)[kSlots];
    if (displaced < kMostDisplaced) ++displaced;
  }
  // All buckets within reach are full: remember the row in far_.
  far_.emplace(mixed, number);
}

void RowStore::Grow() {
  const std::vector<uint64_t*> old = std::move(page_of_);
  const Shape shape{buckets_, row_bits_};
  const uint64_t mask = row_mask_;
  const absl::flat_hash_map<uint64_t, uint64_t> far = std::move(far_);
  page_of_ = {};
  far_ = {};
  SetBuckets(wanted_buckets_ * (wanted_buckets_ < kSmallBuckets ? kSmallGrowth : kGrowth));
  // Walks the old index in order, which is nearly the order of the new one. So a new page is cleared shortly before it
  // is filled, and is in the cache then.
  size_t cleared = 0;
  const auto clear_to = [&](uint64_t bucket) {
    for (; cleared < page_of_.size() && cleared * kPageBuckets <= bucket; ++cleared) {
      std::memset(page_of_[cleared], 0, kIndexPageBytes);
    }
  };
  for (uint64_t at = 0; at < shape.buckets + kReach - 1; ++at) {
    const uint64_t* const bucket = old[at / kPageBuckets] + at % kPageBuckets * kBucketWords;
    const uint64_t least = LeastIn(shape, at);
    for (uint64_t i = 0; i < kSlots; ++i) {
      if (bucket[i] == 0) continue;
      const uint64_t mixed = Mixed(shape, least, bucket[i], Tags(bucket)[i]);
      clear_to(Home(mixed) + kReach);
      Place(mixed, (bucket[i] & mask) - 1);
    }
  }
  clear_to(buckets_ + kReach);
  for (const auto& [mixed, number] : far) Place(mixed, number);
  for (uint64_t* page : old) pages_->Give(reinterpret_cast<char*>(page));
}

char* RowStore::Insert(uint64_t mixed) {
  // Row numbers run to max_rows - 1.
  if (rows_.end_after_add() >= max_rows_) {
    if (max_rows_ == kMostRows) return nullptr;
    Grow();
  }
  const uint64_t number = rows_.Add();
  Place(mixed, number);
  return rows_.At(number);
}

void RowStore::Erase(uint64_t mixed) {
  const uint64_t wanted = (mixed >> 8) << row_bits_, home = Home(mixed);
  uint64_t number = row_mask_;
  uint64_t at = home;
  for (; at < home + kReach; ++at) {
    uint64_t* const bucket = Bucket(at);
    for (uint32_t fits = Fits(bucket, mixed); fits != 0 && number == row_mask_; fits &= fits - 1) {
      uint64_t& slot = bucket[std::countr_zero(fits)];
      if ((slot ^ wanted) - 1 >= row_mask_) continue;
      number = (slot ^ wanted) - 1;
      slot = 0;
    }
    if (number != row_mask_) break;
  }
  if (number == row_mask_) {
    const auto far = far_.find(mixed);
    CHECK(far != far_.end()) << "no row with MixId " << mixed << " to erase";
    number = far->second;
    far_.erase(far);
  }
  // Undoes the counts that Place has made in the buckets before. A count at its maximum has lost track and stays.
  while (at-- > home) {
    uint8_t& displaced = Tags(Bucket(at))[kSlots];
    if (displaced < kMostDisplaced) --displaced;
  }
  rows_.Free(number);
}

void RowStore::Clear() {
  for (uint64_t* page : page_of_) std::memset(page, 0, kIndexPageBytes);
  far_.clear();
  rows_.Clear();
}

}  // namespace weir
