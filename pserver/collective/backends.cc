#include "pserver/collective/backends.h"

#include "absl/strings/str_cat.h"

namespace weir {

std::vector<CollectiveBackend> CollectiveBackends(const absl::Status& nccl, const absl::Status& device) {
  return {{"WIRE", absl::OkStatus()}, {"GLOO", absl::OkStatus()}, {"NCCL", nccl.ok() ? device : nccl}};
}

v1::Comm::Backend AutoBackend(int64_t bytes) {
  constexpr int64_t kMostOverWire = int64_t{8} << 20;
  return bytes <= kMostOverWire ? v1::Comm::WIRE : v1::Comm::GLOO;
}

std::string UsableBackends(const std::vector<CollectiveBackend>& backends) {
  std::string usable;
  for (const CollectiveBackend& backend : backends) {
    if (backend.usable.ok()) absl::StrAppend(&usable, usable.empty() ? "" : ", ", backend.name);
  }
  return usable;
}

}  // namespace weir
