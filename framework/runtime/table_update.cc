#include "framework/runtime/table_update.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/runtime/row_gradient.h"
#include "glog/logging.h"

namespace weir {
namespace {

bool IsUpdate(const v1::OpDesc& op) {
  const OpDef* const def = OpRegistry::Global().Find(op.type());
  return def != nullptr && def->is_optimizer;
}

class TableRule : public RowRule {
 public:
  // An update and the ops before it that change gradients, on its columns.
  struct ColumnUpdate {
    Columns columns;
    std::vector<std::unique_ptr<RowGradientRule>> before = {};
    std::unique_ptr<RowRule> update = nullptr;
    // Learning rate of the part. Null if it uses the rate passed to Update.
    const Variable* rate = nullptr;
    int64_t after = 0;
    // Initial values of the columns; set if `after` is.
    std::optional<RowInitializer> initial = std::nullopt;
    int64_t state = 0;  // offset of its state within the state of the row
    int width() const { return columns.end - columns.begin; }
  };

  TableRule(int width, std::vector<std::unique_ptr<RowFilterRule>> filters, std::vector<ColumnUpdate> parts,
            std::vector<std::unique_ptr<RowValueRule>> behind, bool has_rates)
      : width_(width),
        filters_(std::move(filters)),
        parts_(std::move(parts)),
        behind_(std::move(behind)),
        has_rates_(has_rates) {
    int64_t state = 0;
    for (ColumnUpdate& part : parts_) {
      part.state = state;
      state += part.update->state_width(part.width());
      most_after_ = std::max(most_after_, part.after);
    }
    steps_at_ = width_ + state;
  }

  std::vector<State> states(int width) const override {
    CHECK_EQ(width, width_);
    std::vector<State> all;
    for (size_t p = 0; p < parts_.size(); ++p) {
      for (State& state : parts_[p].update->states(parts_[p].width())) {
        if (parts_.size() > 1) state.name = absl::StrCat(p, ".", state.name);
        all.push_back(std::move(state));
      }
    }
    if (most_after_ > 0) all.push_back({"steps", 1});
    return all;
  }

  void InitState(int, float* state) const override {
    for (const ColumnUpdate& part : parts_) part.update->InitState(part.width(), state + part.state);
    if (most_after_ > 0) state[steps_at_ - width_] = 0;
  }

  void Update(int width, float learning_rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    CHECK_EQ(most_after_, 0) << "segments that begin later are updated by id";
    UpdateIds(nullptr, width, learning_rate, divisor, n, rows, grads);
  }

  void UpdateIds(const int64_t* ids, int, float learning_rate, float divisor, int64_t n, float* const* rows,
                 const float* const* grads) const override {
    CHECK(has_rates_);
    Scratch& s = GetScratch();
    if (!filters_.empty()) {
      Filter(ids, n, rows, grads, &s);
      n = static_cast<int64_t>(s.rows.size());
      ids = ids == nullptr ? nullptr : s.ids.data();
      rows = s.rows.data();
      grads = s.grads.data();
    }
    for (const ColumnUpdate& part : parts_) UpdateColumns(part, learning_rate, divisor, n, rows, grads, &s);
    if (most_after_ > 0) CountSteps(ids, n, rows);
  }

  bool skips_rows() const override { return !filters_.empty(); }
  int64_t skipped_rows() const override { return skipped_.load(std::memory_order_relaxed); }

 private:
  // Kept between calls so that a step does not allocate.
  struct Scratch {
    // Rows that filters have kept.
    std::vector<int64_t> ids;
    std::vector<float*> rows;
    std::vector<const float*> grads;
    // Rows and gradients of one part.
    std::vector<float*> part_rows;
    std::vector<const float*> part_grads;
    std::vector<float> means;
  };
  // Not reentrant: no rule that UpdateIds calls uses this memory.
  static Scratch& GetScratch() {
    static thread_local Scratch scratch;
    return scratch;
  }

  void Filter(const int64_t* ids, int64_t n, float* const* rows, const float* const* grads, Scratch* s) const {
    s->ids.clear();
    s->rows.clear();
    s->grads.clear();
    for (int64_t i = 0; i < n; ++i) {
      if (!std::all_of(filters_.begin(), filters_.end(),
                       [&](const auto& filter) { return filter->Keep(width_, grads[i]); }))
        continue;
      if (ids != nullptr) s->ids.push_back(ids[i]);
      s->rows.push_back(rows[i]);
      s->grads.push_back(grads[i]);
    }
    if (const int64_t left_out = n - static_cast<int64_t>(s->rows.size()); left_out > 0)
      skipped_.fetch_add(left_out, std::memory_order_relaxed);
  }

  void UpdateColumns(const ColumnUpdate& part, float learning_rate, float divisor, int64_t n, float* const* rows,
                     const float* const* grads, Scratch* s) const {
    s->part_rows.clear();
    s->part_grads.clear();
    const int begin = part.columns.begin, width = part.width();
    for (int64_t i = 0; i < n; ++i) {
      if (part.after > 0 && rows[i][steps_at_] < static_cast<float>(part.after)) continue;
      s->part_rows.push_back(rows[i] + begin);
      s->part_grads.push_back(grads[i] + begin);
    }
    const int64_t count = static_cast<int64_t>(s->part_rows.size());
    if (!part.before.empty()) {
      s->means.resize(static_cast<size_t>(count * width));
      for (int64_t i = 0; i < count; ++i) {
        float* const mean = s->means.data() + i * width;
        const float*& grad = s->part_grads[static_cast<size_t>(i)];
        for (int j = 0; j < width; ++j) mean[j] = grad[j] / divisor;
        grad = mean;
      }
      for (const auto& rule : part.before) rule->Apply(width, count, s->part_rows.data(), s->means.data());
      divisor = 1;
    }
    const float rate = part.rate == nullptr ? learning_rate : *std::get<Tensor>(*part.rate).data<float>();
    part.update->UpdatePart(width, width_ - begin + part.state, rate, divisor, count, s->part_rows.data(),
                            s->part_grads.data());
    for (const auto& rule : behind_) rule->Apply(width, count, s->part_rows.data());
  }

  // Counts a step for each row. Columns whose `after` is reached get their initial values.
  void CountSteps(const int64_t* ids, int64_t n, float* const* rows) const {
    for (int64_t i = 0; i < n; ++i) {
      float& steps = rows[i][steps_at_];
      if (steps >= static_cast<float>(most_after_)) continue;
      steps += 1;
      for (const ColumnUpdate& part : parts_) {
        if (part.after == 0 || steps != static_cast<float>(part.after)) continue;
        part.initial->FillColumns(ids[i], part.columns.begin,
                                  absl::MakeSpan(rows[i] + part.columns.begin, static_cast<size_t>(part.width())));
      }
    }
  }

  const int width_;
  const std::vector<std::unique_ptr<RowFilterRule>> filters_;
  std::vector<ColumnUpdate> parts_;  // constant after construction
  const std::vector<std::unique_ptr<RowValueRule>> behind_;
  const bool has_rates_;
  int64_t most_after_ = 0;
  int64_t steps_at_ = 0;  // offset of the step count in a row, in floats; it counts up to most_after_
  mutable std::atomic<int64_t> skipped_{0};
};

absl::Status OutOfPlace(const v1::OpDesc& op, std::string_view where) {
  return absl::InvalidArgumentError(
      absl::StrCat("operator '", op.type(), "' stands ", absl::string_view(where.data(), where.size())));
}

// Makes a TableRule of ops, which it reads in order.
class Maker {
 public:
  Maker(const v1::VarDesc& table, uint64_t seed, const std::function<const Variable*(const std::string&)>& find)
      : table_(table),
        width_(static_cast<int>(table.dims(1))),
        seed_(seed),
        find_(find),
        initializer_(table.initializer(), seed, table.name(), table.dtype()) {}

  absl::StatusOr<TableUpdate> Make(absl::Span<const v1::OpDesc* const> ops) {
    const int64_t updates = std::count_if(ops.begin(), ops.end(), [](const v1::OpDesc* op) { return IsUpdate(*op); });
    for (const v1::OpDesc* op : ops) {
      if (IsUpdate(*op)) {
        RETURN_IF_ERROR(AddUpdate(*op, updates > 1));
      } else if (RowFilterRegistry::Global().Has(op->type())) {
        if (!parts_.empty() || !before_.empty()) return OutOfPlace(*op, "behind what changes gradients");
        ASSIGN_OR_RETURN(auto filter, RowFilterRegistry::Global().Make(*op));
        filters_.push_back(std::move(filter));
      } else if (RowValueRegistry::Global().Has(op->type())) {
        if (static_cast<int64_t>(parts_.size()) < updates) return OutOfPlace(*op, "before the update");
        ASSIGN_OR_RETURN(auto values, RowValueRegistry::Global().Make(*op));
        behind_.push_back(std::move(values));
      } else {
        ASSIGN_OR_RETURN(const Columns columns, ColumnsOf(*op, width_));
        ASSIGN_OR_RETURN(auto gradient, RowGradientRegistry::Global().Make(*op));
        if (static_cast<int64_t>(parts_.size()) == updates) return OutOfPlace(*op, "behind the update");
        before_.push_back({columns, op, std::move(gradient)});
      }
    }
    if (parts_.empty()) return absl::InvalidArgumentError("nothing updates the rows");
    if (parts_.back().columns.end != width_) {
      return absl::InvalidArgumentError(absl::StrCat("updates end at column ", parts_.back().columns.end, " of ",
                                                     width_, "; all columns must have one"));
    }
    const bool plain =
        parts_.size() == 1 && filters_.empty() && behind_.empty() && parts_[0].before.empty() && parts_[0].after == 0;
    if (plain) return TableUpdate{std::move(parts_[0].update), std::move(initializer_)};
    const bool has_rates = parts_.size() == 1 || find_ != nullptr;
    return TableUpdate{
        std::make_unique<TableRule>(width_, std::move(filters_), std::move(parts_), std::move(behind_), has_rates),
        std::move(initializer_)};
  }

 private:
  struct Before {
    Columns columns;
    const v1::OpDesc* op;
    std::unique_ptr<RowGradientRule> rule;
  };

  absl::Status AddUpdate(const v1::OpDesc& op, bool several) {
    TableRule::ColumnUpdate part;
    ASSIGN_OR_RETURN(part.columns, ColumnsOf(op, width_));
    const int begin = parts_.empty() ? 0 : parts_.back().columns.end;
    if (part.columns.begin != begin) {
      return absl::InvalidArgumentError(absl::StrCat("operator '", op.type(), "' has columns from ", part.columns.begin,
                                                     "; the next without an update is ", begin));
    }
    ASSIGN_OR_RETURN(part.update, RowRuleRegistry::Global().Make(op));
    for (Before& before : before_) {
      if (!(before.columns == part.columns)) return OutOfPlace(*before.op, "before an update of other columns");
      part.before.push_back(std::move(before.rule));
    }
    before_.clear();
    if (several && find_ != nullptr) {
      part.rate = find_(OnlyVar(op.inputs(), "LearningRate"));
      const Tensor* const rate = part.rate == nullptr ? nullptr : std::get_if<Tensor>(part.rate);
      if (rate == nullptr || !rate->initialized() || rate->size() != 1 || rate->dtype() != v1::FLOAT32) {
        return absl::InvalidArgumentError(absl::StrCat("the startup program gives its learning rate ",
                                                       OnlyVar(op.inputs(), "LearningRate"), " no value"));
      }
    }
    const v1::OpAttr *const after = FindAttr(op, "after"), *const initial = FindAttr(op, "initializer");
    const v1::Initializer& own = initial == nullptr ? table_.initializer() : initial->initializer();
    part.after = after == nullptr ? 0 : after->i();
    const int width = part.columns.end - part.columns.begin;
    if (part.after > 0) {
      part.initial.emplace(own, seed_, table_.name(), table_.dtype());
      initializer_.SetColumns(part.columns.begin, width, v1::Initializer());
    } else if (several || initial != nullptr) {
      initializer_.SetColumns(part.columns.begin, width, own);
    }
    parts_.push_back(std::move(part));
    return absl::OkStatus();
  }

  const v1::VarDesc& table_;
  const int width_;
  const uint64_t seed_;
  const std::function<const Variable*(const std::string&)>& find_;
  RowInitializer initializer_;
  std::vector<std::unique_ptr<RowFilterRule>> filters_;
  std::vector<Before> before_;  // those of the next update
  std::vector<TableRule::ColumnUpdate> parts_;
  std::vector<std::unique_ptr<RowValueRule>> behind_;
};

}  // namespace

absl::StatusOr<TableUpdate> MakeTableUpdate(const v1::VarDesc& table, uint64_t seed,
                                            absl::Span<const v1::OpDesc* const> ops,
                                            const std::function<const Variable*(const std::string&)>& find) {
  CHECK_EQ(table.dims_size(), 2);
  return Maker(table, seed, find).Make(ops);
}

bool HasRowForm(const v1::OpDesc& op) {
  return IsUpdate(op) || RowGradientRegistry::Global().Has(op.type()) || RowFilterRegistry::Global().Has(op.type()) ||
         RowValueRegistry::Global().Has(op.type());
}

absl::StatusOr<Columns> ColumnsOf(const v1::OpDesc& op, int width) {
  const v1::OpAttr* const attr = FindAttr(op, "columns");
  if (attr == nullptr || attr->ints().v_size() == 0) return Columns{0, width};
  const auto& v = attr->ints().v();
  if (v.size() == 2 && 0 <= v[0] && v[0] < v[1] && v[1] <= width)
    return Columns{static_cast<int>(v[0]), static_cast<int>(v[1])};
  return absl::InvalidArgumentError(absl::StrCat("operator '", op.type(), "': columns must be [begin, end) of the ",
                                                 width, " of a row, none for all"));
}

}  // namespace weir
