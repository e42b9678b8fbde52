#include "pserver/client/pusher.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/client/placed_rows.h"

namespace weir {

namespace {

using LaneRows = StepChannel::LaneRows;
using LaneTensor = StepChannel::LaneTensor;

// Elements of a dense gradient that one task adds: some 100 us of eight lanes.
constexpr size_t kFloatsOfTask = size_t{64} << 10;

const ProfileName kPushesName("pushes taken");

std::vector<PushNode> PushNodesOf(absl::Span<const LaneRange> nodes) {
  std::vector<PushNode> push_nodes;
  for (const LaneRange& node : nodes) push_nodes.push_back({node.begin, node.count});
  return push_nodes;
}

absl::StatusOr<bool> TakeReply(const Slices& answer) {
  ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(answer));
  v1::PushReply reply;
  if (!reply.ParseFromString(frame.header)) return absl::DataLossError("no PushReply");
  return true;
}

void SetExponents(std::string exponents, v1::PushItem* item) {
  if (!exponents.empty()) item->set_exponents(std::move(exponents));
}

// Checks the sizes of gradient rows. The server of a table that counts takes no push without shows and clicks, and no
// other takes one with them.
absl::Status CheckSizes(const BlockRef& block, const RowForm& form, absl::Span<const LaneRows> lanes) {
  for (const LaneRows& lane : lanes) {
    const int64_t rows = static_cast<int64_t>(lane.value->ids.size());
    if ((lane.counts != nullptr) != form.counts ||
        (form.counts && (!lane.counts->initialized() || lane.counts->size() != 2 * rows))) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, ": ", rows, " rows come with ",
                                                     lane.counts == nullptr ? 0 : lane.counts->size(),
                                                     " shows and clicks; ", form.counts ? 2 * rows : 0, " are wanted"));
    }
    if (lane.value->values.size() != rows * form.width) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, ": ", rows, " rows come with ",
                                                     lane.value->values.size(), " values; ", rows * form.width,
                                                     " are wanted"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// Elements [begin, begin + count) of one node of a dense gradient.
struct Pusher::DenseGradient {
  BlockRef block;
  int64_t block_count = 0;
  LaneRange node;
  int64_t begin = 0, count = 0;
  std::vector<DenseRun> runs;
};

// Rows of one gradient. Borrows its contents.
struct Pusher::RowGradient {
  const BlockRef& block;
  const RowForm& form;
  const PlacedRows& rows;
};

Pusher::Pusher(const BlockPlacement* placement, Calls* calls, BufferPool* buffers, ThreadPool* pool, RowOrders* pulled,
               bool parts_apply)
    : placement_(*placement),
      calls_(*calls),
      buffers_(*buffers),
      pool_(*pool),
      pulled_(*pulled),
      parts_apply_(parts_apply),
      nodes_(AlignedNodes(
          LanesOfTrainer(placement->plan().lanes(), placement->plan().trainers(), calls->settings().trainer_id))),
      push_nodes_(PushNodesOf(nodes_)),
      large_counter_(Counters::Process().Get(absl::StrCat("trainer.", calls->settings().trainer_id, ".large_gradients"),
                                             "gradients")) {
  const CallSettings& settings = calls->settings();
  for (int s = 0; s < settings.servers(); ++s) {
    builders_.push_back(std::make_unique<PushBuilder>(
        buffers, settings.transport->checks_payloads(),
        [this, s](v1::PushRequest header, const Slices& payload) { SendPart(s, std::move(header), payload); }));
  }
}

void Pusher::BeginStep(int64_t step, int64_t read_version) {
  begun_.read_only = false;
  step_samples_ = 0;
  begun_.step = step;
  begun_.read_version = read_version;
  for (const auto& builder : builders_) builder->Begin();
  MutexLock lock(&mu_);
  sends_ = {};
}

void Pusher::BeginReadOnlyStep() {
  begun_.read_only = true;
  step_samples_ = 0;
}

// -------------------------------------------------------------------------------------------------------------- dense

std::vector<DenseRun> Pusher::RunsOf(const LaneRange& node, absl::Span<const LaneTensor> lanes, int64_t begin,
                                     int64_t count) {
  std::vector<DenseRun> runs;
  for (const LaneTensor& lane : lanes) {
    if (lane.lane < node.begin || lane.lane >= node.begin + node.count) continue;
    if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
    runs.push_back(
        {{lane.lane, 1}, 0, lane.value->span<float>().subspan(static_cast<size_t>(begin), static_cast<size_t>(count))});
  }
  return runs;
}

absl::Status Pusher::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  if (begun_.read_only)
    return absl::FailedPreconditionError(absl::StrCat("block ", block.name, ": a read-only step sends nothing"));
  const std::optional<int64_t> count = placement_.BlockCount(block);
  if (!count.has_value()) return BlockPlacement::NoBlock(block);
  for (const LaneTensor& lane : lanes) {
    if (lane.value == nullptr || !lane.value->initialized() || lane.value->size() == *count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("gradient of ", block.name, " has ", lane.value->size(), " elements, the block has ", *count));
  }
  const v1::WireFormat format = placement_.PushFormat(block.server);
  for (PlannedDense& planned : PlanDensePush(block.name, *count, push_nodes_, format)) {
    std::vector<PushTensor> tensors;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      DenseGradient gradient = {block,         *count,        nodes_[i],
                                planned.begin, planned.count, RunsOf(nodes_[i], lanes, planned.begin, planned.count)};
      if (gradient.runs.empty()) continue;
      PushTensor tensor;
      tensor.item = std::move(planned.tensors[i].item);
      tensor.bytes = planned.tensors[i].bytes;
      tensor.write = [this, gradient = std::move(gradient)](char* out, v1::PushItem* item) {
        WriteDense(gradient, out, item);
      };
      tensors.push_back(std::move(tensor));
    }
    builders_[static_cast<size_t>(block.server)]->Add(std::move(tensors));
  }
  return absl::OkStatus();
}

void Pusher::Sum(const DenseGradient& gradient, absl::Span<float> out) {
  const v1::Plan& plan = placement_.plan();
  const int lanes = plan.lanes() == 0 ? plan.trainers() : plan.lanes();
  const size_t tasks = std::max<size_t>(1, out.size() / kFloatsOfTask);
  pool_.ParallelFor(static_cast<int64_t>(tasks), [&](int64_t t) {
    const size_t task = static_cast<size_t>(t), begin = task * kFloatsOfTask;
    const size_t count = task + 1 == tasks ? out.size() - begin : kFloatsOfTask;
    std::vector<DenseRun> runs = gradient.runs;
    for (DenseRun& run : runs) run.values = run.values.subspan(begin, count);
    const absl::Status summed = SumDense(std::move(runs), lanes, out.subspan(begin, count));
    CHECK(summed.ok()) << summed;
  });
}

void Pusher::WriteDense(const DenseGradient& gradient, char* out, v1::PushItem* item) {
  const v1::WireFormat format = placement_.PushFormat(gradient.block.server);
  const size_t floats = static_cast<size_t>(gradient.count);
  const bool as_is = format == v1::WIRE_FLOAT32;
  const WireBuffer exact = as_is ? WireBuffer() : buffers_.Get(floats * sizeof(float));
  const absl::Span<float> sum = absl::MakeSpan(reinterpret_cast<float*>(as_is ? out : exact.data), floats);
  Sum(gradient, sum);
  if (as_is) return;
  SetExponents(residuals_.EncodeDense(gradient.block.name, gradient.node, gradient.block_count, gradient.begin, sum,
                                      format, out),
               item);
}

// --------------------------------------------------------------------------------------------------------------- rows

absl::Status Pusher::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (begun_.read_only)
    return absl::FailedPreconditionError(absl::StrCat("table ", block.name, ": a read-only step sends nothing"));
  const bool by_shard = block.server < 0;
  const v1::PlacedTable* const table = placement_.FindTable(block.name);
  if (by_shard ? table == nullptr : !placement_.BlockCount(block).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan has no table or block ", block.name, " on server ", block.server));
  }
  const auto form_for = [&](int server) {
    return RowForm{width, by_shard ? placement_.PushFormat(*table, server) : placement_.PushFormat(server),
                   by_shard && table->shows_and_clicks()};
  };
  RETURN_IF_ERROR(CheckSizes(block, form_for(0), lanes));
  const int servers = calls_.settings().servers();
  PlacedRows rows(lanes, by_shard ? pulled_.Find(block.name, begun_.step) : RowOrders::Known(),
                  by_shard ? static_cast<uint32_t>(table->logical_shards()) : 1, by_shard ? servers : 1);
  if (!rows.Unite(nodes_, &pool_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gradient of ", block.name, ": a lane has an id twice, or one that was not prefetched in this step"));
  }
  // Pieces of the order, each with all nodes, written and sent in parallel.
  struct Piece {
    int server;
    size_t begin, end;
  };
  std::vector<Piece> pieces;
  const auto cut = [&](int server, size_t begin, size_t end) {
    const size_t per_piece = RowsPerPush(form_for(server), nodes_.size());
    for (; begin < end; begin += per_piece) pieces.push_back({server, begin, std::min(end, begin + per_piece)});
  };
  if (by_shard) {
    for (int s = 0; s < servers; ++s) cut(s, rows.order().begin(s), rows.order().begin(s + 1));
  } else {
    cut(block.server, 0, rows.order().size());
  }
  pool_.ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t p) {
    const Piece& piece = pieces[static_cast<size_t>(p)];
    SendRowRange({block, form_for(piece.server), rows}, piece.server, piece.begin, piece.end);
  });
  return absl::OkStatus();
}

void Pusher::SendRowRange(const RowGradient& gradient, int server, size_t begin, size_t end) {
  const PlacedRows& rows = gradient.rows;
  std::vector<PushTensor> tensors;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const RowUnion& of_node = rows.unions()[i];
    if (of_node.empty()) continue;
    const RowUnion::Range range = of_node.At(rows.order(), rows.ids(), begin, end);
    if (range.size() == 0) continue;
    PlannedRows planned = PlanRowsPush(gradient.block.name, push_nodes_[i], range.size(), gradient.form);
    rows_.fetch_add(static_cast<int64_t>(range.size()), std::memory_order_relaxed);
    PushTensor tensor;
    tensor.item = std::move(planned.tensor.item);
    tensor.bytes = planned.tensor.bytes;
    tensor.write = [this, &gradient, i, range, layout = planned.layout](char* out, v1::PushItem* item) {
      WriteRows(gradient, i, range, layout, out, item);
    };
    tensors.push_back(std::move(tensor));
  }
  builders_[static_cast<size_t>(server)]->Add(std::move(tensors));
}

void Pusher::WriteRows(const RowGradient& gradient, size_t node, const RowUnion::Range& range,
                       const PushRowLayout& layout, char* out, v1::PushItem* item) {
  const PlacedRows& rows = gradient.rows;
  const RowUnion& of_node = rows.unions()[node];
  const int width = gradient.form.width;
  int64_t* const sent = reinterpret_cast<int64_t*>(out);
  of_node.WriteIds(rows.ids(), range, sent);
  std::memset(out + layout.ids_end, 0, layout.values_begin - layout.ids_end);
  if (gradient.form.counts) {
    std::memset(out + layout.values_end, 0, layout.counts_begin - layout.values_end);
    of_node.WriteCounts(rows.lanes(), range, reinterpret_cast<float*>(out + layout.counts_begin));
  }
  char* const values = out + layout.values_begin;
  if (gradient.form.format == v1::WIRE_FLOAT32) {
    return of_node.WriteSums(rows.lanes(), range, width, reinterpret_cast<float*>(values));
  }
  const size_t floats = range.size() * static_cast<size_t>(width);
  const WireBuffer exact = buffers_.Get(floats * sizeof(float));
  const absl::Span<float> sums = absl::MakeSpan(reinterpret_cast<float*>(exact.data), floats);
  of_node.WriteSums(rows.lanes(), range, width, sums.data());
  SetExponents(residuals_.EncodeRows(gradient.block.name, nodes_[node], width, absl::MakeConstSpan(sent, range.size()),
                                     of_node.Before(rows.ids(), range), sums, gradient.form.format, values),
               item);
}

// -------------------------------------------------------------------------------------------------------------- parts

bool Pusher::TakesEffectAlone(const v1::PushRequest& header) const {
  if (!parts_apply_ || header.has_part_count()) return false;
  // A piece of a block cannot be applied by itself; it waits for the last part.
  return std::all_of(header.items().begin(), header.items().end(), [&](const v1::PushItem& item) {
    return item.width() > 0 || placement_.BlockCount(item.name()) == item.count();
  });
}

void Pusher::SendPart(int server, v1::PushRequest header, const Slices& payload) {
  *header.mutable_caller() = calls_.CallerFor(server);
  header.set_step(begun_.step);
  header.set_read_version(begun_.read_version);
  const bool last = header.has_part_count();
  const int64_t samples = step_samples_;
  if (samples > 0 && TakesEffectAlone(header)) header.set_samples(samples);
  const CallPtr call = Calls::New(server, Method::kPush, EncodeFrame(header.SerializeAsString(), payload), TakeReply);
  call->what = absl::StrCat("pushes of step ", begun_.step);
  call->answer_may_wait = acks_ != Acks::kAwaited;
  call->needs_trainers = calls_.settings().needs_all_trainers;
  // The thread that has filled the part may work for no step of its own.
  call->profiled_step = Profiler::Wants(begun_.step) ? begun_.step : -1;
  const bool kept = acks_ == Acks::kKept && last;
  {
    MutexLock lock(&mu_);
    (kept ? sends_.kept : sends_.under_way).push_back(call);
  }
  if (!kept) calls_.Issue(call);
}

absl::Status Pusher::FinishSends(int64_t samples, v1::Verdict verdict, bool stop_requested) {
  if (begun_.read_only) return absl::FailedPreconditionError("a read-only step sends nothing");
  sent_ = {begun_.step, samples, verdict};
  v1::PushRequest header;
  header.set_samples(samples);
  if (first_samples_ > 0) header.set_first_samples(first_samples_);
  header.set_verdict(verdict);
  header.set_stop_requested(stop_requested);
  size_t bytes = 0;
  for (const auto& builder : builders_) bytes += builder->pending();
  ForEachWorth(&pool_, bytes, static_cast<int64_t>(builders_.size()),
               [&](int64_t s) { builders_[static_cast<size_t>(s)]->Finish(header); });
  return absl::OkStatus();
}

void Pusher::EndStep(bool took_effect) {
  if (took_effect) {
    residuals_.Keep();
  } else {
    residuals_.Drop();
  }
  const Residuals::Large large = residuals_.large();
  if (large.count == large_) return;
  if (large_ == 0) {
    LOG(WARNING) << "step " << begun_.step << ": " << large.count
                 << " elements of gradients are beyond 65504, the range of "
                 << "WIRE_FLOAT16, the first of them in '" << large.first << "': the server gets them right, but small "
                 << "elements beside them late; checked data, optimizer.clip or a smaller learning rate may help; more "
                 << "of them are only counted (weir_large_gradients_total)";
  }
  large_counter_->Add(large.count - large_);
  large_ = large.count;
}

Pusher::Sends Pusher::TakeSends() {
  MutexLock lock(&mu_);
  return std::exchange(sends_, {});
}

absl::Status Pusher::AwaitSends() {
  const CallSettings& settings = calls_.settings();
  const Sends sends = TakeSends();
  CHECK(sends.kept.empty()) << "last parts that nobody sends";
  return calls_.Wait(sends.under_way, absl::StrCat("pushes of step ", begun_.step),
                     settings.progress_deadline + 2 * settings.lease, {.profiled_as = &kPushesName});
}

}  // namespace weir
