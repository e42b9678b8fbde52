#include "framework/runtime/kernel.h"

#include <algorithm>

#include "glog/logging.h"

namespace weir {
namespace {

using Key = std::pair<std::string_view, Device>;

Key KeyOf(const std::pair<std::string, Device>& stored) { return {stored.first, stored.second}; }

}  // namespace

void StepHealth::Reset() {
  MutexLock lock(&mu_);
  non_finite_.clear();
}

void StepHealth::ReportNonFinite(std::string_view variable) {
  MutexLock lock(&mu_);
  if (non_finite_.empty()) non_finite_ = std::string(variable);
}

std::string StepHealth::non_finite() const {
  MutexLock lock(&mu_);
  return non_finite_;
}

KernelRegistry& KernelRegistry::Global() {
  static KernelRegistry* const registry = new KernelRegistry();
  return *registry;
}

void KernelRegistry::Register(std::string_view type, Device device, KernelFactory factory) {
  const Key key(type, device);
  auto at = std::lower_bound(kernels_.begin(), kernels_.end(), key,
                             [](const auto& entry, const Key& k) { return KeyOf(entry.first) < k; });
  CHECK(at == kernels_.end() || KeyOf(at->first) != key) << "kernel of " << type << " is registered twice";
  kernels_.emplace(at, std::make_pair(std::string(type), device), std::make_unique<KernelFactory>(std::move(factory)));
}

const KernelFactory* KernelRegistry::Find(std::string_view type, Device device) const {
  const Key key(type, device);
  auto at = std::lower_bound(kernels_.begin(), kernels_.end(), key,
                             [](const auto& entry, const Key& k) { return KeyOf(entry.first) < k; });
  return at == kernels_.end() || KeyOf(at->first) != key ? nullptr : at->second.get();
}

void KernelRegistry::RegisterHostOp(std::string_view type) {
  CHECK(host_ops_.emplace(type).second) << "host op " << type << " is registered twice";
}

}  // namespace weir
