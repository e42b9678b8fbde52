#include "framework/runtime/device_executor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/shared_buffers.h"
#include "framework/runtime/op_mode.h"
#include "framework/runtime/profiler.h"
#include "framework/runtime/rounded_factors.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr std::string_view kParameters = "parameters", kLaneVariables = "variables of lanes",
                           kStepVariables = "rows of the step";

struct PreparedOp {
  int index = 0;
  const v1::OpDesc* desc = nullptr;
  const OpDef* def = nullptr;
  OpMode mode = OpMode::kLane;
  // One of the two.
  std::unique_ptr<OpDeviceKernel> device;
  std::unique_ptr<OpKernel> host;
  DeviceKernelContext context;
  // Of host ops: one per lane, or one that sees all lanes.
  std::vector<KernelContext> host_contexts;
  std::vector<DeviceVariable*> reads, reads_on_host, writes, writes_on_host;
  // In the present run.
  bool ran = false;
};

class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(const v1::ProgramDesc& program, Scope* scope, DeviceExecutorOptions options)
      : program_(program),
        scope_(scope),
        options_(std::move(options)),
        transfers_(options_.transfers),
        batch_(static_cast<size_t>(options_.lanes), 0),
        lane_vars_(static_cast<size_t>(options_.lanes)) {}
  ~DeviceExecutor() override {
    // Copies still read what goes away now.
    (void)transfers_->runtime()->WaitForAll();
    (void)TakeSpans(/*wait=*/true);
  }

  absl::Status Prepare();
  Variable* Find(int lane, std::string_view name) override;
  absl::Status Run(const StepContext& ctx, absl::Span<const int64_t> batch) override {
    return RunOps(ctx, batch, 0, static_cast<int>(ops_.size()));
  }
  absl::Status RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) override;
  VariableBytes bytes() const override;

 private:
  using VarMap = std::map<std::string, Variable, std::less<>>;

  const v1::VarDesc* Describe(std::string_view name) const;
  bool IsShared(std::string_view name) const;
  std::string Storage(std::string_view name) const;
  absl::StatusOr<DeviceVariable*> Locate(const std::string& name);
  absl::Status FillSlots(const std::vector<SlotDef>& defs, const google::protobuf::RepeatedPtrField<v1::OpSlot>& given,
                         std::vector<DeviceKernelContext::Slot>* slots);
  absl::Status PrepareOp(int index);
  KernelContext HostContext(const PreparedOp& op, int first, int count);

  absl::Status RunOp(PreparedOp& op);
  absl::Status RunOnDevice(PreparedOp& op);
  absl::Status RunOnHost(PreparedOp& op);
  void Fire(PreparedOp& op);
  void WaitForGates();
  absl::Status BringHost(absl::Span<DeviceVariable* const> vars);
  absl::Status StartToHost(DeviceVariable* var);
  absl::Status FinishToHost(DeviceVariable* var);
  absl::Status ToDevice(DeviceVariable* var);
  void Written(DeviceVariable* var, bool on_device);
  absl::Status FinishRun(bool to_the_end);
  absl::Status BeginSpan(const PreparedOp& op);
  absl::Status TakeSpans(bool wait);

  const v1::ProgramDesc program_;
  Scope* const scope_;
  const DeviceExecutorOptions options_;
  DeviceTransfers* const transfers_;
  std::map<std::string, const v1::VarDesc*, std::less<>> descs_;
  std::set<std::string, std::less<>> step_names_;
  std::map<std::string, std::string, std::less<>> shared_;  // storage by variable
  // On the host.
  VarMap step_vars_;
  std::vector<int64_t> batch_;
  std::vector<VarMap> lane_vars_;
  // By storage; those of the scope are the DeviceScope's.
  std::map<std::string, std::unique_ptr<DeviceVariable>, std::less<>> vars_;
  std::vector<DeviceVariable*> persistable_;
  std::vector<DeviceVariable*> fed_;
  std::vector<DeviceVariable*> fetched_;
  std::vector<DeviceVariable*> leaving_;
  std::vector<PreparedOp> ops_;
  RoundedFactors rounded_;

  // Of the present run.
  StepContext ctx_;
  int64_t profiled_step_ = -1;
  std::atomic<bool> failed_{false};
  Mutex mu_;
  CondVar gate_done_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  int gates_running_ ABSL_GUARDED_BY(mu_) = 0;
};

const v1::VarDesc* DeviceExecutor::Describe(std::string_view name) const {
  const auto it = descs_.find(name);
  return it == descs_.end() ? nullptr : it->second;
}

bool DeviceExecutor::IsShared(std::string_view name) const {
  const v1::VarDesc* desc = Describe(name);
  return (desc != nullptr && desc->persistable()) || step_names_.contains(name);
}

std::string DeviceExecutor::Storage(std::string_view name) const {
  const auto shared = shared_.find(name);
  return shared == shared_.end() ? std::string(name) : shared->second;
}

void SetKind(v1::VarKind kind, Variable* var) {
  if (kind == v1::SELECTED_ROWS) *var = SelectedRows();
  if (kind == v1::IDS) *var = IdBatch();
}

absl::StatusOr<DeviceVariable*> DeviceExecutor::Locate(const std::string& name) {
  const v1::VarDesc* desc = Describe(name);
  if (desc == nullptr) return absl::NotFoundError(absl::StrCat("variable '", name, "' is not declared"));
  if (desc->persistable()) {
    DeviceVariable* const var = options_.device_scope->FindOrCreate(*desc);
    if (std::find(persistable_.begin(), persistable_.end(), var) == persistable_.end()) persistable_.push_back(var);
    return var;
  }
  const std::string storage = Storage(name);
  const auto [it, fresh] = vars_.try_emplace(storage);
  if (!fresh) return it->second.get();
  const bool shared = step_names_.contains(name);
  it->second = std::make_unique<DeviceVariable>(DeviceVariable{.name = storage,
                                                               .kind = desc->kind(),
                                                               .owner = shared ? kStepVariables : kLaneVariables,
                                                               .shared = shared,
                                                               .width = desc->dims_size() == 2 ? desc->dims(1) : 0});
  for (int lane = 0; lane < (shared ? 1 : options_.lanes); ++lane) {
    Variable* const var = &(shared ? step_vars_ : lane_vars_[static_cast<size_t>(lane)])[storage];
    SetKind(desc->kind(), var);
    it->second->host.push_back(var);
  }
  return it->second.get();
}

absl::Status DeviceExecutor::FillSlots(const std::vector<SlotDef>& defs,
                                       const google::protobuf::RepeatedPtrField<v1::OpSlot>& given,
                                       std::vector<DeviceKernelContext::Slot>* slots) {
  slots->resize(defs.size());
  for (const v1::OpSlot& slot : given) {
    size_t i = 0;
    while (i < defs.size() && defs[i].name != slot.name()) ++i;
    if (i == defs.size()) return absl::NotFoundError(absl::StrCat("there is no slot '", slot.name(), "'"));
    for (const std::string& name : slot.vars()) {
      ASSIGN_OR_RETURN(DeviceVariable * var, Locate(name));
      (*slots)[i].vars.push_back(var);
    }
  }
  return absl::OkStatus();
}

// The context in which a CPU kernel sees lanes [first, first + count).
KernelContext DeviceExecutor::HostContext(const PreparedOp& op, int first, int count) {
  KernelContext ctx;
  const auto fill = [](const std::vector<DeviceKernelContext::Slot>& from, int lane,
                       std::vector<KernelContext::Slot>* to) {
    for (const DeviceKernelContext::Slot& slot : from) {
      to->emplace_back();
      for (DeviceVariable* var : slot.vars)
        to->back().vars.push_back(var->host[var->shared ? 0 : static_cast<size_t>(lane)]);
    }
  };
  for (int lane = first; lane < first + count; ++lane) {
    fill(op.context.inputs, lane, &ctx.inputs.emplace_back());
    fill(op.context.outputs, lane, &ctx.outputs.emplace_back());
  }
  ctx.step = &ctx_;
  ctx.lane_batch = batch_.data() + first;
  return ctx;
}

absl::Status DeviceExecutor::PrepareOp(int index) {
  PreparedOp& op = ops_[static_cast<size_t>(index)];
  op.index = index;
  op.desc = &program_.blocks(options_.block).ops(index);
  ASSIGN_OR_RETURN(op.def, OpRegistry::Global().Get(op.desc->type()));
  op.mode = OpModeOf(*op.desc, *op.def, [this](std::string_view name) { return IsShared(name); });
  if (op.mode == OpMode::kStep) {
    for (const v1::OpSlot& slot : op.desc->outputs()) {
      const int i = op.def->OutputIndex(slot.name());
      if (i >= 0 && op.def->outputs[static_cast<size_t>(i)].per_lane) continue;
      for (const std::string& name : slot.vars()) {
        const v1::VarDesc* desc = Describe(name);
        if (desc == nullptr || !desc->persistable()) step_names_.insert(name);
      }
    }
  }
  RETURN_IF_ERROR(FillSlots(op.def->inputs, op.desc->inputs(), &op.context.inputs));
  RETURN_IF_ERROR(FillSlots(op.def->outputs, op.desc->outputs(), &op.context.outputs));
  for (const DeviceKernelContext::Slot& slot : op.context.outputs)
    op.writes.insert(op.writes.end(), slot.vars.begin(), slot.vars.end());
  const KernelInit init = {
      .op = *op.desc, .def = *op.def, .attrs = AttrReader(*op.desc, *op.def), .vars = [this](std::string_view name) {
        return Describe(name);
      }};
  if (RunsOnHost(op.desc->type(), options_.cpu_ops)) {
    const KernelFactory* factory = KernelRegistry::Global().Find(op.desc->type(), Device::kCpu);
    if (factory == nullptr) return absl::NotFoundError("no kernel for CPU");
    ASSIGN_OR_RETURN(op.host, (*factory)(init));
    for (const DeviceKernelContext::Slot& slot : op.context.inputs) {
      op.reads_on_host.insert(op.reads_on_host.end(), slot.vars.begin(), slot.vars.end());
    }
    const bool per_lane = op.mode == OpMode::kLane || op.mode == OpMode::kLanesInOrder;
    for (int lane = 0; per_lane && lane < options_.lanes; ++lane) op.host_contexts.push_back(HostContext(op, lane, 1));
    if (!per_lane) op.host_contexts.push_back(HostContext(op, 0, options_.lanes));
    return absl::OkStatus();
  }
  const DeviceKernelRegistry::Entry& entry = *DeviceKernelRegistry::Global().Find(op.desc->type());
  if (op.mode == OpMode::kLanesInOrder) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it writes a value that all lanes share, lane after lane, which a device does not do; train.cpu_ops: \"",
        op.desc->type(), "\" runs it on the CPU"));
  }
  ASSIGN_OR_RETURN(op.device, entry.factory(init));
  for (size_t s = 0; s < op.context.inputs.size(); ++s) {
    const std::vector<DeviceVariable*>& vars = op.context.inputs[s].vars;
    const bool on_host =
        std::find(entry.host_slots.begin(), entry.host_slots.end(), op.def->inputs[s].name) != entry.host_slots.end();
    std::vector<DeviceVariable*>& reads = on_host ? op.reads_on_host : op.reads;
    reads.insert(reads.end(), vars.begin(), vars.end());
  }
  for (size_t s = 0; s < op.context.outputs.size(); ++s) {
    if (std::find(entry.host_slots.begin(), entry.host_slots.end(), op.def->outputs[s].name) == entry.host_slots.end())
      continue;
    const std::vector<DeviceVariable*>& vars = op.context.outputs[s].vars;
    op.writes_on_host.insert(op.writes_on_host.end(), vars.begin(), vars.end());
  }
  op.context.step = &ctx_;
  op.context.lanes = options_.lanes;
  op.context.lane_batch = batch_.data();
  op.context.transfers = transfers_;
  op.context.precision = options_.precision;
  op.context.rounded = &rounded_;
  return absl::OkStatus();
}

absl::Status DeviceExecutor::Prepare() {
  if (options_.block < 0 || options_.block >= program_.blocks_size()) {
    return absl::InvalidArgumentError(absl::StrCat("program '", program_.name(), "' has ", program_.blocks_size(),
                                                   " blocks; there is no block ", options_.block));
  }
  if (options_.lanes < 1 || options_.lanes > kMostDeviceLanes) {
    return absl::InvalidArgumentError(absl::StrCat("a trainer with device: CUDA has at most ", kMostDeviceLanes,
                                                   " lanes, got ", options_.lanes,
                                                   "; train.lanes must be smaller, or 0"));
  }
  for (const std::string& type : options_.cpu_ops) {
    if (const absl::Status known = OpRegistry::Global().Get(type).status(); !known.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("train.cpu_ops: ", known.message()));
    }
  }
  if (const std::vector<std::string> missing = OpsWithoutDeviceKernel(program_, options_.block, options_.cpu_ops);
      !missing.empty()) {
    return absl::NotFoundError(absl::StrCat("program ", program_.name(),
                                            " has operators without a CUDA kernel: ", absl::StrJoin(missing, ", "),
                                            "; train.cpu_ops with their names runs them on the CPU, at the price "
                                            "of copies (a trainer's log lists them)"));
  }
  std::vector<int> chain;
  for (int b = options_.block;
       b >= 0 && b < program_.blocks_size() && chain.size() <= static_cast<size_t>(program_.blocks_size());
       b = program_.blocks(b).parent()) {
    chain.push_back(b);
  }
  for (auto b = chain.rbegin(); b != chain.rend(); ++b) {
    for (const v1::VarDesc& var : program_.blocks(*b).vars()) descs_[var.name()] = &var;
  }
  ASSIGN_OR_RETURN(const SharedBuffers buffers, ReadSharedBuffers(program_, options_.block));
  for (const auto& [name, buffer] : buffers) {
    const bool fetched = std::find(options_.fetch.begin(), options_.fetch.end(), name) != options_.fetch.end();
    if (!fetched) shared_[name] = absl::StrCat("buffer ", buffer);
  }
  ops_.resize(static_cast<size_t>(program_.blocks(options_.block).ops_size()));
  // Of the op's variables that no op has written by then, those that do not last are fed.
  std::set<const DeviceVariable*> known;
  for (int i = 0; i < static_cast<int>(ops_.size()); ++i) {
    const absl::Status status = PrepareOp(i);
    if (!status.ok()) return AnnotateOp(status, i, program_.blocks(options_.block).ops(i));
    const PreparedOp& op = ops_[static_cast<size_t>(i)];
    for (const std::vector<DeviceVariable*>* reads : {&op.reads, &op.reads_on_host}) {
      for (DeviceVariable* var : *reads) {
        const bool lasts = std::find(persistable_.begin(), persistable_.end(), var) != persistable_.end();
        if (known.insert(var).second && !lasts) fed_.push_back(var);
      }
    }
    known.insert(op.writes.begin(), op.writes.end());
  }
  std::map<DeviceVariable*, int> writers;
  for (const PreparedOp& op : ops_) {
    for (DeviceVariable* var : op.writes) ++writers[var];
  }
  for (const PreparedOp& op : ops_) {
    for (DeviceVariable* var : op.writes) {
      const bool reads = std::find(op.reads_on_host.begin(), op.reads_on_host.end(), var) != op.reads_on_host.end();
      var->one_writer = op.host != nullptr && !var->lasts && !reads && writers[var] == 1;
    }
  }
  // A value that is written where it is read belongs to one variable alone.
  std::set<const DeviceVariable*> in_place;
  for (const PreparedOp& op : ops_) {
    for (const DeviceVariable* var : op.writes) {
      if (std::find(op.reads.begin(), op.reads.end(), var) != op.reads.end()) in_place.insert(var);
    }
  }
  const auto alone = [&](const DeviceVariable* var) { return in_place.contains(var); };
  for (PreparedOp& op : ops_) {
    const std::string& type = op.desc->type();
    op.context.may_share = (type == "reshape" || type == "reshape_grad") && op.host == nullptr &&
                           std::none_of(op.reads.begin(), op.reads.end(), alone) &&
                           std::none_of(op.writes.begin(), op.writes.end(), alone);
  }
  for (const std::string& name : options_.fetch) {
    const v1::VarDesc* desc = name.empty() ? nullptr : Describe(name);
    if (desc == nullptr || desc->persistable()) continue;
    if (const auto it = vars_.find(Storage(name)); it != vars_.end()) fetched_.push_back(it->second.get());
  }
  return absl::OkStatus();
}

Variable* DeviceExecutor::Find(int lane, std::string_view name) {
  CHECK(lane >= 0 && lane < options_.lanes) << lane;
  if (const v1::VarDesc* desc = Describe(name); desc != nullptr && desc->persistable()) return scope_->Find(name);
  VarMap& vars = step_names_.contains(name) ? step_vars_ : lane_vars_[static_cast<size_t>(lane)];
  const auto it = vars.find(Storage(name));
  return it == vars.end() ? nullptr : &it->second;
}

VariableBytes DeviceExecutor::bytes() const {
  VariableBytes sum;
  for (const auto& [name, var] : vars_)
    (var->shared ? sum.step : sum.lanes) += static_cast<int64_t>(var->device.bytes());
  for (const DeviceVariable* var : persistable_) sum.persistable += static_cast<int64_t>(var->device.bytes());
  return sum;
}

// ----------------------------------------------------------------------------------------------------------------
// copies

// The tensor that a variable's device memory holds, of one lane; null when there is none (ids).
Tensor* ValuesOf(Variable* var) {
  if (SelectedRows* rows = std::get_if<SelectedRows>(var)) return &rows->values;
  return std::get_if<Tensor>(var);
}

absl::Status DeviceExecutor::ToDevice(DeviceVariable* var) {
  if (var->on_device) return absl::OkStatus();
  CHECK(var->on_host) << var->name;
  var->on_device = true;
  const size_t lanes = var->host.size();
  std::vector<int64_t> rows(lanes, 0);
  std::vector<DeviceTransfers::Piece> pieces(lanes);
  Shape row_dims;
  int rank = -1;
  DType dtype = v1::FLOAT32;
  for (size_t l = 0; l < lanes; ++l) {
    const Tensor* tensor = ValuesOf(var->host[l]);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("'", var->name, "' holds ids where a dense value is read"));
    }
    if (!tensor->initialized()) continue;
    const absl::Span<const int64_t> dims = tensor->dims();
    const absl::Span<const int64_t> row = dims.empty() ? dims : dims.subspan(1);
    if (rank >= 0 && (tensor->rank() != rank || row != absl::MakeConstSpan(row_dims) || tensor->dtype() != dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", var->name, "' is ", ShapeString(dims), " in lane ", l, ", unlike in a lane before it"));
    }
    rank = tensor->rank();
    dtype = tensor->dtype();
    row_dims.assign(row.begin(), row.end());
    rows[l] = dims.empty() ? 1 : dims[0];
    pieces[l] = {.data = tensor->raw(), .bytes = tensor->bytes()};
    if (var->one_writer && ctx_.row_memory != nullptr) pieces[l].pinned = tensor->pinned();
  }
  if (rank < 0 && var->kind == v1::SELECTED_ROWS) {
    rank = 2;
    row_dims = {var->width};
  }
  if (rank < 0) {
    var->device.Clear();
    return absl::OkStatus();
  }
  if (rank == 0 && std::find(rows.begin(), rows.end(), 0) != rows.end()) {
    return absl::InvalidArgumentError(absl::StrCat("'", var->name, "' is a scalar in some lanes and absent in others"));
  }
  const bool any = std::any_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.bytes > 0; });
  if (any && !var->lasts) {
    ASSIGN_OR_RETURN(std::shared_ptr<DeviceBlock> block,
                     transfers_->Land(&var->landing, pieces, var->owner, var->name));
    var->device.Take(std::move(block), dtype, rank, rows, row_dims);
    rounded_.Forget(var->device.raw());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(var->device.Resize(transfers_->memory(), var->owner, dtype, rank, rows, row_dims));
  rounded_.Forget(var->device.raw());
  return transfers_->In(var->device.raw(), pieces, var->name);
}

absl::Status DeviceExecutor::StartToHost(DeviceVariable* var) {
  if (var->on_host || var->arrival != nullptr || !var->device.initialized()) return absl::OkStatus();
  const DeviceTensor& t = var->device;
  std::vector<DeviceTransfers::Piece> pieces;
  if (t.packed()) {
    pieces.push_back({.data = t.raw(), .bytes = static_cast<size_t>(t.size()) * DTypeSize(t.dtype())});
  } else {
    for (int l = 0; l < t.lanes(); ++l) {
      pieces.push_back({.data = t.raw(l), .bytes = static_cast<size_t>(t.size(l)) * DTypeSize(t.dtype())});
    }
  }
  ASSIGN_OR_RETURN(var->arrival, transfers_->Out(pieces, var->name));
  var->leaving = true;
  leaving_.push_back(var);
  return absl::OkStatus();
}

absl::Status DeviceExecutor::FinishToHost(DeviceVariable* var) {
  if (var->on_host) return absl::OkStatus();
  const DeviceTensor& t = var->device;
  const char* from = nullptr;
  if (var->arrival != nullptr) {
    ASSIGN_OR_RETURN(const void* const arrived, var->arrival->Wait());
    from = static_cast<const char*>(arrived);
  }
  for (size_t l = 0; l < var->host.size(); ++l) {
    if (var->kind != v1::SELECTED_ROWS && !std::holds_alternative<Tensor>(*var->host[l])) *var->host[l] = Tensor();
    Tensor* const tensor = ValuesOf(var->host[l]);
    CHECK(tensor != nullptr) << var->name;
    if (!t.initialized()) {
      tensor->Clear();
      continue;
    }
    const int lane = static_cast<int>(l);
    tensor->Resize(t.dtype(), t.dims(lane));
    if (tensor->bytes() > 0) std::memcpy(tensor->raw(), from, tensor->bytes());
    from += tensor->bytes();
  }
  var->arrival.reset();
  var->on_host = true;
  return absl::OkStatus();
}

absl::Status DeviceExecutor::BringHost(absl::Span<DeviceVariable* const> vars) {
  for (DeviceVariable* var : vars) RETURN_IF_ERROR(StartToHost(var));
  for (DeviceVariable* var : vars) RETURN_IF_ERROR(FinishToHost(var));
  return absl::OkStatus();
}

void DeviceExecutor::Written(DeviceVariable* var, bool on_device) {
  var->arrival.reset();
  var->on_device = on_device;
  var->on_host = !on_device;
}

// ------------------------------------------------------------------------------------------------------------------
// runs

absl::Status DeviceExecutor::RunOnDevice(PreparedOp& op) {
  RETURN_IF_ERROR(BringHost(op.reads_on_host));
  for (DeviceVariable* var : op.reads) RETURN_IF_ERROR(ToDevice(var));
  for (const DeviceVariable* var : op.writes) {
    if (!var->leaving) continue;
    RETURN_IF_ERROR(transfers_->HoldForCopiesOut());
    for (DeviceVariable* left : leaving_) left->leaving = false;
    leaving_.clear();
    break;
  }
  RETURN_IF_ERROR(transfers_->BeforeCompute());
  transfers_->AfterCompute();
  RETURN_IF_ERROR(BeginSpan(op));
  RETURN_IF_ERROR(op.device->Run(op.context));
  RETURN_IF_ERROR(transfers_->spans().End(DeviceQueue::kCompute));
  for (DeviceVariable* var : op.writes) {
    Written(var, /*on_device=*/true);
    if (var->device.initialized()) rounded_.Forget(var->device.raw());
    if (!var->device.initialized() || var->device.lanes() == static_cast<int>(var->host.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", var->name, "' is ", var->shared ? "one for all lanes" : "of each lane",
                     ", and is made from what is ", var->shared ? "of each lane" : "one for all", "; train.cpu_ops: \"",
                     op.desc->type(), "\" or train.lanes: 0 runs it"));
  }
  for (DeviceVariable* var : op.writes_on_host) Written(var, /*on_device=*/false);
  if (op.mode != OpMode::kGate) return absl::OkStatus();
  // What it sent to the host may leave from where it lies.
  for (DeviceVariable* var : op.reads) {
    var->leaving = true;
    leaving_.push_back(var);
  }
  Fire(op);
  return absl::OkStatus();
}

// The rest of a gate op, on another thread where there is one.
void DeviceExecutor::Fire(PreparedOp& op) {
  {
    MutexLock lock(&mu_);
    ++gates_running_;
  }
  const auto fire = [this, &op] {
    absl::Status status = absl::OkStatus();
    if (!failed_.load(std::memory_order_relaxed)) {
      const ProfiledStep step(profiled_step_);
      const ProfileSpan span(profiled_step_, ProfileKind::kExchange, op.desc->type());
      status = op.device->Finish(op.context);
    }
    MutexLock lock(&mu_);
    if (!status.ok()) {
      failed_.store(true, std::memory_order_relaxed);
      if (status_.ok()) status_ = AnnotateOp(status, op.index, *op.desc);
    }
    if (--gates_running_ == 0) gate_done_.SignalAll();
  };
  if (ctx_.pool != nullptr) {
    ctx_.pool->Schedule(fire);
  } else {
    fire();
  }
}

void DeviceExecutor::WaitForGates() {
  const auto running = [this] {
    MutexLock lock(&mu_);
    return gates_running_ > 0;
  };
  // This thread has nothing better to do than a gate that no worker has begun.
  while (ctx_.pool != nullptr && running() && ctx_.pool->TryRunOne()) {
  }
  MutexLock lock(&mu_);
  // Gates are calls of a ParamChannel and waits for the device, which end by their own deadlines.
  while (gates_running_ > 0) gate_done_.Wait(&mu_);
}

absl::Status DeviceExecutor::RunOnHost(PreparedOp& op) {
  RETURN_IF_ERROR(BringHost(op.reads_on_host));
  const ProfileSpan span(profiled_step_, op.mode == OpMode::kLane ? ProfileKind::kOperator : ProfileKind::kExchange,
                         op.desc->type());
  absl::Status status = absl::OkStatus();
  if (op.mode == OpMode::kLane && ctx_.pool != nullptr && op.host_contexts.size() > 1) {
    std::vector<absl::Status> each(op.host_contexts.size());
    ctx_.pool->ParallelFor(static_cast<int64_t>(each.size()), [&](int64_t lane) {
      each[static_cast<size_t>(lane)] = op.host->Run(op.host_contexts[static_cast<size_t>(lane)]);
    });
    for (absl::Status& one : each) {
      if (status.ok()) status = std::move(one);
    }
  } else {
    for (KernelContext& context : op.host_contexts) {
      if (status.ok()) status = op.host->Run(context);
    }
  }
  for (DeviceVariable* var : op.writes) Written(var, /*on_device=*/false);
  return status;
}

absl::Status DeviceExecutor::RunOp(PreparedOp& op) {
  if (op.mode == OpMode::kStep) WaitForGates();
  if (failed_.load(std::memory_order_relaxed)) return absl::OkStatus();  // the gate's error is the story
  op.ran = true;
  return op.host != nullptr ? RunOnHost(op) : RunOnDevice(op);
}

absl::Status DeviceExecutor::RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) {
  CHECK_EQ(batch.size(), batch_.size());
  std::copy(batch.begin(), batch.end(), batch_.begin());
  ctx_ = ctx;
  failed_.store(false, std::memory_order_relaxed);
  {
    MutexLock lock(&mu_);
    status_ = absl::OkStatus();
  }
  for (PreparedOp& op : ops_) {
    for (size_t lane = 0; lane < op.host_contexts.size(); ++lane)
      op.host_contexts[lane].lane = ctx.first_lane + static_cast<int>(lane);
    if (begin == 0) op.ran = false;
  }
  if (begin == 0) {
    rounded_.BeginRun();
    for (DeviceVariable* var : fed_) Written(var, /*on_device=*/false);
    // Views left from the last run would keep the memory of others in use, and all of it would be allocated anew.
    for (const PreparedOp& op : ops_) {
      if (op.device == nullptr || op.mode != OpMode::kLane) continue;
      if (op.desc->role() != v1::DIST && !op.context.may_share) continue;
      for (DeviceVariable* var : op.writes) var->device.Clear();
    }
  }
  // What ops that were left out write was put into its place by the caller.
  for (int i = 0; i < begin; ++i) {
    PreparedOp& op = ops_[static_cast<size_t>(i)];
    if (op.ran || op.host == nullptr) continue;
    for (DeviceVariable* var : op.writes) Written(var, /*on_device=*/false);
  }
  profiled_step_ = ProfiledStep::current();
  RETURN_IF_ERROR(transfers_->spans().Record(profiled_step_));
  absl::Status status = transfers_->runtime()->PutOffCalls(options_.graphs);
  for (int i = begin; i < end && status.ok() && !failed_.load(std::memory_order_relaxed); ++i) {
    status = RunOp(ops_[static_cast<size_t>(i)]);
    if (!status.ok()) status = AnnotateOp(status, i, *ops_[static_cast<size_t>(i)].desc);
  }
  if (absl::Status put = transfers_->runtime()->PutOffCalls(false); status.ok()) status = std::move(put);
  if (!status.ok()) failed_.store(true, std::memory_order_relaxed);
  WaitForGates();
  if (!status.ok()) return status;
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(status_);
  }
  return FinishRun(end == static_cast<int>(ops_.size()));
}

// An event before and behind each operator: one that is recorded is never part of a graph.
absl::Status DeviceExecutor::BeginSpan(const PreparedOp& op) {
  if (!transfers_->spans().recording()) return absl::OkStatus();
  std::string made;
  for (const v1::OpSlot& slot : op.desc->outputs()) {
    if (made.empty() && slot.vars_size() > 0) made = slot.vars(0);
  }
  return transfers_->spans().Begin(DeviceQueue::kCompute, op.desc->type(), made);
}

absl::Status DeviceExecutor::TakeSpans(bool wait) {
  ASSIGN_OR_RETURN(const std::vector<DeviceSpans::Span> spans, transfers_->spans().Take(wait));
  Profiler& profiler = Profiler::Process();
  for (const DeviceSpans::Span& span : spans) {
    profiler.Record(
        {.kind = ProfileKind::kOperator,
         .name = ProfileName(span.name),
         .detail = ProfileName(span.detail),
         .track = profiler.Track(absl::StrCat(transfers_->runtime()->info().name, ": ", DeviceQueueName(span.queue))),
         .begin_ns = span.begin_ns,
         .end_ns = span.end_ns,
         .step = span.step,
         .bytes_out = span.queue == DeviceQueue::kCopyOut ? span.bytes : -1,
         .bytes_in = span.queue == DeviceQueue::kCopyIn ? span.bytes : -1});
  }
  return absl::OkStatus();
}

absl::Status DeviceExecutor::FinishRun(bool to_the_end) {
  if (to_the_end) RETURN_IF_ERROR(BringHost(fetched_));
  RETURN_IF_ERROR(TakeSpans(/*wait=*/false));
  // The next run overwrites what this one sends out, and what it reads.
  RETURN_IF_ERROR(transfers_->HoldForCopiesOut());
  transfers_->AfterCompute();
  for (DeviceVariable* left : leaving_) left->leaving = false;
  leaving_.clear();
  return absl::OkStatus();
}

}  // namespace

DeviceVariable* DeviceScope::FindOrCreate(const v1::VarDesc& desc) {
  std::unique_ptr<DeviceVariable>& var = vars_[desc.name()];
  if (var == nullptr) {
    var = std::make_unique<DeviceVariable>(DeviceVariable{.name = desc.name(),
                                                          .kind = desc.kind(),
                                                          .owner = kParameters,
                                                          .shared = true,
                                                          .host = {scope_->FindOrCreate(desc.name())},
                                                          .width = desc.dims_size() == 2 ? desc.dims(1) : 0,
                                                          .lasts = true});
  }
  return var.get();
}

void DeviceScope::HostWasWritten() {
  for (auto& [name, var] : vars_) {
    var->arrival.reset();
    var->on_host = true;
    var->on_device = false;
  }
}

absl::StatusOr<std::unique_ptr<Executor>> CreateDeviceExecutor(const v1::ProgramDesc& program, Scope* scope,
                                                               DeviceExecutorOptions options) {
  auto executor = std::make_unique<DeviceExecutor>(program, scope, std::move(options));
  RETURN_IF_ERROR(executor->Prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace weir
