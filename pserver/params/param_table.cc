#include "pserver/params/param_table.h"

#include <cstddef>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/exact_sum.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/graph/op_view.h"
#include "framework/runtime/table_update.h"
#include "glog/logging.h"
#include "ops/norm_math.h"
#include "pserver/params/prefixed.h"
#include "pserver/tables/cold_rows.h"

namespace weir {

namespace {

// A batch takes the lock of each for tens of microseconds, and one that grows stops readers of as many rows only.
constexpr int kStripesPerCore = 32;

const ProfileName kTable("update table");

// Returns this server's part of the memory, by its shards, and a directory of its own.
SparseTableOptions::Disk DiskOf(const v1::VarDesc& var, int server_id, const SparseTableOptions& table,
                                absl::Duration lock_wait) {
  const int64_t memory = static_cast<int64_t>(static_cast<double>(var.disk().memory_mb() << 20) *
                                              (table.shard_end - table.shard_begin) / table.logical_shards);
  // Names hold no '%'.
  const std::string name = absl::StrReplaceAll(var.name(), {{"/", "%2F"}});
  const std::string directory = absl::StrCat(var.disk().dir(), "/", name, ".server-", server_id);
  return {.memory_bytes = memory, .open = [=, table_name = var.name()](int64_t row_bytes) {
            // An eighth for RocksDB, most of it rows on their way.
            return OpenColdRows({.table = table_name,
                                 .directory = directory,
                                 .row_bytes = row_bytes,
                                 .memory_bytes = memory / 8,
                                 .lock_wait = lock_wait});
          }};
}

// Returns the first logical shard that a server holds: the shards s with ShardServer(s) == server begin there.
uint32_t ShardBegin(int server, uint32_t shards, const v1::Plan& plan) {
  return static_cast<uint32_t>((static_cast<uint64_t>(server) * shards + static_cast<uint64_t>(plan.servers()) - 1) /
                               static_cast<uint64_t>(plan.servers()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParamTable>> ParamTable::Create(int index, const v1::VarDesc& var, int server_id,
                                                               const Source& source, int optimize_block,
                                                               const v1::OpDesc* update) {
  std::unique_ptr<ParamTable> table(new ParamTable(index, source.averaging));
  const v1::BlockDesc* const optimize = update == nullptr ? nullptr : &source.main.blocks(optimize_block);
  RETURN_IF_ERROR(table->Init(var, server_id, source, optimize, update));
  return table;
}

absl::Status ParamTable::Init(const v1::VarDesc& var, int server_id, const Source& source,
                              const v1::BlockDesc* optimize, const v1::OpDesc* update) {
  if (var.dims_size() != 2) return absl::InvalidArgumentError("a table has dims [-1, width]");
  const v1::Plan& plan = source.main.plan();
  const uint32_t shards = static_cast<uint32_t>(var.logical_shards());
  const uint64_t seed = source.main.seed();
  SparseTableOptions options{.name = var.name(),
                             .width = static_cast<int>(var.dims(1)),
                             .logical_shards = shards,
                             .shard_begin = ShardBegin(server_id, shards, plan),
                             .shard_end = ShardBegin(server_id + 1, shards, plan),
                             .capacity = var.capacity(),
                             .stripes = kStripesPerCore * UsableCores(),
                             .values = var.dtype(),
                             .initializer = RowInitializer(var.initializer(), seed, var.name(), var.dtype()),
                             .lifecycle = var.lifecycle(),
                             .seed = seed};
  if (!var.disk().dir().empty()) options.disk = DiskOf(var, server_id, options, source.lock_wait);
  has_lifecycle_ = var.has_lifecycle();
  if (update != nullptr) RETURN_IF_ERROR(InitUpdate(var, source, *optimize, *update, &options));
  for (const v1::PlacedTable& placed : plan.tables()) {
    if (placed.name() != var.name()) continue;
    counts_shows_ = placed.shows_and_clicks();
    wire_ = placed.wire();
  }
  ASSIGN_OR_RETURN(rows_, SparseTable::Create(std::move(options)));
  profiled_as_ = ProfileName(name());
  return absl::OkStatus();
}

absl::Status ParamTable::InitUpdate(const v1::VarDesc& var, const Source& source, const v1::BlockDesc& optimize,
                                    const v1::OpDesc& update, SparseTableOptions* options) {
  std::vector<const v1::OpDesc*> ops = averaging_.RowOps(optimize);
  ASSIGN_OR_RETURN(clip_, TakeTableClip(OnlyVar(update.inputs(), "Grad"), &ops));
  const auto find = [scope = source.scope](const std::string& name) { return scope->Find(name); };
  ASSIGN_OR_RETURN(TableUpdate made, MakeTableUpdate(var, source.main.seed(), ops, find));
  options->rule = std::move(made.rule);
  options->initializer = std::move(made.initializer);
  const std::string rate = OnlyVar(update.inputs(), "LearningRate");
  learning_rate_ = source.scope->Find(rate);
  if (learning_rate_ == nullptr || !std::holds_alternative<Tensor>(*learning_rate_) ||
      std::get<Tensor>(*learning_rate_).size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("the startup program gives its learning rate ", rate, " no value"));
  }
  return absl::OkStatus();
}

absl::Status ParamTable::Apply(const UpdateTask& task, int stripe) {
  ProfileSpan span(task.step, ProfileKind::kUpdate, kTable);
  if (ProfileEvent* const event = span.event()) {
    event->detail = profiled_as_;
    event->lane = stripe;
  }
  const std::string what = absl::StrCat("table ", name());
  if (learning_rate_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": has no optimizer, yet gradient rows came"));
  }
  const TableSlice slice{
      .index = index_,
      .width = rows_->width(),
      .first = rows_->StripeBegin(stripe),
      .last = stripe + 1 < rows_->stripes() ? rows_->StripeBegin(stripe + 1) - 1 : UINT64_MAX,
  };
  // Kept between steps so that a step allocates nothing; nothing below comes back here.
  static thread_local RowSums sums;
  static thread_local MergedRows shows;
  static thread_local std::vector<float> averages;
  RETURN_IF_ERROR(Prefixed(what, averaging_.SumRows(slice, task.trainers, task.samples, &sums)));
  if (sums.rows.ids.empty()) return absl::OkStatus();
  // Counts are added as gradients are, and divided by nothing.
  if (counts_shows_ && task.round < 0) {
    RETURN_IF_ERROR(Prefixed(
        what, MergeRows(RunsOfTable(task.trainers, index_, &Gradient::counts), 2, slice.first, slice.last, &shows)));
    CHECK(shows.ids == sums.rows.ids) << what;
  }
  if (clip_.has_value()) {
    Average(sums, &averages);
    if (task.round == 0) {
      ExactSum sum;
      sum.AddSquares(averages);
      task.sums->Add(clip_->name, sum);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(Prefixed(what, Clip(*task.norms, &averages, &sums)));
  }
  return rows_->UpdateStripe(stripe, sums.rows.ids, sums.rows.grads.data(), sums.divisor,
                             *std::get<Tensor>(*learning_rate_).data<float>(), task.time,
                             counts_shows_ ? shows.grads.data() : nullptr);
}

void ParamTable::Average(const RowSums& sums, std::vector<float>* averages) const {
  const int width = rows_->width();
  averages->resize(sums.rows.ids.size() * static_cast<size_t>(width));
  float* out = averages->data();
  for (const float* grad : sums.rows.grads) {
    for (int j = 0; j < width; ++j) *out++ = grad[j] / sums.divisor;
  }
}

absl::Status ParamTable::Clip(const Norms& norms, std::vector<float>* averages, RowSums* sums) const {
  const auto norm = norms.find(clip_->name);
  if (norm == norms.end()) {
    return absl::InternalError(absl::StrCat("the norm of ", clip_->name, " is missing"));
  }
  const float factor = ClipFactor(norm->second, clip_->max_norm);
  for (float& value : *averages) value *= factor;
  for (size_t i = 0; i < sums->rows.ids.size(); ++i) {
    sums->rows.grads[i] = averages->data() + i * static_cast<size_t>(rows_->width());
  }
  sums->divisor = 1;
  return absl::OkStatus();
}

absl::Status ParamTable::EndStep(const RowTime& time, ThreadPool* pool) {
  const LifecycleRules& lifecycle = rows_->lifecycle();
  if (!lifecycle.expires() && !lifecycle.evicts() && !lifecycle.decays()) return absl::OkStatus();
  Mutex mu;
  absl::Status first_error;
  pool->ParallelFor(rows_->stripes(), [&](int64_t s) {
    const absl::Status status = rows_->EndStep(static_cast<int>(s), time);
    MutexLock lock(&mu);
    first_error.Update(status);
  });
  return first_error;
}

void ParamTable::CountIn(Counters* counters) {
  const RowRule* const rule = rows_->rule();
  if (rule == nullptr || !rule->skips_rows()) return;
  skipped_ = counters->Get(absl::StrCat("table.", name(), ".skipped_rows"), "rows");
}

void ParamTable::CountSkippedRows() {
  if (skipped_ == nullptr) return;
  MutexLock lock(&skipped_mu_);
  const int64_t so_far = rows_->rule()->skipped_rows();
  skipped_->Add(so_far - skipped_so_far_);
  skipped_so_far_ = so_far;
}

void ParamTable::CountRows(Counters* counters) {
  const bool disk = rows_->disk() != nullptr;
  if (!has_lifecycle_ && !disk && rows_->values() == v1::FLOAT32) return;
  MutexLock lock(&counted_mu_);
  const SparseTable::Counts now = rows_->counts(), before = counted_;
  counted_ = now;
  const auto add = [&](const char* what, const char* unit, int64_t n) {
    counters->Get(absl::StrCat("table.", name(), ".", what), unit)->Add(n);
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
  if (!has_lifecycle_) return;
  add("expired", "rows", now.expired - before.expired);
  add("evicted", "rows", now.evicted - before.evicted);
  add("faded", "rows", now.faded - before.faded);
  add("candidates", "ids", now.candidates - before.candidates);
  add("dropped", "gradients", now.dropped - before.dropped);
  add("tombstones", "ids", now.tombstones - before.tombstones);
}

}  // namespace weir
