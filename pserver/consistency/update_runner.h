// Makes updates take effect: norms, optimize programs, rows of tables, step borders. Runs without the server's lock.
// Thread-safe: in async several updates run at once.
#ifndef WEIR_PSERVER_CONSISTENCY_UPDATE_RUNNER_H_
#define WEIR_PSERVER_CONSISTENCY_UPDATE_RUNNER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/counters.h"
#include "pserver/consistency/table_steps.h"
#include "pserver/consistency/update.h"
#include "pserver/params/server_params.h"

namespace weir {

class UpdateRunner {
 public:
  // Borrows both. `exchanges_norms`: other servers hold parts of the norms.
  UpdateRunner(ServerParams* params, Counters* counters, bool exchanges_norms)
      : params_(params), counters_(counters), exchanges_norms_(exchanges_norms) {}

  // Runs the update. Returns false if it has to wait: update->norms offers sums whose norms a trainer brings. Requires:
  // Run is then called again with them; an update is run by one thread at a time. An error names what failed; parts of
  // the update may have taken effect.
  absl::StatusOr<bool> Run(Update* update);

  // Number of transactions so far, which are the steps of tables in async. SetTableSteps requires that no update is
  // running.
  int64_t table_steps() { return table_steps_.Count(); }
  void SetTableSteps(int64_t count) { table_steps_.Restore(count); }

 private:
  // Runs rounds of norms. Returns false if a trainer must bring norms first.
  absl::StatusOr<bool> MakeNorms(Update* update);
  absl::Status RunStep(const Update& update);
  absl::Status RunTransaction(const Update& update);
  // Runs the step border of the rows of all tables. `step` is for the profile.
  absl::Status EndTableStep(int64_t step, int64_t table_step);

  ServerParams* const params_;
  Counters* const counters_;
  const bool exchanges_norms_;
  TableSteps table_steps_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_UPDATE_RUNNER_H_
