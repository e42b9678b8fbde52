// Shared code of all optimizers: signature, shape rule, and the three forms of one arithmetic (form in ops/sgd_math.h).
//
//   dense          Param, Grad, states of one shape; every element changes.
//   selected rows  Param, states [rows, ...]; Grad merged rows: only those rows change. A count is one per row.
//   table rows     RowRule (framework/runtime/row_rule.h): rows [values | state | count].
//
// Equal values give equal bits in all three. An absent gradient changes nothing.
#ifndef WEIR_OPS_UPDATE_OP_H_
#define WEIR_OPS_UPDATE_OP_H_

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/row_rule.h"
#include "ops/update_loops.h"

namespace weir {

// Returns the definition of an update op: slots from `state`, shape, cost and in-place rules. `flops` are per element.
// Adds the attributes of table rows (framework/runtime/table_update.h) to `attrs`: columns [begin, end), after,
// initializer.
OpDef MakeUpdateOp(std::string type, std::string summary, std::vector<AttrDef> attrs, std::vector<StateDef> state,
                   double flops);

// "Moment1" -> "moment1", "SquaredAccumulator" -> "squared_accumulator".
std::string SnakeCase(std::string_view slot);

// Checked variables of one run, for the dense and the selected-rows form.
struct UpdateArgs {
  float lr = 0;
  float* param = nullptr;
  int64_t size = 0;   // elements of Param
  int64_t rows = 0;   // dims[0] of Param
  int64_t width = 0;  // elements of a row of Param
  float* state[3] = {nullptr, nullptr, nullptr};
  float* count = nullptr;  // [1], or [rows] with a gradient of rows
  const Tensor* dense = nullptr;
  const SelectedRows* selected = nullptr;
  bool absent = false;
};
// Checks the variables of a run. Copies each input to its output if they are different variables, so that the update
// runs in place. Slots by the order of MakeUpdateOp: Param, Grad, LearningRate, states, then the count.
absl::StatusOr<UpdateArgs> CheckUpdate(KernelContext& ctx, int states, bool counts);

// Runs fn(begin, end) over [0, n) in pieces on the pool.
void ForPieces(ThreadPool* pool, int64_t n, int64_t piece, const std::function<void(int64_t, int64_t)>& fn);

template <typename Math>
class UpdateKernel : public OpKernel {
 public:
  explicit UpdateKernel(Math math) : math_(math) {}

  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const UpdateArgs a, CheckUpdate(ctx, Math::kStates, Math::kCounts));
    if (a.absent) return absl::OkStatus();
    if (a.dense != nullptr) {
      UpdateDense(a, ctx.step->pool);
    } else {
      UpdateRows(a, ctx.step->pool);
    }
    return absl::OkStatus();
  }

 private:
  void UpdateDense(const UpdateArgs& a, ThreadPool* pool) {
    if constexpr (Math::kCounts) *a.count += 1;
    const typename Math::Step c = math_.At(a.lr, Math::kCounts ? *a.count : 1);
    const float* g = a.dense->data<float>();
    ForPieces(pool, a.size, int64_t{1} << 15, [&](int64_t begin, int64_t end) {
      UpdateLoops<Math>::Dense(c, end - begin, g + begin, a.param + begin, State(a, 0, begin), State(a, 1, begin),
                               State(a, 2, begin));
    });
  }

  void UpdateRows(const UpdateArgs& a, ThreadPool* pool) {
    const float* g = a.selected->values.template data<float>();
    const std::vector<int64_t>& ids = a.selected->ids;
    const int64_t rows_a_piece = std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, a.width));
    ForPieces(pool, static_cast<int64_t>(ids.size()), rows_a_piece, [&](int64_t begin, int64_t end) {
      typename Math::Step c = math_.At(a.lr, 1);
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (Math::kCounts) {
          a.count[ids[i]] += 1;
          c = math_.At(a.lr, a.count[ids[i]]);
        }
        const int64_t at = ids[i] * a.width;
        UpdateLoops<Math>::Dense(c, a.width, g + i * a.width, a.param + at, State(a, 0, at), State(a, 1, at),
                                 State(a, 2, at));
      }
    });
  }

  static float* State(const UpdateArgs& a, int s, int64_t at) { return s < Math::kStates ? a.state[s] + at : nullptr; }

  Math math_;
};

template <typename Math>
class MathRowRule : public RowRule {
 public:
  // `state` is that of the OpDef; initial[s] is the initial value of state s.
  MathRowRule(Math math, std::vector<StateDef> state, std::vector<float> initial)
      : math_(math), state_(std::move(state)), initial_(std::move(initial)) {
    CHECK_EQ(state_.size(), static_cast<size_t>(Math::kStates + (Math::kCounts || PerRow<Math> ? 1 : 0)));
  }

  std::vector<State> states(int width) const override {
    std::vector<State> result;
    for (const StateDef& s : state_) {
      result.push_back({SnakeCase(s.slot), s.like == StateDef::kParameter ? width : 1});
    }
    return result;
  }
  void InitState(int width, float* state) const override {
    for (size_t s = 0; s < state_.size(); ++s) {
      const int floats = state_[s].like == StateDef::kParameter ? width : 1;
      std::fill(state, state + floats, initial_[s]);
      state += floats;
    }
  }
  void Update(int width, float learning_rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    UpdateLoops<Math>::TableRows(math_, width, width, learning_rate, divisor, n, rows, grads);
  }
  void UpdatePart(int width, int64_t state_at, float learning_rate, float divisor, int64_t n, float* const* rows,
                  const float* const* grads) const override {
    UpdateLoops<Math>::TableRows(math_, width, state_at, learning_rate, divisor, n, rows, grads);
  }

 private:
  const Math math_;
  const std::vector<StateDef> state_;
  const std::vector<float> initial_;
};

// Returns the initial values of the states of `type`, from its attributes.
std::vector<float> InitialStates(std::string_view type, const AttrReader& attrs);

template <typename Math>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeUpdateKernel(Math math) {
  return std::unique_ptr<OpKernel>(new UpdateKernel<Math>(math));
}
template <typename Math>
absl::StatusOr<std::unique_ptr<RowRule>> MakeRowRule(std::string_view type, Math math, const AttrReader& attrs) {
  const OpDef* def = OpRegistry::Global().Find(type);
  CHECK(def != nullptr) << type;
  return std::unique_ptr<RowRule>(new MathRowRule<Math>(math, def->state, InitialStates(type, attrs)));
}

}  // namespace weir

#endif  // WEIR_OPS_UPDATE_OP_H_
