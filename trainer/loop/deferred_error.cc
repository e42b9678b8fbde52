#include "trainer/loop/deferred_error.h"

#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

absl::Status DeferredError::Defer(const absl::Status& error) {
  if (!saves_) return error;
  RETURN_IF_ERROR(client_->member().JobStatus());
  if (error_.ok()) {
    error_ = error;
    LOG(ERROR) << error.message() << "; the run stops at the next step border, saves and ends with this error";
  }
  client_->member().RequestStop();
  return absl::OkStatus();
}

}  // namespace weir
