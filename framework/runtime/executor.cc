#include "framework/runtime/executor.h"

#include <algorithm>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/graph/shared_buffers.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/block_variables.h"
#include "framework/runtime/cpu_op.h"
#include "framework/runtime/first_error.h"
#include "framework/runtime/gates.h"
#include "framework/runtime/lane_graph.h"
#include "framework/runtime/op_mode.h"
#include "framework/runtime/prepared_block.h"
#include "framework/runtime/view_ops.h"
#include "glog/logging.h"

namespace weir {
namespace {

const ProfileName kLanesName("lanes");

// A variable that may be a view of another, and the op that makes it.
struct ViewVar {
  int op = 0;
  Variable* var = nullptr;
};

// Ops between two that all lanes wait for: [begin, end) of the ops, lane and gate ops only; or one other op.
struct Segment {
  // An op, or a part of one.
  struct Node {
    CpuOp* op = nullptr;
    OpPart* part = nullptr;
  };

  int begin = 0;
  int end = 0;
  bool lanes = false;
  // Graph of lane ops. Empty if nothing is independent: ops then run one after the other.
  std::vector<Node> nodes;
  LaneGraph graph;
};

class ExecutorImpl : public Executor {
 public:
  ExecutorImpl(std::unique_ptr<PreparedBlock> block, Scope* scope, int lanes)
      : block_(std::move(block)),
        vars_(block_.get(), scope, lanes),
        batch_(static_cast<size_t>(lanes), 0),
        gates_([this](int op) { return RunGate(ops_[static_cast<size_t>(op)]); }, &first_error_) {}

  absl::Status Prepare();
  Variable* Find(int lane, std::string_view name) override { return vars_.Find(lane, name); }
  absl::Status Run(const StepContext& ctx, absl::Span<const int64_t> batch) override {
    return RunOps(ctx, batch, 0, static_cast<int>(ops_.size()));
  }
  absl::Status RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) override;
  VariableBytes bytes() const override { return memory_.bytes(); }

 private:
  absl::Status PrepareOp(int index);
  void AddViews(const BlockOp& op);
  void MakeSegments();
  void FindIndependentOps(Segment* segment);

  void BeginRun(const StepContext& ctx, absl::Span<const int64_t> batch);
  void ClearViews(int begin, int end);
  absl::Status RunGate(CpuOp& gate) { return gate.Run(gate.whole(), 0, profiled_step_); }
  absl::Status RunLanes(const Segment& segment);
  void RunLane(const Segment& segment, int lane);
  // Runs ops that are independent of one another at the same time: for more threads than lanes.
  void RunGraph(const Segment& segment);
  absl::Status RunNode(const Segment::Node& node, int lane);

  const std::unique_ptr<PreparedBlock> block_;
  BlockVariables vars_;
  MemoryUse memory_;
  std::vector<CpuOp> ops_;
  std::vector<Segment> segments_;
  // Variables of all lanes that may be views: outputs of ops that cut a gradient, and of those that were told to give
  // views.
  std::vector<ViewVar> views_;

  // State of the present run.
  StepContext ctx_;
  int64_t runs_ = 0;
  std::vector<int64_t> batch_;
  int64_t profiled_step_ = -1;
  FirstError first_error_;
  Gates gates_;
  LaneGraphQueue queue_;
};

absl::Status ExecutorImpl::Prepare() {
  ops_.reserve(static_cast<size_t>(block_->ops_size()));
  for (int i = 0; i < block_->ops_size(); ++i) {
    const absl::Status status = PrepareOp(i);
    if (!status.ok()) return AnnotateOp(status, i, block_->op(i));
  }
  MakeSegments();
  for (CpuOp& op : ops_) op.WatchMemory(*block_, &vars_, &memory_);
  return absl::OkStatus();
}

absl::Status ExecutorImpl::PrepareOp(int index) {
  ASSIGN_OR_RETURN(const BlockOp op, block_->AddOp(index));
  ASSIGN_OR_RETURN(CpuOp made, CpuOp::Create(*block_, op, &vars_, &ctx_, batch_.data()));
  ops_.push_back(std::move(made));
  AddViews(op);
  return absl::OkStatus();
}

void ExecutorImpl::AddViews(const BlockOp& op) {
  if (op.mode != OpMode::kLane) return;
  const bool cuts = op.desc->role() == v1::DIST;
  if (!cuts && !(HasViews(*op.desc) && AttrReader(*op.desc, *op.def).Bool(kByReference))) return;
  for (const v1::OpSlot& slot : op.desc->outputs()) {
    for (const std::string& name : slot.vars()) {
      // Memory that is shared with other variables may hold one of them when a run begins.
      if (block_->SharesBuffer(name)) continue;
      for (int lane = 0; lane < vars_.lanes(); ++lane) views_.push_back({op.index, Find(lane, name)});
    }
  }
}

void ExecutorImpl::MakeSegments() {
  const int n = static_cast<int>(ops_.size());
  const auto in_lanes = [this](int k) {
    const OpMode mode = ops_[static_cast<size_t>(k)].mode();
    return mode == OpMode::kLane || mode == OpMode::kGate;
  };
  for (int i = 0; i < n;) {
    Segment segment{.begin = i, .end = i + 1, .lanes = in_lanes(i)};
    while (segment.lanes && segment.end < n && in_lanes(segment.end)) ++segment.end;
    i = segment.end;
    if (segment.lanes) FindIndependentOps(&segment);
    segments_.push_back(std::move(segment));
  }
}

void ExecutorImpl::FindIndependentOps(Segment* segment) {
  std::vector<Segment::Node> nodes;
  for (int i = segment->begin; i < segment->end; ++i) {
    CpuOp& op = ops_[static_cast<size_t>(i)];
    op.CutApart(*block_);
    if (op.apart().runs.empty()) {
      nodes.push_back({.op = &op, .part = &op.whole()});
    } else {
      // First, because others wait for it.
      nodes.push_back({.op = &op, .part = &op.apart()});
      nodes.push_back({.op = &op, .part = &op.rest()});
    }
  }
  std::vector<LaneGraph::Access> accesses(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const v1::OpSlot& slot : nodes[i].op->desc().inputs()) {
      for (const std::string& name : slot.vars()) accesses[i].reads.push_back(block_->Storage(name));
    }
    for (const std::string_view name : nodes[i].part->writes) accesses[i].writes.push_back(block_->Storage(name));
  }
  LaneGraph graph(accesses);
  if (!graph.independent()) return;
  segment->nodes = std::move(nodes);
  segment->graph = std::move(graph);
}

absl::Status ExecutorImpl::RunNode(const Segment::Node& node, int lane) {
  if (node.op->mode() != OpMode::kGate) return node.op->Run(*node.part, lane, profiled_step_);
  return node.op->PassLane() ? RunGate(*node.op) : absl::OkStatus();
}

void ExecutorImpl::RunGraph(const Segment& segment) {
  queue_.Begin(&segment.graph, vars_.lanes());
  ctx_.pool->ParallelFor(ctx_.pool->threads() + 1, [&](int64_t) {
    while (const std::optional<LaneGraphQueue::Node> next = queue_.Take()) {
      // After an error all that is left is counted and not run, so that every thread comes to the end.
      if (!first_error_.failed()) {
        first_error_.Add(RunNode(segment.nodes[static_cast<size_t>(next->index)], next->lane));
      }
      queue_.Done(*next);
    }
  });
}

void ExecutorImpl::RunLane(const Segment& segment, int lane) {
  for (int i = segment.begin; i < segment.end; ++i) {
    if (first_error_.failed()) return;
    CpuOp& op = ops_[static_cast<size_t>(i)];
    if (op.mode() == OpMode::kGate) {
      // The lane goes on; another thread sends.
      if (op.PassLane()) gates_.Start(i, ctx_.pool);
      continue;
    }
    first_error_.Add(op.Run(op.whole(), lane, profiled_step_));
  }
}

absl::Status ExecutorImpl::RunLanes(const Segment& segment) {
  const ProfileSpan span(profiled_step_, ProfileKind::kThreads, kLanesName);
  const int lanes = vars_.lanes();
  for (int i = segment.begin; i < segment.end; ++i) {
    CpuOp& op = ops_[static_cast<size_t>(i)];
    if (op.mode() == OpMode::kGate) op.ExpectLanes(lanes);
  }
  if (ctx_.pool != nullptr && lanes <= ctx_.pool->threads() && !segment.nodes.empty()) {
    RunGraph(segment);
  } else if (ctx_.pool != nullptr) {
    ctx_.pool->ParallelFor(lanes, [&](int64_t lane) { RunLane(segment, static_cast<int>(lane)); });
  } else {
    for (int lane = 0; lane < lanes; ++lane) RunLane(segment, lane);
  }
  gates_.Wait(ctx_.pool);
  return first_error_.status();
}

void ExecutorImpl::BeginRun(const StepContext& ctx, absl::Span<const int64_t> batch) {
  CHECK_EQ(batch.size(), batch_.size());
  std::copy(batch.begin(), batch.end(), batch_.begin());
  ctx_ = ctx;
  ctx_.executor_run = ++runs_;
  profiled_step_ = ProfiledStep::current();
  first_error_.Reset();
  for (CpuOp& op : ops_) {
    if (profiled_step_ >= 0) op.MakeNames();
    op.SetFirstLane(ctx.first_lane);
  }
}

void ExecutorImpl::ClearViews(int begin, int end) {
  for (const ViewVar& view : views_) {
    if (view.op < begin || view.op >= end) continue;
    if (Tensor* tensor = std::get_if<Tensor>(view.var)) tensor->Clear();
  }
}

absl::Status ExecutorImpl::RunOps(const StepContext& ctx, absl::Span<const int64_t> batch, int begin, int end) {
  BeginRun(ctx, batch);
  // Values that ops before `begin` write were put there by the caller, or by an earlier call.
  for (int i = 0; i < begin; ++i) ops_[static_cast<size_t>(i)].MeasureOutputs();
  memory_.MeasureFed();
  // Views left from the last run would keep the memory of the whole in use, and all of it would be allocated anew.
  ClearViews(begin, end);
  for (const Segment& segment : segments_) {
    if (segment.end <= begin || segment.begin >= end) continue;
    CHECK(segment.begin >= begin && segment.end <= end)
        << "lane ops stand across the border of [" << begin << ", " << end << ")";
    if (segment.lanes) {
      RETURN_IF_ERROR(RunLanes(segment));
      continue;
    }
    CpuOp& op = ops_[static_cast<size_t>(segment.begin)];
    const int runs = static_cast<int>(op.whole().runs.size());
    for (int run = 0; run < runs; ++run) RETURN_IF_ERROR(op.Run(op.whole(), run, profiled_step_));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const v1::ProgramDesc& program, Scope* scope,
                                                           const ExecutorOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<PreparedBlock> block, PreparedBlock::Create(program, options.block, options.fetch));
  CHECK_GE(options.lanes, 1);
  block->AllowViews();
  auto executor = std::make_unique<ExecutorImpl>(std::move(block), scope, options.lanes);
  RETURN_IF_ERROR(executor->Prepare());
  return executor;
}

}  // namespace weir
