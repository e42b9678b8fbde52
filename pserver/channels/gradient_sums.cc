#include "pserver/channels/gradient_sums.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

void AddTo(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

void GradientSums::Clear() {
  MutexLock lock(&mu_);
  blocks_.clear();
}

GradientSums::Block* GradientSums::Find(const BlockRef& ref, int width) {
  MutexLock lock(&mu_);
  std::unique_ptr<Block>& block = blocks_[{ref.name, ref.server}];
  if (block == nullptr) {
    block = std::make_unique<Block>();
    block->ref = ref;
    block->width = width;
  }
  return block.get();
}

absl::Status GradientSums::AddDense(const BlockRef& ref, absl::Span<const StepChannel::LaneTensor> lanes) {
  Block* const block = Find(ref, /*width=*/0);
  for (const StepChannel::LaneTensor& lane : lanes) {
    if (lane.value == nullptr || !lane.value->initialized()) continue;
    Tensor& sum = block->dense[lane.lane];
    if (!sum.initialized()) {
      sum.CopyFrom(*lane.value);
      continue;
    }
    if (sum.size() != lane.value->size()) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", ref.name, " has ", lane.value->size(),
                                                     " elements in one batch of the step and ", sum.size(),
                                                     " in another"));
    }
    AddTo(lane.value->data<float>(), sum.size(), sum.data<float>());
  }
  return absl::OkStatus();
}

absl::Status GradientSums::AddRows(const BlockRef& ref, int width, absl::Span<const StepChannel::LaneRows> lanes) {
  Block* const block = Find(ref, width);
  const size_t w = static_cast<size_t>(width);
  for (const StepChannel::LaneRows& lane : lanes) {
    if (lane.value == nullptr || !lane.value->present) continue;
    const std::vector<int64_t>& ids = lane.value->ids;
    if (lane.value->values.size() != static_cast<int64_t>(ids.size() * w)) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", ref.name, " has ", lane.value->values.size(),
                                                     " values; ", ids.size(), " rows of width ", width, " need ",
                                                     ids.size() * w));
    }
    block->height = std::max(block->height, lane.value->height);
    block->counts |= lane.counts != nullptr;
    Rows& sum = block->rows[lane.lane];
    const float* values = lane.value->values.data<float>();
    const float* const counts = lane.counts == nullptr || ids.empty() ? nullptr : lane.counts->data<float>();
    for (size_t i = 0; i < ids.size(); ++i, values += w) {
      const auto [at, fresh] = sum.place_of.emplace(ids[i], sum.ids.size());
      if (fresh) {
        sum.ids.push_back(ids[i]);
        sum.values.insert(sum.values.end(), values, values + w);
        if (counts != nullptr) sum.counts.insert(sum.counts.end(), counts + 2 * i, counts + 2 * i + 2);
      } else {
        AddTo(values, width, sum.values.data() + at->second * w);
        if (counts != nullptr) AddTo(counts + 2 * i, 2, sum.counts.data() + 2 * at->second);
      }
    }
  }
  return absl::OkStatus();
}

bool GradientSums::Has(const BlockRef& ref) {
  MutexLock lock(&mu_);
  const auto found = blocks_.find({ref.name, ref.server});
  return found != blocks_.end() && !found->second->sent;
}

absl::Status GradientSums::SendBlock(Block* block, StepChannel* channel) {
  block->sent = true;
  if (block->width == 0) {
    std::vector<StepChannel::LaneTensor> lanes;
    for (const auto& [lane, sum] : block->dense) lanes.push_back({.lane = lane, .value = &sum});
    return lanes.empty() ? absl::OkStatus() : channel->SendDense(block->ref, lanes);
  }
  std::vector<StepChannel::LaneRows> lanes;
  for (auto& [lane, sum] : block->rows) {
    sum.out.height = block->height;
    sum.out.values =
        Tensor::Of<float>({static_cast<int64_t>(sum.ids.size()), block->width}, absl::MakeConstSpan(sum.values));
    if (block->counts)
      sum.out_counts = Tensor::Of<float>({static_cast<int64_t>(sum.ids.size()), 2}, absl::MakeConstSpan(sum.counts));
    sum.out.ids = std::move(sum.ids);
    sum.out.merged = true;
    sum.out.present = true;
    lanes.push_back({.lane = lane, .value = &sum.out, .counts = block->counts ? &sum.out_counts : nullptr});
  }
  return lanes.empty() ? absl::OkStatus() : channel->SendRows(block->ref, block->width, lanes);
}

absl::Status GradientSums::Send(const BlockRef& ref, StepChannel* channel) {
  Block* block = nullptr;
  {
    MutexLock lock(&mu_);
    const auto found = blocks_.find({ref.name, ref.server});
    if (found == blocks_.end() || found->second->sent) return absl::OkStatus();
    block = found->second.get();
  }
  return SendBlock(block, channel);
}

absl::Status GradientSums::SendRest(StepChannel* channel) {
  std::vector<Block*> rest;
  {
    MutexLock lock(&mu_);
    for (const auto& [key, block] : blocks_) {
      if (!block->sent) rest.push_back(block.get());
    }
  }
  for (Block* block : rest) RETURN_IF_ERROR(SendBlock(block, channel));
  return absl::OkStatus();
}

}  // namespace weir
