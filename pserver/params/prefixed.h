// Errors that name what they are about.
#ifndef WEIR_PSERVER_PARAMS_PREFIXED_H_
#define WEIR_PSERVER_PARAMS_PREFIXED_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weir {

// Returns `status` with "<what>: " in front.
inline absl::Status Prefixed(const std::string& what, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_PREFIXED_H_
