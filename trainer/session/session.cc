#include "trainer/session/session.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/reported_loss.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "trainer/session/non_finite.h"
#include "transpiler/base/programs.h"
#include "transpiler/split/transpile.h"

namespace weir {

namespace {

const ProfileName kBatch("a batch");
// Time within which a wait for data notices that the job has failed or that its end was requested.
constexpr absl::Duration kLook = absl::Milliseconds(500);

// Returns the inputs of block 0 that no op has written before, in order of first use.
std::vector<const v1::VarDesc*> ReadFirst(const v1::ProgramDesc& main) {
  std::map<std::string, const v1::VarDesc*> vars;
  for (const v1::VarDesc& var : main.blocks(0).vars()) vars[var.name()] = &var;
  std::vector<const v1::VarDesc*> found;
  std::set<std::string> known;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& name : slot.vars()) {
        const auto var = vars.find(name);
        if (var != vars.end() && known.insert(name).second) found.push_back(var->second);
      }
    }
    for (const v1::OpSlot& slot : op.outputs()) known.insert(slot.vars().begin(), slot.vars().end());
  }
  return found;
}

absl::Span<const int64_t> DimsOf(const v1::VarDesc& var) {
  return absl::MakeConstSpan(var.dims().data(), static_cast<size_t>(var.dims_size()));
}

// Checks that the data has a column of the right kind, type and width for every variable that the program is fed, and
// that every lane has a variable of its own for it.
absl::Status CheckFed(const SessionOptions& o, Executor* train, int lanes) {
  for (const v1::VarDesc* var : ReadFirst(o.main)) {
    if (var->persistable() || var->kind() == v1::TABLE) continue;
    const auto column =
        std::find_if(o.columns.begin(), o.columns.end(), [&](const Column& c) { return c.name == var->name(); });
    if (column == o.columns.end()) {
      return absl::InvalidArgumentError(absl::StrCat("program ", o.main.name(), ": variable '", var->name(),
                                                     "' is fed, but the data gives no such variable"));
    }
    const DType dtype = column->kind == v1::IDS ? v1::INT64 : v1::FLOAT32;
    const Shape given = {-1, column->width};
    if (var->kind() == column->kind && var->dtype() == dtype && DimsOf(*var) == absl::MakeConstSpan(given)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "program ", o.main.name(), ": variable '", var->name(), "' is ", DescribeVar(*var), "; the data gives ",
        v1::VarKind_Name(column->kind), " ", v1::DType_Name(dtype), " ", ShapeString(given)));
  }
  for (const Column& column : o.columns) {
    const Variable* first = train->Find(0, column.name);
    for (int lane = 1; lane < lanes; ++lane) {
      if (first == nullptr || train->Find(lane, column.name) != first) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("program ", o.main.name(), ": variable '", column.name,
                       "' of the data is one for all lanes: it must be neither persistable nor "
                       "written by an op that runs once per step"));
    }
    if (const v1::VarDesc* var = FindVar(o.main.blocks(0), column.name); var != nullptr && var->persistable()) {
      return absl::InvalidArgumentError(absl::StrCat("program ", o.main.name(), ": variable '", column.name,
                                                     "' of the data is persistable; every lane has data of its own"));
    }
  }
  return absl::OkStatus();
}

// Checks that every tensor that outlives steps, and is read before the program writes it, has a value of the shape that
// kernels rely on.
absl::Status CheckInitialized(const v1::ProgramDesc& main, const Scope& scope) {
  for (const v1::VarDesc* var : ReadFirst(main)) {
    if (!var->persistable() || var->kind() != v1::DENSE) continue;
    const Variable* value = scope.Find(var->name());
    const Tensor* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
    if (tensor == nullptr || !tensor->initialized()) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", main.name(), ": '", var->name(),
                       "' has no value after the startup program, which must receive or fill it"));
    }
    if (tensor->dtype() == var->dtype() && DimsAgree(tensor->dims(), DimsOf(*var))) continue;
    return absl::InvalidArgumentError(absl::StrCat("program ", main.name(), ": '", var->name(), "' is ",
                                                   DescribeVar(*var), "; the startup program makes it ",
                                                   v1::DType_Name(tensor->dtype()), " ", ShapeString(tensor->dims())));
  }
  return absl::OkStatus();
}

}  // namespace

ProductPrecision PrecisionOf(const v1::Train& train) {
  switch (train.precision()) {
    case v1::Train::FP32:
      return ProductPrecision::kFp32;
    case v1::Train::TF32:
      return ProductPrecision::kTf32;
    case v1::Train::BF16:
      return ProductPrecision::kBf16;
    case v1::Train::FP16:
      return ProductPrecision::kFp16;
  }
  return ProductPrecision::kFp32;
}

Session::Session(SessionOptions options)
    : options_(std::move(options)),
      mode_(ModeOf(options_.main)),
      accumulating_(mode_.accumulate() > 1 ? std::make_unique<AccumulatingChannel>(options_.channel, mode_.accumulate())
                                           : nullptr),
      channel_(accumulating_ != nullptr ? accumulating_.get() : options_.channel) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(SessionOptions options) {
  auto session = std::unique_ptr<Session>(new Session(std::move(options)));
  const SessionOptions& o = session->options_;
  const v1::Plan& plan = o.main.plan();
  if (o.main.losses().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("program ", o.main.name(), " has no loss: nothing to train or judge"));
  }
  session->variable_bytes_.counter =
      weir::Counters::Process().Get(absl::StrCat("trainer.", o.trainer_id, ".variables.bytes"), "bytes");
  session->loss_ = o.main.losses(0);
  session->reported_loss_ = ReportedLoss(o.main, session->loss_);
  session->lanes_ = LanesOfTrainer(plan.lanes(), plan.trainers(), o.trainer_id);
  ASSIGN_OR_RETURN(session->startup_, Executor::Create(o.startup, &session->scope_, {.lanes = 1}));
  if (o.device != nullptr) {
    session->device_ = std::make_unique<OnDevice>(o.device, &session->scope_);
  }
  const std::vector<std::string> fetch = {session->reported_loss_, session->loss_.prediction(), session->loss_.label()};
  std::vector<std::string> judged = fetch;
  for (const std::string& name : o.judged) {
    if (std::find(judged.begin(), judged.end(), name) == judged.end()) judged.push_back(name);
  }
  ASSIGN_OR_RETURN(session->train_, session->MakeExecutor(o.main, fetch));
  const std::vector<std::string> predicted = {session->loss_.prediction()};
  ASSIGN_OR_RETURN(session->forward_, o.predicts
                                          ? session->MakeExecutor(PredictionProgram(o.main, predicted[0]), predicted)
                                          : session->MakeExecutor(EvaluationProgram(o.main), judged));
  for (const std::string& item : o.items) {
    ASSIGN_OR_RETURN(session->items_[item], session->MakeExecutor(PredictionProgram(o.main, item), {item}));
  }
  if (o.ahead != nullptr) RETURN_IF_ERROR(session->PrepareAhead());
  RETURN_IF_ERROR(CheckFed(o, session->train_.get(), session->lanes_.count));
  for (Executor* executor : {session->train_.get(), session->forward_.get()}) {
    const bool of_prediction = o.predicts && executor == session->forward_.get();
    for (const std::string& name : of_prediction ? predicted : fetch) {
      if (const Variable* var = name.empty() ? nullptr : executor->Find(0, name);
          var != nullptr && std::holds_alternative<Tensor>(*var)) {
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("program ", o.main.name(), ": loss '", session->loss_.name(),
                       "' needs var, prediction and label, each a tensor that ",
                       executor == session->forward_.get() ? "an op of forward" : "an op", " reads or writes; ",
                       name.empty() ? "one of them is not named" : absl::StrCat("'", name, "' is none")));
    }
  }
  return session;
}

absl::StatusOr<std::unique_ptr<Executor>> Session::MakeExecutor(const v1::ProgramDesc& program,
                                                                const std::vector<std::string>& fetch) {
  if (options_.device == nullptr) return Executor::Create(program, &scope_, {.lanes = lanes_.count, .fetch = fetch});
  return CreateDeviceExecutor(program, &scope_,
                              {.lanes = lanes_.count,
                               .fetch = fetch,
                               .cpu_ops = options_.cpu_ops,
                               .precision = options_.precision,
                               .transfers = &device_->transfers,
                               .device_scope = &device_->scope});
}

absl::Status Session::PrepareAhead() {
  const v1::BlockDesc& block = options_.main.blocks(0);
  const auto is_prefetch = [](const v1::OpDesc& op) { return op.type() == "prefetch"; };
  const auto first = std::find_if(block.ops().begin(), block.ops().end(), is_prefetch);
  auto ahead = std::make_unique<Ahead>();
  ahead->begin = static_cast<int>(first - block.ops().begin());
  ahead->end = static_cast<int>(std::find_if_not(first, block.ops().end(), is_prefetch) - block.ops().begin());
  if (ahead->begin == ahead->end) {
    return absl::InvalidArgumentError(
        absl::StrCat("program ", options_.main.name(), " fetches no rows that could be pulled ahead"));
  }
  v1::ProgramDesc program = options_.main;
  v1::BlockDesc* const only = program.mutable_blocks(0);
  only->mutable_ops()->DeleteSubrange(ahead->end, only->ops_size() - ahead->end);
  only->mutable_ops()->DeleteSubrange(0, ahead->begin);
  ASSIGN_OR_RETURN(ahead->executor, Executor::Create(program, &ahead->scope, {.lanes = lanes_.count}));
  std::set<std::string> seen;
  for (const v1::OpDesc& op : only->ops()) {
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& name : slot.vars()) {
        const auto column = std::find_if(options_.columns.begin(), options_.columns.end(),
                                         [&](const Column& c) { return c.name == name; });
        if (column == options_.columns.end()) {
          return absl::InvalidArgumentError(
              absl::StrCat("program ", options_.main.name(), ": prefetch reads '", name,
                           "', which the data does not give; only rows for ids of the data can be "
                           "pulled ahead"));
        }
        if (seen.insert(name).second) ahead->columns.push_back(static_cast<size_t>(column - options_.columns.begin()));
      }
    }
    for (const v1::OpSlot& slot : op.outputs()) {
      std::vector<std::string>& names = slot.name() == "Rows" ? ahead->rows : ahead->places;
      names.insert(names.end(), slot.vars().begin(), slot.vars().end());
    }
  }
  ahead_ = std::move(ahead);
  return absl::OkStatus();
}

absl::Status Session::PullAhead(int64_t step, std::vector<LaneBatch>* batches) {
  CHECK(ahead_ != nullptr);
  CHECK_EQ(static_cast<int>(batches->size()), lanes_.count);
  Ahead& ahead = *ahead_;
  ahead.batch_sizes.resize(batches->size());
  const auto swap_ids = [&] {
    for (int lane = 0; lane < lanes_.count; ++lane) {
      LaneBatch& batch = (*batches)[static_cast<size_t>(lane)];
      ahead.batch_sizes[static_cast<size_t>(lane)] = batch.examples;
      for (const size_t i : ahead.columns)
        std::swap(*ahead.executor->Find(lane, options_.columns[i].name), batch.vars[i]);
    }
  };
  RETURN_IF_ERROR(options_.ahead->BeginStep(step, /*read_only=*/false));
  swap_ids();
  absl::Status pulled = ahead.executor->Run({.step = step,
                                             .seed = options_.main.seed(),
                                             .training = true,
                                             .first_lane = lanes_.begin,
                                             .job_lanes = std::max(1, options_.main.plan().lanes()),
                                             .rows = options_.ahead,
                                             .pool = options_.pool,
                                             .row_memory = options_.device},
                                            ahead.batch_sizes);
  swap_ids();
  return pulled;
}

absl::Status Session::TakeAhead() {
  CHECK(ahead_ != nullptr);
  RETURN_IF_ERROR(options_.ahead->FinishRows());
  for (const std::string& name : ahead_->rows) std::swap(*train_->Find(0, name), *ahead_->executor->Find(0, name));
  for (int lane = 0; lane < lanes_.count; ++lane) {
    for (const std::string& name : ahead_->places)
      std::swap(*train_->Find(lane, name), *ahead_->executor->Find(lane, name));
  }
  ahead_->bytes = ahead_->executor->bytes().total();
  channel_->UseRowsAhead();
  return absl::OkStatus();
}

StepContext Session::Context(int64_t step, bool training) {
  return {.step = step,
          .runs_per_step = int64_t{mode_.accumulate()} * mode_.workers(),
          .seed = options_.main.seed(),
          .training = training,
          .first_lane = lanes_.begin,
          .job_lanes = std::max(1, options_.main.plan().lanes()),
          .rows = channel_,
          .channel = channel_,
          .outcome = &outcome_,
          .pool = options_.pool,
          .row_memory = options_.device,
          .health = &health_,
          .loss_scale = training ? loss_scale_ : 1,
          .precision = options_.device == nullptr ? options_.precision : ProductPrecision::kFp32};
}

absl::Status Session::Start(int64_t step) {
  RETURN_IF_ERROR(channel_->BeginStep(step, /*read_only=*/true));
  const std::vector<int64_t> batch = {0};
  RETURN_IF_ERROR(startup_->Run(Context(step, /*training=*/false), batch));
  if (device_ != nullptr) device_->scope.HostWasWritten();
  return CheckInitialized(options_.main, scope_);
}

absl::Status Session::Feed(Executor* executor, std::vector<LaneBatch>* batches) {
  CHECK_EQ(static_cast<int>(batches->size()), lanes_.count);
  batch_sizes_.resize(batches->size());
  for (int lane = 0; lane < lanes_.count; ++lane) {
    LaneBatch& batch = (*batches)[lane];
    batch_sizes_[lane] = batch.examples;
    for (size_t i = 0; i < options_.columns.size(); ++i) {
      // A program may leave columns of the data unread.
      if (Variable* var = executor->Find(lane, options_.columns[i].name); var != nullptr)
        std::swap(*var, batch.vars[i]);
    }
  }
  return absl::OkStatus();
}

NonFiniteStep Session::StepOfRun(int64_t run) {
  NonFiniteStep step = {.main = &options_.main,
                        .layers = options_.layers,
                        .executor = train_.get(),
                        .scope = &scope_,
                        .context = Context(run, /*training=*/true),
                        .batch = batch_sizes_,
                        .seen = health_.non_finite()};
  for (const Column& column : options_.columns) step.columns.push_back(column.name);
  return step;
}

std::string Session::ExplainNonFinite(int64_t run) {
  NonFiniteStep step = StepOfRun(run);
  std::unique_ptr<DeviceScope> device_scope;
  step.make_executor = [&](const v1::ProgramDesc& program, Scope* scope,
                           const std::vector<std::string>& fetch) -> absl::StatusOr<std::unique_ptr<Executor>> {
    if (options_.device == nullptr) return Executor::Create(program, scope, {.lanes = lanes_.count, .fetch = fetch});
    device_scope = std::make_unique<DeviceScope>(scope);
    return CreateDeviceExecutor(program, scope,
                                {.lanes = lanes_.count,
                                 .fetch = fetch,
                                 .cpu_ops = options_.cpu_ops,
                                 .precision = options_.precision,
                                 .transfers = &device_->transfers,
                                 .device_scope = device_scope.get()});
  };
  absl::StatusOr<std::string> where = WhereNonFinite(step);
  if (where.ok()) return *std::move(where);
  return absl::StrCat("where it came from could not be found: ", std::string(where.status().message()));
}

absl::Status Session::CheckStepsCanTakeEffect(int64_t step, int64_t run) {
  const std::string was = WhatWasNonFinite(StepOfRun(run));
  if (was.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "step ", step, ": ", was,
      ", and no step that reads it can take effect: an earlier step has made it so, or the checkpoint that was loaded; "
      "go on from an earlier checkpoint, with optimizer.clip or a smaller learning rate"));
}

absl::StatusOr<StepResult> Session::Train(int64_t step, int batch, std::vector<LaneBatch>* batches) {
  RETURN_IF_ERROR(Feed(train_.get(), batches));
  health_.Reset();
  outcome_ = StepOutcome();
  RETURN_IF_ERROR(channel_->BeginStep(step, /*read_only=*/false));
  channel_->SetStepSamples(std::accumulate(batch_sizes_.begin(), batch_sizes_.end(), int64_t{0}));
  // Each batch has a number of its own, so that random numbers differ from batch to batch.
  const int64_t run = (step * mode_.accumulate() + batch) * mode_.workers() + options_.worker;
  const absl::Status ran = [&]() -> absl::Status {
    const StepContext context = Context(run, /*training=*/true);
    if (ahead_ == nullptr) return train_->Run(context, batch_sizes_);
    // Skips the ops whose outputs were computed ahead and have been put in place.
    RETURN_IF_ERROR(train_->RunOps(context, batch_sizes_, 0, ahead_->begin));
    return train_->RunOps(context, batch_sizes_, ahead_->end, options_.main.blocks(0).ops_size());
  }();
  if (const std::string bad = health_.non_finite(); !bad.empty() && !(explained_ && ran.ok())) {
    // An error of another kind does not come from that value.
    if (!ran.ok() && !absl::IsFailedPrecondition(ran)) return ran;
    explained_ = true;
    const std::string where = ExplainNonFinite(run);
    if (!ran.ok()) return absl::Status(ran.code(), absl::StrCat(std::string(ran.message()), "; ", where));
    LOG(WARNING) << "step " << step << ": '" << bad << "' is not finite; " << where
                 << "; further steps that are skipped are only counted";
  }
  RETURN_IF_ERROR(ran);
  if (!health_.non_finite().empty()) RETURN_IF_ERROR(CheckStepsCanTakeEffect(step, run));
  const int64_t bytes = train_->bytes().total() + (ahead_ == nullptr ? 0 : ahead_->bytes);
  variable_bytes_.counter->Add(bytes - variable_bytes_.counted);
  variable_bytes_.counted = bytes;
  StepResult result{.outcome = outcome_};
  for (int lane = 0; lane < lanes_.count; ++lane) {
    if (batch_sizes_[lane] == 0) continue;
    result.examples += batch_sizes_[lane];
    const Tensor& loss = std::get<Tensor>(*train_->Find(lane, reported_loss_));
    if (loss.rank() == 0) {
      // The mean over the lane's examples.
      result.loss_sum += static_cast<double>(loss.span<float>()[0]) * static_cast<double>(batch_sizes_[lane]);
      continue;
    }
    for (const float value : loss.span<float>()) result.loss_sum += value;
  }
  return result;
}

absl::Status Session::AddMetrics(Executor& executor, JobMetrics* metrics) {
  const std::vector<v1::LossDesc>& losses = metrics->plan().losses();
  for (int lane = 0; lane < lanes_.count; ++lane) {
    if (batch_sizes_[lane] == 0) continue;
    RETURN_IF_ERROR(metrics->AddMeasures(lanes_.begin + lane, std::get<Tensor>(*executor.Find(lane, reported_loss_)),
                                         std::get<Tensor>(*executor.Find(lane, loss_.prediction())),
                                         std::get<Tensor>(*executor.Find(lane, loss_.label()))));
    for (size_t loss = 0; loss < losses.size(); ++loss) {
      const Variable* const prediction = executor.Find(lane, losses[loss].prediction());
      const Variable* const label = executor.Find(lane, losses[loss].label());
      if (prediction == nullptr || label == nullptr || !std::holds_alternative<Tensor>(*prediction) ||
          !std::holds_alternative<Tensor>(*label)) {
        return absl::InvalidArgumentError(
            absl::StrCat("metrics of loss '", losses[loss].name(), "' need its prediction and label, each a tensor"));
      }
      RETURN_IF_ERROR(metrics->Add(lane, loss, std::get<Tensor>(*prediction), std::get<Tensor>(*label)));
    }
    const std::vector<MetricPlan::Catalogue>& catalogues = metrics->plan().catalogues();
    for (size_t c = 0; c < catalogues.size(); ++c) {
      const Variable* const query = executor.Find(lane, catalogues[c].plan.query);
      if (query == nullptr || !std::holds_alternative<Tensor>(*query)) {
        return absl::InvalidArgumentError(
            absl::StrCat("the query '", catalogues[c].plan.query, "' of a metric is no tensor of the program"));
      }
      RETURN_IF_ERROR(metrics->AddQueries(lane, c, std::get<Tensor>(*query),
                                          std::get<Tensor>(*executor.Find(lane, losses[catalogues[c].loss].label()))));
    }
  }
  return absl::OkStatus();
}

namespace {

// Returns examples that have the ids of n candidates from `first` on, and nothing else.
LaneBatch BatchOfCandidates(const std::vector<Column>& columns, const CataloguePlan& catalogue, int64_t first,
                            int64_t n) {
  LaneBatch batch{.examples = n};
  for (size_t c = 0; c < columns.size(); ++c) {
    const Column& column = columns[c];
    if (column.kind != v1::IDS) {
      // The program reads no floats, but their sizes are those of the batch.
      Tensor floats(v1::FLOAT32, {n, column.width});
      std::fill_n(floats.data<float>(), floats.size(), 0.0f);
      batch.vars.emplace_back(std::move(floats));
      continue;
    }
    IdBatch ids{.slots = column.width};
    ids.offsets.assign(static_cast<size_t>(n * column.width) + 1, 0);
    if (c == catalogue.id.column) {
      for (int64_t i = 0; i < n; ++i) {
        ids.values.push_back(catalogue.id.FromRaw(0, catalogue.first + first + i));
        ids.offsets[static_cast<size_t>(i) + 1] = i + 1;
      }
    }
    batch.vars.emplace_back(std::move(ids));
  }
  return batch;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackedItems>> Session::ComputeItems(int64_t step, const CataloguePlan& catalogue,
                                                                   const std::function<absl::Status()>& keep_waiting) {
  // Candidates of a lane in one run: their rows fit in a message, and cost much more than it.
  constexpr int64_t kBatch = 1024;
  const auto found = items_.find(catalogue.item);
  if (found == items_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the session computes no items '", catalogue.item, "'"));
  }
  Executor* const executor = found->second.get();
  auto items = std::make_unique<PackedItems>(catalogue.items, catalogue.width);
  for (int64_t begin = 0; begin < catalogue.items; begin += lanes_.count * kBatch) {
    if (keep_waiting) RETURN_IF_ERROR(keep_waiting());
    std::vector<LaneBatch> batches;
    const auto first_of = [&](int lane) { return begin + lane * kBatch; };
    for (int lane = 0; lane < lanes_.count; ++lane) {
      const int64_t n = std::clamp<int64_t>(catalogue.items - first_of(lane), 0, kBatch);
      batches.push_back(BatchOfCandidates(options_.columns, catalogue, first_of(lane), n));
    }
    RETURN_IF_ERROR(Feed(executor, &batches));
    health_.Reset();
    RETURN_IF_ERROR(channel_->BeginStep(step, /*read_only=*/true));
    RETURN_IF_ERROR(executor->Run(Context(step, /*training=*/false), batch_sizes_));
    for (int lane = 0; lane < lanes_.count; ++lane) {
      const int64_t n = batch_sizes_[static_cast<size_t>(lane)];
      if (n == 0) continue;
      const Variable* const made = executor->Find(lane, catalogue.item);
      const Tensor* const vectors = made == nullptr ? nullptr : std::get_if<Tensor>(made);
      if (vectors == nullptr || vectors->dtype() != v1::FLOAT32 || vectors->size() != n * catalogue.width) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", catalogue.item, "' is ", vectors == nullptr ? "no tensor" : ShapeString(vectors->dims()),
                         " for ", n, " candidates; expected [", n, ", ", catalogue.width, "]"));
      }
      items->Set(first_of(lane), n, vectors->data<float>());
    }
  }
  // A NaN is below every number: what stands for nothing competes with no item.
  const std::vector<float> nothing(static_cast<size_t>(catalogue.width), std::numeric_limits<float>::quiet_NaN());
  for (const int64_t raw : catalogue.id.padding) {
    const auto candidate = static_cast<uint64_t>(raw) - static_cast<uint64_t>(catalogue.first);
    if (candidate < static_cast<uint64_t>(catalogue.items)) {
      items->Set(static_cast<int64_t>(candidate), 1, nothing.data());
    }
  }
  return items;
}

absl::Status Session::AddTrainMetrics(JobMetrics* metrics) {
  return health_.non_finite().empty() ? AddMetrics(*train_, metrics) : absl::OkStatus();
}

absl::Status Session::NextBatches(LaneReader* reader, std::vector<LaneBatch>* batches,
                                  const std::function<absl::Status()>& keep_waiting) {
  const ProfileSpan span(ProfiledStep::current(), ProfileKind::kData, kBatch);
  absl::Time start = Clock::Real()->Now();
  absl::Time warn = start + options_.slow_warning;
  while (true) {
    absl::Status status = reader->Next(kLook, batches);
    if (!absl::IsDeadlineExceeded(status)) return status;
    if (keep_waiting) RETURN_IF_ERROR(keep_waiting());
    const absl::Time now = Clock::Real()->Now();
    // data.follow limits how long they may take.
    if (reader->AwaitsFiles()) {
      start = now;
      warn = start + options_.slow_warning;
    }
    if (now - start >= options_.progress_deadline) {
      return absl::UnavailableError(absl::StrCat("no data for ", absl::FormatDuration(options_.progress_deadline),
                                                 " (deadlines.progress_deadline_s): ", status.message()));
    }
    if (now >= warn) {
      LOG(WARNING) << "slow: trainer " << options_.trainer_id << " " << status.message();
      warn += options_.slow_warning;
    }
  }
}

absl::Status Session::RunForward(int64_t step, std::vector<LaneBatch>* batches) {
  RETURN_IF_ERROR(Feed(forward_.get(), batches));
  health_.Reset();
  RETURN_IF_ERROR(channel_->BeginStep(step, /*read_only=*/true));
  return forward_->Run(Context(step, /*training=*/false), batch_sizes_);
}

namespace {

bool AllEnded(const std::vector<LaneBatch>& batches) {
  return std::all_of(batches.begin(), batches.end(), [](const LaneBatch& b) { return b.ended; });
}

// Copies a variable into the memory of another. An assigned tensor would share its memory.
void Copy(const Variable& var, Variable* to) {
  const auto* const tensor = std::get_if<Tensor>(&var);
  if (tensor == nullptr) {
    *to = var;
    return;
  }
  if (!std::holds_alternative<Tensor>(*to)) *to = Tensor();
  auto& copy = std::get<Tensor>(*to);
  copy.Resize(tensor->dtype(), tensor->dims());
  copy.CopyFrom(*tensor);
}

}  // namespace

absl::Status Session::Forward(int64_t step, LaneReader* reader, const std::function<absl::Status()>& keep_waiting,
                              const Use& use, const Before& before) {
  std::vector<LaneBatch> batches;
  while (true) {
    if (keep_waiting) RETURN_IF_ERROR(keep_waiting());
    RETURN_IF_ERROR(NextBatches(reader, &batches, keep_waiting));
    if (AllEnded(batches)) return absl::OkStatus();
    if (before != nullptr) RETURN_IF_ERROR(before(batches));
    RETURN_IF_ERROR(RunForward(step, &batches));
    RETURN_IF_ERROR(use(*forward_, batches));
  }
}

absl::Status Session::SetItems(int64_t step, const std::function<absl::Status()>& keep_waiting,
                               absl::Span<JobMetrics* const> metrics) {
  if (metrics.empty()) return absl::OkStatus();
  const std::vector<MetricPlan::Catalogue>& catalogues = metrics[0]->plan().catalogues();
  std::vector<std::shared_ptr<const PackedItems>> computed;
  for (size_t c = 0; c < catalogues.size(); ++c) {
    const auto same = std::find_if(catalogues.begin(), catalogues.begin() + static_cast<std::ptrdiff_t>(c),
                                   [&](const auto& other) { return other.plan.HasItemsOf(catalogues[c].plan); });
    const auto place = static_cast<size_t>(same - catalogues.begin());
    if (place < c) {
      computed.push_back(computed[place]);
    } else {
      ASSIGN_OR_RETURN(computed.emplace_back(), ComputeItems(step, catalogues[c].plan, keep_waiting));
    }
    for (JobMetrics* const each : metrics) each->SetItems(c, computed.back(), options_.pool);
  }
  return absl::OkStatus();
}

absl::Status Session::Evaluate(int64_t step, LaneReader* reader, const std::function<absl::Status()>& keep_waiting,
                               JobMetrics* metrics) {
  RETURN_IF_ERROR(SetItems(step, keep_waiting, {metrics}));
  return Forward(
      step, reader, keep_waiting,
      [&](Executor& executor, const std::vector<LaneBatch>&) { return AddMetrics(executor, metrics); },
      [&](const std::vector<LaneBatch>& batches) { return metrics->TakeKeys(batches); });
}

absl::Status Session::EvaluateEach(int64_t step, LaneReader* reader, const std::function<absl::Status()>& keep_waiting,
                                   const std::vector<Alteration>& alterations) {
  std::vector<JobMetrics*> metrics;
  for (const Alteration& alteration : alterations) metrics.push_back(alteration.metrics);
  RETURN_IF_ERROR(SetItems(step, keep_waiting, metrics));
  std::vector<LaneBatch> batches, altered;
  while (true) {
    RETURN_IF_ERROR(NextBatches(reader, &batches, keep_waiting));
    if (AllEnded(batches)) return absl::OkStatus();
    altered.resize(batches.size());
    for (const Alteration& alteration : alterations) {
      if (keep_waiting) RETURN_IF_ERROR(keep_waiting());
      RETURN_IF_ERROR(alteration.metrics->TakeKeys(batches));
      options_.pool->ParallelFor(static_cast<int64_t>(batches.size()), [&](int64_t lane) {
        const LaneBatch& batch = batches[static_cast<size_t>(lane)];
        LaneBatch& copy = altered[static_cast<size_t>(lane)];
        copy.examples = batch.examples;
        copy.vars.resize(batch.vars.size());
        for (size_t i = 0; i < batch.vars.size(); ++i) Copy(batch.vars[i], &copy.vars[i]);
        if (alteration.alter != nullptr && batch.examples > 0) alteration.alter(batch, &copy.vars);
      });
      RETURN_IF_ERROR(RunForward(step, &altered));
      RETURN_IF_ERROR(AddMetrics(*forward_, alteration.metrics));
    }
  }
}

}  // namespace weir
