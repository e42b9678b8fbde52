// Look-ups in the rows that prefetch brought for the step: what lookup_rows and lookup_concat share.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/lookup.h"

namespace weir {
namespace {

// Place of each row of the step in this lane's gradient. A stamp marks the entries of this run, so that nothing must be
// cleared.
class RowPlaces {
 public:
  void Start(size_t rows) {
    if (stamps_.size() < rows) stamps_.resize(rows, 0);
    if (++stamp_ == 0) {  // every 2^32 runs old stamps would come to life
      std::fill(stamps_.begin(), stamps_.end(), 0);
      stamp_ = 1;
    }
  }
  // Returns the place of `row`; `next` if the row is new.
  int32_t Place(int32_t row, int32_t next) {
    uint64_t& entry = stamps_[static_cast<size_t>(row)];
    // Avoid a branch, which would be unpredictable.
    const uint64_t fresh = static_cast<uint64_t>(stamp_) << 32 | static_cast<uint32_t>(next);
    const uint64_t place = (entry >> 32) != stamp_ ? fresh : entry;
    entry = place;
    return static_cast<int32_t>(static_cast<uint32_t>(place));
  }

 private:
  std::vector<uint64_t> stamps_;  // stamp, place
  uint32_t stamp_ = 0;
};

// Sets place[i] to the row of grad that receives the gradient of value i; -1 if the value is not read. Fills ids and
// step_rows of grad.
void MergePlaces(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                 std::vector<int32_t>* place, SelectedRows* grad) {
  thread_local RowPlaces places;
  const size_t n = ids.values.size();
  place->resize(n);
  thread_local std::vector<int32_t> fresh;  // rows in order of their first appearance
  if (fresh.size() < n) fresh.resize(n);
  int32_t next = 0;
  if (n > 0) {
    places.Start(rows.ids.size());
    const int32_t* row = index.data<int32_t>();
    if (!attrs.selection().all()) std::fill(place->begin(), place->end(), -1);
    ForSelectedIds(ids, attrs.selection(), [&](int64_t begin, int64_t end) {
      for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const int32_t p = places.Place(row[i], next);
        (*place)[i] = p;
        fresh[static_cast<size_t>(next)] = row[i];
        next += p == next;
      }
    });
  }
  grad->step_rows.assign(fresh.begin(), fresh.begin() + next);
  grad->ids.resize(static_cast<size_t>(next));
  for (size_t i = 0; i < grad->ids.size(); ++i) grad->ids[i] = rows.ids[static_cast<size_t>(fresh[i])];
}

}  // namespace

absl::Status CheckStepIndex(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index,
                            const SelectedRows& rows) {
  RETURN_IF_ERROR(CheckIds(ids, attrs));
  if (rows.height >= 0) RETURN_IF_ERROR(CheckRange(ids, attrs, rows.height));
  const int64_t n = static_cast<int64_t>(ids.values.size());
  if (index.size() != n || (n > 0 && (!index.initialized() || index.dtype() != v1::INT32))) {
    return absl::InvalidArgumentError(absl::StrCat("Index has ", index.size(), " entries for ", n, " ids"));
  }
  if (n == 0) return absl::OkStatus();
  uint64_t used = 0;
  const int32_t* place = index.data<int32_t>();
  ForSelectedIds(ids, attrs.selection(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) used = std::max(used, uint64_t{static_cast<uint32_t>(place[i])} + 1);
  });
  if (used <= rows.ids.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Index has ", static_cast<int32_t>(static_cast<uint32_t>(used - 1)),
                                                 "; Rows has ", rows.ids.size(), " rows"));
}

absl::Status CheckStepRows(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                           int64_t width) {
  RETURN_IF_ERROR(CheckStepIndex(attrs, ids, index, rows));
  const int64_t count = static_cast<int64_t>(rows.ids.size());
  const Tensor& values = rows.values;
  if (ids.values.empty() ||
      (values.initialized() && values.rank() == 2 && values.dim(0) == count && values.dim(1) == width)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Rows has values ", ShapeString(values.dims()), " for ", count, " ids of width ", width));
}

void StepRowsGradient(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                      int64_t width, const float* out_grad, int64_t stride, SelectedRows* grad) {
  // Kept from step to step, per thread because lanes run on several threads.
  thread_local std::vector<int32_t> place;
  MergePlaces(attrs, ids, index, rows, &place, grad);
  grad->height = rows.height;
  grad->merged = true;
  grad->present = true;
  grad->values.Resize(v1::FLOAT32, {static_cast<int64_t>(grad->ids.size()), width});
  ScatterGradient(attrs, ids, place.data(), /*fresh=*/true, out_grad, stride, width, grad->values.data<float>());
}

}  // namespace weir
