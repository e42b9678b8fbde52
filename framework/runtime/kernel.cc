#include "framework/runtime/kernel.h"

#include "glog/logging.h"

namespace weir {

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

void KernelRegistry::Register(std::string_view type, KernelFactory factory) {
  CHECK(kernels_.emplace(type, std::move(factory)).second) << "kernel of " << type << " is registered twice";
}

const KernelFactory* KernelRegistry::Find(std::string_view type) const {
  const auto it = kernels_.find(type);
  return it == kernels_.end() ? nullptr : &it->second;
}

void KernelRegistry::RegisterHostOp(std::string_view type) {
  CHECK(host_ops_.emplace(type).second) << "host op " << type << " is registered twice";
}

}  // namespace weir
