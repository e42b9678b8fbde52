#include "pserver/params/server_params.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/executor.h"
#include "glog/logging.h"
#include "pserver/params/param_table.h"
#include "pserver/params/persistent_rows.h"
#include "pserver/params/prefixed.h"
#include "pserver/params/update_task.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

namespace {

const ProfileName kUpdate("update"), kNorms("norms");

// Gradients with fewer values are applied on the thread that has them: waking others takes as long.
constexpr int64_t kParallelValues = 32768;

// Returns the listen_and_serv op of a server's main program.
absl::StatusOr<const v1::OpDesc*> FindServe(const v1::ProgramDesc& main, int server_id) {
  if (!main.has_plan()) {
    return absl::InvalidArgumentError("the main program holds no plan; it was not made by the transpiler");
  }
  if (main.blocks_size() == 0) return absl::InvalidArgumentError("the main program has no block");
  const v1::OpDesc* serve = nullptr;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() == "listen_and_serv") serve = &op;
  }
  if (serve == nullptr) {
    return absl::InvalidArgumentError("block 0 has no listen_and_serv; this is not the main program of a server");
  }
  const v1::OpAttr* const id = FindAttr(*serve, "server_id");
  if (id != nullptr && id->i() != server_id) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program is server ", id->i(), "'s, this process is server ", server_id));
  }
  return serve;
}

}  // namespace

ServerParams::ServerParams(int server_id, ThreadPool* pool, const DenseSum* dense_sum, Clock* clock,
                           absl::Duration lock_wait)
    : server_id_(server_id), pool_(pool), dense_sum_(dense_sum), clock_(clock), lock_wait_(lock_wait) {}
ServerParams::~ServerParams() = default;

bool ServerParams::counts_shows(int i) const { return tables_[static_cast<size_t>(i)]->counts_shows(); }
const v1::Wire& ServerParams::wire_of_table(int i) const { return tables_[static_cast<size_t>(i)]->wire(); }
SparseTable& ServerParams::table(int i) { return tables_[static_cast<size_t>(i)]->rows(); }

absl::StatusOr<std::unique_ptr<ServerParams>> ServerParams::Create(const v1::ProgramDesc& main,
                                                                   const v1::ProgramDesc& startup, int server_id,
                                                                   ThreadPool* pool, const DenseSum* dense_sum,
                                                                   Clock* clock, absl::Duration lock_wait) {
  static const DenseSum* const lane_tree = new LaneTreeSum;
  if (dense_sum == nullptr) dense_sum = lane_tree;
  std::unique_ptr<ServerParams> params(new ServerParams(server_id, pool, dense_sum, clock, lock_wait));
  RETURN_IF_ERROR(Prefixed(absl::StrCat("program of server ", server_id), params->Init(main, startup)));
  return params;
}

absl::Status ServerParams::Init(const v1::ProgramDesc& main, const v1::ProgramDesc& startup) {
  ASSIGN_OR_RETURN(const v1::OpDesc* const serve, FindServe(main, server_id_));
  const v1::Plan& plan = main.plan();
  wire_ = plan.wire();
  const v1::OpAttr* const average = FindAttr(*serve, "average");
  averaging_ = Averaging::Create(average != nullptr ? average->s() == "trainers" : plan.average_by_trainers(),
                                 plan.lanes() == 0 ? plan.trainers() : plan.lanes(), plan.trainers(), dense_sum_);
  ASSIGN_OR_RETURN(const UpdateOps updates, FindUpdates(main, *serve));
  RETURN_IF_ERROR(RunStartup(main, startup));
  if (const v1::OpAttr* const lr_block = FindAttr(*serve, "lr_block")) {
    ASSIGN_OR_RETURN(rates_, LearningRates::Create(main, lr_block->block(), &scope_));
  }
  RETURN_IF_ERROR(AddBlocks(main, updates));
  return AddTables(main, updates);
}

absl::StatusOr<ServerParams::UpdateOps> ServerParams::FindUpdates(const v1::ProgramDesc& main,
                                                                  const v1::OpDesc& serve) {
  UpdateOps updates;
  const v1::OpAttr* const blocks = FindAttr(serve, "optimize_blocks");
  if (blocks == nullptr) return updates;
  for (const int32_t b : blocks->blocks().v()) {
    if (b <= 0 || b >= main.blocks_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("listen_and_serv names optimize block ", b, " of ", main.blocks_size()));
    }
    for (const v1::OpDesc& op : main.blocks(b).ops()) {
      const OpDef* const def = OpRegistry::Global().Find(op.type());
      const std::string param = OnlyVar(op.inputs(), "Param");
      if (def != nullptr && def->is_optimizer && !param.empty()) updates[param] = {b, &op};
    }
  }
  return updates;
}

absl::Status ServerParams::RunStartup(const v1::ProgramDesc& main, const v1::ProgramDesc& startup) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Executor> start, Executor::Create(startup, &scope_, {.block = 0, .lanes = 1}));
  StepContext context;
  context.seed = main.seed();
  context.pool = pool_;
  const int64_t no_examples = 0;
  RETURN_IF_ERROR(Prefixed("startup", start->Run(context, absl::MakeConstSpan(&no_examples, 1))));
  // A startup program may come from a file.
  for (const v1::VarDesc& var : main.blocks(0).vars()) {
    const Variable* const made = var.persistable() && var.kind() == v1::DENSE ? scope_.Find(var.name()) : nullptr;
    const Tensor* const tensor = made == nullptr ? nullptr : std::get_if<Tensor>(made);
    if (tensor == nullptr || !tensor->initialized()) continue;  // missed by whatever needs it
    const absl::Span<const int64_t> dims(var.dims().data(), static_cast<size_t>(var.dims_size()));
    if (tensor->dtype() == var.dtype() && tensor->dims() == dims) continue;
    return absl::InvalidArgumentError(absl::StrCat("'", var.name(), "' is ", DescribeVar(var),
                                                   "; the startup program makes it ", v1::DType_Name(tensor->dtype()),
                                                   " ", ShapeString(tensor->dims())));
  }
  return absl::OkStatus();
}

absl::Status ServerParams::AddBlocks(const v1::ProgramDesc& main, const UpdateOps& updates) {
  const DenseBlock::Source source{.main = main, .scope = &scope_, .pool = pool_, .averaging = averaging_.get()};
  for (const v1::PlacedBlock& placed : main.plan().blocks()) {
    if (placed.server() != server_id_) continue;
    const auto found = updates.find(placed.name());
    const UpdateOp update = found == updates.end() ? UpdateOp() : found->second;
    const int index = blocks();
    absl::StatusOr<std::unique_ptr<DenseBlock>> block =
        DenseBlock::Create(index, placed, source, update.block, update.op);
    if (!block.ok()) return Prefixed(absl::StrCat("block ", placed.name()), block.status());
    norm_rounds_ = std::max(norm_rounds_, static_cast<int>((*block)->cuts().size()));
    block_index_[placed.name()] = index;
    blocks_.push_back(*std::move(block));
  }
  return absl::OkStatus();
}

absl::Status ServerParams::AddTables(const v1::ProgramDesc& main, const UpdateOps& updates) {
  const ParamTable::Source source{
      .main = main, .scope = &scope_, .averaging = averaging_.get(), .lock_wait = lock_wait_};
  for (const v1::VarDesc& var : main.blocks(0).vars()) {
    if (var.kind() != v1::TABLE) continue;
    const auto found = updates.find(var.name());
    const UpdateOp update = found == updates.end() ? UpdateOp() : found->second;
    const int index = tables();
    absl::StatusOr<std::unique_ptr<ParamTable>> table =
        ParamTable::Create(index, var, server_id_, source, update.block, update.op);
    if (!table.ok()) return Prefixed(absl::StrCat("table ", var.name()), table.status());
    if ((*table)->clip().has_value()) norm_rounds_ = std::max(norm_rounds_, 1);
    reads_clock_ |= (*table)->rows().lifecycle().by_clock();
    table_index_[var.name()] = index;
    tables_.push_back(*std::move(table));
  }
  return absl::OkStatus();
}

int ServerParams::FindBlock(std::string_view name) const {
  const auto found = block_index_.find(name);
  return found == block_index_.end() ? -1 : found->second;
}

int ServerParams::FindTable(std::string_view name) const {
  const auto found = table_index_.find(name);
  return found == table_index_.end() ? -1 : found->second;
}

int64_t ServerParams::read_values_bytes() const {
  int64_t bytes = 0;
  for (const auto& block : blocks_) bytes += block->read_values_bytes();
  return bytes;
}

void ServerParams::CountIn(Counters* counters) {
  for (const auto& table : tables_) table->CountIn(counters);
}

void ServerParams::CountRows(Counters* counters) {
  for (const auto& table : tables_) table->CountRows(counters);
}

void ServerParams::SetTransactionsPerStep(int count) {
  if (rates_ != nullptr) rates_->SetTransactionsPerStep(count);
}

absl::Status ServerParams::PrepareRates(int64_t step) {
  LearningRates::Hold hold;
  return rates_ == nullptr ? absl::OkStatus() : rates_->Begin(step, &hold);
}

absl::Status ServerParams::AdvanceSchedules(int64_t transactions) {
  for (int64_t i = 0; i < transactions; ++i) RETURN_IF_ERROR(PrepareRates(i));
  return absl::OkStatus();
}

RowTime ServerParams::TimeOf(int64_t table_step) {
  return {.step = table_step, .seconds = reads_clock_ ? absl::ToDoubleSeconds(clock_->Now() - absl::UnixEpoch()) : 0};
}

absl::Status ServerParams::EndStep(int64_t table_step) {
  const RowTime time = TimeOf(table_step);
  absl::Status first_error;
  for (const auto& table : tables_) first_error.Update(table->EndStep(time, pool_));
  return first_error;
}

absl::Status ServerParams::Apply(int64_t step, absl::Span<const TrainerGradients> trainers, StepPart part,
                                 const Norms& norms, std::optional<int64_t> table_step) {
  LearningRates::Hold rates;
  if (rates_ != nullptr) {
    if (part == StepPart::kLater) {
      rates_->GoOn(&rates);
    } else {
      RETURN_IF_ERROR(rates_->Begin(step, &rates));
    }
  }
  return Run({.step = step, .trainers = trainers, .time = TimeOf(table_step.value_or(step)), .norms = &norms});
}

absl::StatusOr<NormSums> ServerParams::SumsOfRound(int64_t step, absl::Span<const TrainerGradients> trainers, int round,
                                                   const Norms& norms, bool keep) {
  RoundSums sums;
  // Every name of the round, whoever has a gradient: what a server offers is a function of its program.
  for (const auto& block : blocks_) {
    if (static_cast<int>(block->cuts().size()) <= round) continue;
    for (const NormCut::Norm& norm : block->cuts()[static_cast<size_t>(round)].norms) sums.Declare(norm.name);
  }
  for (const auto& table : tables_) {
    if (round == 0 && table->clip().has_value()) sums.Declare(table->clip()->name);
  }
  RETURN_IF_ERROR(
      Run({.step = step, .trainers = trainers, .norms = &norms, .round = round, .keep = keep, .sums = &sums}));
  return sums.Take();
}

absl::Status ServerParams::Run(UpdateTask task) {
  const ProfileSpan span(task.step, ProfileKind::kThreads, task.round < 0 ? kUpdate : kNorms);
  std::set<int> blocks, tables;
  int64_t values = 0;
  for (const TrainerGradients& trainer : task.trainers) {
    task.samples += trainer.samples;
    for (const Gradient& gradient : trainer.gradients) {
      (gradient.of_table ? tables : blocks).insert(gradient.target);
      values += gradient.count * std::max(gradient.width, 1);
    }
  }
  CHECK_GT(task.samples, 0);
  // A block of rows that gets none in this step has its part of the parameter's norm all the same.
  for (const auto& block : blocks_) {
    if (!block->cuts().empty() && block->info().sparse_width > 0) blocks.insert(block->info().index);
  }
  // Blocks first: they are few and large, and one left for the end would keep every other core waiting.
  struct Unit {
    DenseBlock* block;
    ParamTable* table;
    int stripe;
  };
  std::vector<Unit> units;
  for (const int b : blocks) {
    DenseBlock* const block = blocks_[static_cast<size_t>(b)].get();
    if (task.round < static_cast<int>(block->cuts().size())) units.push_back({block, nullptr, -1});
  }
  for (const int t : tables) {
    ParamTable* const table = tables_[static_cast<size_t>(t)].get();
    if (task.round > 0 || (task.round == 0 && !table->clip().has_value())) continue;
    for (int s = 0; s < table->rows().stripes(); ++s) units.push_back({nullptr, table, s});
  }
  Mutex mu;
  absl::Status first_error;
  const auto run = [&](int64_t i) {
    const Unit& unit = units[static_cast<size_t>(i)];
    absl::Status status = unit.block != nullptr ? unit.block->Apply(task) : unit.table->Apply(task, unit.stripe);
    if (status.ok()) return;
    MutexLock lock(&mu);
    if (first_error.ok()) first_error = std::move(status);
  };
  const int64_t n = static_cast<int64_t>(units.size());
  if (values < kParallelValues) {
    for (int64_t i = 0; i < n; ++i) run(i);
  } else {
    pool_->ParallelFor(n, run);
  }
  for (const int t : tables) tables_[static_cast<size_t>(t)]->CountSkippedRows();
  return first_error;
}

void ServerParams::CopyBlock(int block, int64_t begin, int64_t count, float* out, int reader) {
  blocks_[static_cast<size_t>(block)]->Copy(begin, count, out, reader);
}

void ServerParams::SetBlock(int block, absl::Span<const float> values) {
  blocks_[static_cast<size_t>(block)]->Set(values);
}

void ServerParams::AddToBlock(int block, absl::Span<const float> changes) {
  blocks_[static_cast<size_t>(block)]->Add(changes);
}

void ServerParams::BeginChanges() {
  const bool record = wants_changes_.exchange(false);
  for (const auto& table : tables_) table->rows().BeginChanges(record);
  for (const auto& block : blocks_) block->BeginChanges(record);
}

void ServerParams::PullChangedRows(int block, absl::Span<const int64_t> ids, std::vector<uint32_t>* positions,
                                   std::vector<float>* rows) {
  blocks_[static_cast<size_t>(block)]->PullChanged(ids, positions, rows);
}

void ServerParams::CopyRows(int block, absl::Span<const int64_t> ids, float* out) {
  blocks_[static_cast<size_t>(block)]->CopyRows(ids, out);
}

}  // namespace weir
