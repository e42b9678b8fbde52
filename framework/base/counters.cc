#include "framework/base/counters.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace weir {

Counters& Counters::Process() {
  static Counters* const counters = new Counters();
  return *counters;
}

Counters::Named* Counters::Find(std::string_view name, std::string_view unit, Kind kind) {
  MutexLock lock(&mu_);
  auto at = counters_.lower_bound(name);
  if (at == counters_.end() || at->first != name) {
    auto named = std::make_unique<Named>();
    named->unit = std::string(unit);
    named->kind = kind;
    if (kind == Kind::kHistogram) named->histogram = std::make_unique<Histogram>();
    at = counters_.emplace_hint(at, std::string(name), std::move(named));
  }
  CHECK(at->second->unit == unit) << name << " counts " << at->second->unit << ", not " << unit;
  CHECK(at->second->kind == kind) << name << " is a counter, a gauge or a histogram, and only one of them";
  return at->second.get();
}

Counter* Counters::Get(std::string_view name, std::string_view unit) {
  return &Find(name, unit, Kind::kCounter)->counter;
}

Gauge* Counters::GetGauge(std::string_view name, std::string_view unit) {
  return &Find(name, unit, Kind::kGauge)->gauge;
}

Histogram* Counters::GetHistogram(std::string_view name, std::string_view unit) {
  return Find(name, unit, Kind::kHistogram)->histogram.get();
}

int64_t Counters::Value(std::string_view name) const {
  MutexLock lock(&mu_);
  const auto at = counters_.find(name);
  return at == counters_.end() ? 0 : at->second->counter.value();
}

std::vector<Counters::Entry> Counters::Snapshot() const {
  MutexLock lock(&mu_);
  std::vector<Entry> entries;
  for (const auto& [name, named] : counters_) {
    Entry entry{.name = name, .unit = named->unit, .kind = named->kind};
    entry.value = named->counter.value();
    entry.gauge = named->gauge.value();
    if (named->histogram != nullptr) entry.histogram = named->histogram->counts();
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string Counters::ToString() const {
  std::string text;
  for (const Entry& entry : Snapshot()) {
    if (entry.kind != Kind::kCounter) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", entry.name, "=", entry.value, " ", entry.unit);
  }
  return text;
}

}  // namespace weir
