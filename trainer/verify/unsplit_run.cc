#include "trainer/verify/unsplit_run.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/running_averages.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "ops/arithmetic.h"
#include "trainer/session/loss_scaler.h"
#include "trainer/verify/lane_gradients.h"
#include "trainer/verify/unsplit_tables.h"
#include "transpiler/base/programs.h"
#include "transpiler/base/state_name.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/prefetch_tables.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Name of the schedules' state in digests; must equal that of pserver/params/learning_rates.h.
constexpr char kSchedules[] = "@LR_SCHEDULE";

class UnsplitRunImpl : public UnsplitRun {
 public:
  UnsplitRunImpl(const Job& job, ThreadPool* pool) : job_(job), pool_(pool), loss_scaler_(job.config.train()) {}

  absl::Status Init() {
    ASSIGN_OR_RETURN(Programs single, BuildSingleMachine(job_));
    updates_ = single.main;
    seed_ = single.main.seed();
    FindCounters(single.main);
    ASSIGN_OR_RETURN(measured_, RunningAveragesOf(single.main));
    adasum_ = UsesAdasum(job_.config.distribute());
    const v1::Distribute& distribute = job_.config.distribute();
    lanes_ = job_.config.train().lanes() == 0 ? distribute.trainers() : job_.config.train().lanes();
    ASSIGN_OR_RETURN(const std::unique_ptr<Executor> startup, Executor::Create(single.startup, &scope_, {.lanes = 1}));
    const std::vector<int64_t> nobody = {0};
    RETURN_IF_ERROR(startup->Run(Context(0, 0), nobody));
    for (const v1::ParamGrad& pair : UpdatedParameters(single.main)) {
      const v1::VarDesc* param = FindVar(single.main.blocks(0), pair.param());
      if (param->kind() == v1::TABLE) {
        RETURN_IF_ERROR(tables_.Add(single.main, *param, scope_));
      } else {
        AddParameter(single.main, pair, *param);
      }
      pairs_.push_back(pair);
    }
    for (const v1::LossDesc& loss : single.main.losses()) losses_.push_back(loss.var());
    for (const v1::VarDesc& var : single.main.blocks(0).vars()) {
      if (var.kind() == v1::TABLE && !tables_.Has(var.name())) RETURN_IF_ERROR(tables_.Add(single.main, var, scope_));
    }
    RETURN_IF_ERROR(PrefetchTables(job_, &single).status());
    FilterOps(single.main.mutable_blocks(0),
              [](const v1::OpDesc& op) { return op.role() != v1::OPTIMIZE && op.role() != v1::LR_SCHEDULE; });
    ASSIGN_OR_RETURN(forward_backward_, Executor::Create(single.main, &scope_, {.lanes = lanes_}));
    return absl::OkStatus();
  }

  absl::Status Step(const std::vector<std::vector<LaneBatch>>& batches, const std::vector<Column>& columns) override {
    int64_t samples = 0;
    std::map<std::string, LaneGradients> sums;  // by parameter
    std::string bad_loss, bad;                  // that are not finite
    for (size_t b = 0; b < batches.size(); ++b) {
      CHECK_EQ(static_cast<int>(batches[b].size()), lanes_);
      std::vector<int64_t> examples;
      for (int lane = 0; lane < lanes_; ++lane) {
        const LaneBatch& batch = batches[b][static_cast<size_t>(lane)];
        examples.push_back(batch.examples);
        samples += batch.examples;
        for (size_t c = 0; c < columns.size(); ++c) {
          if (Variable* var = forward_backward_->Find(lane, columns[c].name); var != nullptr) *var = batch.vars[c];
        }
      }
      // Random numbers differ from batch to batch.
      StepContext context = Context(0, 0);
      context.step = step_ * static_cast<int64_t>(batches.size()) + static_cast<int64_t>(b);
      RETURN_IF_ERROR(forward_backward_->Run(context, examples));
      for (const v1::ParamGrad& pair : pairs_) {
        AddLanes(pair, examples, static_cast<int64_t>(batches.size()), &sums[pair.param()]);
      }
      for (const std::string& loss : losses_) {
        if (!LossIsFinite(loss, examples)) bad_loss = loss;
      }
    }
    if (samples == 0) return absl::OkStatus();  // the step changes nothing
    for (const v1::ParamGrad& pair : pairs_) {
      if (tables_.Has(pair.param()) && tables_.SkipsRows(pair.param())) continue;
      // Judged lane by lane, like trainers do.
      if (!sums[pair.param()].IsFinite()) bad = pair.grad();
    }
    const bool overflow = bad_loss.empty() && loss_scaler_.scale() > 1;
    if (!bad_loss.empty()) bad = bad_loss;
    if (!bad.empty() && !overflow && job_.config.train().nan_policy() == v1::Train::STOP) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", bad, "' is not finite at step ", step_, ": the job would stop here"));
    }
    loss_scaler_.StepDone(/*skipped=*/!bad.empty());
    if (!bad.empty()) {
      ++step_;
      return absl::OkStatus();
    }
    std::map<std::string, Variable> gradients;  // of dense parameters that have one in this step
    std::map<std::string, UnsplitTables::Rows> rows;
    for (auto& [param, of] : sums) SumLanes(param, std::move(of), &gradients, &rows);
    RETURN_IF_ERROR(Update(samples, std::move(gradients), &rows));
    for (const auto& [name, of_table] : rows) tables_.Update(name, of_table, samples, step_, scope_);
    tables_.EndStep(step_);
    ++step_;
    ++updates_run_;
    return absl::OkStatus();
  }

  DigestTable Digests() const override {
    DigestTable digests;
    for (const auto& [name, parameter] : parameters_) {
      const absl::Span<const float> values = Values(name);
      VariableDigester digester(name, static_cast<int64_t>(values.size()));
      digester.AddValues(0, values);
      for (const auto& [state, var] : parameter.states) {
        const Tensor& tensor = std::get<Tensor>(*scope_.Find(var));
        // The digest takes the bits, whatever the type.
        digester.AddState(state, 0,
                          absl::MakeConstSpan(static_cast<const float*>(tensor.raw()), tensor.bytes() / sizeof(float)));
      }
      digests[name] = digester.sum();
    }
    tables_.AddDigests(&digests);
    if (scheduled_) digests[kSchedules] = ScheduleDigest();
    return digests;
  }

  std::vector<std::string> Parameters() const override {
    std::vector<std::string> names;
    for (const auto& [name, parameter] : parameters_) names.push_back(name);
    return names;
  }
  absl::Span<const float> Values(std::string_view parameter) const override {
    return std::get<Tensor>(*scope_.Find(parameter)).span<float>();
  }
  int64_t RowElements(std::string_view parameter) const override {
    const auto found = parameters_.find(parameter);
    return found == parameters_.end() ? 1 : found->second.row;
  }
  int64_t Shards(std::string_view table) const override {
    return tables_.shards(std::string(table.substr(0, table.find('@'))));
  }
  int64_t Elements(std::string_view variable) const override {
    return parameters_.find(variable) == parameters_.end() ? -1 : static_cast<int64_t>(Values(variable).size());
  }

 private:
  VariableDigestSum ScheduleDigest() const {
    VariableDigester digester(kSchedules, 1);
    for (const std::string& name : counters_) {
      const Tensor& tensor = std::get<Tensor>(*scope_.Find(name));
      digester.AddState(name, 0,
                        absl::MakeConstSpan(static_cast<const float*>(tensor.raw()), tensor.bytes() / sizeof(float)));
    }
    // updates_run_ counts the steps that have taken effect. The digest takes its bits, like servers do.
    float bits[2];
    std::memcpy(bits, &updates_run_, sizeof bits);
    digester.AddState("transactions", 0, bits);
    return digester.sum();
  }

  struct Parameter {
    int64_t row = 1;
    std::vector<std::pair<std::string, std::string>> states;  // name as digests have it, variable
  };

  StepContext Context(int64_t samples, int trainers) {
    return {.step = step_,
            .seed = seed_,
            .training = true,
            .first_lane = 0,
            .job_lanes = std::max(1, job_.config.train().lanes()),
            .rows = tables_.rows(),
            .pool = pool_,
            .health = &health_,
            .loss_scale = loss_scaler_.scale(),
            .precision = PrecisionOnCpu(job_.config.train()),
            .samples = samples,
            .trainers = std::max(1, trainers)};
  }

  // Finds the persistable variables that schedules write: counters and rates.
  void FindCounters(const v1::ProgramDesc& main) {
    for (const v1::OpDesc& op : main.blocks(0).ops()) {
      if (op.role() != v1::LR_SCHEDULE) continue;
      scheduled_ = true;
      for (const v1::OpSlot& slot : op.outputs()) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = FindVar(main.blocks(0), name);
          if (var != nullptr && var->persistable() && var->kind() == v1::DENSE) counters_.insert(name);
        }
      }
    }
  }

  void AddParameter(const v1::ProgramDesc& main, const v1::ParamGrad& pair, const v1::VarDesc& var) {
    Parameter& parameter = parameters_[var.name()];
    for (int d = 1; d < var.dims_size(); ++d) parameter.row *= var.dims(d);
    for (const v1::OpDesc& op : main.blocks(0).ops()) {
      const OpDef* def = OpRegistry::Global().Find(op.type());
      if (op.role() != v1::OPTIMIZE || def == nullptr || !def->is_optimizer || InputOf(op, "Param") != pair.param())
        continue;
      for (const StateDef& state : def->state) {
        const std::string name = InputOf(op, state.slot);
        if (name.empty()) continue;
        const std::string prefix = var.name() + ".";
        parameter.states.emplace_back(name.starts_with(prefix) ? name.substr(prefix.size()) : state.slot, name);
      }
    }
  }

  // Adds the gradient of the batch that has just run; a lane without examples adds nothing.
  void AddLanes(const v1::ParamGrad& pair, const std::vector<int64_t>& examples, int64_t batches, LaneGradients* sums) {
    const float factor = measured_.contains(pair.param()) ? 1 : 1 / loss_scaler_.scale();
    for (int lane = 0; lane < lanes_; ++lane) {
      const Variable* var = forward_backward_->Find(lane, pair.grad());
      const int64_t own = examples[static_cast<size_t>(lane)];
      if (own == 0 || var == nullptr) continue;
      const bool mean = IsAdasum(pair.param()) && std::holds_alternative<Tensor>(*var);
      sums->Add(lane, *var, mean ? factor / static_cast<float>(own * batches) : factor);
    }
  }

  // Returns whether the parameter's gradient, if it is dense, is the adasum of the lanes' means.
  bool IsAdasum(const std::string& param) const { return adasum_ && !measured_.contains(param); }

  bool LossIsFinite(const std::string& loss, const std::vector<int64_t>& examples) const {
    for (int lane = 0; lane < lanes_; ++lane) {
      const Variable* var = forward_backward_->Find(lane, loss);
      if (examples[static_cast<size_t>(lane)] == 0 || var == nullptr) continue;
      if (const Tensor* tensor = std::get_if<Tensor>(var); tensor != nullptr && !AllFinite(tensor->span<float>()))
        return false;
    }
    return true;
  }

  static bool AllFinite(absl::Span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  }

  // Adds the lanes in the order of their tree: to rows by id for a table whose update needs no more, else to a whole
  // gradient.
  void SumLanes(const std::string& param, LaneGradients lanes, std::map<std::string, Variable>* gradients,
                std::map<std::string, UnsplitTables::Rows>* table_rows) const {
    if (lanes.has_dense()) {
      (*gradients)[param] = IsAdasum(param) ? std::move(lanes).Adasum(lanes_) : std::move(lanes).SumDense(lanes_);
    } else if (lanes.has_rows() && tables_.Has(param) && !tables_.IsMergedFirst(param)) {
      (*table_rows)[param] = std::move(lanes).SumRowsById(lanes_);
    } else if (lanes.has_rows()) {
      (*gradients)[param] = std::move(lanes).SumRows(lanes_);
    }
  }

  // Runs schedules, then merge, clips, decays and updates of the parameters with a gradient, in program order.
  // Gradients of tables that these ops needed as a whole are returned as rows.
  absl::Status Update(int64_t samples, std::map<std::string, Variable> gradients,
                      std::map<std::string, UnsplitTables::Rows>* rows) {
    std::set<std::string> present;
    for (const auto& [name, gradient] : gradients) present.insert(name);
    std::unique_ptr<Executor>& executor = updaters_[present];
    if (executor == nullptr) {
      ASSIGN_OR_RETURN(executor, Executor::Create(UpdateProgram(present), &scope_, {.lanes = 1}));
    }
    for (const v1::ParamGrad& pair : pairs_) {
      const auto gradient = gradients.find(pair.param());
      if (gradient == gradients.end()) continue;
      *executor->Find(0, pair.grad()) = std::move(gradient->second);
    }
    const std::vector<int64_t> nobody = {0};
    RETURN_IF_ERROR(executor->Run(Context(samples, 1), nobody));
    for (const v1::ParamGrad& pair : pairs_) {
      if (!present.contains(pair.param()) || !tables_.Has(pair.param())) continue;
      const SelectedRows& merged = std::get<SelectedRows>(*executor->Find(0, pair.grad()));
      const int64_t width = tables_.width(pair.param());
      for (size_t r = 0; r < merged.ids.size(); ++r) {
        const float* row = merged.values.data<float>() + static_cast<int64_t>(r) * width;
        (*rows)[pair.param()][merged.ids[r]].assign(row, row + width);
      }
    }
    return absl::OkStatus();
  }

  v1::ProgramDesc UpdateProgram(const std::set<std::string>& present) const {
    v1::ProgramDesc program = updates_;
    v1::BlockDesc* block = program.mutable_blocks(0);
    google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
    bool merged = false;
    std::set<std::string> there;  // variables that ops may read
    for (const v1::VarDesc& var : block->vars()) {
      if (var.persistable()) there.insert(var.name());
    }
    for (int i = 0; i < updates_.blocks(0).ops_size(); ++i) {
      v1::OpDesc op = updates_.blocks(0).ops(i);
      const bool schedule = op.role() == v1::LR_SCHEDULE;
      if ((op.role() != v1::OPTIMIZE && !schedule) || tables_.row_ops().contains(i)) continue;
      if (!merged && !schedule) {
        merged = true;
        for (const v1::ParamGrad& pair : pairs_) {
          if (!present.contains(pair.param())) continue;
          there.insert(pair.grad());
          if (IsAdasum(pair.param()) && FindVar(*block, pair.grad())->kind() == v1::DENSE) continue;
          *ops.Add() = WithRole(MakeOp("merge", {{"X", {pair.grad()}}}, {{"Out", {pair.grad()}}}), v1::OPTIMIZE, &pair);
        }
      }
      const bool wanted = schedule || op.param_grads().empty() ||
                          std::any_of(op.param_grads().begin(), op.param_grads().end(),
                                      [&](const v1::ParamGrad& pair) { return present.contains(pair.param()); });
      if (!wanted) continue;
      // An op over several parameters (a norm) skips those without a gradient in this step.
      if (op.param_grads_size() > 1) {
        for (v1::OpSlot& slot : *op.mutable_inputs()) {
          auto* vars = slot.mutable_vars();
          vars->erase(
              std::remove_if(vars->begin(), vars->end(), [&](const std::string& var) { return !there.contains(var); }),
              vars->end());
        }
      }
      for (const v1::OpSlot& slot : op.outputs()) there.insert(slot.vars().begin(), slot.vars().end());
      *ops.Add() = std::move(op);
    }
    block->mutable_ops()->Swap(&ops);
    return program;
  }

  const Job& job_;
  ThreadPool* const pool_;
  LossScaler loss_scaler_;
  std::map<std::string, RunningAverage> measured_;  // parameters whose "gradients" are not scaled
  bool adasum_ = false;
  int lanes_ = 1;
  uint64_t seed_ = 1;
  int64_t step_ = 0;
  int64_t updates_run_ = 0;
  bool scheduled_ = false;
  std::set<std::string> counters_;
  Scope scope_;
  StepHealth health_;
  UnsplitTables tables_;
  std::unique_ptr<Executor> forward_backward_;
  v1::ProgramDesc updates_;
  std::vector<v1::ParamGrad> pairs_;
  std::vector<std::string> losses_;
  std::map<std::string, Parameter, std::less<>> parameters_;
  // Keyed by the parameters with a gradient, which are nearly always all of them.
  std::map<std::set<std::string>, std::unique_ptr<Executor>> updaters_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnsplitRun>> UnsplitRun::Create(const Job& job, ThreadPool* pool) {
  auto run = std::make_unique<UnsplitRunImpl>(job, pool);
  RETURN_IF_ERROR(run->Init());
  return std::unique_ptr<UnsplitRun>(std::move(run));
}

}  // namespace weir
