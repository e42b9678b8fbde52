// Error of something beside the training (an evaluation, a digest log), which must not cost the parameters.
#ifndef WEIR_TRAINER_LOOP_DEFERRED_ERROR_H_
#define WEIR_TRAINER_LOOP_DEFERRED_ERROR_H_

#include "absl/status/status.h"
#include "pserver/client/client.h"

namespace weir {

// Keeps the first such error. The run then stops at the next common step border, saves its parameters and ends with the
// error. Not thread-safe.
class DeferredError {
 public:
  // `client` is borrowed. `saves`: whether the job keeps checkpoints; without them no error is deferred.
  DeferredError(Client* client, bool saves) : client_(client), saves_(saves) {}

  // Keeps `error` and asks for a stop. Returns an error that ends the run at once: that of a job which has failed
  // elsewhere, or `error` itself if there is nothing left to save.
  absl::Status Defer(const absl::Status& error);
  // Marks the last parameters as saved: from now on Defer returns its argument.
  void Saved() { saves_ = false; }
  // Returns the error that was kept, or OK.
  const absl::Status& error() const { return error_; }

 private:
  Client* const client_;
  bool saves_;
  absl::Status error_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_DEFERRED_ERROR_H_
