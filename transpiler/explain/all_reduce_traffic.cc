#include "transpiler/explain/all_reduce_traffic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "framework/checkpoint/digest.h"
#include "framework/collective/sizes.h"
#include "framework/graph/op_view.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "framework/tensor/dtype.h"
#include "proto/parameter_server.pb.h"
#include "transpiler/base/programs.h"

namespace weir {
namespace {

// Must match pserver/replica/node_rows.cc: before the rows of a node.
constexpr double kNodeHeaderBytes = 24;
// Operations that run at once, and messages of each whose addends are there or under way (framework/collective).
constexpr int64_t kStreams = 2, kMessagesUnderWay = 3;
// Name of the states of schedules in digests (pserver/params/learning_rates.h).
constexpr char kLearningRateStates[] = "@LR_SCHEDULE";

using Bucket = AllReduceTraffic::Bucket;

// Returns true if rows travel with those that the last bucket has: of the same parameter, each to another trainer.
bool JoinsRows(const Bucket& last, const std::string& parameter, int trainer) {
  return last.width > 0 && trainer != kEveryTrainer && last.parameters[0] == parameter &&
         std::none_of(last.parts.begin(), last.parts.end(),
                      [trainer](const Bucket::Part& part) { return part.trainer == trainer; });
}

void AddPart(const v1::PlacedBlock* placed, const std::string& block, Bucket* bucket) {
  const std::string& parameter = placed == nullptr || !placed->has_trainer() ? block : placed->parameter();
  Bucket::Part part{.block = block};
  if (placed != nullptr) {
    if (placed->has_trainer()) part.trainer = placed->trainer();
    part.place = static_cast<size_t>(placed->block());
    part.elements = bucket->width > 0 ? 0 : placed->element_count();
  }
  if (bucket->parameters.empty() || bucket->parameters.back() != parameter) {
    bucket->parameters.push_back(parameter);
    bucket->blocks.push_back(0);
  }
  ++bucket->blocks.back();
  bucket->elements += part.elements;
  bucket->parts.push_back(std::move(part));
}

// Returns the operations that add gradients, in the order in which they begin: that of their last op.
std::vector<Bucket> BucketsOf(const v1::ProgramDesc& main) {
  struct Placed {
    Bucket bucket;
    int last = 0;  // op
  };
  std::map<std::string_view, const v1::PlacedBlock*> placed;
  for (const v1::PlacedBlock& block : main.plan().blocks()) placed[block.name()] = &block;
  std::vector<Placed> all;
  int64_t number = -1;
  size_t filled = 0;  // the bucket of that number
  for (int i = 0; i < main.blocks(0).ops_size(); ++i) {
    const v1::OpDesc& op = main.blocks(0).ops(i);
    if (op.type() != "all_reduce") continue;
    const v1::OpAttr* const name = FindAttr(op, "block");
    const std::string block = name == nullptr ? "" : name->s();
    const auto found = placed.find(block);
    const v1::PlacedBlock* const of_plan = found == placed.end() ? nullptr : found->second;
    const int width = static_cast<int>(IntOr(op, "width", 0));
    if (width > 0) {
      const bool joins = !all.empty() && of_plan != nullptr && of_plan->has_trainer() &&
                         JoinsRows(all.back().bucket, of_plan->parameter(), of_plan->trainer());
      if (!joins) all.emplace_back().bucket.width = width;
    } else if (IntOr(op, "bucket", 0) != number) {
      number = IntOr(op, "bucket", 0);
      filled = all.size();
      all.emplace_back();
    }
    Placed& into = width > 0 ? all.back() : all[filled];
    into.last = i;
    AddPart(of_plan, block, &into.bucket);
  }
  std::sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) { return a.last < b.last; });
  std::vector<Bucket> buckets;
  for (Placed& each : all) buckets.push_back(std::move(each.bucket));
  return buckets;
}

// Returns the bytes of the digests of what a trainer has updated and of its copy of all values.
size_t CopiedDigestBytes(const v1::ProgramDesc& main) {
  std::set<std::string> parameters;
  for (const v1::PlacedBlock& block : main.plan().blocks()) {
    if (block.server() == kEveryTrainer) parameters.insert(block.parameter());
  }
  v1::ControlReply reply;
  for (const std::string& parameter : parameters) {
    v1::VariableDigest* const variable = reply.add_variables();
    variable->set_name(parameter);
    variable->set_values(1);
    variable->set_state(1);
  }
  return reply.ByteSizeLong();
}

// Returns the bytes of the digests of what a trainer holds, as it sends them to the others.
size_t DigestBytes(const v1::ProgramDesc& main) {
  v1::ControlReply reply;
  const auto add = [&reply](const std::string& name) {
    v1::VariableDigest* const variable = reply.add_variables();
    variable->set_name(name);
    variable->set_values(1);
    variable->set_state(1);
    for (int r = 0; r < kDigestRanges; ++r) variable->add_ranges(1);
  };
  reply.set_values(1);
  reply.set_state(1);
  for (const v1::PlacedBlock& block : main.plan().blocks()) {
    if (block.server() == kEveryTrainer) add(block.parameter());
  }
  if (ModeOf(main).all_reduce().lr_block() >= 0) add(kLearningRateStates);
  return reply.ByteSizeLong();
}

}  // namespace

double OperationMessages(double bytes) { return std::ceil(bytes / static_cast<double>(kOperationMessageBytes)); }

AllReduceTraffic::AllReduceTraffic(const v1::ProgramDesc& main, int64_t replica_elements,
                                   const std::set<std::string>& norms, bool wire)
    : trainers_(main.plan().trainers()) {
  const v1::TrainingMode mode = ModeOf(main);
  if (!mode.has_all_reduce()) return;
  few_go_whole_ = wire && !mode.all_reduce().adasum() && !mode.all_reduce().sharded();
  averages_ = mode.all_reduce().local_steps() > 0;
  if (averages_) {
    every_steps_ = mode.all_reduce().local_steps();
    buckets_ = {{.elements = replica_elements}};
    for (const v1::PlacedBlock& block : main.plan().blocks()) {
      if (block.server() != kEveryTrainer) continue;
      buckets_[0].parameters.push_back(block.name());
      buckets_[0].blocks.push_back(1);
      if (!block.sparse_gradient()) gradient_bytes_ += block.element_count() * kFloatBytes;
    }
  } else {
    buckets_ = BucketsOf(main);
    if (mode.all_reduce().compression() != v1::DTYPE_UNSET) value_bytes_ = DTypeSize(mode.all_reduce().compression());
  }
  merges_ = few_go_whole_ && !averages_ && value_bytes_ > 2;
  for (int t = 0; t < trainers_; ++t) {
    std::vector<int>& lanes = node_lanes_.emplace_back();
    for (const LaneRange& node : AlignedNodes(LanesOfTrainer(main.plan().lanes(), trainers_, t))) {
      lanes.push_back(node.count);
    }
    // An average has one addend of each trainer.
    if (averages_) lanes = {1};
    nodes_.push_back(static_cast<int>(lanes.size()));
    all_nodes_ += nodes_.back();
  }
  check_bytes_ = mode.all_reduce().sharded() ? CopiedDigestBytes(main) : DigestBytes(main);
  v1::NormsRequest given;
  for (const std::string& name : norms) {
    v1::WholeNorm* const norm = given.add_norms();
    norm->set_name(name);
    norm->set_norm(1);
  }
  norm_bytes_ = static_cast<double>(given.ByteSizeLong());
}

int64_t AllReduceTraffic::dense_bytes() const {
  int64_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += bucket.elements * static_cast<int64_t>(value_bytes_);
  return bytes;
}

bool AllReduceTraffic::GoesWhole(const Bucket& bucket) const {
  const int64_t bytes = bucket.elements * static_cast<int64_t>(value_bytes_);
  return few_go_whole_ && bucket.width == 0 && weir::GoesWhole(bytes, value_bytes_, trainers_);
}

FlowSum AllReduceTraffic::Dense(int trainer) const {
  FlowSum sum;
  const int k = nodes(trainer), others = trainers_ - 1;
  for (const Bucket& bucket : buckets_) {
    if (GoesWhole(bucket)) {
      const double bytes = static_cast<double>(bucket.elements * static_cast<int64_t>(value_bytes_));
      sum.bytes_out += k * others * bytes;
      sum.bytes_in += (all_nodes_ - k) * bytes;
      continue;
    }
    const std::vector<int64_t> begins = EvenSlices(bucket.elements, value_bytes_, trainers_);
    for (int t = 0; t < trainers_; ++t) {
      const size_t s = static_cast<size_t>(t);
      const double bytes = static_cast<double>((begins[s + 1] - begins[s]) * static_cast<int64_t>(value_bytes_));
      if (t == trainer) {
        sum.bytes_out += others * bytes;
        sum.bytes_in += (all_nodes_ - k) * bytes;
        sum.messages += others * OperationMessages(bytes);
      } else {
        sum.bytes_out += k * bytes;
        sum.bytes_in += bytes;
        sum.messages += k * OperationMessages(bytes);
      }
    }
  }
  return sum.Times(1 / static_cast<double>(every_steps_));
}

std::optional<AllReduceTraffic::BetweenHosts> AllReduceTraffic::DenseBetweenHosts(const std::vector<int>& host,
                                                                                  const std::vector<int>& nodes) const {
  if (!merges_) return std::nullopt;
  std::vector<double> ranks(nodes.size()), addends(nodes.size());
  for (size_t t = 0; t < host.size(); ++t) {
    ranks[static_cast<size_t>(host[t])] += 1;
    addends[static_cast<size_t>(host[t])] += nodes_[t];
  }
  // For each host but that of a slice's owner: its addends of the slice, and the sum.
  double merged = 0, apart = 0, whole = 0;
  for (size_t h = 0; h < nodes.size(); ++h) {
    merged += nodes[h] + 1;
    apart += addends[h] + ranks[h];
    whole += addends[h] * (static_cast<double>(host.size()) - ranks[h]);
  }
  BetweenHosts sum;
  for (const Bucket& bucket : buckets_) {
    if (bucket.width > 0) continue;
    if (GoesWhole(bucket)) {
      const double bytes = static_cast<double>(bucket.elements * static_cast<int64_t>(value_bytes_));
      sum.merged += whole * bytes;
      sum.apart += whole * bytes;
      continue;
    }
    const std::vector<int64_t> begins = EvenSlices(bucket.elements, value_bytes_, trainers_);
    for (size_t t = 0; t < host.size(); ++t) {
      const double bytes = static_cast<double>((begins[t + 1] - begins[t]) * static_cast<int64_t>(value_bytes_));
      const size_t own = static_cast<size_t>(host[t]);
      sum.merged += bytes * (merged - nodes[own] - 1);
      sum.apart += bytes * (apart - addends[own] - ranks[own]);
    }
  }
  return sum;
}

FlowSum AllReduceTraffic::Headers() const {
  const double messages = static_cast<double>(buckets_.size()) * (trainers_ - 1) / static_cast<double>(every_steps_);
  const double bytes = messages * static_cast<double>(kOperationHeaderBytes);
  return {.messages = messages, .bytes_out = bytes, .bytes_in = bytes};
}

FlowSum AllReduceTraffic::Norms(int trainer) const {
  if (norm_bytes_ == 0) return {};
  const double others = trainers_ - 1;
  // Two exchanges: of every trainer's samples, 8 bytes, and of the norms of the first trainer.
  const double headers = 2 * static_cast<double>(kOperationHeaderBytes);
  FlowSum sum = {.messages = 3 * others, .bytes_out = others * (headers + 8), .bytes_in = others * (headers + 8)};
  if (trainer == 0) {
    sum.messages += others;
    sum.bytes_out += others * norm_bytes_;
  } else {
    sum.bytes_in += norm_bytes_;
  }
  return sum;
}

FlowSum AllReduceTraffic::RowsToOne(const Bucket& bucket, const StepRows& rows) const {
  FlowSum sum;
  const auto found = rows.find(bucket.parameters[0]);
  if (found == rows.end()) return sum;
  for (const std::vector<double>& of_block : found->second.pushed) sum += RowsOfBlock(bucket.width, of_block);
  sum.messages = OperationMessages(sum.bytes_out);
  return sum;
}

FlowSum AllReduceTraffic::RowsOfBlock(int width, const std::vector<double>& by_node) {
  FlowSum sum;
  for (const double of_node : by_node) {
    if (of_node < 0.5) continue;
    // Ids, and values up to a multiple of 8 bytes.
    const double values = of_node * width * kFloatBytes;
    sum.bytes_out += kNodeHeaderBytes + 8 * of_node + 8 * std::ceil(values / 8);
    sum.rows += of_node;
  }
  sum.messages = OperationMessages(sum.bytes_out);
  return sum;
}

double AllReduceTraffic::DensePerStep() const {
  const auto dense =
      std::count_if(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.width == 0; });
  return static_cast<double>(dense) / static_cast<double>(every_steps_);
}

double AllReduceTraffic::RingBytes() const {
  return 2.0 * static_cast<double>(dense_bytes()) * (trainers_ - 1) / trainers_ / static_cast<double>(every_steps_);
}

double AllReduceTraffic::DirectBytes(int trainer) const {
  const double k = nodes(trainer), others = trainers_ - 1;
  double bytes = 0;
  for (const Bucket& bucket : buckets_) {
    const double sent = GoesWhole(bucket) ? k * others : (k + 1) * others / trainers_;
    bytes += sent * static_cast<double>(bucket.elements * static_cast<int64_t>(value_bytes_));
  }
  return bytes / static_cast<double>(every_steps_);
}

double AllReduceTraffic::DirectSeconds(int trainer, const Link& link) const {
  if (trainers_ == 1) return 0;
  const FlowSum dense = Dense(trainer);
  const auto whole = std::count_if(buckets_.begin(), buckets_.end(), [this](const Bucket& b) { return GoesWhole(b); });
  const double phases = 2 * DensePerStep() - static_cast<double>(whole) / static_cast<double>(every_steps_);
  return phases * link.latency_s() + std::max(dense.bytes_out, dense.bytes_in) / link.bytes_per_s();
}

double AllReduceTraffic::RingSeconds(const Link& link) const {
  return 2 * (trainers_ - 1) * DensePerStep() * link.latency_s() + RingBytes() / link.bytes_per_s();
}

int64_t AllReduceTraffic::BufferBytes(int trainer) const {
  int64_t bytes = gradient_bytes_, largest = 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.width > 0) continue;
    const int64_t sums = bucket.elements * kFloatBytes;
    bytes += sums;  // the result; that of an average stands where the addend was
    for (const int lanes : node_lanes_[static_cast<size_t>(trainer)]) {
      // A gradient that travels alone is sent from where the only lane of a node has it.
      if (!averages_ && (bucket.parameters.size() > 1 || lanes > 1)) bytes += sums;
    }
    if (GoesWhole(bucket)) {
      // The addends of all arrive, and its own are copied for the others.
      bytes += (all_nodes_ + nodes(trainer)) * sums;
      continue;
    }
    const std::vector<int64_t> begins = EvenSlices(bucket.elements, value_bytes_, trainers_);
    const size_t t = static_cast<size_t>(trainer);
    largest = std::max(largest, (begins[t + 1] - begins[t]) * static_cast<int64_t>(value_bytes_));
  }
  return bytes + ArrivingBytes(trainer, largest);
}

int64_t AllReduceTraffic::ArrivingBytes(int trainer, int64_t slice) const {
  return kStreams * kMessagesUnderWay * (all_nodes_ - nodes(trainer)) * std::min(slice, kOperationMessageBytes);
}

FlowSum AllReduceTraffic::Check() const {
  const double others = trainers_ - 1;
  const double bytes = others * static_cast<double>(kOperationHeaderBytes + check_bytes_);
  return {.messages = others * (1 + OperationMessages(static_cast<double>(check_bytes_))),
          .bytes_out = bytes,
          .bytes_in = bytes};
}

}  // namespace weir
