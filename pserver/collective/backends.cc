#include "pserver/collective/backends.h"

#include "absl/strings/str_cat.h"

namespace weir {

std::vector<CollectiveBackend> CollectiveBackends(const absl::Status& nccl, const absl::Status& device) {
  return {{"WIRE", absl::OkStatus()}, {"GLOO", absl::OkStatus()}, {"NCCL", nccl.ok() ? device : nccl}};
}

v1::Comm::Backend AutoBackend() { return v1::Comm::WIRE; }

std::string UsableBackends(const std::vector<CollectiveBackend>& backends) {
  std::string usable;
  for (const CollectiveBackend& backend : backends) {
    if (backend.usable.ok()) absl::StrAppend(&usable, usable.empty() ? "" : ", ", backend.name);
  }
  return usable;
}

}  // namespace weir
