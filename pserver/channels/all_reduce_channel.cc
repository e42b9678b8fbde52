#include "pserver/channels/all_reduce_channel.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/collective/adasum.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"
#include "pserver/channels/local_sgd_channel.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/replica/node_rows.h"
#include "pserver/replica/replica_reads.h"
#include "pserver/replica/shared_norms.h"

namespace weir {

namespace {

static_assert(kMostInBucket == kMostSegments);

const ProfileName kExchangesName("gradients of all trainers");

// Gradient of one block.
struct Part {
  // Constant.
  std::string name;
  std::string parameter;
  int owner = -1;       // trainer that updates the block; -1: every one does
  int target = -1;      // index in the replica's parameters; -1: this trainer does not update it
  int64_t count = 0;    // elements
  int width = 0;        // > 0: rows
  bool plain = false;   // neither compressed nor part of an adasum
  size_t exchange = 0;  // which it is part of
  size_t segment = 0;   // of the exchange
  int64_t begin = 0;    // of its elements in those of the exchange

  // Gradients of this trainer in the step. `sums`, dense: by node; null if no lane of the node has a gradient.
  std::vector<const float*> sums;
  std::string rows;
};

// Gradients that travel together: the dense ones of a bucket, or the rows of one parameter.
struct Exchange {
  // Constant.
  std::string name;
  bool rows = false;
  bool plain = false;
  std::vector<size_t> parts;      // in the order of their owners
  std::vector<int64_t> segments;  // elements of the parts, dense
  int64_t count = 0;              // elements of all
  // If trainers share the updates out: begins of their parts among the elements, and the end of the last one.
  std::vector<int64_t> begins;

  // Fields of the step.
  std::vector<std::vector<float>> own;  // memory of sums, by node
  std::unique_ptr<CompressedSum> compressed;
  Collective::PendingPtr pending;  // null: not begun
  // Results.
  std::vector<float> sum;             // of all elements, or of this trainer's
  std::vector<std::string> all_rows;  // by trainer
};

v1::AllReduceMode OwnMode(const v1::ProgramDesc& main) {
  v1::AllReduceMode mode = ModeOf(main).all_reduce();
  // The owner of a share adds in the tree all the same.
  if (mode.sharded()) mode.set_any_order(false);
  return mode;
}

class AllReduceChannelImpl : public AllReduceChannel {
 public:
  explicit AllReduceChannelImpl(const AllReduceOptions& options)
      : replica_(*options.replica),
        servers_(*options.servers),
        mode_(OwnMode(*options.main)),
        residuals_(options.residuals),
        lanes_(options.main->plan().lanes() == 0 ? options.main->plan().trainers() : options.main->plan().lanes()),
        shared_norms_(SharedNorms::Create(*options.main, options.replica)) {
    const v1::Plan& plan = options.main->plan();
    for (int t = 0; t < plan.trainers(); ++t) {
      nodes_.push_back(AlignedNodes(LanesOfTrainer(plan.lanes(), plan.trainers(), t)));
    }
    own_nodes_ = nodes_[static_cast<size_t>(options.trainer_id)];
    if (mode_.any_order()) one_node_ = {LanesOfTrainer(plan.lanes(), plan.trainers(), options.trainer_id)};
  }
  ~AllReduceChannelImpl() override { EndExchanges(absl::CancelledError("the trainer ends in the middle of a step")); }
  absl::Status Init(const v1::ProgramDesc& main);

  void EndExchanges(const absl::Status& error) override;
  NormParty* norm_party() override { return shared_norms_.get(); }
  absl::Status BeginStep(int64_t step, bool read_only) override;
  absl::Status PullRows(absl::Span<const TableRows> tables) override;
  void UseRowsAhead() override { servers_.UseRowsAhead(); }
  void SetStepSamples(int64_t samples) override { servers_.SetStepSamples(samples); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override;
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override;
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override;
  absl::Status FinishReceives(StepOutcome* outcome) override;

 private:
  // Puts the parts of the program into exchanges.
  void MakeExchanges(const std::vector<int64_t>& buckets);
  // Returns true if the rows of a part can join an exchange: of one parameter, each with another owner.
  bool JoinsRows(const Part& part, const Exchange& exchange) const;
  // Orders the parts of an exchange, and gives them places.
  void LayOut(Exchange* exchange);
  // Begin an exchange of rows, and of dense gradients.
  void BeginRows(Exchange* exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeginDense(Exchange* exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the part of a block; FailedPrecondition in a step that sends nothing.
  absl::StatusOr<Part*> FindPart(const BlockRef& block);
  // Returns the nodes whose dense sums this trainer gives: of an exchange in any order one, with all its lanes.
  const std::vector<LaneRange>& NodesOf(const Exchange& exchange) const {
    return mode_.any_order() && !Adasums(exchange) ? one_node_ : own_nodes_;
  }
  bool Adasums(const Exchange& exchange) const { return mode_.adasum() && !exchange.plain; }
  // Makes what exchanges keep from step to step.
  void MakeMemory();
  // Sums the lanes of node n into the memory of the part's exchange. Returns null if no lane has values. A part that
  // travels alone may borrow the values of the only lane that has any.
  absl::StatusOr<const float*> SumNode(size_t n, absl::Span<const LaneTensor> lanes, const Part& part);
  void GiveAndBegin(const Part* given);
  bool Ready(const Exchange& exchange) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Begin(Exchange* exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeginCompressed(Exchange* exchange) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WaitForExchanges();
  // Reads the results of compressed exchanges, which have ended. Returns false if one is not finite.
  bool Unpack();
  absl::StatusOr<TrainerGradients> TakeResults(int64_t samples);
  // Updates the replica after a step of so many samples of all trainers.
  absl::Status Update(int64_t samples);

  DenseReplica& replica_;
  ParamChannel& servers_;
  const v1::AllReduceMode mode_;
  const ResidualMemory residuals_;
  const int lanes_;                                  // leaves of the lane tree
  const std::unique_ptr<SharedNorms> shared_norms_;  // null: no norm covers tables and dense parameters
  std::vector<std::vector<LaneRange>> nodes_;        // by trainer; constant after Init, like own_nodes_ and part_of_
  std::vector<LaneRange> own_nodes_;
  std::vector<LaneRange> one_node_;                     // in any order: all lanes of this trainer
  std::map<std::string, size_t, std::less<>> part_of_;  // by parameter

  // Used by the thread that runs the program.
  int64_t step_ = 0;
  bool read_only_ = false;
  bool sent_ = false;  // FinishSends has been called in this step
  bool told_ = false;  // a sum that is not finite has been reported
  std::vector<std::pair<int, Tensor*>> wanted_;

  // Parts in the order of the program. The fields of the step, and the part's memory in its exchange, belong to the
  // thread that has its gradient until the part is ready, and are constant from then until FinishSends has waited for
  // the exchange.
  std::vector<Part> parts_;
  std::vector<Exchange> exchanges_;  // in the order in which they begin
  Mutex mu_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;          // first exchange that has not begun
  bool open_ ABSL_GUARDED_BY(mu_) = false;        // some have begun and were not waited for
  std::vector<bool> ready_ ABSL_GUARDED_BY(mu_);  // by part
};

absl::Status AllReduceChannelImpl::Init(const v1::ProgramDesc& main) {
  std::vector<int64_t> buckets;  // by part
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() != "all_reduce") continue;
    const OpDef* const def = OpRegistry::Global().Find(op.type());
    CHECK(def != nullptr);
    const AttrReader attrs(op, *def);
    Part part;
    part.name = attrs.String("block");
    const int block = replica_.FindBlock(part.name);
    if (block < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", main.name(), ": all_reduce of '", part.name, "', which the plan does not have"));
    }
    const v1::PlacedBlock& placed = replica_.block(block).placed;
    part.parameter = placed.parameter();
    if (replica_.sharded()) part.owner = placed.trainer();
    part.target = replica_.block(block).target;
    part.count = placed.element_count();
    part.width = static_cast<int>(attrs.Int("width"));
    part.plain = attrs.Bool("measured");
    part.sums.assign(own_nodes_.size(), nullptr);
    if (!part_of_.emplace(part.name, parts_.size()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", main.name(), ": two all_reduce ops of '", part.name, "'"));
    }
    parts_.push_back(std::move(part));
    buckets.push_back(attrs.Int("bucket"));
  }
  MakeExchanges(buckets);
  for (const Exchange& exchange : exchanges_) {
    if (exchange.segments.size() <= kMostInBucket) continue;
    return absl::InvalidArgumentError(absl::StrCat("program ", main.name(), ": the bucket of '",
                                                   parts_[exchange.parts[0]].name, "' has ", exchange.segments.size(),
                                                   " parameters; at most ", kMostInBucket, " travel together"));
  }
  MakeMemory();
  MutexLock lock(&mu_);
  ready_.assign(parts_.size(), false);
  return absl::OkStatus();
}

bool AllReduceChannelImpl::JoinsRows(const Part& part, const Exchange& exchange) const {
  return exchange.rows && std::all_of(exchange.parts.begin(), exchange.parts.end(), [&](size_t p) {
           return parts_[p].parameter == part.parameter && parts_[p].owner != part.owner;
         });
}

void AllReduceChannelImpl::MakeExchanges(const std::vector<int64_t>& buckets) {
  std::vector<Exchange> all;
  // The exchanges of a bucket: of gradients, and of what the mode does not concern.
  std::map<std::pair<int64_t, bool>, size_t> filled;
  const bool tells_apart = mode_.adasum() || mode_.compression() != v1::DTYPE_UNSET;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const bool rows = parts_[p].width > 0, plain = tells_apart && parts_[p].plain;
    size_t e = all.size();
    if (rows && !all.empty() && JoinsRows(parts_[p], all.back())) e = all.size() - 1;
    if (!rows) e = filled.emplace(std::pair(buckets[p], plain), e).first->second;
    if (e == all.size()) all.emplace_back();
    all[e].rows = rows;
    all[e].plain = plain;
    all[e].parts.push_back(p);
  }
  std::sort(all.begin(), all.end(),
            [](const Exchange& a, const Exchange& b) { return a.parts.back() < b.parts.back(); });
  for (Exchange& exchange : all) {
    exchange.name = parts_[exchange.parts[0]].name;
    if (exchange.parts.size() > 1) {
      const std::string more = absl::StrCat(" and ", exchange.parts.size() - 1, " more");
      exchange.name = exchange.name.substr(0, kMostOperationName - more.size()) + more;
    }
    exchange.name.resize(std::min(exchange.name.size(), kMostOperationName));
    LayOut(&exchange);
  }
  for (size_t e = 0; e < all.size(); ++e) {
    for (const size_t p : all[e].parts) parts_[p].exchange = e;
  }
  exchanges_ = std::move(all);
}

void AllReduceChannelImpl::MakeMemory() {
  for (Exchange& exchange : exchanges_) {
    if (exchange.rows) continue;
    exchange.own.resize(NodesOf(exchange).size());
    // With one trainer nothing is on the way.
    if (mode_.compression() != v1::DTYPE_UNSET && !exchange.plain && nodes_.size() > 1) {
      std::vector<CompressedSum::Segment> segments;
      for (const size_t p : exchange.parts) segments.push_back({parts_[p].name, parts_[p].count});
      exchange.compressed = std::make_unique<CompressedSum>(mode_.compression(), segments, residuals_);
    }
    if (exchange.parts.size() == 1) continue;
    // Parts may be there at the same time; a single one takes memory when it needs it.
    for (std::vector<float>& sums : exchange.own) sums.resize(static_cast<size_t>(exchange.count));
  }
}

void AllReduceChannelImpl::LayOut(Exchange* exchange) {
  std::stable_sort(exchange->parts.begin(), exchange->parts.end(),
                   [this](size_t a, size_t b) { return parts_[a].owner < parts_[b].owner; });
  for (const size_t p : exchange->parts) {
    Part& part = parts_[p];
    part.segment = exchange->segments.size();
    part.begin = exchange->count;
    exchange->count += part.count;
    if (!exchange->rows) exchange->segments.push_back(part.count);
    // Those before it own nothing more.
    if (replica_.sharded()) exchange->begins.resize(static_cast<size_t>(part.owner) + 1, part.begin);
  }
  if (replica_.sharded()) exchange->begins.resize(nodes_.size() + 1, exchange->count);
}

absl::Status AllReduceChannelImpl::BeginStep(int64_t step, bool read_only) {
  step_ = step;
  read_only_ = read_only;
  sent_ = false;
  wanted_.clear();
  if (!read_only) {
    MutexLock lock(&mu_);
    next_ = 0;
    ready_.assign(parts_.size(), false);
    for (Part& part : parts_) {
      part.sums.assign(own_nodes_.size(), nullptr);
      part.rows.clear();
    }
    for (Exchange& exchange : exchanges_) {
      exchange.all_rows.clear();
      exchange.pending = nullptr;
    }
  }
  return servers_.BeginStep(step, read_only);
}

absl::Status AllReduceChannelImpl::PullRows(absl::Span<const TableRows> tables) {
  return PullRowsOfReplica(tables, &replica_, &servers_);
}

absl::StatusOr<Part*> AllReduceChannelImpl::FindPart(const BlockRef& block) {
  if (read_only_) {
    return absl::FailedPreconditionError(absl::StrCat("gradient of ", block.name, ": a read-only step sends nothing"));
  }
  const auto found = part_of_.find(block.name);
  if (found != part_of_.end()) return &parts_[found->second];
  return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, ", which the trainers do not hold"));
}

absl::StatusOr<const float*> AllReduceChannelImpl::SumNode(size_t n, absl::Span<const LaneTensor> lanes,
                                                           const Part& part) {
  Exchange& exchange = exchanges_[part.exchange];
  const LaneRange& node = NodesOf(exchange)[n];
  std::vector<DenseRun> runs;
  for (const LaneTensor& lane : lanes) {
    if (lane.lane < node.begin || lane.lane >= node.begin + node.count) continue;
    if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
    runs.push_back({{lane.lane, 1}, 0, lane.value->span<float>()});
  }
  if (runs.empty()) return nullptr;
  if (exchange.parts.size() == 1) {
    if (runs.size() == 1) return runs[0].values.data();
    exchange.own[n].resize(static_cast<size_t>(exchange.count));
  }
  const absl::Span<float> sum =
      absl::MakeSpan(exchange.own[n]).subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.count));
  if (Adasums(exchange)) {
    std::vector<LaneAddend> means;
    means.reserve(runs.size());
    for (const DenseRun& run : runs) means.push_back({.lanes = run.node, .values = run.values.data()});
    Adasum(v1::FLOAT32, means, lanes_, part.count, sum.data());
  } else {
    RETURN_IF_ERROR(SumDense(std::move(runs), lanes_, sum));
  }
  return sum.data();
}

absl::Status AllReduceChannelImpl::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  ASSIGN_OR_RETURN(Part* const part, FindPart(block));
  for (const LaneTensor& lane : lanes) {
    if (lane.value == nullptr || !lane.value->initialized() || lane.value->size() == part->count) continue;
    return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, " has ", lane.value->size(),
                                                   " elements, the parameter has ", part->count));
  }
  for (size_t n = 0; n < NodesOf(exchanges_[part->exchange]).size(); ++n) {
    ASSIGN_OR_RETURN(part->sums[n], SumNode(n, lanes, *part));
  }
  GiveAndBegin(part);
  return absl::OkStatus();
}

absl::Status AllReduceChannelImpl::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (!read_only_ && !part_of_.contains(block.name)) return servers_.SendRows(block, width, lanes);
  ASSIGN_OR_RETURN(Part* const part, FindPart(block));
  absl::StatusOr<std::string> rows = PackNodeRows(own_nodes_, lanes_, width, lanes);
  if (!rows.ok()) {
    return absl::Status(rows.status().code(), absl::StrCat("gradient of ", block.name, ": ", rows.status().message()));
  }
  part->rows = *std::move(rows);
  GiveAndBegin(part);
  return absl::OkStatus();
}

void AllReduceChannelImpl::GiveAndBegin(const Part* given) {
  MutexLock lock(&mu_);
  ready_[static_cast<size_t>(given - parts_.data())] = true;
  // All trainers begin in one order, whatever order their gradients come in.
  for (; next_ < exchanges_.size() && Ready(exchanges_[next_]); ++next_) Begin(&exchanges_[next_]);
}

bool AllReduceChannelImpl::Ready(const Exchange& exchange) const {
  for (const size_t p : exchange.parts) {
    if (!ready_[p]) return false;
  }
  return true;
}

void AllReduceChannelImpl::Begin(Exchange* exchange) {
  open_ = true;
  if (exchange->rows) {
    BeginRows(exchange);
  } else {
    BeginDense(exchange);
  }
}

void AllReduceChannelImpl::BeginRows(Exchange* exchange) {
  if (!replica_.sharded()) {
    exchange->pending = replica_.collective().AllGatherBytes(exchange->name, std::move(parts_[exchange->parts[0]].rows),
                                                             &exchange->all_rows);
    return;
  }
  std::vector<std::string> to(nodes_.size());
  for (const size_t p : exchange->parts) to[static_cast<size_t>(parts_[p].owner)] = std::move(parts_[p].rows);
  exchange->pending = replica_.collective().AllToAllBytes(exchange->name, std::move(to), &exchange->all_rows);
}

void AllReduceChannelImpl::BeginDense(Exchange* exchange) {
  if (exchange->compressed != nullptr) return BeginCompressed(exchange);
  const bool any_order = mode_.any_order() && !Adasums(*exchange);
  const std::vector<LaneRange>& nodes = NodesOf(*exchange);
  std::vector<LaneAddend> addends;
  for (size_t n = 0; n < nodes.size(); ++n) {
    LaneAddend addend{.lanes = nodes[n], .values = exchange->own[n].data(), .present = 0};
    // Trainers are the leaves then.
    if (any_order) addend.lanes = {replica_.collective().rank(), 1};
    for (const size_t p : exchange->parts) {
      if (parts_[p].sums[n] == nullptr) continue;
      addend.present |= uint64_t{1} << parts_[p].segment;
      if (exchange->parts.size() == 1) addend.values = parts_[p].sums[n];
    }
    if (addend.present != 0) addends.push_back(addend);
  }
  Collective::Values values{.name = exchange->name,
                            .shape = {exchange->count},
                            .segments = exchange->segments,
                            .reduction = Adasums(*exchange) ? Reduction::kAdasum : Reduction::kSum,
                            .lanes = any_order ? 0 : lanes_,
                            .addends = std::move(addends),
                            .any_order = any_order};
  if (!replica_.sharded()) {
    exchange->sum.resize(static_cast<size_t>(exchange->count));
    exchange->pending = replica_.collective().AllReduce(std::move(values), exchange->sum.data());
    return;
  }
  const auto own = static_cast<size_t>(replica_.collective().rank());
  exchange->sum.resize(static_cast<size_t>(exchange->begins[own + 1] - exchange->begins[own]));
  exchange->pending = replica_.collective().ReduceScatter(std::move(values), exchange->begins, exchange->sum.data());
}

void AllReduceChannelImpl::BeginCompressed(Exchange* exchange) {
  std::vector<const float*> sums;
  uint64_t present = 0;
  for (const size_t p : exchange->parts) {
    const float* const sum = parts_[p].sums[0];
    if (sum != nullptr) present |= uint64_t{1} << parts_[p].segment;
    sums.push_back(sum);
  }
  exchange->sum.resize(static_cast<size_t>(exchange->count));
  void* const values = exchange->compressed->Pack(sums);
  std::vector<LaneAddend> addends;
  if (present != 0) {
    addends.push_back({.lanes = {replica_.collective().rank(), 1}, .values = values, .present = present});
  }
  exchange->pending = replica_.collective().AllReduce({.name = exchange->name,
                                                       .dtype = mode_.compression(),
                                                       .shape = {exchange->count},
                                                       .segments = exchange->segments,
                                                       .reduction = Reduction::kSum,
                                                       .addends = std::move(addends),
                                                       .lost = exchange->compressed->lost()},
                                                      values);
}

bool AllReduceChannelImpl::Unpack() {
  bool finite = true;
  for (Exchange& exchange : exchanges_) {
    if (exchange.compressed == nullptr) continue;
    const Collective::Pending& pending = *exchange.pending;
    if (exchange.compressed->Unpack([&](size_t s) { return pending.present(s); }, exchange.sum.data())) continue;
    finite = false;
    if (told_) continue;
    told_ = true;
    LOG(WARNING) << "step " << step_ << ": the sum of the gradients of '" << exchange.name << "' is not finite in "
                 << v1::DType_Name(mode_.compression())
                 << " on the way (distribute.all_reduce.compression), so all trainers skip the step; BFLOAT16 has the "
                    "range of float32. Later steps are only counted";
  }
  return finite;
}

void AllReduceChannelImpl::EndExchanges(const absl::Status& error) {
  {
    MutexLock lock(&mu_);
    if (!open_) return;
    open_ = false;
    // Exchanges that have not begun do not begin any more.
    next_ = exchanges_.size();
  }
  replica_.collective().Abort(error);
  for (const Exchange& exchange : exchanges_) {
    if (exchange.pending != nullptr) exchange.pending->Wait().IgnoreError();
  }
}

absl::Status AllReduceChannelImpl::WaitForExchanges() {
  // The program may change its gradients when this returns.
  const ProfileSpan span(step_, ProfileKind::kBorder, kExchangesName);
  for (const Exchange& exchange : exchanges_) RETURN_IF_ERROR(exchange.pending->Wait());
  MutexLock lock(&mu_);
  open_ = false;
  return absl::OkStatus();
}

absl::Status AllReduceChannelImpl::FinishSends(int64_t samples, v1::Verdict verdict) {
  if (read_only_) return absl::FailedPreconditionError("a read-only step sends nothing");
  {
    // Exchanges that no lane has anything for; other trainers may have.
    MutexLock lock(&mu_);
    for (; next_ < exchanges_.size(); ++next_) Begin(&exchanges_[next_]);
  }
  if (shared_norms_ != nullptr) {
    shared_norms_->Begin(samples, [this](int64_t all_samples) -> absl::StatusOr<TrainerGradients> {
      RETURN_IF_ERROR(WaitForExchanges());
      return TakeResults(all_samples);
    });
  }
  absl::Status status;
  if (mode_.compression() != v1::DTYPE_UNSET) {
    status = WaitForExchanges();
    if (status.ok() && !Unpack()) verdict = v1::SKIP;
    if (status.ok()) status = servers_.FinishSends(samples, verdict);
  } else {
    status = servers_.FinishSends(samples, verdict);
    if (status.ok()) status = WaitForExchanges();
  }
  if (status.ok() && shared_norms_ != nullptr) status = shared_norms_->Finish(step_);
  if (!status.ok()) EndExchanges(status);
  // Not told by EndExchanges if all exchanges have ended; the others may wait for this trainer's norms.
  if (!status.ok()) replica_.collective().Abort(status);
  sent_ = status.ok();
  return status;
}

absl::Status AllReduceChannelImpl::Receive(const BlockRef& block, Tensor* out) {
  const int index = replica_.FindBlock(block.name);
  if (index < 0) return servers_.Receive(block, out);
  RETURN_IF_ERROR(CheckReceives(replica_, index, *out));
  wanted_.emplace_back(index, out);
  return absl::OkStatus();
}

// Returns the gradients of what this trainer updates in the step, as those of one trainer.
absl::StatusOr<TrainerGradients> AllReduceChannelImpl::TakeResults(int64_t samples) {
  TrainerGradients all{.trainer = 0, .samples = samples};
  for (const Part& part : parts_) {
    if (part.target < 0) continue;
    const Exchange& exchange = exchanges_[part.exchange];
    if (exchange.rows) {
      const int64_t height = part.count / part.width;
      for (size_t t = 0; t < exchange.all_rows.size(); ++t) {
        const absl::Status read =
            ReadNodeRows(exchange.all_rows[t], nodes_[t], part.target, part.width, height, &all.gradients);
        if (!read.ok()) {
          return absl::Status(read.code(), absl::StrCat("'", part.name, "' from trainer ", t, ": ", read.message()));
        }
      }
    } else if (exchange.pending->present(part.segment)) {
      Gradient& gradient = all.gradients.emplace_back();
      gradient.target = part.target;
      gradient.node = {0, lanes_};
      gradient.count = part.count;
      const int64_t first = part.owner < 0 ? 0 : exchange.begins[static_cast<size_t>(part.owner)];
      gradient.values = exchange.sum.data() + part.begin - first;
    }
  }
  return all;
}

absl::Status AllReduceChannelImpl::Update(int64_t samples) {
  Norms shared;
  if (shared_norms_ != nullptr) {
    ASSIGN_OR_RETURN(shared, shared_norms_->Exchange());
  }
  ASSIGN_OR_RETURN(const TrainerGradients gradients, TakeResults(samples));
  RETURN_IF_ERROR(replica_.Update(step_, absl::MakeConstSpan(&gradients, 1), shared));
  for (Exchange& exchange : exchanges_) {
    if (exchange.compressed != nullptr) exchange.compressed->Keep();
  }
  return absl::OkStatus();
}

absl::Status AllReduceChannelImpl::FinishReceives(StepOutcome* outcome) {
  StepOutcome result;
  RETURN_IF_ERROR(servers_.FinishReceives(&result));
  if (sent_ && !result.skipped && !result.ended && result.samples > 0) {
    const absl::Status updated = Update(result.samples);
    // The others may wait for this trainer's part of the update.
    if (!updated.ok()) replica_.collective().Abort(updated);
    RETURN_IF_ERROR(updated);
  }
  sent_ = false;
  for (const auto& [block, out] : wanted_) replica_.CopyBlock(block, out->data<float>());
  wanted_.clear();
  if (outcome != nullptr) *outcome = result;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AllReduceChannel>> AllReduceChannel::Create(const AllReduceOptions& options) {
  CHECK(options.replica != nullptr && options.servers != nullptr);
  if (ModeOf(*options.main).all_reduce().local_steps() > 0) return MakeLocalSgdChannel(options);
  auto channel = std::make_unique<AllReduceChannelImpl>(options);
  RETURN_IF_ERROR(channel->Init(*options.main));
  return std::unique_ptr<AllReduceChannel>(std::move(channel));
}

}  // namespace weir
