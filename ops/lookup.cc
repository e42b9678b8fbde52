#include "ops/lookup.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

// Distance in ids at which rows are prefetched.
constexpr int64_t kAhead = 16;
// Distance while rows are added up, which takes less time per row.
constexpr int64_t kFarAhead = 32;

Shape OutShape(const LookupAttrs& attrs, int64_t batch, int64_t slots, int64_t width) {
  if (attrs.pooling != Pooling::kNone && !attrs.per_slot) return {batch, width};
  if (attrs.sequence > 0) return {batch, attrs.sequence, width};
  return {batch, slots, width};
}

// Ids that are pooled into one row of out: all ids of an example, or those of one slot.
struct Grouping {
  int64_t groups;  // of an example
  int64_t slots;   // of a group
};
Grouping GroupsOf(const LookupAttrs& attrs, const IdBatch& ids) {
  if (attrs.pooling == Pooling::kNone || attrs.per_slot) return {ids.slots, 1};
  return {1, ids.slots};
}

// Calls fn(at, begin, end) for the ids [begin, end) of every group, in order; its row of out begins at out + at. In a
// sequence each id is a group, and so is each place that none has.
template <typename Fn>
void ForGroups(const LookupAttrs& attrs, const IdBatch& ids, int64_t width, int64_t stride, Fn fn) {
  if (attrs.sequence > 0) {
    for (int64_t b = 0; b < ids.batch(); ++b) {
      const int64_t end = ids.offsets[b + 1];
      int64_t at = b * stride;
      const int64_t behind = at + attrs.sequence * width;
      for (int64_t i = SequenceBegin(ids, attrs.selection(), ids.offsets[b], end); i < end; ++i) {
        if (attrs.has_padding && ids.values[i] == attrs.padding_id) continue;
        fn(at, i, i + 1);
        at += width;
      }
      for (; at < behind; at += width) fn(at, end, end);
    }
    return;
  }
  const Grouping of = GroupsOf(attrs, ids);
  const int64_t* offset = ids.offsets.data();
  for (int64_t b = 0; b < ids.batch(); ++b) {
    for (int64_t k = 0; k < of.groups; ++k, offset += of.slots) fn(b * stride + k * width, offset[0], offset[of.slots]);
  }
}

float Divisor(const LookupAttrs& attrs, const IdBatch& ids, int64_t begin, int64_t end) {
  if (attrs.pooling == Pooling::kNone || attrs.pooling == Pooling::kSum) return 1;
  float sum = 0;
  for (int64_t i = begin; i < end; ++i) {
    if (attrs.has_padding && ids.values[i] == attrs.padding_id) continue;
    const float weight = ids.weights.empty() ? 1.0f : ids.weights[i];
    sum += attrs.pooling == Pooling::kMean ? weight : weight * weight;
  }
  return attrs.pooling == Pooling::kMean ? sum : std::sqrt(sum);
}

// Gathers rows: one id per slot, no weights, no padding.
template <int kWidth, typename Index>
void Gather(const IdBatch& ids, const Index* row, const float* __restrict rows, int64_t width, float* __restrict out,
            int64_t stride) {
  if (kWidth > 0) width = kWidth;
  const int64_t n = static_cast<int64_t>(ids.values.size());
  for (int64_t first = 0; first < n; first += ids.slots, out += stride) {
    for (int64_t s = 0; s < ids.slots; ++s) {
      const int64_t i = first + s;
      if (i + kAhead < n) __builtin_prefetch(rows + static_cast<int64_t>(row[i + kAhead]) * width);
      std::memcpy(out + s * width, rows + static_cast<int64_t>(row[i]) * width,
                  sizeof(float) * static_cast<size_t>(width));
    }
  }
}

// Sums rows without weights or padding: sums stay in registers, and several groups wait for their next rows at once.
template <int kWidth, typename Index>
void SumRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* __restrict rows,
             float* __restrict out, int64_t stride) {
  const int64_t total = static_cast<int64_t>(ids.values.size());
  const Grouping of = GroupsOf(attrs, ids);
  const int64_t* offset = ids.offsets.data();
  int64_t begin = 0;
  for (int64_t b = 0; b < ids.batch(); ++b, out += stride) {
    for (int64_t k = 0; k < of.groups; ++k) {
      offset += of.slots;
      const int64_t end = *offset;
      float sum[kWidth] = {};
      for (int64_t i = begin; i < end; ++i) {
        if (i + kFarAhead < total) __builtin_prefetch(rows + static_cast<int64_t>(row[i + kFarAhead]) * kWidth);
        const float* __restrict from = rows + static_cast<int64_t>(row[i]) * kWidth;
        for (int j = 0; j < kWidth; ++j) sum[j] += from[j];
      }
      std::memcpy(out + k * kWidth, sum, sizeof(sum));
      begin = end;
    }
  }
}

// Gradient of sums and of gathers of rows of width 1.
template <typename Index>
void ScatterNumbers(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
                    const float* __restrict out_grad, int64_t stride, float* __restrict grad) {
  const int64_t n = static_cast<int64_t>(ids.values.size());
  if (fresh) {
    // Store the first gradient of a place by adding it to minus zero, which leaves every value as it is.
    Index places = 0;
    for (int64_t i = 0; i < n; ++i) places = std::max(places, place[i] + 1);
    std::fill_n(grad, static_cast<size_t>(places), -0.0f);
  }
  const Grouping of = GroupsOf(attrs, ids);
  const int64_t* offset = ids.offsets.data();
  int64_t begin = 0;
  for (int64_t b = 0; b < ids.batch(); ++b, out_grad += stride) {
    for (int64_t k = 0; k < of.groups; ++k) {
      offset += of.slots;
      const int64_t end = *offset;
      const float term = out_grad[k];
      for (int64_t i = begin; i < end; ++i) grad[place[i]] += term;
      begin = end;
    }
  }
}

// Returns true if pooling only adds one row per id.
bool AddsRows(const LookupAttrs& attrs, const IdBatch& ids) {
  return (attrs.pooling == Pooling::kNone || attrs.pooling == Pooling::kSum) && ids.weights.empty() &&
         attrs.selection().all();
}

template <int kWidth, typename Index>
void Pool(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* __restrict rows, int64_t width,
          float* __restrict out, int64_t stride) {
  if (kWidth > 0) width = kWidth;
  const int64_t total = static_cast<int64_t>(ids.values.size());
  ForGroups(attrs, ids, width, stride, [&](int64_t at, int64_t begin, int64_t end) {
    float* __restrict sum = out + at;
    for (int64_t j = 0; j < width; ++j) sum[j] = 0;
    const float divisor = Divisor(attrs, ids, begin, end);
    if (divisor == 0) return;
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < total) __builtin_prefetch(rows + static_cast<int64_t>(row[i + kAhead]) * width);
      if (attrs.has_padding && ids.values[i] == attrs.padding_id) continue;
      const float* __restrict from = rows + static_cast<int64_t>(row[i]) * width;
      if (ids.weights.empty()) {
        for (int64_t j = 0; j < width; ++j) sum[j] += from[j];
      } else {
        const float weight = ids.weights[i];
        for (int64_t j = 0; j < width; ++j) sum[j] += weight * from[j];
      }
    }
    if (divisor != 1) {
      for (int64_t j = 0; j < width; ++j) sum[j] /= divisor;
    }
  });
}

template <int kWidth, typename Index>
void Scatter(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
             const float* __restrict out_grad, int64_t stride, int64_t width, float* __restrict grad) {
  if (kWidth > 0) width = kWidth;
  std::vector<float> scaled(static_cast<size_t>(width));
  Index next = 0;
  ForGroups(attrs, ids, width, stride, [&](int64_t at, int64_t begin, int64_t end) {
    const float* __restrict from = out_grad + at;
    const float divisor = Divisor(attrs, ids, begin, end);
    for (int64_t i = begin; i < end; ++i) {
      if (place[i] < 0) continue;
      float weight = ids.weights.empty() ? 1.0f : ids.weights[i];
      const float* __restrict term = from;
      if (weight != 1 || divisor != 1) {
        // d = 0: the output was the constant zero.
        for (int64_t j = 0; j < width; ++j) scaled[j] = divisor == 0 ? 0 : weight * (from[j] / divisor);
        term = scaled.data();
      }
      float* __restrict to = grad + static_cast<int64_t>(place[i]) * width;
      if (fresh && place[i] == next) {
        ++next;
        for (int64_t j = 0; j < width; ++j) to[j] = term[j];
      } else {
        for (int64_t j = 0; j < width; ++j) to[j] += term[j];
      }
    }
  });
}

}  // namespace

std::string_view PoolingName(Pooling pooling) {
  switch (pooling) {
    case Pooling::kSum:
      return "sum";
    case Pooling::kMean:
      return "mean";
    case Pooling::kSqrtN:
      return "sqrt_n";
    default:
      return "none";
  }
}

absl::StatusOr<Pooling> PoolingOf(std::string_view name) {
  for (const Pooling pooling : {Pooling::kNone, Pooling::kSum, Pooling::kMean, Pooling::kSqrtN}) {
    if (PoolingName(pooling) == name) return pooling;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("pooling must be none, sum, mean or sqrt_n, got '", std::string(name), "'"));
}

absl::StatusOr<LookupAttrs> ReadLookupAttrs(const AttrReader& attrs) {
  LookupAttrs result;
  const std::string& pooling = attrs.String("pooling");
  ASSIGN_OR_RETURN(result.pooling, PoolingOf(pooling));
  result.per_slot = attrs.Bool("per_slot");
  result.has_padding = attrs.Bool("has_padding");
  result.padding_id = attrs.Int("padding_id");
  result.sequence = attrs.Int("sequence");
  if (result.sequence < 0 || result.sequence > kLongestSequence) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence must be 0 (none) or in [1, ", kLongestSequence, "], got ", result.sequence));
  }
  if (result.sequence > 0 && result.pooling != Pooling::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("a sequence has pooling none, got '", pooling, "'"));
  }
  return result;
}

std::vector<AttrDef> LookupAttrDefs() {
  return {StringAttr("pooling", "none"), BoolAttr("per_slot", false), BoolAttr("has_padding", false),
          IntAttr("padding_id", 0), IntAttr("sequence", 0)};
}

absl::Status InferLookup(InferContext& ctx, int64_t width) {
  absl::StatusOr<LookupAttrs> attrs = ReadLookupAttrs(ctx.attrs());
  if (!attrs.ok()) return ctx.Error(ToStd(attrs.status().message()));
  const Shape ids = ctx.InputShape("Ids");
  if (ids.size() != 2 || ids[1] < 1) {
    return ctx.Error(absl::StrCat("Ids must be [batch, slots], got ", ShapeString(ids)));
  }
  if (attrs->sequence > 0 && ids[1] != 1) {
    return ctx.Error(absl::StrCat("a sequence is of one slot, Ids has ", ids[1]));
  }
  if (width < 1) return ctx.Error(absl::StrCat("rows must have a positive width, got ", width));
  ctx.SetOutput("Out", OutShape(*attrs, ids[0], ids[1], width));
  return absl::OkStatus();
}

Cost LookupCost(InferContext& ctx, int64_t width) {
  // Count one id per slot, the minimum and the common case; a sequence counts with its full length.
  const Shape ids = ctx.InputShape("Ids");
  const double of_slot = static_cast<double>(std::max<int64_t>(1, ctx.attrs().Int("sequence")));
  const double n = static_cast<double>(std::max<int64_t>(ids[0], 1)) * static_cast<double>(ids[1]) * of_slot;
  const double floats = n * static_cast<double>(width);
  return {.flops = floats, .bytes = 8 * floats + 8 * n};
}

absl::Status CheckIds(const IdBatch& ids, const LookupAttrs& attrs) {
  const int64_t n = static_cast<int64_t>(ids.values.size());
  if (ids.offsets.empty()) {
    if (n == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(n, " ids without offsets"));
  }
  const int64_t groups = static_cast<int64_t>(ids.offsets.size()) - 1;
  if (ids.slots < 1 || groups % ids.slots != 0) {
    return absl::InvalidArgumentError(absl::StrCat(groups + 1, " offsets do not fit ", ids.slots, " slots"));
  }
  if (!ids.weights.empty() && static_cast<int64_t>(ids.weights.size()) != n) {
    return absl::InvalidArgumentError(absl::StrCat(n, " ids have ", ids.weights.size(), " weights"));
  }
  bool ordered = ids.offsets[0] == 0 && ids.offsets[groups] == n;
  bool one_each = true;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t count = ids.offsets[g + 1] - ids.offsets[g];
    ordered &= count >= 0;
    one_each &= count == 1;
  }
  if (!ordered)
    return absl::InvalidArgumentError(absl::StrCat("offsets do not rise from 0 to ", n, ", the number of ids"));
  if (attrs.sequence > 0) {
    if (ids.slots == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("a sequence is of one slot, Ids has ", ids.slots));
  }
  if (attrs.pooling != Pooling::kNone || one_each) return absl::OkStatus();
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t count = ids.offsets[g + 1] - ids.offsets[g];
    if (count == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("pooling none needs exactly one id a slot; example ", g / ids.slots,
                                                   " has ", count, " in slot ", g % ids.slots,
                                                   "; use sum, mean or sqrt_n"));
  }
  return absl::OkStatus();
}

int64_t OutWidth(const LookupAttrs& attrs, int64_t slots, int64_t width) {
  if (attrs.pooling != Pooling::kNone && !attrs.per_slot) return width;
  return (attrs.sequence > 0 ? attrs.sequence : slots) * width;
}

template <typename Index>
void PoolRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* rows, int64_t width,
              Tensor* out) {
  out->Resize(v1::FLOAT32, OutShape(attrs, ids.batch(), ids.slots, width));
  PoolRows(attrs, ids, row, rows, width, out->data<float>(), OutWidth(attrs, ids.slots, width));
}

template <typename Index>
void PoolRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* rows, int64_t width,
              float* out, int64_t stride) {
  const bool adds = AddsRows(attrs, ids);
  const bool gather = adds && attrs.pooling == Pooling::kNone;
  const bool sums = adds && attrs.pooling == Pooling::kSum;
  switch (width) {
    case 1:
      if (gather) return Gather<1>(ids, row, rows, width, out, stride);
      return sums ? SumRows<1>(attrs, ids, row, rows, out, stride) : Pool<1>(attrs, ids, row, rows, width, out, stride);
    case 8:
      if (gather) return Gather<8>(ids, row, rows, width, out, stride);
      return sums ? SumRows<8>(attrs, ids, row, rows, out, stride) : Pool<8>(attrs, ids, row, rows, width, out, stride);
    case 16:
      if (gather) return Gather<16>(ids, row, rows, width, out, stride);
      return sums ? SumRows<16>(attrs, ids, row, rows, out, stride)
                  : Pool<16>(attrs, ids, row, rows, width, out, stride);
    default:
      return gather ? Gather<0>(ids, row, rows, width, out, stride)
                    : Pool<0>(attrs, ids, row, rows, width, out, stride);
  }
}

template <typename Index>
void ScatterGradient(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
                     const float* out_grad, int64_t stride, int64_t width, float* grad) {
  switch (width) {
    case 1:
      return AddsRows(attrs, ids) ? ScatterNumbers(attrs, ids, place, fresh, out_grad, stride, grad)
                                  : Scatter<1>(attrs, ids, place, fresh, out_grad, stride, width, grad);
    case 8:
      return Scatter<8>(attrs, ids, place, fresh, out_grad, stride, width, grad);
    case 16:
      return Scatter<16>(attrs, ids, place, fresh, out_grad, stride, width, grad);
    default:
      return Scatter<0>(attrs, ids, place, fresh, out_grad, stride, width, grad);
  }
}

template <typename Index>
void ScatterGradient(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
                     const Tensor& out_grad, int64_t width, float* grad) {
  ScatterGradient(attrs, ids, place, fresh, out_grad.data<float>(), OutWidth(attrs, ids.slots, width), width, grad);
}

absl::Status CheckOutGrad(const LookupAttrs& attrs, const IdBatch& ids, int64_t width, const Tensor& out_grad) {
  const Shape want = OutShape(attrs, ids.batch(), ids.slots, width);
  if (out_grad.initialized() && out_grad.dims() == absl::MakeConstSpan(want)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Out@GRAD must be ", ShapeString(want), ", got ", ShapeString(out_grad.dims())));
}

template void PoolRows<int32_t>(const LookupAttrs&, const IdBatch&, const int32_t*, const float*, int64_t, Tensor*);
template void PoolRows<int64_t>(const LookupAttrs&, const IdBatch&, const int64_t*, const float*, int64_t, Tensor*);
template void PoolRows<int32_t>(const LookupAttrs&, const IdBatch&, const int32_t*, const float*, int64_t, float*,
                                int64_t);
template void ScatterGradient<int32_t>(const LookupAttrs&, const IdBatch&, const int32_t*, bool, const float*, int64_t,
                                       int64_t, float*);
template void ScatterGradient<int32_t>(const LookupAttrs&, const IdBatch&, const int32_t*, bool, const Tensor&, int64_t,
                                       float*);
template void ScatterGradient<int64_t>(const LookupAttrs&, const IdBatch&, const int64_t*, bool, const Tensor&, int64_t,
                                       float*);

absl::Status CheckRange(const IdBatch& ids, const LookupAttrs& attrs, int64_t rows) {
  // Check all in one pass without branches, and search for the bad id only if there is one.
  uint64_t most = 0;
  if (attrs.has_padding) {
    for (int64_t id : ids.values) most = std::max(most, id == attrs.padding_id ? 0 : static_cast<uint64_t>(id));
  } else {
    for (int64_t id : ids.values) most = std::max(most, static_cast<uint64_t>(id));
  }
  if (ids.values.empty() || most < static_cast<uint64_t>(rows)) return absl::OkStatus();
  for (size_t i = 0; i < ids.values.size(); ++i) {
    const int64_t id = ids.values[i];
    if ((id >= 0 && id < rows) || (attrs.has_padding && id == attrs.padding_id)) continue;
    const int64_t slot =
        std::upper_bound(ids.offsets.begin(), ids.offsets.end(), static_cast<int64_t>(i)) - ids.offsets.begin() - 1;
    return absl::InvalidArgumentError(absl::StrCat("id ", id, " in example ", slot / ids.slots, ", slot ",
                                                   slot % ids.slots, "; the table has rows 0 to ", rows - 1,
                                                   "; raise its dict_size or set is_distributed"));
  }
  return absl::OkStatus();
}

}  // namespace weir
