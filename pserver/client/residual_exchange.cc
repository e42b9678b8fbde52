#include "pserver/client/residual_exchange.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {

namespace {

constexpr char kPosts[] = "residuals", kDealt[] = "residuals.beginning";

// Turns errors of a checkpoint's contents into DataLoss.
absl::Status OfCheckpoint(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status) && !absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat("the checkpoint's ", status.message()));
}

}  // namespace

bool PushesAreLossy(const v1::Plan& plan) {
  return plan.wire().push() != v1::WIRE_FLOAT32 ||
         std::any_of(plan.tables().begin(), plan.tables().end(),
                     [](const v1::PlacedTable& table) { return table.wire().push() != v1::WIRE_FLOAT32; });
}

ResidualExchange::ResidualExchange(const v1::Plan* plan, int trainer, absl::Span<const LaneRange> nodes,
                                   Residuals* residuals, Board* board, bool whole)
    : plan_(*plan),
      trainer_(trainer),
      whole_(whole),
      nodes_(whole ? NodesOf(trainer) : std::vector<LaneRange>(nodes.begin(), nodes.end())),
      residuals_(*residuals),
      board_(*board) {}

void ResidualExchange::SetNodes(std::vector<std::vector<LaneRange>> nodes) {
  all_nodes_ = std::move(nodes);
  nodes_ = NodesOf(trainer_);
}

std::vector<LaneRange> ResidualExchange::NodesOf(int trainer) const {
  const LaneRange lanes = LanesOfTrainer(plan_.lanes(), plan_.trainers(), trainer);
  std::vector<LaneRange> nodes = all_nodes_.empty() ? AlignedNodes(lanes) : all_nodes_[static_cast<size_t>(trainer)];
  if (whole_ && std::find(nodes.begin(), nodes.end(), lanes) == nodes.end()) nodes.push_back(lanes);
  return nodes;
}

absl::Span<float> ResidualExchange::OfDense(const std::string& parameter, int64_t count) {
  return residuals_.DenseValues(parameter, LanesOfTrainer(plan_.lanes(), plan_.trainers(), trainer_), count);
}

bool ResidualExchange::Keeps() const { return whole_ || PushesAreLossy(plan_); }

absl::Status ResidualExchange::Save(int64_t step, const TakeBytes& take) const {
  return residuals_.Save(step, [&](const v1::Residual& residual) { return take(ResidualElement(residual)); });
}

absl::Status ResidualExchange::Gather(int64_t step, int to, const TakeBytes& take) {
  const std::string key = absl::StrCat("residuals.", step);
  if (trainer_ != to) {
    const std::unique_ptr<ByteStream> stream = board_.StreamTo(key, to);
    RETURN_IF_ERROR(Save(step, [&](std::string_view bytes) { return stream->Append(bytes); }));
    return stream->Finish();
  }
  for (int t = 0; t < plan_.trainers(); ++t) {
    RETURN_IF_ERROR(t == to ? Save(step, take) : board_.ReadStream(key, t, take));
  }
  return absl::OkStatus();
}

absl::Status ResidualExchange::Post(int64_t step) {
  std::string mine;
  RETURN_IF_ERROR(Save(step, [&](std::string_view bytes) {
    mine.append(bytes);
    return absl::OkStatus();
  }));
  return board_.Post(kPosts, mine, step);
}

absl::Status ResidualExchange::Take(int64_t step, const TakeBytes& take) {
  for (int t = 0; t < plan_.trainers(); ++t) {
    if (t == trainer_) {
      RETURN_IF_ERROR(Save(step, take));
      continue;
    }
    ASSIGN_OR_RETURN(const std::string posted, board_.Posted(kPosts, t));
    RETURN_IF_ERROR(take(posted));
  }
  return absl::OkStatus();
}

absl::Status ResidualExchange::Receive(int from, int64_t step) {
  ResidualReader mine([&](const v1::Residual& residual, std::string_view) { return Restore(residual, step); });
  RETURN_IF_ERROR(
      OfCheckpoint(board_.ReadStream(kDealt, from, [&](std::string_view bytes) { return mine.Append(bytes); })));
  return OfCheckpoint(mine.Finish());
}

absl::Status ResidualExchange::Deal(int from, const std::function<absl::Status(const TakeBytes&)>& read, int64_t step) {
  if (trainer_ != from) return Receive(from, step);
  // Owners of nodes. A checkpoint of another number of trainers may hold nodes without an owner, which are dropped.
  std::map<std::pair<int, int>, int> owners, of_sums;
  std::vector<std::unique_ptr<ByteStream>> streams(static_cast<size_t>(plan_.trainers()));
  for (int t = 0; t < plan_.trainers(); ++t) {
    if (t != from) streams[static_cast<size_t>(t)] = board_.StreamTo(kDealt, t);
    for (const LaneRange& node : NodesOf(t)) owners.emplace(std::pair(node.begin, node.count), t);
    // A sum of all lanes of a trainer is its own, also if rows of the same lanes leave its host by another's hand.
    const LaneRange lanes = LanesOfTrainer(plan_.lanes(), plan_.trainers(), t);
    if (whole_) of_sums[{lanes.begin, lanes.count}] = t;
  }
  ResidualReader all([&](const v1::Residual& residual, std::string_view element) {
    const std::pair<int, int> node = {residual.lane(), residual.lanes()};
    const bool of_sum = residual.width() == 0 && of_sums.contains(node);
    const auto owner = of_sum ? of_sums.find(node) : owners.find(node);
    if (owner == (of_sum ? of_sums : owners).end()) return absl::OkStatus();
    return owner->second == from ? Restore(residual, step)
                                 : streams[static_cast<size_t>(owner->second)]->Append(element);
  });
  RETURN_IF_ERROR(OfCheckpoint(read([&](std::string_view bytes) { return all.Append(bytes); })));
  RETURN_IF_ERROR(OfCheckpoint(all.Finish()));
  for (const std::unique_ptr<ByteStream>& stream : streams) {
    if (stream != nullptr) RETURN_IF_ERROR(stream->Finish());
  }
  return absl::OkStatus();
}

}  // namespace weir
