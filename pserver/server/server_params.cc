#include "pserver/server/server_params.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/table_update.h"
#include "glog/logging.h"
#include "ops/norm_math.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/tables/cold_rows.h"

namespace weir {

namespace {

// A batch takes the lock of each for tens of microseconds, and one that grows stops readers of as many rows only.
constexpr int kStripesPerCore = 32;

const ProfileName kUpdate("update"), kNorms("norms"), kBlock("update block"), kTable("update table");

absl::Status Prefixed(const std::string& what, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

std::vector<std::string> SlotVars(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return {slot.vars().begin(), slot.vars().end()};
  }
  return {};
}

std::string OnlyVar(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  const std::vector<std::string> vars = SlotVars(slots, name);
  return vars.size() == 1 ? vars[0] : "";
}

const v1::OpAttr* FindAttr(const v1::OpDesc& op, std::string_view name) {
  for (const v1::OpAttr& attr : op.attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

const v1::VarDesc* FindVar(const v1::BlockDesc& block, std::string_view name) {
  for (const v1::VarDesc& var : block.vars()) {
    if (var.name() == name) return &var;
  }
  return nullptr;
}

// What is done to the rows of a table behind the average of their gradient, which is part of the merge.
std::vector<const v1::OpDesc*> RowOps(const v1::BlockDesc& optimize, bool average_by_trainers) {
  std::vector<const v1::OpDesc*> ops;
  bool averaged = false;
  for (const v1::OpDesc& op : optimize.ops()) {
    const bool average = op.type() == "merge" || (average_by_trainers && (op.type() == "sum" || op.type() == "scale"));
    if (average && !averaged) {
      averaged = op.type() != "sum";
      continue;
    }
    ops.push_back(&op);
  }
  return ops;
}

// The planted fault: a sum whose order is that of arrival.
void SumAsTheyCame(absl::Span<const TrainerGradients> trainers, int block, absl::Span<float> out) {
  std::vector<const Gradient*> all;
  for (const TrainerGradients& trainer : trainers) {
    for (const Gradient& g : trainer.gradients) {
      if (!g.of_table && g.target == block) all.push_back(&g);
    }
  }
  std::sort(all.begin(), all.end(), [](const Gradient* a, const Gradient* b) { return a->arrival < b->arrival; });
  std::fill(out.begin(), out.end(), 0.0f);
  for (const Gradient* g : all) {
    for (int64_t i = 0; i < g->count; ++i) out[static_cast<size_t>(g->begin + i)] += g->values[i];
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerParams>> ServerParams::Create(const v1::ProgramDesc& main,
                                                                   const v1::ProgramDesc& startup, int server_id,
                                                                   ThreadPool* pool, bool add_in_arrival_order,
                                                                   Clock* clock) {
  std::unique_ptr<ServerParams> params(new ServerParams(server_id, pool, add_in_arrival_order, clock));
  RETURN_IF_ERROR(Prefixed(absl::StrCat("program of server ", server_id), params->Init(main, startup)));
  return params;
}

absl::Status ServerParams::Init(const v1::ProgramDesc& main, const v1::ProgramDesc& startup) {
  if (!main.has_plan())
    return absl::InvalidArgumentError("the main program holds no plan; it was not made by the transpiler");
  if (main.blocks_size() == 0) return absl::InvalidArgumentError("the main program has no block");
  const v1::Plan& plan = main.plan();
  trainers_ = plan.trainers();
  lanes_ = plan.lanes() == 0 ? plan.trainers() : plan.lanes();
  seed_ = main.seed();
  wire_ = plan.wire();

  const v1::OpDesc* serve = nullptr;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() == "listen_and_serv") serve = &op;
  }
  if (serve == nullptr) {
    return absl::InvalidArgumentError("block 0 has no listen_and_serv; this is not the main program of a server");
  }
  const v1::OpAttr* const id = FindAttr(*serve, "server_id");
  if (id != nullptr && id->i() != server_id_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program is server ", id->i(), "'s, this process is server ", server_id_));
  }
  const v1::OpAttr* const average = FindAttr(*serve, "average");
  average_by_trainers_ = average != nullptr ? average->s() == "trainers" : plan.average_by_trainers();

  // Param of each optimize block.
  struct Update {
    int block;
    const v1::OpDesc* op;
  };
  std::map<std::string, Update> updates;
  if (const v1::OpAttr* const blocks = FindAttr(*serve, "optimize_blocks")) {
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
  }

  ASSIGN_OR_RETURN(const std::unique_ptr<Executor> start, Executor::Create(startup, &scope_, {.block = 0, .lanes = 1}));
  StepContext context;
  context.seed = seed_;
  context.pool = pool_;
  const int64_t no_examples = 0;
  RETURN_IF_ERROR(Prefixed("startup", start->Run(context, absl::MakeConstSpan(&no_examples, 1))));

  // What kernels trust. A startup program may come from a file.
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

  if (const v1::OpAttr* const lr_block = FindAttr(*serve, "lr_block")) {
    ASSIGN_OR_RETURN(rates_, LearningRates::Create(main, lr_block->block(), &scope_, plan.sync() ? 1 : trainers_));
  }

  for (const v1::PlacedBlock& placed : plan.blocks()) {
    if (placed.server() != server_id_) continue;
    const auto update = updates.find(placed.name());
    RETURN_IF_ERROR(Prefixed(absl::StrCat("block ", placed.name()),
                             AddBlock(placed, main, update == updates.end() ? -1 : update->second.block,
                                      update == updates.end() ? nullptr : update->second.op)));
  }
  for (const v1::VarDesc& var : main.blocks(0).vars()) {
    if (var.kind() != v1::TABLE) continue;
    const auto update = updates.find(var.name());
    RETURN_IF_ERROR(Prefixed(absl::StrCat("table ", var.name()),
                             update == updates.end()
                                 ? AddTable(var, plan, nullptr, nullptr)
                                 : AddTable(var, plan, &main.blocks(update->second.block), update->second.op)));
  }
  return absl::OkStatus();
}

absl::Status ServerParams::AddBlock(const v1::PlacedBlock& placed, const v1::ProgramDesc& main, int optimize_block,
                                    const v1::OpDesc* update) {
  auto block = std::make_unique<DenseBlock>();
  block->placed = placed;
  block->info.name = placed.name();
  block->profiled_as = ProfileName(placed.name());
  Variable* const var = scope_.Find(placed.name());
  if (var == nullptr || !std::holds_alternative<Tensor>(*var) || !std::get<Tensor>(*var).initialized()) {
    return absl::InvalidArgumentError("the startup program gives it no value");
  }
  block->value = &std::get<Tensor>(*var);
  if (block->value->dtype() != v1::FLOAT32 || block->value->size() != placed.element_count()) {
    return absl::InvalidArgumentError(absl::StrCat("the startup program makes ", v1::DType_Name(block->value->dtype()),
                                                   " ", ShapeString(block->value->dims()), ", the plan says ",
                                                   placed.element_count(), " float32 elements"));
  }
  block->info.count = block->value->size();
  const v1::VarDesc* const desc = FindVar(main.blocks(0), placed.name());
  if (desc != nullptr && desc->has_block_of()) {
    block->whole_dims.assign(desc->block_of().whole_dims().begin(), desc->block_of().whole_dims().end());
  }
  if (block->whole_dims.empty()) {
    block->whole_dims.assign(block->value->dims().begin(), block->value->dims().end());
  }
  if (placed.sparse_gradient()) {
    if (block->value->rank() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient rows need a matrix, got ", ShapeString(block->value->dims())));
    }
    block->info.rows = block->value->dim(0);
    block->info.sparse_width = static_cast<int>(block->value->dim(1));
  }

  if (update != nullptr) {
    MutexLock lock(&block->mu);
    ASSIGN_OR_RETURN(block->update, Executor::Create(main, &scope_, {.block = optimize_block, .lanes = 1}));
    ASSIGN_OR_RETURN(block->cuts, NormCutsOf(main.blocks(optimize_block)));
    block->end_op = main.blocks(optimize_block).ops_size();
    norm_rounds_ = std::max(norm_rounds_, static_cast<int>(block->cuts.size()));
    const std::string gradient = OnlyVar(update->inputs(), "Grad");
    std::vector<std::string> names = {gradient};
    if (average_by_trainers_) {
      names.clear();
      for (int t = 0; t < trainers_; ++t) names.push_back(absl::StrCat(gradient, ".trainer_", t));
    }
    for (const std::string& name : names) {
      Variable* found = block->update->Find(0, name);
      if (found == nullptr) found = scope_.Find(name);
      if (found == nullptr)
        return absl::InvalidArgumentError(absl::StrCat("optimize block ", optimize_block, " has no variable ", name));
      block->gradients.push_back(found);
    }
    for (const v1::OpDesc& op : main.blocks(optimize_block).ops()) {
      if (op.type() != "delay_compensate") continue;
      block->read = block->update->Find(0, OnlyVar(op.inputs(), "Read"));
      if (block->read == nullptr)
        return absl::InvalidArgumentError("delay_compensate reads a variable that is not of the step");
      block->read_values = std::make_unique<ReadValues>(trainers_);
      read_values_bytes_ += trainers_ * static_cast<int64_t>(block->value->bytes());
    }
    // State: the inputs of the update that its operator declares as state.
    ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(update->type()));
    for (const StateDef& state : def->state) {
      const std::string name = OnlyVar(update->inputs(), state.slot);
      Variable* const state_var = scope_.Find(name);
      if (state_var == nullptr || !std::holds_alternative<Tensor>(*state_var) ||
          !std::get<Tensor>(*state_var).initialized()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the startup program gives its state ", state.slot, " (", name, ") no value"));
      }
      // "fc_0.w.block1.moment1" is moment1.
      const std::string prefix = placed.name() + ".";
      const std::string short_name =
          name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : state.slot;
      const bool scalar =
          state.like == StateDef::kScalar || (state.like == StateDef::kCount && block->info.sparse_width == 0);
      block->states.push_back({short_name, state_var, scalar});
    }
  }
  block_index_[placed.name()] = static_cast<int>(blocks_.size());
  blocks_.push_back(std::move(block));
  return absl::OkStatus();
}

namespace {

// This server's part of the memory, by its shards, and a directory of its own.
SparseTableOptions::Disk DiskOf(const v1::VarDesc& var, int server_id, const SparseTableOptions& table) {
  const int64_t memory = static_cast<int64_t>(static_cast<double>(var.disk().memory_mb() << 20) *
                                              (table.shard_end - table.shard_begin) / table.logical_shards);
  // Names hold no '%'.
  const std::string name = absl::StrReplaceAll(var.name(), {{"/", "%2F"}});
  const std::string directory = absl::StrCat(var.disk().dir(), "/", name, ".server-", server_id);
  return {.memory_bytes = memory, .open = [=, table_name = var.name()](int64_t row_bytes) {
            // An eighth for RocksDB, most of it rows on their way.
            return OpenColdRows(
                {.table = table_name, .directory = directory, .row_bytes = row_bytes, .memory_bytes = memory / 8});
          }};
}

}  // namespace

absl::Status ServerParams::AddTable(const v1::VarDesc& var, const v1::Plan& plan, const v1::BlockDesc* optimize,
                                    const v1::OpDesc* update) {
  if (var.dims_size() != 2) return absl::InvalidArgumentError("a table has dims [-1, width]");
  const uint32_t shards = static_cast<uint32_t>(var.logical_shards());
  // The shards s with ShardServer(s) == server_id.
  const auto begin = [&](int server) {
    return static_cast<uint32_t>((static_cast<uint64_t>(server) * shards + static_cast<uint64_t>(plan.servers()) - 1) /
                                 static_cast<uint64_t>(plan.servers()));
  };
  auto table = std::make_unique<Table>();
  SparseTableOptions options{.name = var.name(),
                             .width = static_cast<int>(var.dims(1)),
                             .logical_shards = shards,
                             .shard_begin = begin(server_id_),
                             .shard_end = begin(server_id_ + 1),
                             .capacity = var.capacity(),
                             .stripes = kStripesPerCore * UsableCores(),
                             .values = var.dtype(),
                             .initializer = RowInitializer(var.initializer(), seed_, var.name(), var.dtype()),
                             .lifecycle = var.lifecycle(),
                             .seed = seed_};
  if (!var.disk().dir().empty()) options.disk = DiskOf(var, server_id_, options);
  table->has_lifecycle = var.has_lifecycle();
  if (update != nullptr) {
    std::vector<const v1::OpDesc*> ops = RowOps(*optimize, average_by_trainers_);
    ASSIGN_OR_RETURN(table->clip, TakeTableClip(OnlyVar(update->inputs(), "Grad"), &ops));
    if (table->clip.has_value()) norm_rounds_ = std::max(norm_rounds_, 1);
    ASSIGN_OR_RETURN(TableUpdate made,
                     MakeTableUpdate(var, seed_, ops, [this](const std::string& name) { return scope_.Find(name); }));
    options.rule = std::move(made.rule);
    options.initializer = std::move(made.initializer);
    const std::string rate = OnlyVar(update->inputs(), "LearningRate");
    table->learning_rate = scope_.Find(rate);
    if (table->learning_rate == nullptr || !std::holds_alternative<Tensor>(*table->learning_rate) ||
        std::get<Tensor>(*table->learning_rate).size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the startup program gives its learning rate ", rate, " no value"));
    }
  }
  for (const v1::PlacedTable& placed : plan.tables()) {
    if (placed.name() != var.name()) continue;
    table->counts_shows = placed.shows_and_clicks();
    table->wire = placed.wire();
  }
  ASSIGN_OR_RETURN(table->table, SparseTable::Create(std::move(options)));
  table->profiled_as = ProfileName(table->table->name());
  reads_clock_ |= table->table->lifecycle().by_clock();
  table_index_[var.name()] = static_cast<int>(tables_.size());
  tables_.push_back(std::move(table));
  return absl::OkStatus();
}

absl::Status ServerParams::PrepareRates(int64_t step) {
  LearningRates::Hold hold;
  return rates_ == nullptr ? absl::OkStatus() : rates_->Begin(step, &hold);
}

void ServerParams::CountIn(Counters* counters) {
  for (const auto& table : tables_) {
    const RowRule* const rule = table->table->rule();
    if (rule == nullptr || !rule->skips_rows()) continue;
    table->skipped = counters->Get(absl::StrCat("table.", table->table->name(), ".skipped_rows"), "rows");
  }
}

void ServerParams::CountSkippedRows(Table* table) {
  if (table->skipped == nullptr) return;
  MutexLock lock(&table->skipped_mu);
  const int64_t so_far = table->table->rule()->skipped_rows();
  table->skipped->Add(so_far - table->skipped_rows);
  table->skipped_rows = so_far;
}

absl::Status ServerParams::AdvanceSchedules(int64_t transactions) {
  for (int64_t i = 0; i < transactions; ++i) RETURN_IF_ERROR(PrepareRates(i));
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

void ServerParams::Task::AddSum(const std::string& name, const ExactSum& sum) const {
  MutexLock lock(sums_mu);
  (*sums)[name].Add(sum);
}

RowTime ServerParams::TimeOf(int64_t table_step) {
  return {.step = table_step, .seconds = reads_clock_ ? absl::ToDoubleSeconds(clock_->Now() - absl::UnixEpoch()) : 0};
}

absl::Status ServerParams::EndStep(int64_t table_step) {
  const RowTime time = TimeOf(table_step);
  Mutex mu;
  absl::Status first_error;
  for (const auto& entry : tables_) {
    SparseTable& table = *entry->table;
    if (!table.lifecycle().expires() && !table.lifecycle().evicts() && !table.lifecycle().decays()) continue;
    pool_->ParallelFor(table.stripes(), [&](int64_t s) {
      const absl::Status status = table.EndStep(static_cast<int>(s), time);
      MutexLock lock(&mu);
      first_error.Update(status);
    });
  }
  return first_error;
}

void ServerParams::CountRows(Counters* counters) {
  for (const auto& entry : tables_) {
    const bool disk = entry->table->disk() != nullptr;
    if (!entry->has_lifecycle && !disk && entry->table->values() == v1::FLOAT32) continue;
    MutexLock lock(&entry->counted_mu);
    const SparseTable::Counts now = entry->table->counts(), before = entry->counted;
    entry->counted = now;
    const auto add = [&](const char* what, const char* unit, int64_t n) {
      counters->Get(absl::StrCat("table.", entry->table->name(), ".", what), unit)->Add(n);
    };
    add("rows", "rows", now.rows - before.rows);
    add("made", "rows", now.made - before.made);
    add("bytes", "bytes", now.bytes - before.bytes);
    if (disk) {
      add("in_memory", "rows", now.in_memory - before.in_memory);
      add("used", "ids", now.used - before.used);
      add("read_from_disk", "rows", now.read - before.read);
      add("written_to_disk", "rows", now.written - before.written);
    }
    if (!entry->has_lifecycle) continue;
    add("expired", "rows", now.expired - before.expired);
    add("evicted", "rows", now.evicted - before.evicted);
    add("faded", "rows", now.faded - before.faded);
    add("candidates", "ids", now.candidates - before.candidates);
    add("dropped", "gradients", now.dropped - before.dropped);
    add("tombstones", "ids", now.tombstones - before.tombstones);
  }
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
  return RunUnits({.step = step, .trainers = trainers, .time = TimeOf(table_step.value_or(step)), .norms = &norms});
}

absl::StatusOr<NormSums> ServerParams::SumsOfRound(int64_t step, absl::Span<const TrainerGradients> trainers, int round,
                                                   const Norms& norms, bool keep) {
  NormSums sums;
  Mutex mu;
  // Every name of the round, whoever has a gradient: what a server offers is a function of its program.
  for (const auto& block : blocks_) {
    if (static_cast<int>(block->cuts.size()) <= round) continue;
    for (const NormCut::Norm& each : block->cuts[static_cast<size_t>(round)].norms) sums[each.name];
  }
  for (const auto& table : tables_) {
    if (round == 0 && table->clip.has_value()) sums[table->clip->name];
  }
  RETURN_IF_ERROR(RunUnits({.step = step,
                            .trainers = trainers,
                            .norms = &norms,
                            .round = round,
                            .keep = keep,
                            .sums = &sums,
                            .sums_mu = &mu}));
  return sums;
}

absl::Status ServerParams::RunUnits(const Task& given) {
  const ProfileSpan span(given.step, ProfileKind::kThreads, given.round < 0 ? kUpdate : kNorms);
  Task task = given;
  std::set<int> blocks, tables;
  for (const TrainerGradients& trainer : task.trainers) {
    task.samples += trainer.samples;
    for (const Gradient& gradient : trainer.gradients) (gradient.of_table ? tables : blocks).insert(gradient.target);
  }
  CHECK_GT(task.samples, 0);
  // A block of rows that gets none in this step has its part of the parameter's norm all the same.
  for (int b = 0; b < this->blocks(); ++b) {
    const DenseBlock& block = *blocks_[static_cast<size_t>(b)];
    if (!block.cuts.empty() && block.info.sparse_width > 0) blocks.insert(b);
  }
  // Blocks first: they are few and large, and one left for the end would keep every other core waiting.
  struct Unit {
    int block;
    int table;
    int stripe;
  };
  std::vector<Unit> units;
  for (int block : blocks) {
    if (task.round < static_cast<int>(blocks_[static_cast<size_t>(block)]->cuts.size()))
      units.push_back({block, -1, -1});
  }
  for (int table : tables) {
    const Table& entry = *tables_[static_cast<size_t>(table)];
    if (task.round > 0 || (task.round == 0 && !entry.clip.has_value())) continue;
    for (int s = 0; s < entry.table->stripes(); ++s) units.push_back({-1, table, s});
  }
  Mutex mu;
  absl::Status first_error;
  pool_->ParallelFor(static_cast<int64_t>(units.size()), [&](int64_t i) {
    const Unit& unit = units[static_cast<size_t>(i)];
    absl::Status status = unit.block >= 0 ? ApplyBlock(task, unit.block) : ApplyStripe(task, unit.table, unit.stripe);
    if (status.ok()) return;
    MutexLock lock(&mu);
    if (first_error.ok()) first_error = std::move(status);
  });
  for (int table : tables) CountSkippedRows(tables_[static_cast<size_t>(table)].get());
  return first_error;
}

absl::Status ServerParams::RunBlockOps(const Task& task, DenseBlock* block) {
  StepContext context;
  context.step = task.step;
  context.seed = seed_;
  context.pool = pool_;
  context.samples = task.samples;
  context.trainers = trainers_;
  const int64_t no_examples = 0;
  const auto run_to = [&](int end) {
    block->mu.AssertHeld();
    const int begin = block->next_op;
    block->next_op = end;
    return block->update->RunOps(context, absl::MakeConstSpan(&no_examples, 1), begin, end);
  };
  for (int c = 0; c < static_cast<int>(block->cuts.size()); ++c) {
    const NormCut& cut = block->cuts[static_cast<size_t>(c)];
    if (cut.begin < block->next_op) continue;
    RETURN_IF_ERROR(run_to(cut.begin));
    for (const NormCut::Norm& each : cut.norms) {
      ASSIGN_OR_RETURN(const ExactSum part,
                       ExactSum::FromWords(std::get<Tensor>(*block->update->Find(0, each.part)).span<int64_t>()));
      if (c == task.round) {
        task.AddSum(each.name, part);
        continue;
      }
      const auto found = task.norms->find(each.name);
      if (found == task.norms->end())
        return absl::InternalError(absl::StrCat("the norm of ", each.name, " is missing"));
      for (const std::string& out : each.outs) {
        Variable* const var = block->update->Find(0, out);
        if (!std::holds_alternative<Tensor>(*var)) *var = Tensor();
        std::get<Tensor>(*var).Resize(v1::FLOAT64, {1});
        std::get<Tensor>(*var).data<double>()[0] = found->second;
      }
    }
    if (c == task.round) return absl::OkStatus();
    block->next_op = cut.end;
  }
  return run_to(block->end_op);
}

absl::Status ServerParams::ApplyBlock(const Task& task, int index) {
  DenseBlock& block = *blocks_[static_cast<size_t>(index)];
  // Its ops are recorded, too.
  const ProfiledStep step(task.step);
  ProfileSpan span(task.step, ProfileKind::kUpdate, kBlock);
  if (ProfileEvent* const event = span.event()) event->detail = block.profiled_as;
  const absl::Span<const TrainerGradients> trainers = task.trainers;
  const std::string what = absl::StrCat("block ", block.info.name);
  MutexLock lock(&block.mu);
  if (block.update == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": has no optimizer, yet a gradient came"));
  }
  const auto go_on = [&] {
    block.mu.AssertHeld();
    const absl::Status status = RunBlockOps(task, &block);
    if (!task.keep || !status.ok()) block.next_op = 0;
    return Prefixed(what, status);
  };
  if (block.next_op > 0) return go_on();

  // Sum over the given trainers' nodes into a variable; false when no node is there.
  const auto sum_into = [&](absl::Span<const TrainerGradients> from, Variable* to) -> absl::StatusOr<bool> {
    if (block.info.sparse_width == 0) {
      std::vector<DenseRun> runs;
      for (const TrainerGradients& trainer : from) {
        for (const Gradient& g : trainer.gradients) {
          if (!g.of_table && g.target == index) {
            runs.push_back({g.node, g.begin, absl::MakeConstSpan(g.values, static_cast<size_t>(g.count))});
          }
        }
      }
      if (runs.empty()) return false;
      if (!std::holds_alternative<Tensor>(*to)) *to = Tensor();
      Tensor& tensor = std::get<Tensor>(*to);
      tensor.Resize(v1::FLOAT32, block.value->dims());
      RETURN_IF_ERROR(SumDense(std::move(runs), lanes_, tensor.span<float>()));
      if (add_in_arrival_order_) SumAsTheyCame(from, index, tensor.span<float>());
      return true;
    }
    std::vector<RowRun> runs;
    for (const TrainerGradients& trainer : from) {
      for (const Gradient& g : trainer.gradients) {
        if (g.of_table || g.target != index) continue;
        runs.push_back({g.node, absl::MakeConstSpan(g.ids, static_cast<size_t>(g.count)), g.values,
                        g.order.empty() ? nullptr : g.order.data()});
      }
    }
    MergedRows merged;
    RETURN_IF_ERROR(MergeRows(runs, lanes_, block.info.sparse_width, 0, UINT64_MAX, &merged));
    if (!std::holds_alternative<SelectedRows>(*to)) *to = SelectedRows();
    SelectedRows& rows = std::get<SelectedRows>(*to);
    rows.height = block.info.rows;
    rows.merged = true;
    rows.present = true;
    rows.step_rows.clear();
    rows.ids = merged.ids;
    rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(merged.ids.size()), block.info.sparse_width});
    float* out = rows.values.data<float>();
    for (const float* grad : merged.grads) {
      std::memcpy(out, grad, static_cast<size_t>(block.info.sparse_width) * sizeof(float));
      out += block.info.sparse_width;
    }
    return !runs.empty();
  };

  if (!average_by_trainers_) {
    const absl::StatusOr<bool> present = sum_into(trainers, block.gradients[0]);
    if (!present.ok()) return Prefixed(what, present.status());
    if (!*present && block.cuts.empty()) return absl::OkStatus();
  } else {
    // The mean over trainers of each one's mean: who brings nothing counts as zero.
    for (int t = 0; t < trainers_; ++t) {
      Variable* const to = block.gradients[static_cast<size_t>(t)];
      const TrainerGradients* own = nullptr;
      for (const TrainerGradients& trainer : trainers) {
        if (trainer.trainer == t) own = &trainer;
      }
      bool present = false;
      if (own != nullptr && own->samples > 0) {
        const absl::StatusOr<bool> summed = sum_into(absl::MakeConstSpan(own, 1), to);
        if (!summed.ok()) return Prefixed(what, summed.status());
        present = *summed;
      }
      if (block.info.sparse_width > 0) {
        if (!present) {
          const absl::StatusOr<bool> none = sum_into({}, to);
          if (!none.ok()) return Prefixed(what, none.status());
        }
        for (float& v : std::get<SelectedRows>(*to).values.span<float>()) v /= static_cast<float>(own->samples);
        continue;
      }
      if (!present) {
        if (!std::holds_alternative<Tensor>(*to)) *to = Tensor();
        std::get<Tensor>(*to).Resize(v1::FLOAT32, block.value->dims());
        for (float& v : std::get<Tensor>(*to).span<float>()) v = 0;
        continue;
      }
      for (float& v : std::get<Tensor>(*to).span<float>()) v /= static_cast<float>(own->samples);
    }
  }
  if (block.read != nullptr) {
    if (trainers.size() != 1) {
      return absl::FailedPreconditionError(
          absl::StrCat(what, ": delay_compensate takes the gradient of one trainer, sync: false"));
    }
    *block.read = block.read_values->Of(trainers[0].trainer, *block.value);
  }
  return go_on();
}

absl::Status ServerParams::ApplyStripe(const Task& task, int index, int stripe) {
  const absl::Span<const TrainerGradients> trainers = task.trainers;
  Table& table = *tables_[static_cast<size_t>(index)];
  ProfileSpan span(task.step, ProfileKind::kUpdate, kTable);
  if (ProfileEvent* const event = span.event()) {
    event->detail = table.profiled_as;
    event->lane = stripe;
  }
  const int width = table.table->width();
  if (table.learning_rate == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.table->name(), ": has no optimizer, yet gradient rows came"));
  }
  const uint64_t first = table.table->StripeBegin(stripe);
  const uint64_t last = stripe + 1 < table.table->stripes() ? table.table->StripeBegin(stripe + 1) - 1 : UINT64_MAX;
  const auto runs_of = [&](const TrainerGradients& trainer, const float* Gradient::*what, std::vector<RowRun>* runs) {
    for (const Gradient& g : trainer.gradients) {
      if (!g.of_table || g.target != index) continue;
      runs->push_back({g.node, absl::MakeConstSpan(g.ids, static_cast<size_t>(g.count)), g.*what,
                       g.order.empty() ? nullptr : g.order.data()});
    }
  };
  // Kept between steps so that a step allocates nothing; nothing below comes back here.
  static thread_local MergedRows merged;
  std::vector<RowRun> runs;
  const std::string what = absl::StrCat("table ", table.table->name());
  float divisor = static_cast<float>(task.samples);
  // Of each trainer, BY_TRAINERS; merged points into the values.
  std::vector<MergedRows> means;
  std::vector<std::vector<float>> values;
  if (!average_by_trainers_) {
    for (const TrainerGradients& trainer : trainers) runs_of(trainer, &Gradient::values, &runs);
    RETURN_IF_ERROR(Prefixed(what, MergeRows(runs, lanes_, width, first, last, &merged)));
  } else {
    // Each trainer's mean first; then their sum in a tree with one leaf per trainer.
    divisor = static_cast<float>(trainers_);
    means.resize(trainers.size());
    values.resize(trainers.size());
    for (size_t t = 0; t < trainers.size(); ++t) {
      if (trainers[t].samples == 0) continue;
      std::vector<RowRun> own;
      runs_of(trainers[t], &Gradient::values, &own);
      RETURN_IF_ERROR(Prefixed(what, MergeRows(own, lanes_, width, first, last, &means[t])));
      values[t].reserve(means[t].ids.size() * static_cast<size_t>(width));
      for (const float* grad : means[t].grads) {
        for (int j = 0; j < width; ++j) values[t].push_back(grad[j] / static_cast<float>(trainers[t].samples));
      }
      runs.push_back({{trainers[t].trainer, 1}, means[t].ids, values[t].data(), nullptr});
    }
    RETURN_IF_ERROR(Prefixed(what, MergeRows(runs, trainers_, width, first, last, &merged)));
  }
  if (merged.ids.empty()) return absl::OkStatus();
  // Counts are added as gradients are, and divided by nobody.
  static thread_local MergedRows shows;
  if (table.counts_shows && task.round < 0) {
    std::vector<RowRun> count_runs;
    for (const TrainerGradients& trainer : trainers) runs_of(trainer, &Gradient::counts, &count_runs);
    RETURN_IF_ERROR(Prefixed(what, MergeRows(count_runs, lanes_, 2, first, last, &shows)));
    CHECK(shows.ids == merged.ids) << what;
  }
  static thread_local std::vector<float> averages;
  if (table.clip.has_value()) {
    averages.resize(merged.ids.size() * static_cast<size_t>(width));
    float* out = averages.data();
    for (const float* grad : merged.grads) {
      for (int j = 0; j < width; ++j) *out++ = grad[j] / divisor;
    }
    if (task.round == 0) {
      ExactSum sum;
      sum.AddSquares(averages);
      task.AddSum(table.clip->name, sum);
      return absl::OkStatus();
    }
    const auto norm = task.norms->find(table.clip->name);
    if (norm == task.norms->end())
      return absl::InternalError(absl::StrCat(what, ": the norm of ", table.clip->name, " is missing"));
    const float factor = ClipFactor(norm->second, table.clip->max_norm);
    for (float& value : averages) value *= factor;
    for (size_t i = 0; i < merged.ids.size(); ++i) merged.grads[i] = averages.data() + i * static_cast<size_t>(width);
    divisor = 1;
  }
  return table.table->UpdateStripe(stripe, merged.ids, merged.grads.data(), divisor,
                                   *std::get<Tensor>(*table.learning_rate).data<float>(), task.time,
                                   table.counts_shows ? shows.grads.data() : nullptr);
}

void ServerParams::CopyBlock(int index, int64_t begin, int64_t count, float* out, int reader) {
  DenseBlock& block = *blocks_[static_cast<size_t>(index)];
  MutexLock lock(&block.mu);
  std::memcpy(out, block.value->data<float>() + begin, static_cast<size_t>(count) * sizeof(float));
  if (block.read_values != nullptr) block.read_values->Read(reader, *block.value, begin, count);
}

void ServerParams::SetBlock(int index, absl::Span<const float> values) {
  DenseBlock& block = *blocks_[static_cast<size_t>(index)];
  MutexLock lock(&block.mu);
  CHECK_EQ(static_cast<int64_t>(values.size()), block.value->size());
  std::copy(values.begin(), values.end(), block.value->data<float>());
}

void ServerParams::AddToBlock(int index, absl::Span<const float> changes) {
  DenseBlock& block = *blocks_[static_cast<size_t>(index)];
  MutexLock lock(&block.mu);
  CHECK_EQ(static_cast<int64_t>(changes.size()), block.value->size());
  float* const to = block.value->data<float>();
  for (size_t i = 0; i < changes.size(); ++i) to[i] += changes[i];
}

void ServerParams::CopyRows(int index, absl::Span<const int64_t> ids, float* out) {
  DenseBlock& block = *blocks_[static_cast<size_t>(index)];
  const size_t width = static_cast<size_t>(block.info.sparse_width);
  MutexLock lock(&block.mu);
  const float* const values = block.value->data<float>();
  for (const int64_t id : ids) {
    CHECK(id >= 0 && id < block.info.rows) << block.info.name << ": row " << id;
    std::memcpy(out, values + static_cast<size_t>(id) * width, width * sizeof(float));
    out += width;
  }
}

}  // namespace weir
