#include "pserver/channels/row_cache.h"

#include <cstring>
#include <utility>

#include "framework/base/status_macros.h"

namespace weir {

CachedRows::CachedRows(const v1::RowCache& settings, int width)
    : capacity_(settings.rows()), max_steps_(settings.max_steps()), width_(static_cast<size_t>(width)) {}

bool CachedRows::Take(int64_t id, int64_t step, float* out) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return false;
  const size_t slot = found->second;
  if (step - read_[slot] > max_steps_) return false;
  used_[slot] = step;
  std::memcpy(out, rows_.data() + slot * width_, width_ * sizeof(float));
  return true;
}

void CachedRows::Keep(int64_t id, int64_t step, int64_t read, const float* row) {
  size_t slot = 0;
  if (const auto found = slots_.find(id); found != slots_.end()) {
    slot = found->second;
  } else if (size() < capacity_) {
    slot = ids_.size();
    ids_.push_back(id);
    read_.push_back(step);
    used_.push_back(step);
    rows_.resize(rows_.size() + width_);
    slots_[id] = static_cast<uint32_t>(slot);
  } else {
    slot = hand_;
    for (int look = 0; look < kLooks; ++look) {
      if (used_[hand_] < used_[slot]) slot = hand_;
      hand_ = hand_ + 1 == ids_.size() ? 0 : hand_ + 1;
    }
    if (used_[slot] == step) return;
    slots_.erase(ids_[slot]);
    ids_[slot] = id;
    slots_[id] = static_cast<uint32_t>(slot);
  }
  read_[slot] = read;
  used_[slot] = step;
  std::memcpy(rows_.data() + slot * width_, row, width_ * sizeof(float));
}

CachedRowSource::CachedRowSource(std::map<std::string, v1::RowCache> settings, RowSource* servers, bool ahead)
    : settings_(std::move(settings)),
      servers_(servers),
      ahead_(ahead),
      hits_(Counters::Process().Get("cache.hits", "rows")),
      misses_(Counters::Process().Get("cache.misses", "rows")) {}

absl::Status CachedRowSource::BeginStep(int64_t step, bool read_only) {
  step_ = step;
  read_only_ = read_only;
  return servers_->BeginStep(step, read_only);
}

absl::Status CachedRowSource::PullRows(absl::Span<const TableRows> tables) {
  if (read_only_) return servers_->PullRows(tables);
  if (there_.size() < tables.size()) there_.resize(tables.size());
  std::vector<TableRows> asked(tables.begin(), tables.end());
  std::vector<CachedRows*> caches(tables.size(), nullptr);
  for (size_t t = 0; t < tables.size(); ++t) {
    const TableRows& table = tables[t];
    const auto settings = settings_.find(table.table);
    if (settings == settings_.end()) continue;
    CachedRows& cached = tables_.try_emplace(table.table, settings->second, table.width).first->second;
    std::vector<uint8_t>& there = there_[t];
    there.resize(table.ids->size());
    int64_t hits = 0;
    for (size_t i = 0; i < there.size(); ++i) {
      there[i] = cached.Take((*table.ids)[i], step_, table.rows + i * static_cast<size_t>(table.width));
      hits += there[i];
    }
    hits_->Add(hits);
    misses_->Add(static_cast<int64_t>(there.size()) - hits);
    asked[t].there = there.data();
    caches[t] = &cached;
  }
  RETURN_IF_ERROR(servers_->PullRows(asked));
  const int64_t read = ahead_ ? step_ - 1 : step_;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (caches[t] == nullptr) continue;
    const TableRows& table = tables[t];
    for (size_t i = 0; i < table.ids->size(); ++i) {
      if (there_[t][i] == 0)
        caches[t]->Keep((*table.ids)[i], step_, read, table.rows + i * static_cast<size_t>(table.width));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
