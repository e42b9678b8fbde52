#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "pserver/client/client_impl.h"

namespace weir {

namespace {

constexpr char kPosts[] = "residuals", kDealt[] = "residuals.beginning";

// Errors of what a checkpoint holds.
absl::Status OfCheckpoint(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status) && !absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat("the checkpoint's ", status.message()));
}

}  // namespace

bool ClientImpl::KeepsResiduals() const {
  const v1::Plan& plan = options_.plan;
  return plan.wire().push() != v1::WIRE_FLOAT32 ||
         std::any_of(plan.tables().begin(), plan.tables().end(),
                     [](const v1::PlacedTable& table) { return table.wire().push() != v1::WIRE_FLOAT32; });
}

absl::Status ClientImpl::SaveResiduals(int64_t step, const Take& take) const {
  return residuals_.Save(step, [&](const v1::Residual& residual) { return take(ResidualElement(residual)); });
}

absl::Status ClientImpl::GatherResiduals(int64_t step, int to, const Take& take) {
  const std::string key = absl::StrCat("residuals.", step);
  if (options_.trainer_id != to) {
    const std::unique_ptr<Stream> stream = StreamTo(key, to);
    RETURN_IF_ERROR(SaveResiduals(step, [&](std::string_view bytes) { return stream->Append(bytes); }));
    return stream->Finish();
  }
  for (int t = 0; t < options_.plan.trainers(); ++t) {
    RETURN_IF_ERROR(t == to ? SaveResiduals(step, take) : ReadStream(key, t, take));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::PostResiduals(int64_t step) {
  std::string mine;
  RETURN_IF_ERROR(SaveResiduals(step, [&](std::string_view bytes) {
    mine.append(bytes);
    return absl::OkStatus();
  }));
  return Post(kPosts, std::move(mine), step);
}

absl::Status ClientImpl::TakeResiduals(int64_t step, const Take& take) {
  for (int t = 0; t < options_.plan.trainers(); ++t) {
    if (t == options_.trainer_id) {
      RETURN_IF_ERROR(SaveResiduals(step, take));
      continue;
    }
    ASSIGN_OR_RETURN(const std::string posted, Posted(kPosts, t));
    RETURN_IF_ERROR(take(posted));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::DealResiduals(int from, const std::function<absl::Status(const Take&)>& read, int64_t step) {
  const auto restore = [this, step](const v1::Residual& residual) {
    return residuals_.Restore(residual, nodes_, step);
  };
  if (options_.trainer_id != from) {
    ResidualReader mine([&](const v1::Residual& residual, std::string_view) { return restore(residual); });
    RETURN_IF_ERROR(OfCheckpoint(ReadStream(kDealt, from, [&](std::string_view bytes) { return mine.Append(bytes); })));
    return OfCheckpoint(mine.Finish());
  }
  // Whose nodes are whose; a checkpoint of another number of trainers may have some that are nobody's.
  std::map<std::pair<int, int>, int> owners;
  std::vector<std::unique_ptr<Stream>> streams(static_cast<size_t>(options_.plan.trainers()));
  for (int t = 0; t < options_.plan.trainers(); ++t) {
    if (t != from) streams[static_cast<size_t>(t)] = StreamTo(kDealt, t);
    for (const LaneRange& node : AlignedNodes(LanesOfTrainer(options_.plan.lanes(), options_.plan.trainers(), t))) {
      owners[{node.begin, node.count}] = t;
    }
  }
  ResidualReader all([&](const v1::Residual& residual, std::string_view element) {
    const auto owner = owners.find({residual.lane(), residual.lanes()});
    if (owner == owners.end()) return absl::OkStatus();
    return owner->second == from ? restore(residual) : streams[static_cast<size_t>(owner->second)]->Append(element);
  });
  RETURN_IF_ERROR(OfCheckpoint(read([&](std::string_view bytes) { return all.Append(bytes); })));
  RETURN_IF_ERROR(OfCheckpoint(all.Finish()));
  for (const std::unique_ptr<Stream>& stream : streams) {
    if (stream != nullptr) RETURN_IF_ERROR(stream->Finish());
  }
  return absl::OkStatus();
}

}  // namespace weir
