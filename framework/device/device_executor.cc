#include "framework/device/device_executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/device/device_op.h"
#include "framework/device/device_values.h"
#include "framework/device/device_variables.h"
#include "framework/device/rounded_factors.h"
#include "framework/graph/op_registry.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/block_variables.h"
#include "framework/runtime/first_error.h"
#include "framework/runtime/gates.h"
#include "framework/runtime/op_mode.h"
#include "framework/runtime/prepared_block.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Begins the operator's span on the device: an event before and one behind it. A recorded operator is never part of a
// graph.
absl::Status BeginSpan(const v1::OpDesc& op, DeviceSpans* spans) {
  if (!spans->recording()) return absl::OkStatus();
  std::string made;
  for (const v1::OpSlot& slot : op.outputs()) {
    if (made.empty() && slot.vars_size() > 0) made = slot.vars(0);
  }
  return spans->Begin(DeviceQueue::kCompute, op.type(), made);
}

// Passes the spans that the device has finished to the profiler; all spans if `wait`.
absl::Status RecordSpans(DeviceTransfers* transfers, bool wait) {
  ASSIGN_OR_RETURN(const std::vector<DeviceSpans::Span> spans, transfers->spans().Take(wait));
  Profiler& profiler = Profiler::Process();
  for (const DeviceSpans::Span& span : spans) {
    profiler.Record(
        {.kind = ProfileKind::kOperator,
         .name = ProfileName(span.name),
         .detail = ProfileName(span.detail),
         .track = profiler.Track(absl::StrCat(transfers->runtime()->info().name, ": ", DeviceQueueName(span.queue))),
         .begin_ns = span.begin_ns,
         .end_ns = span.end_ns,
         .step = span.step,
         .bytes_out = span.queue == DeviceQueue::kCopyOut ? span.bytes : -1,
         .bytes_in = span.queue == DeviceQueue::kCopyIn ? span.bytes : -1});
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const v1::ProgramDesc& program, const DeviceExecutorOptions& options) {
  RETURN_IF_ERROR(CheckBlock(program, options.block));
  if (options.lanes < 1 || options.lanes > kMostDeviceLanes) {
    return absl::InvalidArgumentError(absl::StrCat("a trainer with device: CUDA has at most ", kMostDeviceLanes,
                                                   " lanes, got ", options.lanes,
                                                   "; train.lanes must be smaller, or 0"));
  }
  for (const std::string& type : options.cpu_ops) {
    if (const absl::Status known = OpRegistry::Global().Get(type).status(); !known.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("train.cpu_ops: ", known.message()));
    }
  }
  const std::vector<std::string> missing = OpsWithoutDeviceKernel(program, options.block, options.cpu_ops);
  if (missing.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("program ", program.name(),
                                          " has operators without a CUDA kernel: ", absl::StrJoin(missing, ", "),
                                          "; train.cpu_ops with their names runs them on the CPU, at the price "
                                          "of copies (a trainer's log lists them)"));
}

class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(std::unique_ptr<PreparedBlock> block, Scope* scope, DeviceExecutorOptions options)
      : options_(std::move(options)),
        transfers_(options_.transfers),
        block_(std::move(block)),
        host_vars_(block_.get(), scope, options_.lanes),
        vars_(block_.get(), &host_vars_, options_.device_scope),
        values_(transfers_, &rounded_),
        batch_(static_cast<size_t>(options_.lanes), 0),
        gates_([this](int op) { return FinishGate(ops_[static_cast<size_t>(op)]); }, &first_error_) {}
  ~DeviceExecutor() override {
    // Copies still read what goes away now.
    (void)transfers_->runtime()->WaitForAll();
    (void)RecordSpans(transfers_, /*wait=*/true);
  }

  absl::Status Prepare();
  Variable* Find(int lane, std::string_view name) override { return host_vars_.Find(lane, name); }
  absl::Status Run(const StepContext& ctx, absl::Span<const int64_t> batch) override {
    return RunOps(ctx, batch, 0, static_cast<int>(ops_.size()));
  }
  absl::Status RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) override;
  VariableBytes bytes() const override { return vars_.bytes(); }

 private:
  DeviceKernelContext EmptyContext();
  absl::Status PrepareOp(int index, const DeviceKernelContext& like);

  absl::Status BeginRun(const StepContext& ctx, absl::Span<const int64_t> batch, int begin);
  absl::Status RunOp(DeviceOp& op);
  absl::Status RunOnDevice(DeviceOp& op);
  absl::Status RunOnHost(DeviceOp& op);
  absl::Status RunHostLanes(DeviceOp& op);
  absl::Status FinishGate(DeviceOp& op);
  absl::Status FinishRun(bool to_the_end);

  const DeviceExecutorOptions options_;
  DeviceTransfers* const transfers_;
  const std::unique_ptr<PreparedBlock> block_;
  BlockVariables host_vars_;
  DeviceVariables vars_;
  std::vector<DeviceVariable*> fed_;
  std::vector<DeviceVariable*> fetched_;
  std::vector<DeviceOp> ops_;
  RoundedFactors rounded_;
  DeviceValues values_;

  // State of the present run.
  StepContext ctx_;
  std::vector<int64_t> batch_;
  int64_t profiled_step_ = -1;
  FirstError first_error_;
  Gates gates_;
};

// --------------------------------------------------------------------------------------------------------- preparation

DeviceKernelContext DeviceExecutor::EmptyContext() {
  DeviceKernelContext context;
  context.step = &ctx_;
  context.lanes = options_.lanes;
  context.lane_batch = batch_.data();
  context.transfers = transfers_;
  context.precision = options_.precision;
  context.rounded = &rounded_;
  return context;
}

absl::Status DeviceExecutor::PrepareOp(int index, const DeviceKernelContext& like) {
  ASSIGN_OR_RETURN(const BlockOp op, block_->AddOp(index));
  ASSIGN_OR_RETURN(DeviceOp made, MakeDeviceOp(*block_, op, options_.cpu_ops, like, &vars_, &host_vars_));
  ops_.push_back(std::move(made));
  return absl::OkStatus();
}

absl::Status DeviceExecutor::Prepare() {
  const DeviceKernelContext like = EmptyContext();
  for (int i = 0; i < block_->ops_size(); ++i) {
    const absl::Status status = PrepareOp(i, like);
    if (!status.ok()) return AnnotateOp(status, i, block_->op(i));
  }
  fed_ = FedVariables(ops_);
  MarkOneWriter(ops_);
  AllowSharing(&ops_);
  for (const std::string& name : options_.fetch) {
    const v1::VarDesc* desc = name.empty() ? nullptr : block_->Describe(name);
    if (desc == nullptr || desc->persistable()) continue;
    if (DeviceVariable* const var = vars_.Find(name); var != nullptr) fetched_.push_back(var);
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------------------------------- runs

absl::Status DeviceExecutor::RunOnDevice(DeviceOp& op) {
  RETURN_IF_ERROR(values_.ToHost(op.reads_on_host));
  for (DeviceVariable* var : op.reads) RETURN_IF_ERROR(values_.ToDevice(var));
  RETURN_IF_ERROR(values_.BeforeWriting(op.writes));
  RETURN_IF_ERROR(transfers_->BeforeCompute());
  transfers_->AfterCompute();
  RETURN_IF_ERROR(BeginSpan(*op.desc, &transfers_->spans()));
  RETURN_IF_ERROR(op.device->Run(op.context));
  RETURN_IF_ERROR(transfers_->spans().End(DeviceQueue::kCompute));
  for (DeviceVariable* var : op.writes) {
    values_.WrittenOnDevice(var);
    if (!var->device.initialized() || var->device.lanes() == static_cast<int>(var->host.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", var->name, "' is ", var->shared ? "one for all lanes" : "of each lane",
                     ", and is made from what is ", var->shared ? "of each lane" : "one for all", "; train.cpu_ops: \"",
                     op.desc->type(), "\" or train.lanes: 0 runs it"));
  }
  for (DeviceVariable* var : op.writes_on_host) DeviceValues::WrittenOnHost(var);
  if (op.mode != OpMode::kGate) return absl::OkStatus();
  // Copies to the host may read the inputs in place.
  values_.CopiedByKernel(op.reads);
  gates_.Start(op.index, ctx_.pool);
  return absl::OkStatus();
}

absl::Status DeviceExecutor::FinishGate(DeviceOp& op) {
  const ProfiledStep step(profiled_step_);
  const ProfileSpan span(profiled_step_, ProfileKind::kExchange, op.desc->type());
  const absl::Status status = op.device->Finish(op.context);
  return status.ok() ? status : AnnotateOp(status, op.index, *op.desc);
}

absl::Status DeviceExecutor::RunHostLanes(DeviceOp& op) {
  if (op.mode != OpMode::kLane || ctx_.pool == nullptr || op.host_contexts.size() == 1) {
    for (KernelContext& context : op.host_contexts) RETURN_IF_ERROR(op.host->Run(context));
    return absl::OkStatus();
  }
  std::vector<absl::Status> each(op.host_contexts.size());
  ctx_.pool->ParallelFor(static_cast<int64_t>(each.size()), [&](int64_t lane) {
    each[static_cast<size_t>(lane)] = op.host->Run(op.host_contexts[static_cast<size_t>(lane)]);
  });
  for (const absl::Status& status : each) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::Status DeviceExecutor::RunOnHost(DeviceOp& op) {
  RETURN_IF_ERROR(values_.ToHost(op.reads_on_host));
  const ProfileSpan span(profiled_step_, op.mode == OpMode::kLane ? ProfileKind::kOperator : ProfileKind::kExchange,
                         op.desc->type());
  absl::Status status = RunHostLanes(op);
  for (DeviceVariable* var : op.writes) DeviceValues::WrittenOnHost(var);
  return status;
}

absl::Status DeviceExecutor::RunOp(DeviceOp& op) {
  if (op.mode == OpMode::kStep) gates_.Wait(ctx_.pool);
  if (first_error_.failed()) return absl::OkStatus();  // the gate's error is reported
  op.ran = true;
  return op.on_host() ? RunOnHost(op) : RunOnDevice(op);
}

absl::Status DeviceExecutor::BeginRun(const StepContext& ctx, absl::Span<const int64_t> batch, int begin) {
  CHECK_EQ(batch.size(), batch_.size());
  std::copy(batch.begin(), batch.end(), batch_.begin());
  ctx_ = ctx;
  values_.SetPinnedRows(ctx.row_memory != nullptr);
  first_error_.Reset();
  for (DeviceOp& op : ops_) {
    for (size_t lane = 0; lane < op.host_contexts.size(); ++lane)
      op.host_contexts[lane].lane = ctx.first_lane + static_cast<int>(lane);
    if (begin == 0) op.ran = false;
  }
  if (begin == 0) {
    rounded_.BeginRun();
    for (DeviceVariable* var : fed_) DeviceValues::WrittenOnHost(var);
    // Views left from the last run would keep the memory of others in use, and all of it would be allocated anew.
    for (const DeviceOp& op : ops_) {
      if (op.on_host() || op.mode != OpMode::kLane) continue;
      if (op.desc->role() != v1::DIST && !op.context.may_share) continue;
      for (DeviceVariable* var : op.writes) var->device.Clear();
    }
  }
  // Values that ops before `begin` write were put there by the caller, unless the ops have run.
  for (int i = 0; i < begin; ++i) {
    const DeviceOp& op = ops_[static_cast<size_t>(i)];
    if (op.ran || !op.on_host()) continue;
    for (DeviceVariable* var : op.writes) DeviceValues::WrittenOnHost(var);
  }
  profiled_step_ = ProfiledStep::current();
  return transfers_->spans().Record(profiled_step_);
}

absl::Status DeviceExecutor::RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) {
  RETURN_IF_ERROR(BeginRun(ctx, batch, begin));
  absl::Status status = transfers_->runtime()->PutOffCalls(options_.graphs);
  for (int i = begin; i < end && status.ok() && !first_error_.failed(); ++i) {
    DeviceOp& op = ops_[static_cast<size_t>(i)];
    status = RunOp(op);
    if (!status.ok()) status = AnnotateOp(status, i, *op.desc);
  }
  if (absl::Status put = transfers_->runtime()->PutOffCalls(false); status.ok()) status = std::move(put);
  // Gates that have not begun do not run after an error.
  first_error_.Add(status);
  gates_.Wait(ctx_.pool);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(first_error_.status());
  return FinishRun(end == static_cast<int>(ops_.size()));
}

absl::Status DeviceExecutor::FinishRun(bool to_the_end) {
  if (to_the_end) RETURN_IF_ERROR(values_.ToHost(fetched_));
  RETURN_IF_ERROR(RecordSpans(transfers_, /*wait=*/false));
  return values_.EndRun();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> CreateDeviceExecutor(const v1::ProgramDesc& program, Scope* scope,
                                                               DeviceExecutorOptions options) {
  RETURN_IF_ERROR(CheckOptions(program, options));
  ASSIGN_OR_RETURN(std::unique_ptr<PreparedBlock> block, PreparedBlock::Create(program, options.block, options.fetch));
  auto executor = std::make_unique<DeviceExecutor>(std::move(block), scope, std::move(options));
  RETURN_IF_ERROR(executor->Prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace weir
