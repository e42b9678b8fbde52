#include "tools/reporting/slot_pass.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

struct SlotSums {
  int64_t rows = 0;
  int64_t zero_rows = 0;
  int64_t finite_rows = 0;
  int64_t at_most_once = 0;
  double norms = 0;  // of finite rows
  double counts = 0;
  double ages = 0;

  void Add(const SlotSums& other) {
    rows += other.rows;
    zero_rows += other.zero_rows;
    finite_rows += other.finite_rows;
    at_most_once += other.at_most_once;
    norms += other.norms;
    counts += other.counts;
    ages += other.ages;
  }
};

uint32_t WordOf(float x) { return std::bit_cast<uint32_t>(x); }

class SlotPass {
 public:
  SlotPass(const TableLayout& layout, const TableTotals& totals, const TablePassOptions& options, const SlotUses& uses)
      : width_(layout.width), floats_(int64_t{layout.width} + layout.state_width()), uses_(uses) {
    if (totals.count_column >= 0) count_ = &totals.columns[static_cast<size_t>(totals.count_column)];
    for (const TableColumn& column : totals.columns) {
      if (column.kind == TableColumn::kStep) age_ = &column;
    }
    once_ = static_cast<double>(count_ != nullptr && count_->kind == TableColumn::kCount ? options.once : 1);
  }

  bool has_ages() const { return age_ != nullptr; }

  absl::Status RunChunk(const TableChunk& chunk, std::vector<SlotSums>* sums) const {
    sums->resize(uses_.slots().size() + 1);
    return chunk.reader->ReadTable(chunk.entry, [&](absl::Span<const int64_t> ids, absl::Span<const float> rows) {
      for (size_t r = 0; r < ids.size(); ++r) {
        const SlotSums row = Of(rows.data() + static_cast<int64_t>(r) * floats_, chunk.steps);
        bool used = false;
        uses_.ForSlotsOf(ids[r], [&](int slot) {
          (*sums)[static_cast<size_t>(slot)].Add(row);
          used = true;
        });
        if (!used) sums->back().Add(row);
      }
      return absl::OkStatus();
    });
  }

 private:
  SlotSums Of(const float* row, int64_t steps) const {
    SlotSums of{.rows = 1};
    double squares = 0;
    for (int64_t c = 0; c < width_; ++c) squares += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    of.zero_rows = squares == 0 ? 1 : 0;
    if (std::isfinite(squares)) {
      of.finite_rows = 1;
      of.norms = std::sqrt(squares);
    }
    if (count_ != nullptr) {
      const float word = row[count_->offset];
      const double count = count_->kind == TableColumn::kCount ? WordOf(word) : static_cast<double>(word);
      if (std::isfinite(count)) {
        of.counts = count;
        of.at_most_once = count <= once_ ? 1 : 0;
      }
    }
    if (age_ != nullptr) {
      // As PassOver: steps wrap around.
      of.ages = std::max(static_cast<int32_t>(static_cast<uint32_t>(steps - 1) - WordOf(row[age_->offset])), 0);
    }
    return of;
  }

  const int64_t width_;
  const int64_t floats_;  // of a row
  const SlotUses& uses_;
  const TableColumn* count_ = nullptr;
  const TableColumn* age_ = nullptr;
  double once_ = 1;
};

}  // namespace

absl::StatusOr<std::vector<v1::SlotReport>> PassBySlot(const TableLayout& layout, absl::Span<const TableChunk> chunks,
                                                       const TableTotals& totals, const TablePassOptions& options,
                                                       int64_t row_bytes, const SlotUses& uses, ThreadPool* pool) {
  const SlotPass pass(layout, totals, options, uses);
  std::vector<std::vector<SlotSums>> by_chunk(chunks.size());
  Mutex mu;
  absl::Status failed;
  pool->ParallelFor(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    const absl::Status status = pass.RunChunk(chunks[static_cast<size_t>(i)], &by_chunk[static_cast<size_t>(i)]);
    MutexLock lock(&mu);
    failed.Update(status);
  });
  RETURN_IF_ERROR(failed);
  std::vector<SlotSums> sums(uses.slots().size() + 1);
  for (const std::vector<SlotSums>& chunk : by_chunk) {
    for (size_t s = 0; s < chunk.size(); ++s) sums[s].Add(chunk[s]);
  }
  std::vector<v1::SlotReport> reports;
  for (size_t s = 0; s < sums.size(); ++s) {
    v1::SlotReport& report = reports.emplace_back();
    if (s < uses.slots().size()) {
      const SlotUses::Slot& slot = uses.slots()[s];
      report.set_name(slot.name);
      report.set_ids(slot.ids);
      report.set_lookups(slot.lookups);
    }
    const SlotSums& of = sums[s];
    report.set_rows(of.rows);
    report.set_bytes(of.rows * row_bytes);
    report.set_zero_rows(of.zero_rows);
    if (of.finite_rows > 0) report.set_mean_norm(of.norms / static_cast<double>(of.finite_rows));
    if (totals.counts_steps) report.set_at_most_once(of.at_most_once);
    if (totals.counts > 0) report.set_counts(of.counts / totals.counts);
    if (pass.has_ages() && of.rows > 0) report.set_mean_age_steps(of.ages / static_cast<double>(of.rows));
  }
  return reports;
}

}  // namespace weir
