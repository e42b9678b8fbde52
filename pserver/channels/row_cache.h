// Cache of rows that a trainer keeps between steps (table.cache), so that rows used by every batch are pulled only once
// in several steps.
//
// The cache lies between a trainer's program and its servers. A row that was read at step r of this trainer serves its
// steps up to r + max_steps; it misses what any trainer, this one included, has pushed since. Evaluation bypasses the
// cache. Rows that are pulled ahead of their step count as read in the step before it.
// Threads as RowSource.
#ifndef WEIR_PSERVER_CHANNELS_ROW_CACHE_H_
#define WEIR_PSERVER_CHANNELS_ROW_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/counters.h"
#include "framework/runtime/param_channel.h"
#include "proto/table.pb.h"

namespace weir {

// Cached rows of one table. Not thread-safe. Invariant: slots_ has exactly the ids of ids_, at most `capacity_`, each
// with its slot.
class CachedRows {
 public:
  CachedRows(const v1::RowCache& settings, int width);

  // Copies the row to `out` and returns true if it is cached and was read at `step` - max_steps or later.
  bool Take(int64_t id, int64_t step, float* out);
  // Stores a row for `step` that was read at step `read`. Requires: read <= step. If there is no room, examines some
  // slots and replaces the one that no step has used for longest; if all of them serve this very step, the new row is
  // not stored.
  void Keep(int64_t id, int64_t step, int64_t read, const float* row);

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }

 private:
  static constexpr int kLooks = 8;

  const int64_t capacity_;
  const int64_t max_steps_;
  const size_t width_;
  // Indexed by slot. Slots are allocated in order until there are `capacity_`, then reused.
  std::vector<int64_t> ids_;
  std::vector<int64_t> read_, used_;  // steps
  std::vector<float> rows_;
  absl::flat_hash_map<int64_t, uint32_t> slots_;  // by id
  size_t hand_ = 0;
};

class CachedRowSource : public RowSource {
 public:
  // `settings`: by table. `servers` is borrowed. ahead: true if rows for a step are pulled in the step before.
  CachedRowSource(std::map<std::string, v1::RowCache> settings, RowSource* servers, bool ahead);

  absl::Status BeginStep(int64_t step, bool read_only) override;
  absl::Status PullRows(absl::Span<const TableRows> tables) override;

 private:
  const std::map<std::string, v1::RowCache> settings_;
  RowSource* const servers_;
  const bool ahead_;
  int64_t step_ = 0;
  bool read_only_ = false;
  std::map<std::string, CachedRows> tables_;
  std::vector<std::vector<uint8_t>> there_;  // by table of a call; its memory is kept from call to call
  // Counters of the process.
  Counter* const hits_;
  Counter* const misses_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_ROW_CACHE_H_
