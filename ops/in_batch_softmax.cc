// in_batch_softmax: softmax of the product of a query and its item among the products with the items of the other
// examples of the lane's batch (Yi et al. 2019): s[i, j] = query[i] * item[j] / temperature - log(probability[j]),
// loss[i] = weight[i] * (log(sum_j e^s[i, j]) - s[i, i]).
//
//   Query         [B, W]  f32
//   Item          [B, W]  f32
//   Probability?  [B, 1]  f32, above 0: by which the item is in a batch; no gradient
//   ItemId?       [B, 1]  ids, one each: an item with the id of example i's own is no negative of it
//   Weight?       [B, 1]  f32
//   LogSum        [B, 1]  f32   log(sum_j e^s[i, j])
//   Out           [B, 1]  f32   loss
//   temperature   float = 1, above 0
//
// The matrix s is made block by block and never as a whole, in the gradient again, which costs less than to write it to
// memory and read it back. The order of all sums is a function of the sizes alone, whatever the number of threads.
// Beside its variables a run has kRows * B floats for each thread, and the gradient kMostGroups - 1 times B * W floats
// at most.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/gemm.h"
#include "ops/lookup.h"
#include "ops/shape_rules.h"
#include "ops/vector_math.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

constexpr int64_t kRows = 128;  // of a block of s: it stays in the second-level cache
// Blocks come in groups, and the gradients of the items by those of one group are added up in one place. More groups
// would keep more threads busy, beside those of other lanes, and take more memory.
constexpr int64_t kLeastGroup = 4;  // blocks
constexpr int64_t kMostGroups = 8;
constexpr float kMasked = -1e30f;  // e^ of it is 0 beside any score

// Inputs of one run that both kernels have.
struct Batch {
  const Tensor& query;
  const Tensor& item;
  const Tensor* probability;
  const IdBatch* ids;
  const Tensor* weight;
  float temperature;
  ProductPrecision precision;
  ThreadPool* pool;

  int64_t rows() const { return query.dim(0); }
  int64_t width() const { return query.dim(1); }
  int64_t blocks() const { return (rows() + kRows - 1) / kRows; }
  int64_t RowsOf(int64_t block) const { return std::min(kRows, rows() - block * kRows); }
  // Blocks of a group, and groups.
  int64_t group() const { return std::max(kLeastGroup, (blocks() + kMostGroups - 1) / kMostGroups); }
  int64_t groups() const { return (blocks() + group() - 1) / group(); }

  absl::Status Check() const {
    RETURN_IF_ERROR(CheckRank("Query", query, 2));
    RETURN_IF_ERROR(CheckTensor("Item", item, query.dims()));
    const Shape column = {query.dim(0), 1};
    if (weight != nullptr) RETURN_IF_ERROR(CheckTensor("Weight", *weight, column));
    if (probability != nullptr) {
      RETURN_IF_ERROR(CheckTensor("Probability", *probability, column));
      for (int64_t i = 0; i < rows(); ++i) {
        const float p = probability->data<float>()[i];
        if (p > 0 && std::isfinite(p)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("Probability of example ", i, " of a lane's batch is ", p,
                         "; it must be a number above 0: give rare items a small one, or leave the probability out"));
      }
    }
    if (ids == nullptr) return absl::OkStatus();
    if (ids->batch() != rows()) {
      return absl::InvalidArgumentError(absl::StrCat("ItemId has ", ids->batch(), " examples, Query ", rows()));
    }
    return CheckIds(*ids, {.pooling = Pooling::kNone});
  }
  float Factor(int64_t row) const { return weight == nullptr ? 1.0f : weight->data<float>()[row]; }
  void ForBlocks(int64_t n, const std::function<void(int64_t)>& fn) const {
    if (pool != nullptr && n > 1) {
      pool->ParallelFor(n, fn);
    } else {
      for (int64_t i = 0; i < n; ++i) fn(i);
    }
  }
};

Batch BatchOf(KernelContext& ctx, float temperature) {
  enum Input { kQuery, kItem, kProbability, kItemId, kWeight };
  return {.query = ctx.input(kQuery),
          .item = ctx.input(kItem),
          .probability = ctx.has_input(kProbability) ? &ctx.input(kProbability) : nullptr,
          .ids = ctx.has_input(kItemId) ? &std::get<IdBatch>(ctx.input_var(kItemId)) : nullptr,
          .weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr,
          .temperature = temperature,
          .precision = ctx.step->precision,
          .pool = ctx.step->pool};
}

WEIR_VECTORIZED void Logarithms(int64_t n, const float* x, float* y) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) y[i] = Log(x[i]);
}
WEIR_VECTORIZED void Subtract(int64_t n, const float* y, float* x) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] - y[i];
}
// Returns the largest element; a NaN may be passed by, and shows in the sum.
WEIR_VECTORIZED float Largest(int64_t n, const float* x) {
  float part[kPartialSums];
  for (int j = 0; j < kPartialSums; ++j) part[j] = x[0];
  int64_t i = 0;
  for (; i + kPartialSums <= n; i += kPartialSums) {
    for (int j = 0; j < kPartialSums; ++j) part[j] = x[i + j] > part[j] ? x[i + j] : part[j];
  }
  for (; i < n; ++i) part[0] = x[i] > part[0] ? x[i] : part[0];
  for (int j = 1; j < kPartialSums; ++j) part[0] = part[j] > part[0] ? part[j] : part[0];
  return part[0];
}
WEIR_VECTORIZED float SumOfExp(int64_t n, const float* x, float largest) {
  return FixedSum(n, [=](int64_t i) { return Exp(x[i] - largest); });
}
WEIR_VECTORIZED void Probabilities(int64_t n, float log_sum, float factor, float* x) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) x[i] = factor * Exp(x[i] - log_sum);
}
WEIR_VECTORIZED void AddTo(int64_t n, const float* x, float* sum) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] = sum[i] + x[i];
}

// Makes blocks of s.
class Scores {
 public:
  explicit Scores(const Batch& batch) : batch_(batch) {
    const auto rows = static_cast<size_t>(batch.rows());
    if (batch.probability != nullptr) {
      log_probability_.resize(rows);
      Logarithms(batch.rows(), batch.probability->data<float>(), log_probability_.data());
    }
    if (batch.ids == nullptr) return;
    // Examples by item, and where each item's begin.
    by_item_.reserve(rows);
    for (int64_t i = 0; i < batch.rows(); ++i) by_item_.emplace_back(batch.ids->values[i], i);
    std::sort(by_item_.begin(), by_item_.end());
    begin_.resize(rows);
    end_.resize(rows);
    for (size_t first = 0; first < rows;) {
      size_t last = first;
      while (last < rows && by_item_[last].first == by_item_[first].first) ++last;
      for (size_t at = first; at < last; ++at) {
        begin_[static_cast<size_t>(by_item_[at].second)] = first;
        end_[static_cast<size_t>(by_item_[at].second)] = last;
      }
      first = last;
    }
  }

  // Writes the rows of a block, [RowsOf(block), B]. Scores of other examples with the row's own item are kMasked.
  void Block(int64_t block, float* s) const {
    const int64_t n = batch_.rows(), w = batch_.width(), rows = batch_.RowsOf(block);
    Gemm(rows, n, w, batch_.query.data<float>() + block * kRows * w, batch_.item.data<float>(), s,
         {.transpose_b = true, .alpha = 1.0f / batch_.temperature, .precision = batch_.precision});
    for (int64_t r = 0; r < rows; ++r) {
      float* const row = s + r * n;
      if (!log_probability_.empty()) Subtract(n, log_probability_.data(), row);
      if (by_item_.empty()) continue;
      const int64_t i = block * kRows + r;
      for (size_t at = begin_[static_cast<size_t>(i)]; at < end_[static_cast<size_t>(i)]; ++at) {
        if (by_item_[at].second != i) row[by_item_[at].second] = kMasked;
      }
    }
  }

 private:
  const Batch& batch_;
  std::vector<float> log_probability_;
  std::vector<std::pair<int64_t, int64_t>> by_item_;
  std::vector<size_t> begin_, end_;  // by example, in by_item_
};

class InBatchSoftmaxKernel : public OpKernel {
  enum Output { kLogSum, kOut };

 public:
  explicit InBatchSoftmaxKernel(const KernelInit& init)
      : temperature_(static_cast<float>(init.attrs.Float("temperature"))) {}
  absl::Status Run(KernelContext& ctx) override {
    const Batch batch = BatchOf(ctx, temperature_);
    RETURN_IF_ERROR(batch.Check());
    const int64_t n = batch.rows();
    for (const Output output : {kLogSum, kOut}) ctx.output(output)->Resize(v1::FLOAT32, {n, 1});
    float *const log_sum = ctx.output(kLogSum)->data<float>(), *const out = ctx.output(kOut)->data<float>();
    const Scores scores(batch);
    batch.ForBlocks(batch.blocks(), [&](int64_t block) {
      std::vector<float> s(static_cast<size_t>(batch.RowsOf(block) * n));
      scores.Block(block, s.data());
      for (int64_t r = 0; r < batch.RowsOf(block); ++r) {
        const int64_t i = block * kRows + r;
        const float* const row = s.data() + r * n;
        const float largest = Largest(n, row), log = Log(SumOfExp(n, row, largest));
        log_sum[i] = largest + log;
        out[i] = batch.Factor(i) * (log - (row[i] - largest));
      }
    });
    return absl::OkStatus();
  }

 private:
  const float temperature_;
};

class InBatchSoftmaxGradKernel : public OpKernel {
  enum Input { kLogSum = 5, kOutGrad };
  enum Output { kQueryGrad, kItemGrad };

 public:
  explicit InBatchSoftmaxGradKernel(const KernelInit& init)
      : temperature_(static_cast<float>(init.attrs.Float("temperature"))) {}
  absl::Status Run(KernelContext& ctx) override {
    const Batch batch = BatchOf(ctx, temperature_);
    RETURN_IF_ERROR(batch.Check());
    const int64_t n = batch.rows(), w = batch.width();
    RETURN_IF_ERROR(CheckTensor("LogSum", ctx.input(kLogSum), {n, 1}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), {n, 1}));
    float *const dquery = Resized(ctx, kQueryGrad, n, w), *const ditem = Resized(ctx, kItemGrad, n, w);
    const float *const log_sum = ctx.input(kLogSum).data<float>(), *const dout = ctx.input(kOutGrad).data<float>();
    const Scores scores(batch);
    const int64_t groups = batch.groups();
    // The first group adds up in the output, the others beside it.
    std::vector<float> beside(ditem == nullptr ? 0 : static_cast<size_t>(std::max<int64_t>(groups - 1, 0) * n * w));
    batch.ForBlocks(groups, [&](int64_t group) {
      std::vector<float> s(static_cast<size_t>(std::min(kRows, n) * n));
      float* const sum = group == 0 ? ditem : beside.data() + (group - 1) * n * w;
      const int64_t first = group * batch.group(), last = std::min(first + batch.group(), batch.blocks());
      for (int64_t block = first; block < last; ++block) {
        const int64_t rows = batch.RowsOf(block), begin = block * kRows;
        scores.Block(block, s.data());
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = begin + r;
          const float factor = dout[i] * batch.Factor(i) / temperature_;
          Probabilities(n, log_sum[i], factor, s.data() + r * n);
          s[static_cast<size_t>(r * n + i)] -= factor;
        }
        if (dquery != nullptr) {
          Gemm(rows, w, n, s.data(), batch.item.data<float>(), dquery + begin * w, {.precision = batch.precision});
        }
        if (ditem != nullptr) {
          Gemm(n, w, rows, s.data(), batch.query.data<float>() + begin * w, sum,
               {.transpose_a = true, .beta = block == first ? 0.0f : 1.0f, .precision = batch.precision});
        }
      }
    });
    for (int64_t group = 1; ditem != nullptr && group < groups; ++group) {
      AddTo(n * w, beside.data() + (group - 1) * n * w, ditem);
    }
    return absl::OkStatus();
  }

 private:
  static float* Resized(KernelContext& ctx, Output output, int64_t n, int64_t w) {
    if (!ctx.has_output(output)) return nullptr;
    ctx.output(output)->Resize(v1::FLOAT32, {n, w});
    return ctx.output(output)->data<float>();
  }

  const float temperature_;
};

absl::Status ExpectBatch(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "Query"));
  RETURN_IF_ERROR(ExpectRank(ctx, "Query", 2));
  const Shape query = ctx.InputShape("Query");
  if (query[1] < 1) return ctx.Error(absl::StrCat("Query has dims ", ShapeString(query), "; its width must be known"));
  RETURN_IF_ERROR(ExpectDims(ctx, "Item", query));
  for (const char* const column : {"Probability", "Weight"}) {
    if (ctx.InputCount(column) > 0) RETURN_IF_ERROR(ExpectDims(ctx, column, {query[0], 1}));
  }
  if (ctx.InputCount("ItemId") > 0) {
    const Shape ids = ctx.InputShape("ItemId");
    if (ids.size() != 2 || ids[1] != 1) {
      return ctx.Error(absl::StrCat("ItemId must be [batch, 1], got ", ShapeString(ids)));
    }
  }
  const auto temperature = static_cast<float>(ctx.attrs().Float("temperature"));
  if (temperature > 0 && std::isfinite(temperature)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("temperature must be positive and finite, got ", temperature));
}

// The batch is not known; products of 1,024 queries and items stand for it.
CostRule ProductsCost(int products) {
  return [products](InferContext& ctx) {
    constexpr double kItems = 1024;
    Cost cost = ElementwiseCost(0)(ctx);
    cost.flops = kItems * (2 * products * Elements(ctx.Input("Query")) + 20);
    return cost;
  };
}

const std::vector<SlotDef>& Inputs() {
  static const auto* const inputs = new std::vector<SlotDef>{{"Query"},
                                                             {"Item"},
                                                             {.name = "Probability", .optional = true},
                                                             {.name = "ItemId", .kinds = {v1::IDS}, .optional = true},
                                                             {.name = "Weight", .optional = true}};
  return *inputs;
}
std::vector<SlotDef> GradInputs() {
  std::vector<SlotDef> inputs = Inputs();
  inputs.push_back({"LogSum"});
  inputs.push_back({"Out@GRAD"});
  return inputs;
}

REGISTER_OP(in_batch_softmax)
({.type = "in_batch_softmax",
  .summary = "cross entropy of a query's item among the items of the batch",
  .inputs = Inputs(),
  .outputs = {{"LogSum"}, {"Out"}},
  .attrs = {FloatAttr("temperature", 1)},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectBatch(ctx));
    for (const char* const output : {"LogSum", "Out"}) ctx.SetOutput(output, {ctx.InputShape("Query")[0], 1});
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"Query", "Item", "Probability", "ItemId", "Weight"}, {"LogSum"}, {"Out"}, {"Query", "Item"}),
  .cost = ProductsCost(1)});
REGISTER_OP(in_batch_softmax_grad)
({.type = "in_batch_softmax_grad",
  .summary = "gradients of in_batch_softmax",
  .inputs = GradInputs(),
  .outputs = {{.name = "Query@GRAD", .optional = true}, {.name = "Item@GRAD", .optional = true}},
  .attrs = {FloatAttr("temperature", 1)},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectBatch(ctx));
    for (const char* const column : {"LogSum", "Out@GRAD"}) {
      RETURN_IF_ERROR(ExpectDims(ctx, column, {ctx.InputShape("Query")[0], 1}));
    }
    if (ctx.OutputCount("Query@GRAD") > 0) SetLike(ctx, "Query@GRAD", "Query");
    if (ctx.OutputCount("Item@GRAD") > 0) SetLike(ctx, "Item@GRAD", "Item");
    return absl::OkStatus();
  },
  .cost = ProductsCost(3)});

REGISTER_KERNEL(in_batch_softmax, MakeKernel<InBatchSoftmaxKernel>);
REGISTER_KERNEL(in_batch_softmax_grad, MakeKernel<InBatchSoftmaxGradKernel>);

}  // namespace
}  // namespace weir
