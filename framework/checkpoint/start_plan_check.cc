#include "framework/checkpoint/start_plan_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/source_shards.h"

namespace weir {
namespace {

using Dims = google::protobuf::RepeatedField<int64_t>;
using Runs = google::protobuf::RepeatedPtrField<v1::AxisRun>;

absl::Status Wrong(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("start plan: '", Printable(name), "': ", what));
}

absl::Status CheckDims(const std::string& name, const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    // Strides must fit even if another dim is 0.
    if (dim < 0 || __builtin_mul_overflow(count, std::max<int64_t>(dim, 1), &count)) {
      return Wrong(name, absl::StrCat("dims ", DimsText(dims), " make no sense"));
    }
  }
  return absl::OkStatus();
}

// Checks that runs ascend within [0, to_end) and take from [0, from_end).
absl::Status CheckRuns(const std::string& name, const Runs& runs, int64_t to_end, int64_t from_end) {
  int64_t last = 0;
  for (const v1::AxisRun& run : runs) {
    if (run.count() <= 0 || run.to() < last || run.to() > to_end - run.count() || run.from() < 0 ||
        run.from() > from_end - run.count()) {
      return Wrong(name, absl::StrCat("a run of ", run.count(), " indices from ", run.from(), " to ", run.to(),
                                      "; runs ascend, from [0, ", from_end, ") to [0, ", to_end, ")"));
    }
    last = run.to() + run.count();
  }
  return absl::OkStatus();
}

absl::Status CheckSource(const std::string& name, int source, const v1::StartPlan& plan) {
  if (source >= 0 && source < plan.sources_size()) return absl::OkStatus();
  return Wrong(name, absl::StrCat("takes from checkpoint ", source, " of ", plan.sources_size()));
}

bool Overlap(const Runs& a, const Runs& b) {
  if (a.empty() || b.empty()) return false;
  // Most parts are apart as a whole.
  if (a[a.size() - 1].to() + a[a.size() - 1].count() <= b[0].to() ||
      b[b.size() - 1].to() + b[b.size() - 1].count() <= a[0].to()) {
    return false;
  }
  for (int i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t a_end = a[i].to() + a[i].count(), b_end = b[j].to() + b[j].count();
    if (a_end <= b[j].to()) {
      ++i;
    } else if (b_end <= a[i].to()) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

bool Overlap(const v1::DensePart& a, const v1::DensePart& b) {
  for (int k = 0; k < a.axes_size(); ++k) {
    if (!Overlap(a.axes(k).runs(), b.axes(k).runs())) return false;
  }
  return true;
}

absl::Status CheckZeros(const v1::DenseStart& dense, const v1::DenseZeros& zeros) {
  if (zeros.axes_size() != dense.dims_size()) {
    return Wrong(dense.variable(),
                 absl::StrCat("zeros have ", zeros.axes_size(), " axes, and it has ", dense.dims_size()));
  }
  for (int k = 0; k < zeros.axes_size(); ++k) {
    for (const v1::AxisRange& range : zeros.axes(k).ranges()) {
      if (range.count() >= 0 && range.begin() >= 0 && range.count() <= dense.dims(k) &&
          range.begin() <= dense.dims(k) - range.count()) {
        continue;
      }
      return Wrong(dense.variable(),
                   absl::StrCat("zeros of ", range.count(), " indices from ", range.begin(), " in ", dense.dims(k)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckDense(const v1::DenseStart& dense, const v1::StartPlan& plan) {
  const std::string& name = dense.variable();
  RETURN_IF_ERROR(CheckDims(name, dense.dims()));
  for (const v1::DensePart& part : dense.parts()) {
    RETURN_IF_ERROR(CheckSource(name, part.source(), plan));
    RETURN_IF_ERROR(CheckDims(name, part.dims()));
    if (part.dims_size() != dense.dims_size() || part.axes_size() != dense.dims_size()) {
      return Wrong(name, absl::StrCat("is ", DimsText(dense.dims()), ", and a part of it has dims ",
                                      DimsText(part.dims()), " and ", part.axes_size(), " maps"));
    }
    for (int k = 0; k < part.axes_size(); ++k) {
      RETURN_IF_ERROR(CheckRuns(name, part.axes(k).runs(), dense.dims(k), part.dims(k)));
    }
    if (std::set<std::string>(part.states().begin(), part.states().end()).count("") > 0) {
      return Wrong(name, "state without a name is taken");
    }
  }
  for (int i = 0; i < dense.parts_size(); ++i) {
    for (int j = 0; j < i; ++j) {
      if (Overlap(dense.parts(i), dense.parts(j))) {
        return Wrong(name, absl::StrCat("parts ", j, " and ", i, " give the same elements"));
      }
    }
  }
  for (const v1::DenseZeros& zeros : dense.zeros()) RETURN_IF_ERROR(CheckZeros(dense, zeros));
  return absl::OkStatus();
}

absl::Status CheckTable(const v1::TableStart& table, const v1::StartPlan& plan) {
  constexpr int64_t kMostColumns = std::numeric_limits<int32_t>::max();
  for (const v1::TablePart& part : table.parts()) {
    RETURN_IF_ERROR(CheckSource(table.table(), part.source(), plan));
    if (part.width() <= 0) return Wrong(table.table(), absl::StrCat("takes rows of width ", part.width()));
    RETURN_IF_ERROR(CheckRuns(table.table(), part.columns(), kMostColumns, part.width()));
  }
  if (table.zero_begin() < 0 || table.zero_begin() > table.zero_end()) {
    return Wrong(table.table(), absl::StrCat("zero columns [", table.zero_begin(), ", ", table.zero_end(), ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStartPlan(const v1::StartPlan& plan) {
  std::set<std::string> names;
  for (const v1::DenseStart& dense : plan.dense()) {
    if (!names.insert(dense.variable()).second) return Wrong(dense.variable(), "is there twice");
    RETURN_IF_ERROR(CheckDense(dense, plan));
  }
  for (const v1::TableStart& table : plan.tables()) {
    if (!names.insert(table.table()).second) return Wrong(table.table(), "is there twice");
    RETURN_IF_ERROR(CheckTable(table, plan));
  }
  return absl::OkStatus();
}

}  // namespace weir
