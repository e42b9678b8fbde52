#include "pserver/tables/disk_tier.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

// Rows of one write to the disk.
constexpr size_t kPutRows = 4096;
// Rows that ChangeCold loads at once.
constexpr size_t kChangeRows = 1024;
// Bytes of index per row in memory, averaged over a growth step.
constexpr int64_t kIndexBytes = 13;
// Uses are counted modulo this plus 1.
constexpr uint32_t kLastCall = ~RowLayout::kChanged;

}  // namespace

// Rows of a batch that were read from the disk, by position in the batch.
struct DiskTier::ReadRows {
  std::vector<int64_t> ids;
  std::vector<int64_t> places;
  std::vector<uint32_t> versions;
  std::vector<char> rows;
  std::vector<uint8_t> found;

  void Clear() {
    ids.clear();
    places.clear();
    versions.clear();
  }
};

DiskTier::DiskTier(std::string table, const RowLayout& layout, std::unique_ptr<ColdRows> store, int64_t memory_bytes,
                   int stripes)
    : table_(std::move(table)),
      layout_(layout),
      store_(std::move(store)),
      memory_bytes_(memory_bytes),
      stripes_(stripes) {
  SetGoal();
}

void DiskTier::Init(Stripe* stripe) const { stripe->on_disk.versions.assign(StripeOnDisk::kVersions, 0); }

void DiskTier::SetGoal() {
  // Memory for file metadata grows with the files; at least half of the budget stays for rows.
  const int64_t rows =
      std::max(memory_bytes_ / 2, memory_bytes_ - store_->counts().memory_bytes) / (layout_.row_bytes() + kIndexBytes);
  most_in_stripe_.store(std::max<int64_t>(1, rows / std::max(1, stripes_)), std::memory_order_relaxed);
}

absl::StatusOr<bool> DiskTier::TakeIn(Stripe& stripe, const StripeIds& batch, const ReadRows& read, ReadRows* next) {
  const size_t bytes = static_cast<size_t>(layout_.stored_bytes());
  bool known = true;
  size_t at = 0;
  absl::Status status;
  Walk(
      stripe.rows, batch.size, layout_.row_bytes(), [&](int64_t k) { return batch.Id(k); },
      [&](int64_t k, uint64_t mixed, char* row) {
        stripe.mu.AssertHeld();
        if (row == nullptr) {
          const uint32_t version = stripe.on_disk.VersionOf(mixed);
          while (at < read.places.size() && read.places[at] < k) ++at;
          // A read from the disk is outdated if the row has been in memory and left again since: its version differs.
          const bool valid = at < read.places.size() && read.places[at] == k && read.versions[at] == version;
          if (!valid || !read.found[at]) {
            known &= valid || !stripe.on_disk.some;
            next->ids.push_back(batch.Id(k));
            next->places.push_back(k);
            next->versions.push_back(version);
            return true;
          }
          row = stripe.rows.Insert(mixed);
          if (row == nullptr) {
            status =
                absl::ResourceExhaustedError(absl::StrCat("table ", table_, ": a stripe has ", stripe.rows.size(),
                                                          " rows in memory and can have no more; use more servers"));
            return false;
          }
          std::memcpy(row, read.rows.data() + at * bytes, bytes);
          layout_.ClearUse(row);
          ++stripe.on_disk.read;
        }
        layout_.SetUse(row, stripe.on_disk.clock);
        return true;
      });
  RETURN_IF_ERROR(status);
  return known;
}

absl::Status DiskTier::BringIn(Stripe& stripe, const StripeIds& batch) {
  // Kept between calls so that a step does not allocate; safe because the disk store does not call back.
  static thread_local ReadRows kept[2];
  ReadRows* read = &kept[0];
  ReadRows* next = &kept[1];
  read->Clear();
  stripe.on_disk.clock = (stripe.on_disk.clock + 1) & kLastCall;
  stripe.on_disk.used += batch.size;
  while (true) {
    next->Clear();
    ASSIGN_OR_RETURN(const bool known, TakeIn(stripe, batch, *read, next));
    // If all rows are in memory or known not to exist, no read is needed.
    if (known) return absl::OkStatus();
    stripe.mu.Unlock();
    next->rows.resize(next->ids.size() * static_cast<size_t>(layout_.stored_bytes()));
    next->found.resize(next->ids.size());
    const absl::Status status = store_->Get(next->ids, next->rows.data(), next->found.data());
    stripe.mu.Lock();
    RETURN_IF_ERROR(status);
    std::swap(read, next);
  }
}

void DiskTier::LeaveMemory(Stripe& stripe, uint64_t mixed) {
  stripe.rows.Erase(mixed);
  ++stripe.on_disk.VersionOf(mixed);
}

absl::Status DiskTier::MakeRoom(Stripe& stripe) {
  MutexLock disk_lock(&stripe.disk_mu);
  return MakeRoomHeld(stripe);
}

void DiskTier::Choose(Stripe& stripe, std::vector<int64_t>* ids, std::vector<char>* rows) {
  const int64_t most = most_in_stripe_.load(std::memory_order_relaxed);
  // Evicts a sixteenth more than necessary, so that the stripe is not searched again for every row.
  const int64_t go = static_cast<int64_t>(stripe.rows.size()) - (most - most / 16);
  struct Candidate {
    uint32_t age;  // calls since the last use
    int64_t id;
    char* row;
  };
  std::vector<Candidate> all;
  all.reserve(stripe.rows.size());
  const uint32_t now = stripe.on_disk.clock;
  stripe.rows.Visit(0, std::numeric_limits<uint64_t>::max(), [&](int64_t id, char* row) {
    all.push_back({(now - layout_.Use(row)) & kLastCall, id, row});
  });
  std::nth_element(all.begin(), all.begin() + (go - 1), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.age > b.age; });
  all.resize(static_cast<size_t>(go));
  for (const auto& [age, id, row] : all) {
    if (!layout_.Changed(row)) {
      LeaveMemory(stripe, MixId(static_cast<uint64_t>(id)));
      continue;
    }
    // The row stays readable during the write; a change in the meantime sets the mark again.
    layout_.MarkUnchanged(row);
    ids->push_back(id);
    rows->insert(rows->end(), row, row + layout_.stored_bytes());
  }
  stripe.on_disk.some |= !ids->empty();
}

absl::Status DiskTier::MakeRoomHeld(Stripe& stripe) {
  std::vector<int64_t> ids;
  std::vector<char> rows;
  SetGoal();
  {
    MutexLock lock(&stripe.mu);
    if (!Crowded(stripe)) return absl::OkStatus();
    Choose(stripe, &ids, &rows);
  }
  absl::Status status;
  for (size_t begin = 0; begin < ids.size() && status.ok(); begin += kPutRows) {
    status = store_->Put(absl::MakeConstSpan(ids).subspan(begin, kPutRows),
                         rows.data() + begin * static_cast<size_t>(layout_.stored_bytes()));
  }
  MutexLock lock(&stripe.mu);
  for (const int64_t id : ids) {
    // disk_mu is held, so no other call evicts rows meanwhile.
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    char* const row = stripe.rows.Find(mixed);
    if (!status.ok()) {
      layout_.MarkChanged(row);
    } else if (!layout_.Changed(row)) {
      LeaveMemory(stripe, mixed);
      ++stripe.on_disk.written;
    }
  }
  return status;
}

absl::Status DiskTier::Visit(Stripe& stripe, uint64_t first, uint64_t last,
                             const std::function<void(int64_t id, char* row)>& in_memory,
                             const std::function<void(int64_t id, const char* stored)>& on_disk) const {
  absl::flat_hash_set<int64_t> there;
  {
    MutexLock lock(&stripe.mu);
    const bool on_disk_too = stripe.on_disk.some;
    stripe.rows.Visit(first, last, [&](int64_t id, char* row) {
      if (on_disk_too) there.insert(id);
      in_memory(id, row);
    });
    if (!on_disk_too) return absl::OkStatus();
  }
  return store_->Visit(first, last, [&](int64_t id, const char* stored) {
    if (!there.contains(id)) on_disk(id, stored);
  });
}

absl::StatusOr<int64_t> DiskTier::Remove(Stripe& stripe, const LifecycleRules::Ranked& going, int64_t step,
                                         const std::function<bool(uint64_t keep, const char* words)>& still) {
  if (going.empty()) return 0;
  std::vector<int64_t> ids;
  ids.reserve(going.size());
  for (const auto& [keep, id] : going) ids.push_back(id);
  // Deletes on disk first. A reader that still finds a row there brings it into memory, where the loop below finds it.
  RETURN_IF_ERROR(store_->Delete(ids));
  int64_t gone = 0;
  MutexLock lock(&stripe.mu);
  for (const auto& [keep, id] : going) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    char* const row = stripe.rows.Find(mixed);
    if (row != nullptr && !still(keep, layout_.Words(row))) {
      layout_.MarkChanged(row);
      continue;
    }
    if (row != nullptr) stripe.rows.Erase(mixed);
    ++stripe.on_disk.VersionOf(mixed);
    stripe.Forget(mixed, step);
    ++gone;
  }
  return gone;
}

absl::Status DiskTier::ChangeCold(Stripe& stripe, absl::Span<const int64_t> cold,
                                  const std::function<void(int64_t id, char* row)>& fn) {
  for (size_t begin = 0; begin < cold.size(); begin += kChangeRows) {
    const absl::Span<const int64_t> ids = cold.subspan(begin, kChangeRows);
    bool crowded = false;
    {
      MutexLock lock(&stripe.mu);
      RETURN_IF_ERROR(BringIn(stripe, {.ids = ids.data(), .size = static_cast<int64_t>(ids.size())}));
      stripe.on_disk.used -= static_cast<int64_t>(ids.size());
      for (const int64_t id : ids) {
        // disk_mu is held, so no other call evicts or removes rows meanwhile.
        char* const row = stripe.rows.Find(MixId(static_cast<uint64_t>(id)));
        if (row == nullptr) {
          return absl::DataLossError(absl::StrCat("table ", table_, ": row ", id,
                                                  " was on disk and cannot be found; start again with --resume"));
        }
        fn(id, row);
        layout_.MarkChanged(row);
        // Gives the row the oldest possible use, so that it is evicted first.
        layout_.SetUse(row, (stripe.on_disk.clock + 1) & kLastCall);
      }
      crowded = Crowded(stripe);
    }
    if (crowded) RETURN_IF_ERROR(MakeRoomHeld(stripe));
  }
  return absl::OkStatus();
}

}  // namespace weir
