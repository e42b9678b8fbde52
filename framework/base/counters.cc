#include "framework/base/counters.h"

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace weir {

Counters& Counters::Process() {
  static Counters* const counters = new Counters();
  return *counters;
}

Counter* Counters::Get(std::string_view name, std::string_view unit) {
  MutexLock lock(&mu_);
  auto at = counters_.lower_bound(name);
  if (at == counters_.end() || at->first != name) {
    auto named = std::make_unique<Named>();
    named->unit = std::string(unit);
    at = counters_.emplace_hint(at, std::string(name), std::move(named));
  }
  CHECK(at->second->unit == unit) << name << " counts " << at->second->unit << ", not " << unit;
  return &at->second->counter;
}

int64_t Counters::Value(std::string_view name) const {
  MutexLock lock(&mu_);
  const auto at = counters_.find(name);
  return at == counters_.end() ? 0 : at->second->counter.value();
}

std::vector<Counters::Entry> Counters::Snapshot() const {
  MutexLock lock(&mu_);
  std::vector<Entry> entries;
  for (const auto& [name, named] : counters_) entries.push_back({name, named->unit, named->counter.value()});
  return entries;
}

std::string Counters::ToString() const {
  std::string text;
  for (const Entry& entry : Snapshot()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", entry.name, "=", entry.value, " ", entry.unit);
  }
  return text;
}

}  // namespace weir
