#include "transpiler/explain/sharded_traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/base/exact_sum.h"
#include "framework/collective/sizes.h"
#include "proto/parameter_server.pb.h"

namespace weir {
namespace {

// Must match pserver/replica/gathered_values.cc: before the rows of a block.
constexpr double kRowsHeaderBytes = 16;
// Must match pserver/replica/shared_norms.cc: the samples of a trainer.
constexpr double kSamplesBytes = 8;

double HeaderBytes() { return static_cast<double>(kOperationHeaderBytes); }

// Returns the flow of the headers of so many operations with so many other trainers.
FlowSum HeadersOf(int operations, int others) {
  const double messages = static_cast<double>(operations) * others;
  return {.messages = messages, .bytes_out = messages * HeaderBytes(), .bytes_in = messages * HeaderBytes()};
}

// Returns the bytes of the sums of these norms, as a trainer gives them to the others.
double SumBytes(const std::set<std::string>& names) {
  v1::NormsReply reply;
  for (const std::string& name : names) {
    v1::PartialSum* const sum = reply.add_sums();
    sum->set_name(name);
    sum->set_sum(std::string(ExactSum::kWords * sizeof(int64_t), '\0'));
  }
  return static_cast<double>(reply.ByteSizeLong());
}

}  // namespace

FlowSum ShardedTraffic::Flows::Total() const {
  FlowSum sum = sums;
  for (const FlowSum* flow : {&rows, &values, &updated_rows, &norms, &headers}) sum += *flow;
  sum.rows = 0;
  return sum;
}

ShardedTraffic::ShardedTraffic(const v1::Plan& plan, const AllReduceTraffic& common, const NormRoundsOf& rounds,
                               const std::set<std::string>& with_tables)
    : common_(common), count_(plan.trainers()), trainers_(static_cast<size_t>(count_)) {
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (!block.has_trainer()) continue;
    const int64_t bytes = block.element_count() * kFloatBytes;
    Trainer& trainer = trainers_[static_cast<size_t>(block.trainer())];
    (block.sparse_gradient() ? trainer.rows : trainer.dense) += bytes;
    (block.sparse_gradient() ? all_rows_ : all_dense_) += bytes;
    if (!block.sparse_gradient() || block.dims_size() != 2) continue;
    row_blocks_.push_back({block.name(), block.trainer(), static_cast<int>(block.dims(1))});
  }
  for (const AllReduceTraffic::Bucket& bucket : common_.buckets()) {
    if (bucket.width > 0) {
      ++row_exchanges_;
      continue;
    }
    ++dense_buckets_;
    std::vector<int64_t>& owned = owned_.emplace_back(trainers_.size(), 0);
    for (const AllReduceTraffic::Bucket::Part& part : bucket.parts) {
      owned[static_cast<size_t>(part.trainer)] += part.elements * kFloatBytes;
    }
    double messages = 0;
    for (const int64_t bytes : owned) messages += OperationMessages(static_cast<double>(bytes));
    bucket_messages_.push_back(messages);
  }
  FindNorms(plan, rounds, with_tables);
}

void ShardedTraffic::FindNorms(const v1::Plan& plan, const NormRoundsOf& rounds,
                               const std::set<std::string>& with_tables) {
  // names[round][trainer]
  std::vector<std::vector<std::set<std::string>>> names;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (!block.has_trainer()) continue;
    const std::vector<std::set<std::string>> of_block = rounds(block.parameter());
    while (names.size() < of_block.size()) names.emplace_back(trainers_.size());
    for (size_t r = 0; r < of_block.size(); ++r) {
      names[r][static_cast<size_t>(block.trainer())].insert(of_block[r].begin(), of_block[r].end());
    }
  }
  Given shared_sums(trainers_.size(), 0);
  for (size_t r = 0; r < names.size(); ++r) {
    Given& given = norms_.emplace_back();
    for (size_t t = 0; t < trainers_.size(); ++t) {
      std::set<std::string> own, shared;
      // Tables have norms of the first round alone.
      for (const std::string& name : names[r][t]) (r == 0 && with_tables.contains(name) ? shared : own).insert(name);
      given.push_back(SumBytes(own));
      if (r == 0) shared_sums[t] = SumBytes(shared);
    }
  }
  if (with_tables.empty()) return;
  norms_.emplace_back(trainers_.size(), kSamplesBytes);
  norms_.push_back(std::move(shared_sums));
  norms_.emplace_back(trainers_.size(), 0)[0] = common_.norm_bytes();
}

FlowSum ShardedTraffic::ToAll(double own, double all, int count) {
  const double others = count - 1;
  return {.messages = others * OperationMessages(own), .bytes_out = others * own, .bytes_in = all - own};
}

void ShardedTraffic::AddRows(int first, int count, const StepRows& rows) {
  for (const AllReduceTraffic::Bucket& bucket : common_.buckets()) {
    if (bucket.width == 0) continue;
    const auto found = rows.find(bucket.parameters[0]);
    if (found != rows.end()) AddRowsOfBucket(bucket, first, count, found->second);
  }
}

void ShardedTraffic::AddRowsOfBucket(const AllReduceTraffic::Bucket& bucket, int first, int count,
                                     const TargetRows& rows) {
  FlowSum to_all;
  std::map<int, FlowSum> to;  // by owner
  for (const AllReduceTraffic::Bucket::Part& part : bucket.parts) {
    if (part.place >= rows.pushed.size()) continue;
    const FlowSum sent = AllReduceTraffic::RowsOfBlock(bucket.width, rows.pushed[part.place]);
    to[part.trainer] += sent;
    to_all += sent;
  }
  for (int t = first; t < first + count; ++t) trainers_[static_cast<size_t>(t)].row_flows += to_all;
  row_bytes_[bucket.parameters[0]] += to_all.bytes_out * count;
  for (const auto& [owner, sent] : to) {
    Trainer& trainer = trainers_[static_cast<size_t>(owner)];
    const bool own = owner >= first && owner < first + count;
    trainer.held += sent.bytes_out * count;
    trainer.row_flows.bytes_in += sent.bytes_out * (count - (own ? 1 : 0));
    if (!own) continue;
    trainer.row_flows += sent.Times(-1);
    row_bytes_[bucket.parameters[0]] -= sent.bytes_out;
  }
}

void ShardedTraffic::AddUpdates(const std::map<std::string, double, std::less<>>& rows) {
  ++steps_;
  std::vector<double> given(trainers_.size(), 0), changed(trainers_.size(), 0);
  double all = 0;
  for (const RowBlock& block : row_blocks_) {
    const auto found = rows.find(block.name);
    if (found == rows.end() || found->second < 0.5) continue;
    const double values = found->second * block.width * kFloatBytes;
    const double bytes = kRowsHeaderBytes + 8 * found->second + 8 * std::ceil(values / 8);
    given[static_cast<size_t>(block.trainer)] += bytes;
    changed[static_cast<size_t>(block.trainer)] += found->second;
    all += bytes;
  }
  for (size_t t = 0; t < trainers_.size(); ++t) {
    trainers_[t].updated_flows += ToAll(given[t], all, count_);
    trainers_[t].updated_flows.rows += changed[t];
  }
}

FlowSum ShardedTraffic::Sums(int trainer) const {
  FlowSum sum;
  const int k = common_.nodes(trainer), others = common_.all_nodes() - k;
  for (size_t b = 0; b < owned_.size(); ++b) {
    const auto own = static_cast<double>(owned_[b][static_cast<size_t>(trainer)]);
    double all = 0;
    for (const int64_t bytes : owned_[b]) all += static_cast<double>(bytes);
    sum.bytes_out += k * (all - own);
    sum.bytes_in += others * own;
    sum.messages += k * (bucket_messages_[b] - OperationMessages(own));
  }
  return sum;
}

FlowSum ShardedTraffic::Norms(int trainer) const {
  FlowSum sum = HeadersOf(static_cast<int>(norms_.size()), count_ - 1);
  for (const Given& given : norms_) {
    double all = 0;
    for (const double bytes : given) all += bytes;
    sum += ToAll(given[static_cast<size_t>(trainer)], all, count_);
  }
  return sum;
}

ShardedTraffic::Flows ShardedTraffic::FlowsOf(int trainer) const {
  const double step = 1 / static_cast<double>(std::max<int64_t>(1, steps_));
  const int operations = dense_buckets_ + row_exchanges_ + (all_dense_ > 0 ? 1 : 0) + (row_blocks_.empty() ? 0 : 1);
  return {.sums = Sums(trainer),
          .rows = of(trainer).row_flows.Times(step),
          .values = ToAll(static_cast<double>(of(trainer).dense), static_cast<double>(all_dense_), count_),
          .updated_rows = of(trainer).updated_flows.Times(step),
          .norms = Norms(trainer),
          .headers = HeadersOf(operations, count_ - 1)};
}

FlowSum ShardedTraffic::Gather(int trainer) const {
  FlowSum sum = HeadersOf((all_dense_ > 0 ? 1 : 0) + (all_rows_ > 0 ? 1 : 0), count_ - 1);
  sum += ToAll(static_cast<double>(of(trainer).dense), static_cast<double>(all_dense_), count_);
  sum += ToAll(static_cast<double>(of(trainer).rows), static_cast<double>(all_rows_), count_);
  return sum;
}

double ShardedTraffic::DirectSeconds(const Flows& flows, const Link& link) const {
  if (count_ == 1) return 0;
  // Values leave when all sums have come.
  const double bytes =
      std::max(flows.sums.bytes_out, flows.sums.bytes_in) + std::max(flows.values.bytes_out, flows.values.bytes_in);
  return (dense_buckets_ + 1) * link.latency_s() + bytes / link.bytes_per_s();
}

v1::TrainerExchange ShardedTraffic::ExchangeOf(int trainer, const Link& link) const {
  const Flows flows = FlowsOf(trainer);
  v1::TrainerExchange exchange;
  exchange.set_trainer(trainer);
  exchange.set_nodes(common_.nodes(trainer));
  exchange.set_direct_bytes(flows.sums.bytes_out + flows.values.bytes_out);
  exchange.set_ring_bytes(common_.RingBytes());
  exchange.set_direct_seconds(DirectSeconds(flows, link));
  exchange.set_ring_seconds((count_ - 1) * (dense_buckets_ + 1) * link.latency_s() +
                            common_.RingBytes() / link.bytes_per_s());
  *exchange.mutable_dense() = ToProto(flows.sums);
  *exchange.mutable_rows() = ToProto(flows.rows);
  *exchange.mutable_values() = ToProto(flows.values);
  *exchange.mutable_updated_rows() = ToProto(flows.updated_rows);
  *exchange.mutable_headers() = ToProto(flows.headers);
  if (flows.norms.messages > 0) *exchange.mutable_norms() = ToProto(flows.norms);
  *exchange.mutable_total() = ToProto(flows.Total());
  exchange.set_buffer_bytes(BufferBytes(trainer));
  *exchange.mutable_check() = ToProto(common_.Check());
  return exchange;
}

void ShardedTraffic::FillShare(int trainer, v1::UpdateShare* share) const {
  share->set_trainer(trainer);
  share->set_buffer_bytes(BufferBytes(trainer));
  *share->mutable_step() = ToProto(FlowsOf(trainer).Total());
  *share->mutable_gather() = ToProto(Gather(trainer));
}

int64_t ShardedTraffic::BufferBytes(int trainer) const {
  int64_t bytes = 0, largest = 0;
  size_t b = 0;
  for (const AllReduceTraffic::Bucket& bucket : common_.buckets()) {
    if (bucket.width > 0) continue;
    const int64_t own = owned_[b++][static_cast<size_t>(trainer)];
    bytes += own;  // the result
    largest = std::max(largest, own);
    for (const int lanes : common_.node_lanes(trainer)) {
      // A gradient that travels alone is sent from where the only lane of a node has it.
      if (bucket.parts.size() > 1 || lanes > 1) bytes += bucket.elements * kFloatBytes;
    }
  }
  const double step = 1 / static_cast<double>(std::max<int64_t>(1, steps_));
  const FlowSum &rows = of(trainer).row_flows, &updated = of(trainer).updated_flows;
  // Gradient rows that come stay until the next step; those that leave, and updated rows, until they are there.
  const double on_the_way =
      of(trainer).held + rows.bytes_out + updated.bytes_in + updated.bytes_out / std::max(1, count_ - 1);
  return bytes + common_.ArrivingBytes(trainer, largest) + std::llround(on_the_way * step);
}

double ShardedTraffic::RowBytes(const std::string& parameter) const {
  const auto found = row_bytes_.find(parameter);
  if (found == row_bytes_.end()) return 0;
  return found->second / static_cast<double>(std::max<int64_t>(1, steps_) * count_);
}

}  // namespace weir
