#include "framework/checkpoint/part_copy.h"

#include <algorithm>
#include <utility>

#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Sizes of the window in elements: the first one after a jump, and the largest, 4 MiB.
constexpr int64_t kLeastWindow = 1024, kMostWindow = int64_t{1} << 20;
// Longer runs are read where they go.
constexpr int64_t kDirect = int64_t{1} << 14;

bool IsWhole(const PartCopy::Axis& axis) {
  return axis.runs.size() == 1 && axis.runs[0].to == 0 && axis.runs[0].from == 0 && axis.to_dim == axis.from_dim &&
         axis.runs[0].count == axis.to_dim;
}

}  // namespace

std::vector<PartCopy::Axis> PartCopy::AxesOf(const v1::DensePart& part, absl::Span<const int64_t> dims) {
  std::vector<Axis> axes;
  for (int k = 0; k < part.axes_size(); ++k) {
    Axis axis{.to_dim = dims[static_cast<size_t>(k)], .from_dim = part.dims(k)};
    for (const v1::AxisRun& run : part.axes(k).runs()) {
      Axis::Run* const last = axis.runs.empty() ? nullptr : &axis.runs.back();
      if (last != nullptr && last->to + last->count == run.to() && last->from + last->count == run.from()) {
        last->count += run.count();
      } else {
        axis.runs.push_back({run.to(), run.from(), run.count()});
      }
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

std::vector<PartCopy::Axis> PartCopy::AxesOf(const v1::DenseZeros& zeros, absl::Span<const int64_t> dims) {
  std::vector<Axis> axes;
  for (int k = 0; k < zeros.axes_size(); ++k) {
    const int64_t dim = dims[static_cast<size_t>(k)];
    // Ranges may come in any order, and share indices.
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (const v1::AxisRange& range : zeros.axes(k).ranges()) {
      if (range.count() > 0) ranges.emplace_back(range.begin(), range.begin() + range.count());
    }
    std::sort(ranges.begin(), ranges.end());
    Axis axis{.to_dim = dim, .from_dim = dim};
    int64_t last = 0;
    for (auto [begin, end] : ranges) {
      begin = std::max(begin, last);
      if (begin >= end) continue;
      axis.runs.push_back({begin, begin, end - begin});
      last = end;
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

PartCopy::Read PartCopy::Zeros() {
  return [](int64_t /*begin*/, absl::Span<float> out) {
    std::fill(out.begin(), out.end(), 0.0f);
    return absl::OkStatus();
  };
}

PartCopy::PartCopy(std::vector<Axis> axes, Read read)
    : axes_(std::move(axes)), read_(std::move(read)), to_strides_(axes_.size()), from_strides_(axes_.size()) {
  int64_t to = 1;
  for (size_t k = axes_.size(); k-- > 0;) {
    to_strides_[k] = to;
    from_strides_[k] = from_count_;
    to *= axes_[k].to_dim;
    from_count_ *= axes_[k].from_dim;
    if (mapped_ == 0 && !IsWhole(axes_[k])) mapped_ = k + 1;
  }
}

absl::Status PartCopy::Fill(int64_t begin, absl::Span<float> out) {
  begin_ = begin;
  end_ = begin + static_cast<int64_t>(out.size());
  out_ = out;
  window_.clear();
  window_begin_ = 0;
  window_size_ = kLeastWindow;
  // Strides of other axes may be 0 if one has no index.
  if (from_count_ == 0 || out.empty()) return absl::OkStatus();
  for (const Axis& axis : axes_) {
    if (axis.runs.empty()) return absl::OkStatus();
  }
  return mapped_ == 0 ? Copy(begin, out) : FillAxis(0, 0, 0);
}

absl::Status PartCopy::FillAxis(size_t axis, int64_t to, int64_t from) {
  if (axis + 1 == mapped_) return FillRuns(to, from);
  const int64_t stride = to_strides_[axis];
  // Indices that have elements to fill.
  const int64_t first = begin_ <= to ? 0 : (begin_ - to) / stride;
  const int64_t last = end_ <= to ? 0 : (end_ - to + stride - 1) / stride;
  for (const Axis::Run& run : axes_[axis].runs) {
    const int64_t begin = std::max(run.to, first), end = std::min(run.to + run.count, last);
    for (int64_t i = begin; i < end; ++i) {
      RETURN_IF_ERROR(FillAxis(axis + 1, to + i * stride, from + (run.from + (i - run.to)) * from_strides_[axis]));
    }
  }
  return absl::OkStatus();
}

absl::Status PartCopy::FillRuns(int64_t to, int64_t from) {
  const std::vector<Axis::Run>& runs = axes_[mapped_ - 1].runs;
  const int64_t stride = to_strides_[mapped_ - 1];  // that of both: the axes behind are taken as a whole
  // Calls fn(element here, element there, count) for each run that has elements to fill.
  const auto each = [&](const auto& fn) -> absl::Status {
    // The first run that ends behind begin_.
    auto run = std::partition_point(runs.begin(), runs.end(),
                                    [&](const Axis::Run& r) { return to + (r.to + r.count) * stride <= begin_; });
    for (; run != runs.end(); ++run) {
      const int64_t first = to + run->to * stride, begin = std::max(first, begin_);
      if (begin >= end_) break;
      const int64_t end = std::min(first + run->count * stride, end_);
      RETURN_IF_ERROR(fn(begin, from + run->from * stride + (begin - first), end - begin));
    }
    return absl::OkStatus();
  };
  if (runs.size() > 1) {
    // Runs may come in another order there, which is as near as if they did not.
    int64_t least = from_count_, most = 0;
    RETURN_IF_ERROR(each([&](int64_t /*here*/, int64_t there, int64_t count) {
      least = std::min(least, there);
      most = std::max(most, there + count);
      return absl::OkStatus();
    }));
    if (least < most && most - least <= kDirect) RETURN_IF_ERROR(Want(least, most));
  }
  return each([&](int64_t here, int64_t there, int64_t count) {
    return Copy(there, out_.subspan(static_cast<size_t>(here - begin_), static_cast<size_t>(count)));
  });
}

absl::Status PartCopy::Want(int64_t begin, int64_t end) {
  const int64_t window_end = window_begin_ + static_cast<int64_t>(window_.size());
  if (begin >= window_begin_ && end <= window_end) return absl::OkStatus();
  const bool forward = !window_.empty() && begin >= window_begin_ && begin <= window_end + window_size_;
  window_size_ = forward ? std::min(2 * window_size_, kMostWindow) : kLeastWindow;
  const int64_t count = std::min(std::max(window_size_, end - begin), from_count_ - begin);
  window_.resize(static_cast<size_t>(count));
  window_begin_ = begin;
  const absl::Status read = read_(begin, absl::MakeSpan(window_));
  if (!read.ok()) window_.clear();
  return read;
}

absl::Status PartCopy::Copy(int64_t from, absl::Span<float> out) {
  const int64_t count = static_cast<int64_t>(out.size());
  if (count >= kDirect) return read_(from, out);
  RETURN_IF_ERROR(Want(from, from + count));
  std::copy_n(window_.begin() + (from - window_begin_), count, out.begin());
  return absl::OkStatus();
}

}  // namespace weir
