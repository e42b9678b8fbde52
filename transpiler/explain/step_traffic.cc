#include "transpiler/explain/step_traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/graph/placement.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"
#include "transpiler/base/programs.h"
#include "transpiler/explain/attr_lists.h"

namespace weir {
namespace {

// Step and version, which take a byte more from 128 on.
constexpr int64_t kSomeStep = 100;

size_t Rounded(double rows) { return static_cast<size_t>(std::llround(std::max(0.0, rows))); }

// Returns the bytes of a frame with a payload of that size.
double FrameBytes(const google::protobuf::MessageLite& header, size_t payload) {
  Slices slices;
  if (payload > 0) slices.push_back({nullptr, payload, nullptr});
  return static_cast<double>(TotalSize(EncodeFrame(header.SerializeAsString(), slices)));
}

v1::Caller SomeCaller(const v1::JobConfig& job, int trainer) {
  v1::Caller caller;
  caller.set_job_id(job.name());
  caller.set_trainer(trainer);
  caller.set_session(uint64_t{1} << 63);
  return caller;
}

v1::PullReply SomePullReply(const v1::Plan& plan, const StepFacts& steps) {
  v1::PullReply reply;
  reply.set_ready(true);
  reply.set_version(kSomeStep);
  reply.set_skipped(false);
  reply.set_stop(false);
  reply.set_samples(plan.batch_size());
  if (steps.messages_name_first) reply.set_first_samples(plan.batch_size());
  reply.set_checksum(1);
  return reply;
}

v1::PushReply SomePushReply() {
  v1::PushReply reply;
  reply.set_version(kSomeStep);
  return reply;
}

std::vector<PushNode> NodesOf(const v1::Plan& plan, const TrainerRange& trainers) {
  std::vector<PushNode> nodes;
  for (const LaneRange& node : AlignedNodes(LanesOf(plan, trainers))) nodes.push_back({node.begin, node.count});
  return nodes;
}

}  // namespace

LaneRange LanesOf(const v1::Plan& plan, const TrainerRange& trainers) {
  LaneRange lanes = LanesOfTrainer(plan.lanes(), plan.trainers(), trainers.first);
  for (int t = 1; t < trainers.count; ++t) {
    lanes.count += LanesOfTrainer(plan.lanes(), plan.trainers(), trainers.first + t).count;
  }
  return lanes;
}

std::vector<TrainerRange> HostsOf(const v1::Plan& plan, int trainers_per_host) {
  std::vector<TrainerRange> hosts;
  for (int first = 0; first < plan.trainers(); first += trainers_per_host) {
    hosts.push_back({.first = first, .count = std::min(trainers_per_host, plan.trainers() - first)});
  }
  return hosts;
}

FlowSum& FlowSum::operator+=(const FlowSum& other) {
  messages += other.messages;
  bytes_out += other.bytes_out;
  bytes_in += other.bytes_in;
  rows += other.rows;
  return *this;
}
FlowSum FlowSum::Times(double factor) const {
  return {messages * factor, bytes_out * factor, bytes_in * factor, rows * factor};
}
ServerFlows& ServerFlows::operator+=(const ServerFlows& other) {
  pull_rows += other.pull_rows;
  push += other.push;
  pull_blocks += other.pull_blocks;
  return *this;
}
ServerFlows ServerFlows::Times(double factor) const {
  return {pull_rows.Times(factor), push.Times(factor), pull_blocks.Times(factor)};
}
FlowSum ServerFlows::Total() const {
  FlowSum sum = pull_rows;
  sum += push;
  sum += pull_blocks;
  return sum;
}

v1::Flow ToProto(const FlowSum& sum) {
  v1::Flow flow;
  flow.set_messages(sum.messages);
  flow.set_bytes_out(sum.bytes_out);
  flow.set_bytes_in(sum.bytes_in);
  if (sum.rows > 0) flow.set_rows(sum.rows);
  return flow;
}

v1::Flows ToProto(const ServerFlows& flows) {
  v1::Flows out;
  *out.mutable_pull_rows() = ToProto(flows.pull_rows);
  *out.mutable_push() = ToProto(flows.push);
  *out.mutable_pull_blocks() = ToProto(flows.pull_blocks);
  *out.mutable_total() = ToProto(flows.Total());
  return out;
}

StepTraffic::StepTraffic(const v1::JobConfig& job, const v1::ProgramDesc& main,
                         const std::vector<SparseTarget>& targets, const TrainerRange& trainers, const StepRows& rows)
    : main_(main),
      plan_(main.plan()),
      steps_(StepFactsOf(plan_.sync())),
      rows_(rows),
      trainers_(trainers),
      caller_(SomeCaller(job, trainers.first)),
      nodes_(NodesOf(plan_, trainers)),
      servers_(static_cast<size_t>(plan_.servers())) {
  for (const SparseTarget& target : targets) targets_[target.parameter] = &target;
  for (const v1::PlacedBlock& block : plan_.blocks()) blocks_[block.name()] = &block;
}

std::vector<ServerFlows> StepTraffic::Flows(int batches) {
  for (const v1::OpDesc& op : main_.blocks(0).ops()) {
    if (op.type() == "prefetch") {
      for (size_t batch = 0; batch < static_cast<size_t>(batches); ++batch) PullRows(op, batch);
    } else if (op.type() == "send") {
      Send(op);
    } else if (op.type() == "send_barrier") {
      FinishSends();
    } else if (op.type() == "recv") {
      Receive(op);
    } else if (op.type() == "fetch_barrier") {
      PullBlocks();
    }
  }
  std::vector<ServerFlows> flows;
  for (const Server& server : servers_) flows.push_back(server.flows);
  return flows;
}

const v1::Wire& StepTraffic::WireOf(const SparseTarget& target) const {
  for (const v1::PlacedTable& table : plan_.tables()) {
    if (table.name() == target.parameter) return table.wire();
  }
  return plan_.wire();
}

// -------------------------------------------------------------------------------------------------------------- pulls

void StepTraffic::Weigh(PlannedPull pull, FlowSum* flow) const {
  *pull.request.mutable_caller() = caller_;
  pull.request.set_version(steps_.pulls_name_version ? kSomeStep : 0);
  pull.request.set_wait_s(1);
  flow->messages += 1;
  flow->bytes_out += FrameBytes(pull.request, pull.id_bytes);
  flow->bytes_in += FrameBytes(SomePullReply(plan_, steps_), pull.answer_bytes);
}

void StepTraffic::PullRows(const v1::OpDesc& op, size_t batch) {
  const std::vector<std::string> tables = Strings(op, "row_tables");
  for (size_t s = 0; s < servers_.size(); ++s) {
    FlowSum& flow = servers_[s].flows.pull_rows;
    const std::vector<RowsToPull> asked = RowsFrom(s, tables, batch);
    for (const RowsToPull& rows : asked) flow.rows += static_cast<double>(rows.rows * rows.tensors.size());
    for (PlannedPull& pull : PlanRowPulls(asked, kRowBytesPerCall)) Weigh(std::move(pull), &flow);
  }
}

std::vector<RowsToPull> StepTraffic::RowsFrom(size_t server, const std::vector<std::string>& tables,
                                              size_t batch) const {
  std::vector<RowsToPull> lists;
  std::vector<std::string> asked;
  for (const std::string& table : tables) {
    const SparseTarget& target = *targets_.at(table);
    if (target.table) {
      if (std::find(asked.begin(), asked.end(), table) != asked.end()) continue;
      lists.push_back(RowsOfTables(server, table, tables, batch, &asked));
      continue;
    }
    const std::vector<double>& pulled = rows_.at(table).pulled[batch];
    for (size_t place = 0; place < pulled.size(); ++place) {
      const SparseTarget::Block& block = target.blocks[place];
      if (static_cast<size_t>(block.server) != server) continue;
      lists.push_back({{{block.name, static_cast<int>(target.width), WireOf(target).pull()}}, Rounded(pulled[place])});
    }
  }
  return lists;
}

RowsToPull StepTraffic::RowsOfTables(size_t server, const std::string& table, const std::vector<std::string>& tables,
                                     size_t batch, std::vector<std::string>* asked) const {
  const SparseTarget& target = *targets_.at(table);
  RowsToPull rows;
  rows.rows = Rounded(rows_.at(table).pulled[batch][server]);
  const auto add = [&](const std::string& name, const SparseTarget& with) {
    asked->push_back(name);
    rows.tensors.push_back({name, static_cast<int>(with.width), WireOf(with).pull()});
  };
  add(table, target);
  for (const std::string& other : tables) {
    const SparseTarget& with = *targets_.at(other);
    if (std::find(asked->begin(), asked->end(), other) != asked->end() || !with.table || with.shards != target.shards ||
        with.pulled_by != target.pulled_by || Rounded(rows_.at(other).pulled[batch][server]) != rows.rows) {
      continue;
    }
    add(other, with);
  }
  return rows;
}

void StepTraffic::Receive(const v1::OpDesc& op) {
  const std::vector<std::string> names = Strings(op, "blocks");
  const std::vector<int64_t> from = Ints(op, "servers");
  for (size_t i = 0; i < names.size() && i < from.size(); ++i) {
    const auto found = blocks_.find(names[i]);
    // Blocks that the trainer holds itself do not travel.
    if (found == blocks_.end() || from[i] == kEveryTrainer) continue;
    servers_[static_cast<size_t>(from[i])].wanted.push_back({found->first, found->second->element_count()});
  }
}

void StepTraffic::PullBlocks() {
  for (size_t s = 0; s < servers_.size(); ++s) {
    Server& server = servers_[s];
    std::vector<PlannedPull> pulls = PlanBlockPulls(server.wanted, plan_.wire().pull(), kBytesPerCall);
    if (pulls.empty() && (steps_.every_server_is_awaited || s == 0)) pulls.emplace_back();
    for (PlannedPull& pull : pulls) Weigh(std::move(pull), &server.flows.pull_blocks);
    server.wanted.clear();
  }
}

// ------------------------------------------------------------------------------------------------------------- pushes

void StepTraffic::Send(const v1::OpDesc& op) {
  const std::vector<std::string> names = Strings(op, "blocks");
  const std::vector<int64_t> to = Ints(op, "servers");
  const v1::OpAttr* const width = FindAttr(op, "width");
  const bool dense = width == nullptr || width->i() == 0;
  for (size_t i = 0; i < names.size() && i < to.size(); ++i) {
    if (dense) {
      SendDense(names[i], &servers_[static_cast<size_t>(to[i])]);
      continue;
    }
    const std::string& parameter = op.param_grads(0).param();
    const std::vector<std::vector<double>>& pushed = rows_.at(parameter).pushed;
    RowForm form = {static_cast<int>(width->i()), plan_.wire().push(), !InputOf(op, "Counts").empty()};
    if (to[i] >= 0) {
      SendRows(names[i], form, pushed[i], &servers_[static_cast<size_t>(to[i])]);
      continue;
    }
    form.format = WireOf(*targets_.at(parameter)).push();
    for (size_t s = 0; s < servers_.size(); ++s) SendRows(names[i], form, pushed[s], &servers_[s]);
  }
}

void StepTraffic::SendDense(const std::string& block, Server* server) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return;
  for (PlannedDense& part : PlanDensePush(block, found->second->element_count(), nodes_, plan_.wire().push())) {
    Push(std::move(part.tensors), server);
  }
}

void StepTraffic::SendRows(const std::string& name, const RowForm& form, const std::vector<double>& by_node,
                           Server* server) {
  const size_t per_piece = RowsPerPush(form, nodes_.size());
  const double most = by_node.empty() ? 0 : *std::max_element(by_node.begin(), by_node.end());
  const size_t pieces = std::max<size_t>(1, (Rounded(most) + per_piece - 1) / per_piece);
  for (size_t p = 0; p < pieces; ++p) {
    std::vector<PlannedTensor> tensors;
    for (size_t node = 0; node < nodes_.size(); ++node) {
      const size_t all = Rounded(by_node[node]), n = all * (p + 1) / pieces - all * p / pieces;
      if (n == 0) continue;
      tensors.push_back(PlanRowsPush(name, nodes_[node], n, form).tensor);
      server->flows.push.rows += static_cast<double>(n);
    }
    Push(std::move(tensors), server);
  }
}

void StepTraffic::Push(std::vector<PlannedTensor> tensors, Server* server) {
  size_t total = 0;
  for (const PlannedTensor& tensor : tensors) total += AlignUp(tensor.bytes);
  if (total == 0) return;
  if (PushPart::LeavesAtOnce(total)) {
    PushPart large;
    for (PlannedTensor& tensor : tensors) large.Add(std::move(tensor.item), tensor.bytes);
    return SendPart({}, std::move(large), /*last=*/false, server);
  }
  if (!server->gathered.HasRoomFor(total)) {
    SendPart({}, std::exchange(server->gathered, PushPart()), /*last=*/false, server);
  }
  for (PlannedTensor& tensor : tensors) server->gathered.Add(std::move(tensor.item), tensor.bytes);
}

void StepTraffic::FinishSends() {
  for (Server& server : servers_) {
    v1::PushRequest header;
    header.set_samples(std::max<int64_t>(1, plan_.batch_size() / std::max(1, plan_.trainers())));
    if (steps_.messages_name_first) header.set_first_samples(header.samples());
    header.set_verdict(v1::APPLY);
    header.set_stop_requested(false);
    SendPart(std::move(header), std::exchange(server.gathered, PushPart()), /*last=*/true, &server);
  }
}

void StepTraffic::SendPart(v1::PushRequest header, PushPart part, bool last, Server* server) {
  const size_t bytes = part.bytes();
  std::move(part).FillHeader(server->next_part++, last, &header);
  header.set_checksum(1);
  *header.mutable_caller() = caller_;
  header.set_step(kSomeStep);
  header.set_read_version(kSomeStep);
  NameMerged(last, &header);
  FlowSum& flow = server->flows.push;
  flow.messages += 1;
  flow.bytes_out += FrameBytes(header, bytes);
  flow.bytes_in += FrameBytes(SomePushReply(), 0);
}

void StepTraffic::NameMerged(bool last, v1::PushRequest* header) const {
  for (int t = 1; t < trainers_.count; ++t) {
    v1::MergedTrainer* const merged = header->add_merged();
    merged->set_trainer(trainers_.first + t);
    merged->set_session(caller_.session());
    if (!last) continue;
    merged->set_samples(header->samples());
    if (header->has_first_samples()) merged->set_first_samples(header->first_samples());
    merged->set_verdict(header->verdict());
    merged->set_stop_requested(header->stop_requested());
  }
}

}  // namespace weir
