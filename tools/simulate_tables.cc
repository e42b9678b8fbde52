#include "tools/simulate_tables.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/table_update.h"
#include "pserver/tables/sparse_table.h"
#include "trainer/verify/job_steps.h"
#include "transpiler/explain/traffic.h"
#include "transpiler/job/job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// One table that takes the ids of a whole job.
class Run {
 public:
  static absl::StatusOr<Run> Create(const v1::ProgramDesc& single, const SparseTarget& target) {
    const v1::BlockDesc& block = single.blocks(0);
    const v1::VarDesc* const var = FindVar(block, target.parameter);
    if (var == nullptr) return absl::InternalError(absl::StrCat("the program has no table ", target.parameter));
    if (var->lifecycle().has_click()) {
      return absl::InvalidArgumentError(
          absl::StrCat("table ", var->name(),
                       " counts shows and clicks (lifecycle.click), which a simulation "
                       "does not: choose others with --table, or leave it out of the job"));
    }
    SparseTableOptions options{
        .name = var->name(),
        .width = static_cast<int>(var->dims(1)),
        .logical_shards = static_cast<uint32_t>(var->logical_shards()),
        .shard_end = static_cast<uint32_t>(var->logical_shards()),
        .capacity = var->capacity(),
        .values = var->dtype(),
        .initializer = RowInitializer(var->initializer(), single.seed(), var->name(), var->dtype()),
        .lifecycle = var->lifecycle(),
        .seed = single.seed()};
    std::vector<const v1::OpDesc*> ops;
    for (const v1::OpDesc& op : block.ops()) {
      const bool of_table = op.param_grads_size() > 0 && op.param_grads(0).param() == var->name();
      if (op.role() == v1::OPTIMIZE && of_table && HasRowForm(op)) ops.push_back(&op);
    }
    if (ops.empty()) return absl::FailedPreconditionError(absl::StrCat("table ", var->name(), " is never updated"));
    // The rate does not affect which rows exist.
    static const Variable* const rate = new Variable(Tensor::Of<float>({1}, {0}));
    ASSIGN_OR_RETURN(TableUpdate update,
                     MakeTableUpdate(*var, single.seed(), ops, [](const std::string&) { return rate; }));
    options.rule = std::move(update.rule);
    options.initializer = std::move(update.initializer);
    Run run;
    run.target_ = target;
    run.result_.table = var->name();
    ASSIGN_OR_RETURN(run.table_, SparseTable::Create(std::move(options)));
    return run;
  }

  void Step(int64_t step, const StepInput& batches, ThreadPool* pool) {
    if (!result_.end.ok()) return;
    ids_.clear();
    seen_.clear();
    for (const BatchInput& batch : batches) {
      for (const LaneInput& lane : batch) {
        for (const SparseTarget::Source& source : target_.pushed_by) Gather(lane, source);
      }
    }
    gradients_.resize(std::max(gradients_.size(), ids_.size() * static_cast<size_t>(table_->width())), 0.0f);
    const SparseTable::Counts before = table_->counts();
    const RowTime time = {.step = step};
    result_.end = table_->Update(ids_, gradients_.data(), 1, 0, pool, time);
    for (int s = 0; s < table_->stripes(); ++s) result_.end.Update(table_->EndStep(s, time));
    const SparseTable::Counts after = table_->counts();
    result_.gradients += static_cast<int64_t>(ids_.size());
    // A read of an id without a row is followed by a gradient that makes the row or is dropped.
    result_.absent += after.made - before.made + after.dropped - before.dropped;
    result_.most_rows = std::max(result_.most_rows, after.rows);
  }

  SimulatedTable Result() {
    const SparseTable::Counts counts = table_->counts();
    result_.rows = counts.rows;
    result_.bytes = table_->bytes();
    result_.candidates = counts.candidates;
    result_.made = counts.made;
    result_.expired = counts.expired;
    result_.evicted = counts.evicted;
    result_.dropped = counts.dropped;
    return result_;
  }

 private:
  void Gather(const LaneInput& lane, const SparseTarget::Source& source) {
    const auto found = lane.ids.find(source.ids);
    if (found == lane.ids.end()) return;
    const std::vector<int64_t>& values = found->second->values;
    ForSelectedIds(*found->second, source.selection(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (seen_.insert(values[static_cast<size_t>(i)]).second) ids_.push_back(values[static_cast<size_t>(i)]);
      }
    });
  }

  SparseTarget target_;
  std::unique_ptr<SparseTable> table_;
  SimulatedTable result_;
  // Cleared for each step; members keep their memory.
  absl::flat_hash_set<int64_t> seen_;
  std::vector<int64_t> ids_;
  std::vector<float> gradients_;
};

std::string Share(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : absl::StrFormat("%.2f%%", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

absl::StatusOr<Simulation> SimulateTables(const Job& job, int64_t steps, ThreadPool* pool) {
  ASSIGN_OR_RETURN(const Programs single, BuildSingleMachine(job));
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job));
  const v1::ProgramDesc& main = transpiled.trainer().main;
  const Traffic traffic(job.config, main);
  std::vector<Run> runs;
  for (const SparseTarget& target : traffic.targets()) {
    if (!target.table) continue;
    ASSIGN_OR_RETURN(Run run, Run::Create(single.main, target));
    runs.push_back(std::move(run));
  }
  if (runs.empty()) return absl::FailedPreconditionError("the job has no distributed table");
  ASSIGN_OR_RETURN(const std::unique_ptr<JobSteps> data, JobSteps::OfData(job, main, pool));
  Simulation simulation;
  std::vector<std::vector<LaneBatch>> batches(static_cast<size_t>(std::max(1, job.config.train().accumulate_steps())));
  for (; simulation.steps < steps; ++simulation.steps) {
    StepInput input;
    bool ended = true;
    for (std::vector<LaneBatch>& batch : batches) {
      RETURN_IF_ERROR(data->Next(&batch));
      ended &= std::all_of(batch.begin(), batch.end(), [](const LaneBatch& lane) { return lane.ended; });
      input.push_back(BatchInputOf(batch, data->columns()));
    }
    if (ended) break;
    for (Run& run : runs) run.Step(simulation.steps, input, pool);
  }
  for (Run& run : runs) simulation.tables.push_back(run.Result());
  std::sort(simulation.tables.begin(), simulation.tables.end(),
            [](const SimulatedTable& a, const SimulatedTable& b) { return a.table < b.table; });
  return simulation;
}

std::string SimulationText(const std::vector<std::string>& names, const std::vector<Simulation>& simulations) {
  std::string text;
  for (size_t t = 0; !simulations.empty() && t < simulations[0].tables.size(); ++t) {
    absl::StrAppend(&text, "table ", simulations[0].tables[t].table, "\n");
    absl::StrAppendFormat(&text, "  %12s %12s %10s %12s %12s %12s %12s %10s %10s  %s\n", "rows", "most rows", "MiB",
                          "candidates", "made", "expired", "evicted", "lost", "absent", "settings");
    for (size_t i = 0; i < simulations.size(); ++i) {
      const SimulatedTable& of = simulations[i].tables[t];
      absl::StrAppendFormat(&text, "  %12d %12d %10.1f %12d %12d %12d %12d %10s %10s  %s\n", of.rows, of.most_rows,
                            static_cast<double>(of.bytes) / (1 << 20), of.candidates, of.made, of.expired, of.evicted,
                            Share(of.dropped, of.gradients), Share(of.absent, of.gradients), names[i]);
      if (!of.end.ok()) absl::StrAppend(&text, "    would end: ", of.end.message(), "\n");
    }
  }
  return text;
}

}  // namespace weir
