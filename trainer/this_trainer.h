// One trainer among the others of its job.
#ifndef WEIR_TRAINER_THIS_TRAINER_H_
#define WEIR_TRAINER_THIS_TRAINER_H_

#include <functional>

#include "absl/status/status.h"
#include "pserver/client/client.h"
#include "pserver/replica/dense_replica.h"

namespace weir {

struct ThisTrainer {
  int id = 0;
  // Number of trainers of the job.
  int trainers = 1;
  bool sync = true;
  // Borrowed; joined.
  Client* client = nullptr;
  // Borrowed. The dense parameters that this trainer holds; null: servers hold them.
  DenseReplica* replica = nullptr;

  // Returns true if this trainer has the duties of the chief, as server 0 last said. In sync that is always trainer 0.
  bool IsChief() const { return client->member().Chief() == id; }
  // Returns false if another trainer is the chief for the whole run.
  bool MayBecomeChief() const { return !sync || IsChief(); }
  // Returns a check for long waits: its error, that of a job which has failed elsewhere, ends the wait.
  std::function<absl::Status()> KeepWaiting() const {
    return [client = client] { return client->member().JobStatus(); };
  }
  // Returns a check for passes over data: as KeepWaiting, and Cancelled once the end of the job is requested.
  std::function<absl::Status()> UntilStop() const {
    return [client = client]() -> absl::Status {
      if (absl::Status failed = client->member().JobStatus(); !failed.ok()) return failed;
      return client->member().StopRequested() ? absl::CancelledError("the end of the job was requested")
                                              : absl::OkStatus();
    };
  }
  // Returns true if a pass under UntilStop ended with `status` because of the request, and not of a failed job.
  bool StoppedBy(const absl::Status& status) const {
    return absl::IsCancelled(status) && client->member().StopRequested() && client->member().JobStatus().ok();
  }
};

}  // namespace weir

#endif  // WEIR_TRAINER_THIS_TRAINER_H_
