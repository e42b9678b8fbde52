#include "pserver/client/client_impl.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"
#include "glog/logging.h"

namespace weir {

namespace {

const ProfileName kPushesName("pushes taken"), kNormsName("norms");

}  // namespace

absl::Status ClientImpl::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  if (read_only_)
    return absl::FailedPreconditionError(absl::StrCat("block ", block.name, ": a read-only step sends nothing"));
  const auto count = block_counts_.find(block.name);
  if (count == block_counts_.end() || block.server < 0 || block.server >= servers()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has no block ", block.name, " on server ", block.server));
  }
  // Elements of one call, so that all nodes of a piece fit in one message.
  const int64_t piece =
      static_cast<int64_t>(kBytesOfOneTensor / nodes_.size() / kAlignment * kAlignment / sizeof(float));
  for (int64_t begin = 0; begin < count->second; begin += piece) {
    const int64_t n = std::min(piece, count->second - begin);
    std::vector<PushTensor> tensors;
    for (const LaneRange& node : nodes_) {
      std::vector<DenseRun> runs;
      for (const LaneTensor& lane : lanes) {
        if (lane.lane < node.begin || lane.lane >= node.begin + node.count) continue;
        if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
        if (lane.value->size() != count->second) {
          return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, " has ", lane.value->size(),
                                                         " elements, the block has ", count->second));
        }
        runs.push_back(
            {{lane.lane, 1}, 0, lane.value->span<float>().subspan(static_cast<size_t>(begin), static_cast<size_t>(n))});
      }
      if (runs.empty()) continue;
      PushTensor tensor;
      tensor.item.set_name(block.name);
      tensor.item.set_lane(node.begin);
      tensor.item.set_lanes(node.count);
      tensor.item.set_begin(begin);
      tensor.item.set_count(n);
      const v1::WireFormat format = options_.plan.wire().push();
      const size_t floats = static_cast<size_t>(n);
      if (format != v1::WIRE_FLOAT32) tensor.item.set_format(format);
      tensor.bytes = EncodedBytes(format, floats, kDenseGroup);
      tensor.write = [this, runs = std::move(runs), name = block.name, node, count = count->second, begin, floats,
                      format](char* out) {
        const bool as_is = format == v1::WIRE_FLOAT32;
        const WireBuffer exact = as_is ? WireBuffer() : buffers_.Get(floats * sizeof(float));
        const absl::Span<float> sum = absl::MakeSpan(reinterpret_cast<float*>(as_is ? out : exact.data), floats);
        const absl::Status summed = SumDense(runs, tree_lanes_, sum);
        CHECK(summed.ok()) << summed;
        if (!as_is) residuals_.EncodeDense(name, node, count, begin, sum, format, out);
      };
      tensors.push_back(std::move(tensor));
    }
    builders_[static_cast<size_t>(block.server)]->Add(std::move(tensors));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (read_only_)
    return absl::FailedPreconditionError(absl::StrCat("table ", block.name, ": a read-only step sends nothing"));
  const bool by_shard = block.server < 0;
  const auto table = tables_.find(block.name);
  if (by_shard ? table == tables_.end() : block.server >= servers() || !block_counts_.contains(block.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan has no table or block ", block.name, " on server ", block.server));
  }
  // The server of a table that counts takes no push without, and no other takes one with them.
  const bool counts = by_shard && table->second->shows_and_clicks();
  for (const LaneRows& lane : lanes) {
    const int64_t rows = static_cast<int64_t>(lane.value->ids.size());
    if ((lane.counts != nullptr) != counts ||
        (counts && (!lane.counts->initialized() || lane.counts->size() != 2 * rows))) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, ": ", rows, " rows come with ",
                                                     lane.counts == nullptr ? 0 : lane.counts->size(),
                                                     " shows and clicks; ", counts ? 2 * rows : 0, " are wanted"));
    }
    if (lane.value->values.size() != rows * width) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, ": ", rows, " rows come with ",
                                                     lane.value->values.size(), " values; ", rows * width,
                                                     " are wanted"));
    }
  }
  // Rows of prefetched tables know their place among the ids of the step. Others are brought into that form here.
  StepIds* known = nullptr;
  absl::Span<const int64_t> ids;
  if (by_shard) {
    const auto found = rows_.ids.find(block.name);
    if (found != rows_.ids.end() && found->second.step == step_) {
      StepIds& of_table = found->second;
      ids = of_table.ids;
      known = of_table.same_as == nullptr ? &of_table : of_table.same_as;
      if (known->call != of_table.call) known = nullptr;  // the other table has been asked for other ids since
    }
  }
  std::vector<SelectedRows> placed;
  std::vector<LaneRows> placed_lanes;
  std::vector<int64_t> union_ids;
  IdOrder union_order;
  const auto place_all = [&] {
    for (const LaneRows& lane : lanes)
      union_ids.insert(union_ids.end(), lane.value->ids.begin(), lane.value->ids.end());
    std::sort(union_ids.begin(), union_ids.end());
    union_ids.erase(std::unique(union_ids.begin(), union_ids.end()), union_ids.end());
    const uint32_t shards = by_shard ? static_cast<uint32_t>(table->second->logical_shards()) : 1;
    union_order.Sort(union_ids, shards, by_shard ? servers() : 1);
    placed.resize(lanes.size());
    for (size_t l = 0; l < lanes.size(); ++l) {
      placed[l] = *lanes[l].value;  // shares the values
      placed[l].step_rows.resize(placed[l].ids.size());
      for (size_t r = 0; r < placed[l].ids.size(); ++r) {
        placed[l].step_rows[r] = static_cast<int32_t>(
            std::lower_bound(union_ids.begin(), union_ids.end(), placed[l].ids[r]) - union_ids.begin());
      }
      placed_lanes.push_back({lanes[l].lane, &placed[l], lanes[l].counts});
    }
    lanes = placed_lanes;
  };
  const auto all_placed = [&] {
    return std::all_of(lanes.begin(), lanes.end(),
                       [](const LaneRows& lane) { return lane.value->step_rows.size() == lane.value->ids.size(); });
  };
  if (known == nullptr || !all_placed()) {
    known = nullptr;
    place_all();
    ids = union_ids;
  }
  const IdOrder& order = known != nullptr ? known->order : union_order;

  std::vector<RowUnion> own_unions;
  StepUnions of_placed;
  StepUnions& shared = known != nullptr ? known->unions : of_placed;
  const std::vector<RowUnion>* const unions = shared.Of(nodes_, lanes, order, ids, &own_unions);
  if (unions == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gradient of ", block.name, ": a lane has an id twice, or one that was not prefetched in this step"));
  }

  // Pieces of (server, range of the order), each with all nodes, written and sent in parallel.
  struct Piece {
    int server;
    size_t begin, end;
  };
  std::vector<Piece> pieces;
  const v1::WireFormat format = by_shard ? table->second->wire().push() : options_.plan.wire().push();
  const size_t row_bytes = sizeof(int64_t) + static_cast<size_t>(width + (counts ? 2 : 0)) * sizeof(float);
  const size_t per_piece = std::max<size_t>(1, kRowBytesPerCall / row_bytes / nodes_.size());
  const auto cut = [&](int server, size_t begin, size_t end) {
    for (; begin < end; begin += per_piece) pieces.push_back({server, begin, std::min(end, begin + per_piece)});
  };
  if (by_shard) {
    for (int s = 0; s < servers(); ++s) cut(s, order.begin(s), order.begin(s + 1));
  } else {
    cut(block.server, 0, order.size());
  }
  options_.pool->ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t p) {
    const Piece& piece = pieces[static_cast<size_t>(p)];
    std::vector<PushTensor> tensors;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const RowUnion& rows = (*unions)[i];
      if (rows.empty()) continue;
      const RowUnion::Range range = rows.At(order, ids, piece.begin, piece.end);
      const size_t n = range.size();
      if (n == 0) continue;
      PushTensor tensor;
      tensor.item.set_name(block.name);
      tensor.item.set_lane(nodes_[i].begin);
      tensor.item.set_lanes(nodes_[i].count);
      tensor.item.set_count(static_cast<int64_t>(n));
      tensor.item.set_width(width);
      if (format != v1::WIRE_FLOAT32) tensor.item.set_format(format);
      if (counts) tensor.item.set_shows_and_clicks(true);
      const size_t id_bytes = n * sizeof(int64_t), floats = n * static_cast<size_t>(width);
      const size_t values_end = AlignUp(id_bytes) + EncodedBytes(format, floats, static_cast<size_t>(width));
      tensor.bytes = counts ? AlignUp(values_end) + n * 2 * sizeof(float) : values_end;
      shared_->rows_pushed.fetch_add(static_cast<int64_t>(n), std::memory_order_relaxed);
      tensor.write = [this, ids, lanes, &block, &rows, range, node = nodes_[i], width, format, id_bytes, floats,
                      values_end, counts](char* out) {
        int64_t* const sent = reinterpret_cast<int64_t*>(out);
        rows.WriteIds(ids, range, sent);
        std::memset(out + id_bytes, 0, AlignUp(id_bytes) - id_bytes);
        if (counts) {
          std::memset(out + values_end, 0, AlignUp(values_end) - values_end);
          rows.WriteCounts(lanes, range, reinterpret_cast<float*>(out + AlignUp(values_end)));
        }
        char* const values = out + AlignUp(id_bytes);
        if (format == v1::WIRE_FLOAT32) return rows.WriteSums(lanes, range, width, reinterpret_cast<float*>(values));
        const WireBuffer exact = buffers_.Get(floats * sizeof(float));
        const absl::Span<float> sums = absl::MakeSpan(reinterpret_cast<float*>(exact.data), floats);
        rows.WriteSums(lanes, range, width, sums.data());
        residuals_.EncodeRows(block.name, node, width, absl::MakeConstSpan(sent, range.size()), rows.Before(ids, range),
                              sums, format, values);
      };
      tensors.push_back(std::move(tensor));
    }
    builders_[static_cast<size_t>(piece.server)]->Add(std::move(tensors));
  });
  return absl::OkStatus();
}

absl::Status ClientImpl::FinishSends(int64_t samples, v1::Verdict verdict) {
  if (read_only_) return absl::FailedPreconditionError("a read-only step sends nothing");
  own_samples_ = samples;
  own_verdict_ = verdict;
  for (const auto& builder : builders_) {
    v1::PushRequest header;
    header.set_samples(samples);
    if (first_samples_ > 0) header.set_first_samples(first_samples_);
    header.set_verdict(verdict);
    header.set_stop_requested(StopRequested());
    builder->Finish(std::move(header));
  }
  std::vector<CallPtr> calls;
  {
    MutexLock lock(&push_mu_);
    calls.swap(pushes_);
  }
  RETURN_IF_ERROR(Wait(calls, absl::StrCat("pushes of step ", step_), progress_deadline_ + 2 * lease_,
                       {.profiled_as = &kPushesName}));
  // In sync another trainer's verdict may count; in async an own step without effect has no norms.
  const bool brings_norms = options_.plan.sync() ? options_.trainer_id == 0 : samples > 0 && verdict == v1::APPLY;
  if (brings_norms) RETURN_IF_ERROR(ExchangeNorms());
  if (in_turn_) version_wanted_ = step_ + 1;
  return absl::OkStatus();
}

CallPtr ClientImpl::NewNormsCall(int server, int round, const Norms& norms, v1::NormsReply* reply) {
  v1::NormsRequest request;
  *request.mutable_caller() = CallerFor(server);
  request.set_step(step_);
  request.set_round(round);
  request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
  for (const v1::PartialSum& part : reply->sums()) {
    v1::WholeNorm* const norm = request.add_norms();
    norm->set_name(part.name());
    norm->set_norm(norms.find(part.name())->second);
  }
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  return NewCall(server, Method::kNorms, std::move(bytes),
                 [this, server, reply](const Slices& answer) -> absl::StatusOr<bool> {
                   v1::NormsReply got;
                   if (!got.ParseFromString(Flatten(answer))) return absl::DataLossError("no NormsReply");
                   if (got.ready()) {
                     *reply = std::move(got);
                     return true;
                   }
                   MutexLock lock(&shared_->mu);
                   shared_->waiting.on = absl::StrCat("server ", server, ": ", got.waiting_for());
                   return false;
                 });
}

absl::Status ClientImpl::ExchangeNorms() {
  std::vector<int> rounds;
  {
    MutexLock lock(&shared_->mu);
    rounds = shared_->norm_rounds;
  }
  std::vector<v1::NormsReply> replies(rounds.size());
  Norms norms;
  for (int round = 0;; ++round) {
    std::vector<CallPtr> calls;
    int over = 0;
    for (int s = 0; s < servers(); ++s) {
      const size_t at = static_cast<size_t>(s);
      if (rounds[at] == 0 || rounds[at] < round) continue;
      if (replies[at].over()) {
        ++over;
      } else {
        calls.push_back(NewNormsCall(s, round, norms, &replies[at]));
      }
    }
    if (calls.empty()) return absl::OkStatus();
    // A step that was skipped is over for all; one that took effect here without the norms of others cannot be.
    if (over > 0) {
      return absl::InternalError(
          absl::StrCat("step ", step_, " is over on ", over, " servers while others wait for its norms"));
    }
    RETURN_IF_ERROR(Wait(calls, absl::StrCat("norms of step ", step_), progress_deadline_ + 2 * lease_,
                         {.profiled_as = &kNormsName}));
    NormSums sums;
    for (const v1::NormsReply& reply : replies) RETURN_IF_ERROR(AddSums(reply, &sums));
    const absl::StatusOr<Norms> made = NormsOf(sums);
    if (!made.ok())
      return absl::Status(made.status().code(), absl::StrCat("step ", step_, ": ", made.status().message()));
    norms = *made;
  }
}

}  // namespace weir
