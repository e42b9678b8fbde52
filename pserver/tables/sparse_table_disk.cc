// Rows of a table that lie on disk: how they come into memory and leave it.
//
// A row in memory counts, whatever lies on disk; a row that is not in memory is as it lies there. Rows leave memory,
// and the disk, under the stripe's disk_mu. A reader of the disk holds no lock: it looks afterwards whether a row of
// the same version slot has left memory since it looked for the row there, and if so reads again.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "pserver/tables/sparse_table.h"
#include "pserver/tables/sparse_table_impl.h"

namespace weir {

namespace {

constexpr uint32_t kChanged = uint32_t{1} << 31;
// Rows of one write to the disk.
constexpr size_t kPutRows = 4096;
// Index of rows in memory with their ids, over a growth step's mean.
constexpr int64_t kIndexBytes = 13;

bool HasChanged(const char* use) { return (Word(use, 0) & kChanged) != 0; }
uint32_t LastUse(const char* use) { return Word(use, 0) & ~kChanged; }

}  // namespace

void SparseTable::Touch(char* row, uint32_t clock) const {
  SetWord(row + use_begin_, 0, (Word(row + use_begin_, 0) & kChanged) | clock);
}

void SparseTable::Changed(char* row) const {
  if (disk_ != nullptr) SetWord(row + use_begin_, 0, Word(row + use_begin_, 0) | kChanged);
}

void SparseTable::SetGoal() {
  // What is known of files grows with them; at least half is for rows.
  const int64_t memory = options_.disk.memory_bytes;
  const int64_t rows = std::max(memory / 2, memory - disk_->counts().memory_bytes) / (row_bytes_ + kIndexBytes);
  most_in_stripe_.store(std::max<int64_t>(1, rows / std::max(1, stripe_count_)), std::memory_order_relaxed);
}

bool SparseTable::Crowded(const Stripe& stripe) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  return disk_ != nullptr && static_cast<int64_t>(stripe.rows.size()) > most_in_stripe_.load(std::memory_order_relaxed);
}

absl::Status SparseTable::Fetch(Stripe& stripe, absl::Span<const int64_t> ids, const uint32_t* order, int64_t n)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  // What was read, by position in the batch. Kept between calls so that a step allocates nothing; the disk does not
  // come back here.
  struct Read {
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
  static thread_local Read kept[2];
  Read* read = &kept[0];
  Read* next = &kept[1];
  read->Clear();
  const size_t bytes = static_cast<size_t>(use_begin_);
  const auto id_of = [&](int64_t k) { return ids[order == nullptr ? static_cast<size_t>(k) : order[k]]; };
  stripe.clock = (stripe.clock + 1) & ~kChanged;
  stripe.counts.used += n;
  while (true) {
    next->Clear();
    bool known = true;
    size_t at = 0;
    absl::Status status;
    Walk(stripe.rows, n, row_bytes_, id_of, [&](int64_t k, uint64_t mixed, char* row) {
      stripe.mu.AssertHeld();
      if (row == nullptr) {
        const uint32_t version = stripe.versions[mixed % Stripe::kVersions];
        while (at < read->places.size() && read->places[at] < k) ++at;
        const bool valid = at < read->places.size() && read->places[at] == k && read->versions[at] == version;
        if (!valid || !read->found[at]) {
          known &= valid || !stripe.on_disk;
          next->ids.push_back(id_of(k));
          next->places.push_back(k);
          next->versions.push_back(version);
          return true;
        }
        row = stripe.rows.Insert(mixed);
        if (row == nullptr) {
          status =
              absl::ResourceExhaustedError(absl::StrCat("table ", options_.name, ": a stripe has ", stripe.rows.size(),
                                                        " rows in memory and can have no more; use more servers"));
          return false;
        }
        std::memcpy(row, read->rows.data() + at * bytes, bytes);
        SetWord(row + use_begin_, 0, 0);
        ++stripe.counts.read;
      }
      Touch(row, stripe.clock);
      return true;
    });
    RETURN_IF_ERROR(status);
    // All that is not in memory does not exist.
    if (known) return absl::OkStatus();
    stripe.mu.Unlock();
    next->rows.resize(next->ids.size() * bytes);
    next->found.resize(next->ids.size());
    status = disk_->Get(next->ids, next->rows.data(), next->found.data());
    stripe.mu.Lock();
    RETURN_IF_ERROR(status);
    std::swap(read, next);
  }
}

void SparseTable::LeaveMemory(Stripe& stripe, int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mu) {
  const uint64_t mixed = MixId(static_cast<uint64_t>(id));
  stripe.rows.Erase(mixed);
  ++stripe.versions[mixed % Stripe::kVersions];
}

absl::Status SparseTable::MakeRoom(Stripe& stripe) {
  MutexLock disk_lock(&stripe.disk_mu);
  return MakeRoomHeld(stripe);
}

absl::Status SparseTable::MakeRoomHeld(Stripe& stripe) ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu) {
  const size_t bytes = static_cast<size_t>(use_begin_);
  std::vector<int64_t> ids;
  std::vector<char> rows;
  SetGoal();
  {
    MutexLock lock(&stripe.mu);
    if (!Crowded(stripe)) return absl::OkStatus();
    const int64_t most = most_in_stripe_.load(std::memory_order_relaxed);
    // A sixteenth more than must, so that the stripe is not searched anew for every row.
    const int64_t go = static_cast<int64_t>(stripe.rows.size()) - (most - most / 16);
    struct Candidate {
      uint32_t age;  // calls since the last use
      int64_t id;
      char* row;
    };
    std::vector<Candidate> all;
    all.reserve(stripe.rows.size());
    stripe.rows.Visit(0, std::numeric_limits<uint64_t>::max(), [&](int64_t id, char* row) {
      stripe.mu.AssertHeld();
      all.push_back({(stripe.clock - LastUse(row + use_begin_)) & ~kChanged, id, row});
    });
    std::nth_element(all.begin(), all.begin() + (go - 1), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.age > b.age; });
    all.resize(static_cast<size_t>(go));
    for (const auto& [age, id, row] : all) {
      if (!HasChanged(row + use_begin_)) {
        LeaveMemory(stripe, id);
        continue;
      }
      // Whoever changes it from now on says so again.
      SetWord(row + use_begin_, 0, LastUse(row + use_begin_));
      ids.push_back(id);
      rows.insert(rows.end(), row, row + use_begin_);
    }
    stripe.on_disk |= !ids.empty();
  }
  absl::Status status;
  for (size_t begin = 0; begin < ids.size() && status.ok(); begin += kPutRows) {
    status = disk_->Put(absl::MakeConstSpan(ids).subspan(begin, kPutRows), rows.data() + begin * bytes);
  }
  MutexLock lock(&stripe.mu);
  for (int64_t id : ids) {
    // Nobody else takes rows out of memory meanwhile.
    char* const row = stripe.rows.Find(MixId(static_cast<uint64_t>(id)));
    if (!status.ok()) {
      Changed(row);
    } else if (!HasChanged(row + use_begin_)) {
      LeaveMemory(stripe, id);
      ++stripe.counts.written;
    }
  }
  return status;
}

absl::Status SparseTable::VisitBoth(Stripe& stripe, uint64_t first, uint64_t last,
                                    const std::function<void(int64_t id, char* row)>& in_memory,
                                    const std::function<void(int64_t id, const char* values)>& on_disk) const
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu) {
  absl::flat_hash_set<int64_t> there;
  {
    MutexLock lock(&stripe.mu);
    const bool on_disk_too = stripe.on_disk;
    stripe.rows.Visit(first, last, [&](int64_t id, char* row) {
      if (on_disk_too) there.insert(id);
      in_memory(id, row);
    });
    if (!stripe.on_disk) return absl::OkStatus();
  }
  return disk_->Visit(first, last, [&](int64_t id, const char* values) {
    if (!there.contains(id)) on_disk(id, values);
  });
}

std::pair<uint64_t, uint64_t> SparseTable::StripeRange(int stripe) const {
  const auto [begin, end] = ShardsOf(stripe);
  return {ShardRange(begin).first, ShardRange(end - 1).second};
}

absl::Status SparseTable::CopyFromBoth(int stripe_number, std::vector<int64_t>* ids, std::vector<float>* rows) const {
  const size_t floats = static_cast<size_t>(options_.width) + static_cast<size_t>(state_width_);
  Stripe& stripe = stripes_[stripe_number];
  std::vector<int64_t> found;
  std::vector<float> values;
  std::vector<float> scratch;
  const auto add = [&](int64_t id, const char* from) {
    const float* const row = Floats(from, &scratch);
    found.push_back(id);
    values.insert(values.end(), row, row + floats);
  };
  {
    MutexLock disk_lock(&stripe.disk_mu);
    const auto [first, last] = StripeRange(stripe_number);
    RETURN_IF_ERROR(VisitBoth(stripe, first, last, add, add));
  }
  std::vector<std::pair<std::pair<uint32_t, int64_t>, size_t>> order(found.size());
  for (size_t i = 0; i < found.size(); ++i) order[i] = {{LogicalShard(found[i], options_.logical_shards), found[i]}, i};
  std::sort(order.begin(), order.end());
  ids->resize(found.size());
  rows->resize(values.size());
  for (size_t i = 0; i < order.size(); ++i) {
    (*ids)[i] = found[order[i].second];
    std::memcpy(rows->data() + i * floats, values.data() + order[i].second * floats, floats * sizeof(float));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SparseTable::Take(Stripe& stripe, const Kept& going, const RowTime& time,
                                          const std::function<bool(uint64_t keep, const char* words)>& still)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu) {
  if (going.empty()) return 0;
  std::vector<int64_t> ids;
  ids.reserve(going.size());
  for (const auto& [keep, id] : going) ids.push_back(id);
  // From the disk first: a reader that comes now and finds a row there brings it into memory, where it is found below.
  RETURN_IF_ERROR(disk_->Delete(ids));
  int64_t gone = 0;
  MutexLock lock(&stripe.mu);
  for (const auto& [keep, id] : going) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    char* const row = stripe.rows.Find(mixed);
    if (row != nullptr && !still(keep, WordsOf(row))) {
      Changed(row);
      continue;
    }
    if (row != nullptr) stripe.rows.Erase(mixed);
    ++stripe.versions[mixed % Stripe::kVersions];
    Forget(stripe, id, time);
    ++gone;
  }
  return gone;
}

absl::Status SparseTable::ExpireOnDisk(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu) {
  const size_t words = static_cast<size_t>(words_begin_);
  const auto [first, last] = ShardRange(shard);
  Kept going;
  const auto expired = [&](uint64_t, const char* at) { return Expired(at, rules_.row_words(), time); };
  const auto find = [&](int64_t id, const char* at) {
    if (expired(0, at)) going.emplace_back(0, id);
  };
  RETURN_IF_ERROR(VisitBoth(
      stripe, first, last, [&](int64_t id, char* row) { find(id, WordsOf(row)); },
      [&](int64_t id, const char* values) { find(id, values + words); }));
  ASSIGN_OR_RETURN(const int64_t gone, Take(stripe, going, time, expired));
  MutexLock lock(&stripe.mu);
  stripe.counts.expired += gone;
  ExpireCandidates(stripe, shard, time);
  return absl::OkStatus();
}

absl::Status SparseTable::DecayOnDisk(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu) {
  // Rows brought into memory at once.
  constexpr size_t kRows = 1024;
  const auto [first, last] = ShardRange(shard);
  Kept going;
  std::vector<int64_t> cold;
  const auto decay = [&](int64_t id, char* row) {
    if (Fade(WordsOf(row), rules_.row_words())) going.emplace_back(0, id);
    Changed(row);
  };
  RETURN_IF_ERROR(VisitBoth(stripe, first, last, decay, [&](int64_t id, const char*) { cold.push_back(id); }));
  // Each of them goes through memory, where nobody has it without its decay, and leaves it before the others do.
  for (size_t begin = 0; begin < cold.size(); begin += kRows) {
    const absl::Span<const int64_t> ids = absl::MakeConstSpan(cold).subspan(begin, kRows);
    bool crowded = false;
    {
      MutexLock lock(&stripe.mu);
      RETURN_IF_ERROR(Fetch(stripe, ids, nullptr, static_cast<int64_t>(ids.size())));
      stripe.counts.used -= static_cast<int64_t>(ids.size());
      for (int64_t id : ids) {
        // Nobody else takes rows away meanwhile.
        char* const row = stripe.rows.Find(MixId(static_cast<uint64_t>(id)));
        if (row == nullptr) {
          return absl::DataLossError(absl::StrCat("table ", options_.name, ": row ", id,
                                                  " was on disk and cannot be found; ", "start again with --resume"));
        }
        decay(id, row);
        Touch(row, (stripe.clock + 1) & ~kChanged);
      }
      crowded = Crowded(stripe);
    }
    if (crowded) RETURN_IF_ERROR(MakeRoomHeld(stripe));
  }
  const LifecycleRules::Words& places = rules_.row_words();
  ASSIGN_OR_RETURN(const int64_t gone, Take(stripe, going, time, [&](uint64_t, const char* at) {
                     return rules_.Faded(FloatWord(at, places.shows), FloatWord(at, places.clicks));
                   }));
  MutexLock lock(&stripe.mu);
  stripe.counts.faded += gone;
  DecayCandidates(stripe, shard);
  return absl::OkStatus();
}

absl::Status SparseTable::EvictOnDisk(Stripe& stripe, uint32_t shard, const RowTime& time)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.disk_mu) {
  {
    MutexLock lock(&stripe.mu);
    EvictCandidates(stripe, shard, time);
    if (stripe.shard_rows[shard % stripe.shard_rows.size()] <= rules_.most_in_shard()) return absl::OkStatus();
  }
  const size_t words = static_cast<size_t>(words_begin_);
  const auto [first, last] = ShardRange(shard);
  Kept all;
  const auto keep_of = [&](const char* at) { return Keep(at, rules_.row_words(), time); };
  RETURN_IF_ERROR(VisitBoth(
      stripe, first, last, [&](int64_t id, char* row) { all.emplace_back(keep_of(WordsOf(row)), id); },
      [&](int64_t id, const char* values) { all.emplace_back(keep_of(values + words), id); }));
  ChooseGoing(&all);
  ASSIGN_OR_RETURN(const int64_t gone,
                   Take(stripe, all, time, [&](uint64_t keep, const char* at) { return keep_of(at) == keep; }));
  MutexLock lock(&stripe.mu);
  stripe.counts.evicted += gone;
  return absl::OkStatus();
}

absl::Status SparseTable::EndStepOnDisk(Stripe& stripe, uint32_t begin, uint32_t end, const RowTime& time) {
  MutexLock disk_lock(&stripe.disk_mu);
  std::vector<uint32_t> due, over;
  {
    MutexLock lock(&stripe.mu);
    due = Due(stripe, begin, end, time);
  }
  for (uint32_t shard : due) RETURN_IF_ERROR(ExpireOnDisk(stripe, shard, time));
  if (rules_.decays()) {
    for (int64_t shard = rules_.FirstDecay(begin, time.step); shard < end; shard += rules_.decay_every()) {
      RETURN_IF_ERROR(DecayOnDisk(stripe, static_cast<uint32_t>(shard), time));
    }
  }
  {
    MutexLock lock(&stripe.mu);
    over.swap(stripe.over);
  }
  std::sort(over.begin(), over.end());
  for (uint32_t shard : over) RETURN_IF_ERROR(EvictOnDisk(stripe, shard, time));
  return absl::OkStatus();
}

}  // namespace weir
