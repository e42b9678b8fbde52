#include "framework/runtime/executor.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/shared_buffers.h"
#include "framework/runtime/op_mode.h"
#include "framework/runtime/profiler.h"
#include "framework/runtime/view_ops.h"
#include "glog/logging.h"

namespace weir {
namespace {

const ProfileName kLanesName("lanes");

// The largest value that a variable has held. Written by the one thread that writes the variable.
struct Held {
  const Variable* var = nullptr;
  enum Owner { kLane, kStep, kPersistable } owner = kLane;
  int64_t bytes = 0;
};

// A variable that may be a view of another.
struct ViewVar {
  int op = 0;  // that makes it
  Variable* var = nullptr;
};

// One run of a kernel.
struct KernelRun {
  KernelContext context;
  std::vector<Held*> writes;
};

// An operator, or some of its outputs.
struct OpPart {
  // One per lane for kLane and kLanesInOrder, else one that sees all lanes. Empty for a part that the op has not.
  std::vector<KernelRun> runs;
  std::vector<std::string_view> writes;
  // Of the profiler; made when it first wants it.
  ProfileName made;
};

struct PreparedOp {
  int index = 0;
  const v1::OpDesc* desc = nullptr;
  const OpDef* def = nullptr;
  OpMode run = OpMode::kLane;
  std::unique_ptr<OpKernel> kernel;
  OpPart whole;
  // Where it has an output that is computed apart (OpDef.apart): the others, and that.
  OpPart rest, apart;
  // kGate: lanes that have not passed in this run.
  std::unique_ptr<std::atomic<int>> lanes_to_come;
  ProfileName type;
};

// An op, or a part of one, in a segment that runs as a graph.
struct GraphNode {
  PreparedOp* op = nullptr;
  OpPart* part = nullptr;
  // Nodes of the same lane that wait for it, and for how many it waits.
  std::vector<int> after;
  int waits = 0;
};

// Ops between two that all lanes wait for: [begin, end) of the ops, lane and gate ops only; or one other op.
struct Segment {
  int begin = 0;
  int end = 0;
  bool lanes = false;
  // Of lanes. Empty where nothing is independent: one op after the other then.
  std::vector<GraphNode> graph;
};

class ExecutorImpl : public Executor {
 public:
  ExecutorImpl(const v1::ProgramDesc& program, Scope* scope, ExecutorOptions options)
      : program_(program),
        scope_(scope),
        options_(std::move(options)),
        batch_(options_.lanes, 0),
        lane_vars_(options_.lanes) {}

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
  void ChooseViews();
  absl::Status PrepareOp(int index);
  absl::StatusOr<Variable*> Locate(int lane, const std::string& name);
  // Name under which a variable's memory is kept.
  std::string_view Storage(std::string_view name) const;
  Held* HeldBy(const Variable* var, Held::Owner owner);
  void WatchMemory(const PreparedOp& op, OpPart* part);
  absl::StatusOr<std::vector<KernelContext::Slot>> Slots(int lane, const std::vector<SlotDef>& defs,
                                                         const google::protobuf::RepeatedPtrField<v1::OpSlot>& given);
  void MakeSegments();

  absl::Status RunOne(PreparedOp& op, OpPart& part, int run);
  absl::Status RunKernel(PreparedOp& op, const OpPart& part, KernelContext& ctx);
  absl::Status RunLanes(const Segment& segment);
  void RunLane(const Segment& segment, int lane);
  void CutApart(PreparedOp* op) const;
  // Makes a segment's graph: each node waits for those that write what it reads or writes, and for those that read what
  // it writes, by the names under which variables are kept.
  void FindIndependentOps(Segment* segment);
  // Ops that are independent of one another at the same time: for more threads than lanes.
  void RunGraph(const Segment& segment);
  void WorkOnGraph(const Segment& segment);
  void PassGate(PreparedOp& gate);
  bool GatesRunning();
  void Fail(absl::Status status);
  void NameOps();

  v1::ProgramDesc program_;
  Scope* const scope_;
  const ExecutorOptions options_;
  std::map<std::string, const v1::VarDesc*, std::less<>> descs_;
  // Outputs of step ops that are not persistable: one variable for all lanes.
  std::set<std::string, std::less<>> step_names_;
  VarMap step_vars_;
  // Storage of variables that share: "buffer 3", by variable.
  std::map<std::string, std::string, std::less<>> shared_;
  std::deque<Held> held_;
  std::map<const Variable*, Held*> held_by_;
  // Variables that no op writes: fed before a run, or left by another program.
  std::vector<Held*> fed_;
  std::vector<PreparedOp> ops_;
  std::vector<Segment> segments_;
  // Of all lanes: outputs of ops that cut a gradient, perhaps views of it, and of those that were told to give views.
  std::vector<ViewVar> views_;

  // Of the present run.
  StepContext ctx_;
  std::vector<int64_t> batch_;
  std::vector<VarMap> lane_vars_;
  int64_t profiled_step_ = -1;
  // Makes the other lanes stop; the status is behind the lock.
  std::atomic<bool> failed_{false};
  Mutex mu_;
  CondVar gate_done_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  int gates_running_ ABSL_GUARDED_BY(mu_) = 0;
  // Of a segment that runs as a graph: a node of a lane, or a gate that the lane is about to pass.
  struct ReadyNode {
    int lane = 0;
    int node = 0;
  };
  std::deque<ReadyNode> ready_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<int>> waits_ ABSL_GUARDED_BY(mu_);  // by lane
  int64_t to_run_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar graph_changed_;
};

const v1::VarDesc* ExecutorImpl::Describe(std::string_view name) const {
  const auto it = descs_.find(name);
  return it == descs_.end() ? nullptr : it->second;
}

// One variable for all lanes.
bool ExecutorImpl::IsShared(std::string_view name) const {
  const v1::VarDesc* desc = Describe(name);
  return (desc != nullptr && desc->persistable()) || step_names_.contains(name);
}

absl::StatusOr<Variable*> ExecutorImpl::Locate(int lane, const std::string& name) {
  const v1::VarDesc* desc = Describe(name);
  if (desc == nullptr) return absl::NotFoundError(absl::StrCat("variable '", name, "' is not declared"));
  if (desc->persistable()) return scope_->FindOrCreate(name);
  VarMap& vars = step_names_.contains(name) ? step_vars_ : lane_vars_[lane];
  const auto [it, fresh] = vars.try_emplace(std::string(Storage(name)));
  if (fresh && desc->kind() == v1::SELECTED_ROWS) it->second = SelectedRows();
  if (fresh && desc->kind() == v1::IDS) it->second = IdBatch();
  return &it->second;
}

std::string_view ExecutorImpl::Storage(std::string_view name) const {
  const auto shared = shared_.find(name);
  return shared == shared_.end() ? name : std::string_view(shared->second);
}

Held* ExecutorImpl::HeldBy(const Variable* var, Held::Owner owner) {
  const auto [it, fresh] = held_by_.try_emplace(var, nullptr);
  if (fresh) {
    held_.push_back({.var = var, .owner = owner});
    it->second = &held_.back();
  }
  return it->second;
}

// Bytes that a value has for itself; 0 for a view of one of `inputs`.
int64_t OwnBytes(const Variable& var, const KernelContext* context) {
  if (const IdBatch* ids = std::get_if<IdBatch>(&var)) {
    return static_cast<int64_t>(8 * (ids->values.size() + ids->offsets.size()) + 4 * ids->weights.size());
  }
  if (const SelectedRows* rows = std::get_if<SelectedRows>(&var)) {
    return static_cast<int64_t>(8 * rows->ids.size() + 4 * rows->step_rows.size() + rows->values.bytes());
  }
  const Tensor& tensor = std::get<Tensor>(var);
  if (!tensor.initialized()) return 0;
  const char* const begin = static_cast<const char*>(tensor.raw());
  for (size_t lane = 0; context != nullptr && lane < context->inputs.size(); ++lane) {
    for (const KernelContext::Slot& slot : context->inputs[lane]) {
      for (const Variable* input : slot.vars) {
        const Tensor* other = std::get_if<Tensor>(input);
        if (input == &var || other == nullptr || !other->initialized()) continue;
        const char* const from = static_cast<const char*>(other->raw());
        if (begin >= from && begin < from + other->bytes()) return 0;
      }
    }
  }
  return static_cast<int64_t>(tensor.bytes());
}

void ExecutorImpl::WatchMemory(const PreparedOp& op, OpPart* part) {
  const auto owner_of = [this](std::string_view name) {
    if (Describe(name)->persistable()) return Held::kPersistable;
    return step_names_.contains(name) ? Held::kStep : Held::kLane;
  };
  const size_t runs = part->runs.size();
  for (size_t r = 0; r < runs; ++r) {
    std::vector<Held*>& writes = part->runs[r].writes;
    for (int lane = runs == 1 ? 0 : static_cast<int>(r); lane < (runs == 1 ? options_.lanes : static_cast<int>(r) + 1);
         ++lane) {
      for (const std::string_view name : part->writes) {
        Held* const held = HeldBy(Find(lane, name), owner_of(name));
        if (std::find(writes.begin(), writes.end(), held) == writes.end()) writes.push_back(held);
      }
      for (const v1::OpSlot& slot : op.desc->inputs()) {
        for (const std::string& name : slot.vars()) HeldBy(Find(lane, name), owner_of(name));
      }
    }
  }
}

VariableBytes ExecutorImpl::bytes() const {
  VariableBytes sum;
  for (const Held& held : held_) {
    (held.owner == Held::kPersistable ? sum.persistable
     : held.owner == Held::kStep      ? sum.step
                                      : sum.lanes) += held.bytes;
  }
  return sum;
}

absl::StatusOr<std::vector<KernelContext::Slot>> ExecutorImpl::Slots(
    int lane, const std::vector<SlotDef>& defs, const google::protobuf::RepeatedPtrField<v1::OpSlot>& given) {
  std::vector<KernelContext::Slot> slots(defs.size());
  for (const v1::OpSlot& slot : given) {
    size_t i = 0;
    while (i < defs.size() && defs[i].name != slot.name()) ++i;
    if (i == defs.size()) return absl::NotFoundError(absl::StrCat("there is no slot '", slot.name(), "'"));
    for (const std::string& name : slot.vars()) {
      ASSIGN_OR_RETURN(Variable * var, Locate(lane, name));
      slots[i].vars.push_back(var);
    }
  }
  return slots;
}

void ExecutorImpl::ChooseViews() {
  v1::BlockDesc* const block = program_.mutable_blocks(options_.block);
  for (const int i : ViewOps(*block, [this](std::string_view name) { return shared_.find(name) != shared_.end(); })) {
    *block->mutable_ops(i)->add_attrs() = AttrB(kByReference, true);
  }
}

absl::Status ExecutorImpl::PrepareOp(int index) {
  PreparedOp& op = ops_[index];
  op.index = index;
  op.desc = &program_.blocks(options_.block).ops(index);
  ASSIGN_OR_RETURN(op.def, OpRegistry::Global().Get(op.desc->type()));
  op.run = OpModeOf(*op.desc, *op.def, [this](std::string_view name) { return IsShared(name); });
  if (op.run == OpMode::kStep) {
    for (const v1::OpSlot& slot : op.desc->outputs()) {
      const int i = op.def->OutputIndex(slot.name());
      if (i >= 0 && op.def->outputs[i].per_lane) continue;
      for (const std::string& name : slot.vars()) {
        const v1::VarDesc* desc = Describe(name);
        if (desc == nullptr || !desc->persistable()) step_names_.insert(name);
      }
    }
  }
  const bool per_lane = op.run == OpMode::kLane || op.run == OpMode::kLanesInOrder;
  op.whole.runs.resize(per_lane ? options_.lanes : 1);
  for (const v1::OpSlot& slot : op.desc->outputs()) {
    op.whole.writes.insert(op.whole.writes.end(), slot.vars().begin(), slot.vars().end());
  }
  for (int lane = 0; lane < options_.lanes; ++lane) {
    KernelContext& ctx = op.whole.runs[per_lane ? lane : 0].context;
    ASSIGN_OR_RETURN(std::vector<KernelContext::Slot> inputs, Slots(lane, op.def->inputs, op.desc->inputs()));
    ASSIGN_OR_RETURN(std::vector<KernelContext::Slot> outputs, Slots(lane, op.def->outputs, op.desc->outputs()));
    ctx.inputs.push_back(std::move(inputs));
    ctx.outputs.push_back(std::move(outputs));
    ctx.step = &ctx_;
    ctx.lane_batch = batch_.data() + (per_lane ? lane : 0);
  }
  if (op.run == OpMode::kGate) op.lanes_to_come = std::make_unique<std::atomic<int>>(0);
  const AttrReader attrs(*op.desc, *op.def);
  if (op.run == OpMode::kLane && (op.desc->role() == v1::DIST || (HasViews(*op.desc) && attrs.Bool(kByReference)))) {
    for (const v1::OpSlot& slot : op.desc->outputs()) {
      for (const std::string& name : slot.vars()) {
        // Memory that is shared with other variables may hold one of them when a run begins.
        for (int lane = 0; lane < options_.lanes && !shared_.contains(name); ++lane)
          views_.push_back({index, Find(lane, name)});
      }
    }
  }

  const KernelFactory* factory = KernelRegistry::Global().Find(op.desc->type(), options_.device);
  if (factory == nullptr) {
    return absl::NotFoundError(absl::StrCat("no kernel for ", options_.device == Device::kCpu ? "CPU" : "CUDA"));
  }
  ASSIGN_OR_RETURN(
      op.kernel,
      (*factory)(KernelInit{.op = *op.desc, .def = *op.def, .attrs = attrs, .vars = [this](std::string_view name) {
                              return Describe(name);
                            }}));
  return absl::OkStatus();
}

void ExecutorImpl::MakeSegments() {
  const int n = static_cast<int>(ops_.size());
  for (int i = 0; i < n;) {
    const auto in_lanes = [this](int k) { return ops_[k].run == OpMode::kLane || ops_[k].run == OpMode::kGate; };
    Segment segment{.begin = i, .end = i + 1, .lanes = in_lanes(i)};
    while (segment.lanes && segment.end < n && in_lanes(segment.end)) ++segment.end;
    i = segment.end;
    if (segment.lanes) FindIndependentOps(&segment);
    segments_.push_back(std::move(segment));
  }
}

// Makes the two parts of an op that has an output apart. One in place reads its inputs before it writes and stays
// whole, and so does one that writes twice to the same memory, where the last value counts.
void ExecutorImpl::CutApart(PreparedOp* op) const {
  const int slot = op->run != OpMode::kLane || op->def->apart.empty() ? -1 : op->def->OutputIndex(op->def->apart);
  if (slot < 0) return;
  std::set<std::string_view> used;
  for (const v1::OpSlot& inputs : op->desc->inputs()) {
    for (const std::string& name : inputs.vars()) used.insert(Storage(name));
  }
  OpPart rest, apart;
  for (const v1::OpSlot& outputs : op->desc->outputs()) {
    OpPart& part = outputs.name() == op->def->apart ? apart : rest;
    for (const std::string& name : outputs.vars()) {
      if (!used.insert(Storage(name)).second) return;
      part.writes.push_back(name);
    }
  }
  if (rest.writes.empty() || apart.writes.empty()) return;
  rest.runs = apart.runs = op->whole.runs;
  for (KernelRun& run : rest.runs) run.context.outputs[0][static_cast<size_t>(slot)].vars.clear();
  for (KernelRun& run : apart.runs) {
    std::vector<KernelContext::Slot>& outputs = run.context.outputs[0];
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i != static_cast<size_t>(slot)) outputs[i].vars.clear();
    }
  }
  op->rest = std::move(rest);
  op->apart = std::move(apart);
}

void ExecutorImpl::FindIndependentOps(Segment* segment) {
  std::vector<GraphNode> graph;
  for (int i = segment->begin; i < segment->end; ++i) {
    PreparedOp& op = ops_[static_cast<size_t>(i)];
    CutApart(&op);
    if (op.apart.runs.empty()) {
      graph.push_back({.op = &op, .part = &op.whole});
    } else {
      // In front: others wait for it.
      graph.push_back({.op = &op, .part = &op.apart});
      graph.push_back({.op = &op, .part = &op.rest});
    }
  }
  // By what is kept under one name: who wrote it last, and who has read it since.
  struct Uses {
    int writer = -1;
    std::vector<int> readers;
  };
  std::map<std::string_view, Uses> uses;
  bool independent = false;
  for (int i = 0; i < static_cast<int>(graph.size()); ++i) {
    GraphNode& node = graph[static_cast<size_t>(i)];
    std::set<int> wait_for;
    for (const v1::OpSlot& slot : node.op->desc->inputs()) {
      for (const std::string& name : slot.vars()) {
        Uses& of = uses[Storage(name)];
        if (of.writer >= 0) wait_for.insert(of.writer);
        of.readers.push_back(i);
      }
    }
    for (const std::string_view name : node.part->writes) {
      Uses& of = uses[Storage(name)];
      if (of.writer >= 0) wait_for.insert(of.writer);
      wait_for.insert(of.readers.begin(), of.readers.end());
      of = {.writer = i};
    }
    wait_for.erase(i);
    independent |= i > 0 && !wait_for.contains(i - 1);
    node.waits = static_cast<int>(wait_for.size());
    for (const int earlier : wait_for) graph[static_cast<size_t>(earlier)].after.push_back(i);
  }
  if (independent) segment->graph = std::move(graph);
}

absl::Status ExecutorImpl::Prepare() {
  if (options_.block < 0 || options_.block >= program_.blocks_size()) {
    return absl::InvalidArgumentError(absl::StrCat("program '", program_.name(), "' has ", program_.blocks_size(),
                                                   " blocks; there is no block ", options_.block));
  }
  CHECK_GE(options_.lanes, 1);
  // From the outermost block inwards: the nearest declaration counts.
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
    // What is fetched after the run keeps memory of its own. No variable has a blank in its name.
    const bool fetched = std::find(options_.fetch.begin(), options_.fetch.end(), name) != options_.fetch.end();
    if (!fetched) shared_[name] = absl::StrCat("buffer ", buffer);
  }
  ChooseViews();
  ops_.resize(program_.blocks(options_.block).ops_size());
  for (int i = 0; i < static_cast<int>(ops_.size()); ++i) {
    const absl::Status status = PrepareOp(i);
    if (!status.ok()) return AnnotateOp(status, i, program_.blocks(options_.block).ops(i));
  }
  MakeSegments();
  std::set<const Held*> written;
  for (PreparedOp& op : ops_) {
    for (OpPart* part : {&op.whole, &op.rest, &op.apart}) WatchMemory(op, part);
    for (const KernelRun& run : op.whole.runs) written.insert(run.writes.begin(), run.writes.end());
  }
  for (Held& held : held_) {
    if (!written.contains(&held)) fed_.push_back(&held);
  }
  return absl::OkStatus();
}

Variable* ExecutorImpl::Find(int lane, std::string_view name) {
  CHECK(lane >= 0 && lane < options_.lanes) << lane;
  if (const v1::VarDesc* desc = Describe(name); desc != nullptr && desc->persistable()) return scope_->Find(name);
  VarMap& vars = step_names_.contains(name) ? step_vars_ : lane_vars_[lane];
  const auto it = vars.find(Storage(name));
  return it == vars.end() ? nullptr : &it->second;
}

void ExecutorImpl::NameOps() {
  for (PreparedOp& op : ops_) {
    if (op.type.id() != 0) continue;
    op.type = ProfileName(op.desc->type());
    // What tells the ops of one type apart: what they make, or what they send.
    for (OpPart* part : {&op.whole, &op.rest, &op.apart}) {
      if (!part->writes.empty()) part->made = ProfileName(part->writes[0]);
    }
    for (const v1::OpSlot& slot : op.desc->inputs()) {
      if (op.whole.made.id() == 0 && !slot.vars().empty()) op.whole.made = ProfileName(slot.vars(0));
    }
  }
}

absl::Status ExecutorImpl::RunKernel(PreparedOp& op, const OpPart& part, KernelContext& ctx) {
  if (profiled_step_ < 0) return op.kernel->Run(ctx);
  const bool moves = op.desc->role() == v1::RPC || op.desc->role() == v1::DIST;
  // Gates run on whatever thread is free.
  const ProfiledStep step(profiled_step_);
  ProfileSpan span(profiled_step_, moves ? ProfileKind::kExchange : ProfileKind::kOperator, op.type);
  if (ProfileEvent* const event = span.event()) {
    event->detail = part.made;
    if (op.run == OpMode::kLane || op.run == OpMode::kLanesInOrder) event->lane = ctx.lane;
  }
  return op.kernel->Run(ctx);
}

absl::Status ExecutorImpl::RunOne(PreparedOp& op, OpPart& part, int run) {
  KernelRun& of = part.runs[static_cast<size_t>(run)];
  absl::Status status = RunKernel(op, part, of.context);
  for (Held* held : of.writes) held->bytes = std::max(held->bytes, OwnBytes(*held->var, &of.context));
  return status.ok() ? status : AnnotateOp(status, op.index, *op.desc);
}

void ExecutorImpl::Fail(absl::Status status) {
  failed_.store(true, std::memory_order_relaxed);
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = std::move(status);
}

void ExecutorImpl::PassGate(PreparedOp& gate) {
  // Release: what this lane wrote is seen by whoever runs the gate.
  if (gate.lanes_to_come->fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    MutexLock lock(&mu_);
    ++gates_running_;
  }
  const auto fire = [this, &gate] {
    absl::Status status = failed_.load(std::memory_order_relaxed) ? absl::OkStatus() : RunOne(gate, gate.whole, 0);
    if (!status.ok()) Fail(std::move(status));
    MutexLock lock(&mu_);
    if (--gates_running_ == 0) gate_done_.SignalAll();
  };
  // The lane goes on; another thread sends.
  if (ctx_.pool != nullptr) {
    ctx_.pool->Schedule(fire);
  } else {
    fire();
  }
}

bool ExecutorImpl::GatesRunning() {
  MutexLock lock(&mu_);
  return gates_running_ > 0;
}

void ExecutorImpl::RunLane(const Segment& segment, int lane) {
  for (int i = segment.begin; i < segment.end; ++i) {
    if (failed_.load(std::memory_order_relaxed)) return;
    PreparedOp& op = ops_[i];
    if (op.run == OpMode::kGate) {
      PassGate(op);
      continue;
    }
    absl::Status status = RunOne(op, op.whole, lane);
    if (!status.ok()) {
      Fail(std::move(status));
      return;
    }
  }
}

void ExecutorImpl::RunGraph(const Segment& segment) {
  {
    MutexLock lock(&mu_);
    to_run_ = static_cast<int64_t>(segment.graph.size()) * options_.lanes;
    waits_.resize(static_cast<size_t>(options_.lanes));
    for (int lane = 0; lane < options_.lanes; ++lane) {
      std::vector<int>& waits = waits_[static_cast<size_t>(lane)];
      waits.clear();
      for (size_t i = 0; i < segment.graph.size(); ++i) {
        waits.push_back(segment.graph[i].waits);
        if (waits.back() == 0) ready_.push_back({lane, static_cast<int>(i)});
      }
    }
  }
  ctx_.pool->ParallelFor(ctx_.pool->threads() + 1, [&](int64_t) { WorkOnGraph(segment); });
}

void ExecutorImpl::WorkOnGraph(const Segment& segment) {
  while (true) {
    ReadyNode next;
    {
      MutexLock lock(&mu_);
      while (ready_.empty() && to_run_ > 0) graph_changed_.Wait(&mu_);
      if (to_run_ == 0) return;
      next = ready_.front();
      ready_.pop_front();
    }
    const GraphNode& node = segment.graph[static_cast<size_t>(next.node)];
    PreparedOp& op = *node.op;
    // After an error all that is left is counted and not run, so that everybody comes to the end.
    if (!failed_.load(std::memory_order_relaxed)) {
      absl::Status status;
      if (op.run != OpMode::kGate) {
        status = RunOne(op, *node.part, next.lane);
      } else if (op.lanes_to_come->fetch_sub(1, std::memory_order_acq_rel) == 1) {
        status = RunOne(op, op.whole, 0);
      }
      if (!status.ok()) Fail(std::move(status));
    }
    MutexLock lock(&mu_);
    const size_t ready_before = ready_.size();
    // In front, in their order: what has just been written is in this thread's cache.
    for (auto later = node.after.rbegin(); later != node.after.rend(); ++later) {
      if (--waits_[static_cast<size_t>(next.lane)][static_cast<size_t>(*later)] == 0)
        ready_.push_front({next.lane, *later});
    }
    // One of the new ones is this thread's.
    if (--to_run_ == 0 || ready_.size() > ready_before + 1) graph_changed_.SignalAll();
  }
}

absl::Status ExecutorImpl::RunLanes(const Segment& segment) {
  const ProfileSpan span(profiled_step_, ProfileKind::kThreads, kLanesName);
  for (int i = segment.begin; i < segment.end; ++i) {
    if (ops_[i].run == OpMode::kGate) ops_[i].lanes_to_come->store(options_.lanes, std::memory_order_relaxed);
  }
  if (ctx_.pool != nullptr && options_.lanes <= ctx_.pool->threads() && !segment.graph.empty()) {
    RunGraph(segment);
  } else if (ctx_.pool != nullptr) {
    ctx_.pool->ParallelFor(options_.lanes, [&](int64_t lane) { RunLane(segment, static_cast<int>(lane)); });
  } else {
    for (int lane = 0; lane < options_.lanes; ++lane) RunLane(segment, lane);
  }
  // The lanes are done; what is left are gates that no worker has begun, and this thread has nothing better to do.
  while (ctx_.pool != nullptr && GatesRunning() && ctx_.pool->TryRunOne()) {
  }
  MutexLock lock(&mu_);
  // Gates are calls of a ParamChannel, which end by their own deadlines.
  while (gates_running_ > 0) gate_done_.Wait(&mu_);
  return status_;
}

absl::Status ExecutorImpl::RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) {
  CHECK_EQ(batch.size(), batch_.size());
  std::copy(batch.begin(), batch.end(), batch_.begin());
  ctx_ = ctx;
  profiled_step_ = ProfiledStep::current();
  if (profiled_step_ >= 0) NameOps();
  failed_.store(false, std::memory_order_relaxed);
  {
    MutexLock lock(&mu_);
    status_ = absl::OkStatus();
  }
  for (PreparedOp& op : ops_) {
    for (OpPart* part : {&op.whole, &op.rest, &op.apart}) {
      for (size_t run = 0; run < part->runs.size(); ++run)
        part->runs[run].context.lane = ctx.first_lane + static_cast<int>(run);
    }
  }
  // What ops before `begin` write was put there by the caller, or by an earlier call.
  for (int i = 0; i < begin; ++i) {
    for (const KernelRun& run : ops_[static_cast<size_t>(i)].whole.runs) {
      for (Held* held : run.writes) held->bytes = std::max(held->bytes, OwnBytes(*held->var, &run.context));
    }
  }
  for (Held* held : fed_) held->bytes = std::max(held->bytes, OwnBytes(*held->var, nullptr));
  // Views left from the last run would keep the memory of the whole in use, and all of it would be allocated anew.
  for (const ViewVar& view : views_) {
    if (view.op < begin || view.op >= end) continue;
    if (Tensor* tensor = std::get_if<Tensor>(view.var)) tensor->Clear();
  }
  for (const Segment& segment : segments_) {
    if (segment.end <= begin || segment.begin >= end) continue;
    CHECK(segment.begin >= begin && segment.end <= end)
        << "lane ops stand across the border of [" << begin << ", " << end << ")";
    if (segment.lanes) {
      RETURN_IF_ERROR(RunLanes(segment));
      continue;
    }
    PreparedOp& op = ops_[segment.begin];
    for (int run = 0; run < static_cast<int>(op.whole.runs.size()); ++run) RETURN_IF_ERROR(RunOne(op, op.whole, run));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const v1::ProgramDesc& program, Scope* scope,
                                                           ExecutorOptions options) {
  auto executor = std::make_unique<ExecutorImpl>(program, scope, std::move(options));
  RETURN_IF_ERROR(executor->Prepare());
  return executor;
}

}  // namespace weir
