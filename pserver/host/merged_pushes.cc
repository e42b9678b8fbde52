#include "pserver/host/merged_pushes.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

bool Inside(const LaneRange& node, const LaneRange& of) {
  return node.begin >= of.begin && node.begin + node.count <= of.begin + of.count;
}

Slices ReplyTo(int64_t version, bool duplicate) {
  v1::PushReply reply;
  reply.set_version(version);
  if (duplicate) reply.set_duplicate(true);
  return EncodeFrame(reply.SerializeAsString(), {});
}

// Returns the runs of the nodes inside `node`, cut to elements [begin, begin + count) and counted from there.
std::vector<DenseRun> Cut(const std::vector<DenseRun>& runs, const LaneRange& node, int64_t begin, int64_t count) {
  std::vector<DenseRun> cut;
  for (const DenseRun& run : runs) {
    if (!Inside(run.node, node)) continue;
    const int64_t first = std::max(begin, run.begin);
    const int64_t end = std::min(begin + count, run.begin + static_cast<int64_t>(run.values.size()));
    if (first >= end) continue;
    cut.push_back({run.node, first - begin,
                   run.values.subspan(static_cast<size_t>(first - run.begin), static_cast<size_t>(end - first))});
  }
  return cut;
}

// Returns OK if the runs of each node cover `count` elements once.
absl::Status CheckCover(const std::string& name, std::vector<DenseRun> runs, int64_t count) {
  std::sort(runs.begin(), runs.end(), [](const DenseRun& a, const DenseRun& b) {
    return a.node.begin != b.node.begin ? a.node.begin < b.node.begin : a.begin < b.begin;
  });
  for (size_t i = 0; i < runs.size();) {
    const LaneRange node = runs[i].node;
    int64_t covered = 0;
    for (; i < runs.size() && runs[i].node == node && runs[i].begin == covered; ++i) {
      covered += static_cast<int64_t>(runs[i].values.size());
    }
    if (covered == count && (i == runs.size() || !(runs[i].node == node))) continue;
    return absl::InvalidArgumentError(absl::StrCat("push of ", name, ", lanes [", node.begin, ", ",
                                                   node.begin + node.count, "): the pieces must cover ", count,
                                                   " elements once, and do so up to ", covered));
  }
  return absl::OkStatus();
}

// Returns the order in which ids ascend by MixId; empty if they do already.
std::vector<uint32_t> OrderOf(absl::Span<const int64_t> ids) {
  const auto key = [&](size_t i) { return MixId(static_cast<uint64_t>(ids[i])); };
  bool ascends = true;
  for (size_t i = 1; i < ids.size() && ascends; ++i) ascends = key(i - 1) < key(i);
  if (ascends) return {};
  std::vector<uint32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace

// Sums of the rows of a merged node.
struct MergedPushes::RowSums {
  LaneRange node;
  MergedRows values, counts;
};

MergedPushes::MergedPushes(Options options)
    : options_(std::move(options)),
      builder_(options_.buffers, options_.checksums,
               [this](v1::PushRequest header, const Slices& payload) { SendPart(std::move(header), payload); }),
      members_(options_.group->trainers.size()) {}

// ------------------------------------------------------------------------------------------------------------- reading

RowForm MergedPushes::FormOf(const std::string& name) const {
  const BlockPlacement& placement = *options_.placement;
  const v1::PlacedTable* const table = placement.FindTable(name);
  return {placement.RowWidth(name), (table != nullptr ? table->wire() : placement.plan().wire()).push(),
          table != nullptr && table->shows_and_clicks()};
}

absl::Status MergedPushes::ReadDense(const v1::PushItem& item, const Slice& payload, Tensor* tensor) const {
  const std::optional<int64_t> count = options_.placement->BlockCount(item.name());
  if (!count.has_value() || item.begin() < 0 || item.count() <= 0 || item.begin() > *count ||
      item.count() > *count - item.begin() ||
      static_cast<uint64_t>(item.count()) > (payload.size - static_cast<size_t>(item.offset())) / sizeof(float)) {
    return absl::InvalidArgumentError("elements that the block or the payload does not have");
  }
  tensor->run.begin = item.begin();
  tensor->run.values = absl::MakeConstSpan(reinterpret_cast<const float*>(payload.data + item.offset()),
                                           static_cast<size_t>(item.count()));
  return absl::OkStatus();
}

absl::Status MergedPushes::ReadRows(const v1::PushItem& item, const Slice& payload, Tensor* tensor) const {
  RowForm form = FormOf(item.name());
  const uint64_t count = static_cast<uint64_t>(std::max<int64_t>(0, item.count()));
  const size_t room = payload.size - static_cast<size_t>(item.offset());
  if (item.width() != form.width || item.shows_and_clicks() != form.counts ||
      count > room / (sizeof(int64_t) + sizeof(float))) {
    return absl::InvalidArgumentError("rows that the plan or the payload does not have");
  }
  form.format = v1::WIRE_FLOAT32;
  const PlannedRows planned = PlanRowsPush(item.name(), {item.lane(), item.lanes()}, static_cast<size_t>(count), form);
  if (planned.tensor.bytes > room) return absl::InvalidArgumentError("rows beyond the end of the payload");
  const char* const at = payload.data + item.offset();
  Rows& rows = tensor->rows;
  rows.ids = absl::MakeConstSpan(reinterpret_cast<const int64_t*>(at), static_cast<size_t>(count));
  rows.values = reinterpret_cast<const float*>(at + planned.layout.values_begin);
  if (form.counts) rows.counts = reinterpret_cast<const float*>(at + planned.layout.counts_begin);
  rows.order = OrderOf(rows.ids);
  for (size_t i = 1; i < rows.order.size(); ++i) {
    const int64_t id = rows.ids[rows.order[i]];
    if (id == rows.ids[rows.order[i - 1]]) {
      return absl::InvalidArgumentError(absl::StrCat("id ", id, " twice; each row of a node comes once"));
    }
  }
  return absl::OkStatus();
}

absl::Status MergedPushes::Read(const v1::PushRequest& request, const Slice& payload, int place,
                                std::vector<Tensor>* tensors) const {
  if (options_.checksums && request.checksum() != Checksum({payload})) {
    return absl::DataLossError("the payload's checksum does not match");
  }
  const std::vector<LaneRange>& nodes = options_.group->nodes_of[static_cast<size_t>(place)];
  for (const v1::PushItem& item : request.items()) {
    Tensor& tensor = tensors->emplace_back();
    tensor.name = item.name();
    const LaneRange node = {item.lane(), item.lanes()};
    tensor.run.node = tensor.rows.node = node;
    absl::Status read;
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end() || item.format() != v1::WIRE_FLOAT32 ||
        item.offset() < 0 || item.offset() % static_cast<int64_t>(kAlignment) != 0 ||
        static_cast<uint64_t>(item.offset()) > payload.size) {
      read = absl::InvalidArgumentError("a node of other lanes, a lossy format, or a place outside the payload");
    } else {
      read = item.width() > 0 ? ReadRows(item, payload, &tensor) : ReadDense(item, payload, &tensor);
    }
    if (read.ok()) continue;
    return absl::Status(read.code(), absl::StrCat("push of ", item.name().substr(0, 200), ": ", read.message()));
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------------------- booking

absl::Status MergedPushes::CheckTurn(const v1::PushRequest& request) {
  if (request.step() <= step_) return absl::OkStatus();
  if (!over_) {
    return absl::FailedPreconditionError(absl::StrCat("trainer ", request.caller().trainer(), " pushes step ",
                                                      request.step(), " while step ", step_,
                                                      " of its host is not over"));
  }
  step_ = request.step();
  over_ = finished_ = false;
  for (Member& member : members_) member = Member();
  gathered_.clear();
  kept_.clear();
  sent_.clear();
  part_count_ = -1;
  wrong_ = absl::OkStatus();
  builder_.Begin();
  return absl::OkStatus();
}

absl::Status MergedPushes::Book(const v1::PushRequest& request, int place) {
  Member& member = members_[static_cast<size_t>(place)];
  const size_t part = static_cast<size_t>(request.part());
  if ((member.part_count >= 0 && request.part() >= member.part_count) ||
      (request.has_part_count() && (request.part_count() != request.part() + 1 ||
                                    static_cast<size_t>(request.part_count()) < member.parts.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("trainer ", request.caller().trainer(), ", step ", request.step(),
                                                   ": part ", request.part(), " contradicts the number of its parts"));
  }
  if (member.parts.size() <= part) member.parts.resize(part + 1, false);
  member.parts[part] = true;
  ++member.received;
  member.session = request.caller().session();
  if (!request.has_part_count()) return absl::OkStatus();
  member.part_count = request.part_count();
  member.last = request;
  member.last.clear_items();
  return absl::OkStatus();
}

bool MergedPushes::AllComplete() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.Complete(); });
}

bool MergedPushes::IsWhole(const std::string& name, const Gathered& gathered) const {
  if (gathered.runs.empty() || !gathered.rows.empty()) return false;
  size_t nodes = 0;
  for (const std::vector<LaneRange>& of_trainer : options_.group->nodes_of) nodes += of_trainer.size();
  return gathered.elements == static_cast<int64_t>(nodes) * *options_.placement->BlockCount(name);
}

void MergedPushes::Handle(const v1::PushRequest& request, const Slice& payload, ReplyCallback reply) {
  const int place = options_.group->PlaceOf(request.caller().trainer());
  if (place < 0 || request.part() < 0 || request.part() >= kMaxParts || request.step() < 0) {
    return reply(
        absl::InvalidArgumentError(absl::StrCat("trainer ", request.caller().trainer(), ", step ", request.step(),
                                                ", part ", request.part(), ": none of this host's, or out of range")));
  }
  std::vector<Tensor> tensors;
  if (absl::Status read = Read(request, payload, place, &tensors); !read.ok()) return reply(read);
  Actions actions;
  std::map<std::string, Gathered> whole;
  bool merge = false;
  {
    MutexLock lock(&mu_);
    const auto answer = [&](const absl::StatusOr<Slices>& with) { actions.push_back([=] { reply(with); }); };
    Member& member = members_[static_cast<size_t>(place)];
    if (absl::Status turn = CheckTurn(request); !turn.ok()) {
      answer(turn);
    } else if (request.step() < step_ || over_) {
      answer(ReplyTo(step_, /*duplicate=*/true));
    } else if (member.Has(request.part())) {
      Repeated(request, &member, reply, &actions);
    } else if (absl::Status booked = Book(request, place); !booked.ok()) {
      answer(booked);
    } else {
      if (!tensors.empty()) kept_.push_back(payload);
      whole = Gather(std::move(tensors));
      merge = !whole.empty() || AllComplete();
      if (merge) ++merging_;
      if (request.has_part_count()) {
        member.waiting.push_back(reply);
      } else {
        answer(ReplyTo(step_, /*duplicate=*/false));
      }
    }
  }
  for (const auto& action : actions) action();
  if (!merge) return;
  Merge(whole);
  Merged();
}

void MergedPushes::Repeated(const v1::PushRequest& request, Member* member, const ReplyCallback& reply,
                            Actions* actions) {
  if (!request.has_part_count()) {
    actions->push_back([reply, version = step_] { reply(ReplyTo(version, /*duplicate=*/true)); });
  } else if (!wrong_.ok()) {
    actions->push_back([reply, wrong = wrong_] { reply(wrong); });
  } else {
    member->waiting.push_back(reply);
    Repeat(actions);
  }
}

std::map<std::string, MergedPushes::Gathered> MergedPushes::Gather(std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors) {
    Gathered& gathered = gathered_[tensor.name];
    if (tensor.run.values.empty()) {
      gathered.rows.push_back(std::move(tensor.rows));
    } else {
      gathered.elements += static_cast<int64_t>(tensor.run.values.size());
      gathered.runs.push_back(tensor.run);
    }
  }
  if (AllComplete()) return std::exchange(gathered_, {});
  std::map<std::string, Gathered> whole;
  for (const Tensor& tensor : tensors) {
    const auto found = gathered_.find(tensor.name);
    if (found != gathered_.end() && IsWhole(tensor.name, found->second)) whole.insert(gathered_.extract(found));
  }
  return whole;
}

// ------------------------------------------------------------------------------------------------------------- merging

void MergedPushes::Merge(const std::map<std::string, Gathered>& whole) {
  std::vector<const std::pair<const std::string, Gathered>*> all;
  for (const auto& each : whole) all.push_back(&each);
  options_.pool->ParallelFor(static_cast<int64_t>(all.size()), [&](int64_t i) {
    const auto& [name, gathered] = *all[static_cast<size_t>(i)];
    if (!gathered.runs.empty()) MergeDense(name, gathered);
    if (!gathered.rows.empty()) MergeRowsOf(name, gathered);
  });
}

void MergedPushes::MergeDense(const std::string& name, const Gathered& gathered) {
  const int64_t count = *options_.placement->BlockCount(name);
  if (absl::Status cover = CheckCover(name, gathered.runs, count); !cover.ok()) return Fail(cover);
  std::vector<PushNode> nodes;
  for (const LaneRange& node : options_.group->nodes) nodes.push_back({node.begin, node.count});
  for (PlannedDense& planned : PlanDensePush(name, count, nodes, options_.placement->plan().wire().push())) {
    std::vector<PushTensor> tensors;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const LaneRange& node = options_.group->nodes[i];
      std::vector<DenseRun> runs = Cut(gathered.runs, node, planned.begin, planned.count);
      if (runs.empty()) continue;  // absent, not zero
      PushTensor& tensor = tensors.emplace_back();
      tensor.item = std::move(planned.tensors[i].item);
      tensor.bytes = planned.tensors[i].bytes;
      tensor.write = [this, &name, &node, runs = std::move(runs), begin = planned.begin, count = planned.count](
                         char* out, v1::PushItem* item) { WriteDense(name, runs, node, begin, count, out, item); };
    }
    builder_.Add(std::move(tensors));
  }
}

void MergedPushes::WriteDense(const std::string& name, const std::vector<DenseRun>& runs, const LaneRange& node,
                              int64_t begin, int64_t count, char* out, v1::PushItem* item) {
  const v1::Plan& plan = options_.placement->plan();
  const v1::WireFormat format = plan.wire().push();
  const size_t floats = static_cast<size_t>(count);
  const bool as_is = format == v1::WIRE_FLOAT32;
  const WireBuffer exact = as_is ? WireBuffer() : options_.buffers->Get(floats * sizeof(float));
  const absl::Span<float> sum = absl::MakeSpan(reinterpret_cast<float*>(as_is ? out : exact.data), floats);
  const absl::Status summed = SumDense(runs, plan.lanes() == 0 ? plan.trainers() : plan.lanes(), sum);
  CHECK(summed.ok()) << summed;
  if (as_is) return;
  std::string exponents =
      options_.residuals->EncodeDense(name, node, *options_.placement->BlockCount(name), begin, sum, format, out);
  if (!exponents.empty()) item->set_exponents(std::move(exponents));
}

absl::Status MergedPushes::AddNode(const std::string& name, const Gathered& gathered, const LaneRange& node,
                                   const RowForm& form, RowSums* sums) const {
  sums->node = node;
  std::vector<RowRun> values, counts;
  for (const Rows& rows : gathered.rows) {
    if (!Inside(rows.node, node)) continue;
    const uint32_t* const order = rows.order.empty() ? nullptr : rows.order.data();
    values.push_back({rows.node, rows.ids, rows.values, order});
    counts.push_back({rows.node, rows.ids, rows.counts, order});
  }
  absl::Status merged = MergeRows(values, form.width, 0, UINT64_MAX, &sums->values);
  if (merged.ok() && form.counts) merged = MergeRows(counts, 2, 0, UINT64_MAX, &sums->counts);
  return merged.ok() ? merged : absl::Status(merged.code(), absl::StrCat("push of ", name, ": ", merged.message()));
}

void MergedPushes::MergeRowsOf(const std::string& name, const Gathered& gathered) {
  const RowForm form = FormOf(name);
  std::vector<RowSums> nodes(options_.group->nodes.size());
  const size_t most = RowsPerPush(form, 1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const RowSums& sums = nodes[i];
    if (absl::Status added = AddNode(name, gathered, options_.group->nodes[i], form, &nodes[i]); !added.ok()) {
      return Fail(added);
    }
    for (size_t begin = 0; begin < sums.values.ids.size(); begin += most) {
      const size_t end = std::min(sums.values.ids.size(), begin + most);
      PlannedRows planned = PlanRowsPush(name, {sums.node.begin, sums.node.count}, end - begin, form);
      PushTensor tensor{.item = std::move(planned.tensor.item), .bytes = planned.tensor.bytes, .write = nullptr};
      tensor.write = [this, &name, &sums, begin, end, form, layout = planned.layout](char* out, v1::PushItem* item) {
        WriteRows(name, sums, begin, end, form, layout, out, item);
      };
      std::vector<PushTensor> tensors;
      tensors.push_back(std::move(tensor));
      builder_.Add(std::move(tensors));
    }
  }
}

void MergedPushes::WriteRows(const std::string& name, const RowSums& sums, size_t begin, size_t end,
                             const RowForm& form, const PushRowLayout& layout, char* out, v1::PushItem* item) {
  const size_t n = end - begin, width = static_cast<size_t>(form.width);
  const std::vector<int64_t>& ids = sums.values.ids;
  std::memcpy(out, ids.data() + begin, n * sizeof(int64_t));
  std::memset(out + layout.ids_end, 0, layout.values_begin - layout.ids_end);
  if (form.counts) {
    std::memset(out + layout.values_end, 0, layout.counts_begin - layout.values_end);
    float* const counts = reinterpret_cast<float*>(out + layout.counts_begin);
    for (size_t i = 0; i < n; ++i) std::memcpy(counts + 2 * i, sums.counts.grads[begin + i], 2 * sizeof(float));
  }
  const bool as_is = form.format == v1::WIRE_FLOAT32;
  const WireBuffer exact = as_is ? WireBuffer() : options_.buffers->Get(n * width * sizeof(float));
  float* const values = reinterpret_cast<float*>(as_is ? out + layout.values_begin : exact.data);
  for (size_t i = 0; i < n; ++i) std::memcpy(values + i * width, sums.values.grads[begin + i], width * sizeof(float));
  if (as_is) return;
  std::string exponents = options_.residuals->EncodeRows(
      name, sums.node, form.width, absl::MakeConstSpan(ids).subspan(begin, n), begin == 0 ? nullptr : &ids[begin - 1],
      absl::MakeSpan(values, n * width), form.format, out + layout.values_begin);
  if (!exponents.empty()) item->set_exponents(std::move(exponents));
}

void MergedPushes::Fail(const absl::Status& why) {
  MutexLock lock(&mu_);
  if (wrong_.ok()) wrong_ = why;
}

// ------------------------------------------------------------------------------------------------------------- sending

v1::PushRequest MergedPushes::LastHeader() {
  v1::PushRequest header;
  for (size_t i = 0; i < members_.size(); ++i) {
    const v1::PushRequest& last = members_[i].last;
    if (i == 0) {
      header = last;
      header.clear_checksum();
      header.clear_part();
      header.clear_part_count();
      header.clear_merged();
      continue;
    }
    v1::MergedTrainer* const merged = header.add_merged();
    merged->set_samples(last.samples());
    if (last.has_first_samples()) merged->set_first_samples(last.first_samples());
    if (last.has_verdict()) merged->set_verdict(last.verdict());
    if (last.has_stop_requested()) merged->set_stop_requested(last.stop_requested());
  }
  return header;
}

void MergedPushes::Merged() {
  Actions actions;
  v1::PushRequest header;
  bool merged = false;
  {
    MutexLock lock(&mu_);
    if (--merging_ > 0 || finished_ || !AllComplete()) return;
    finished_ = true;
    merged = wrong_.ok();
    if (merged) {
      header = LastHeader();
      Repeat(&actions);  // nobody has waited for parts that left early
    } else {
      AnswerWaiting(wrong_, &actions);
    }
  }
  for (const auto& action : actions) action();
  if (merged) builder_.Finish(std::move(header));
}

void MergedPushes::SendPart(v1::PushRequest header, const Slices& payload) {
  int64_t step = 0;
  const size_t part = static_cast<size_t>(header.part());
  Slices request;
  *header.mutable_caller() = options_.caller();
  {
    MutexLock lock(&mu_);
    step = step_;
    header.set_step(step_);
    while (header.merged_size() + 1 < static_cast<int>(members_.size())) header.add_merged();
    for (size_t i = 1; i < members_.size(); ++i) {
      v1::MergedTrainer* const merged = header.mutable_merged(static_cast<int>(i) - 1);
      merged->set_trainer(options_.group->trainers[i]);
      merged->set_session(members_[i].session);
    }
    if (header.has_part_count()) part_count_ = header.part_count();
    if (sent_.size() <= part) sent_.resize(part + 1);
    request = EncodeFrame(header.SerializeAsString(), payload);
    sent_[part].request = request;
  }
  Issue(step, part, std::move(request));
}

void MergedPushes::Issue(int64_t step, size_t part, Slices request) {
  options_.send(std::move(request),
                [this, step, part](const absl::StatusOr<Slices>& answer) { Answered(step, part, answer); });
}

void MergedPushes::Answered(int64_t step, size_t part, const absl::StatusOr<Slices>& answer) {
  Actions actions;
  {
    MutexLock lock(&mu_);
    if (step != step_ || over_) return;
    sent_[part].state = answer.ok() ? Sent::kAcknowledged : Sent::kFailed;
    if (!answer.ok()) {
      AnswerWaiting(answer.status(), &actions);
    } else if (AllAcknowledged()) {
      over_ = true;
      options_.merged->Add(static_cast<int64_t>(members_.size()));
      AnswerWaiting(*answer, &actions);
      kept_.clear();
      sent_.clear();
    }
  }
  for (const auto& action : actions) action();
}

bool MergedPushes::AllAcknowledged() const {
  return static_cast<int>(sent_.size()) == part_count_ &&
         std::all_of(sent_.begin(), sent_.end(), [](const Sent& sent) { return sent.state == Sent::kAcknowledged; });
}

void MergedPushes::Repeat(Actions* actions) {
  for (size_t part = 0; part < sent_.size(); ++part) {
    if (sent_[part].state != Sent::kFailed) continue;
    sent_[part].state = Sent::kUnderWay;
    actions->push_back([this, step = step_, part, request = sent_[part].request] { Issue(step, part, request); });
  }
}

void MergedPushes::AnswerWaiting(const absl::StatusOr<Slices>& answer, Actions* actions) {
  for (Member& member : members_) {
    for (ReplyCallback& reply : member.waiting) {
      actions->push_back([reply = std::move(reply), answer] { reply(answer); });
    }
    member.waiting.clear();
  }
}

}  // namespace weir
