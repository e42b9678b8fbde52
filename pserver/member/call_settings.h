// Constants that the calls, heart-beats and exchanges of one trainer share: its identity, its servers, its deadlines.
#ifndef WEIR_PSERVER_MEMBER_CALL_SETTINGS_H_
#define WEIR_PSERVER_MEMBER_CALL_SETTINGS_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "pserver/protocol/transport.h"

namespace weir {

struct CallSettings {
  std::string job_name;
  int trainer_id = 0;
  int trainers = 1;     // of the job
  std::string process;  // "host:pid"
  // A step needs all trainers: one that is dead ends the job. False: each works for itself, and the others go on.
  bool needs_all_trainers = true;
  absl::Duration rpc;    // of one try
  absl::Duration lease;  // silence after which a process counts as dead
  absl::Duration heartbeat_period;
  absl::Duration slow_warning;
  absl::Duration connect_deadline;
  absl::Duration progress_deadline;
  // Borrowed; must outlive all users of the settings.
  Transport* transport = nullptr;
  Clock* clock = nullptr;

  int servers() const { return transport->servers(); }
  // Name of this trainer in messages: "trainer 1 (host:4711)".
  std::string Self() const { return absl::StrCat("trainer ", trainer_id, " (", process, ")"); }
  // Time in seconds for which a server may hold a request whose answer is not ready.
  double ServerWaitSeconds() const { return absl::ToDoubleSeconds(std::min(rpc / 2, slow_warning)); }
};

// Returns a duration as it stands in messages: "2.5 s".
inline std::string SecondsText(absl::Duration d) {
  const int64_t tenths = absl::ToInt64Milliseconds(d) / 100;
  return absl::StrCat(tenths / 10.0, " s");
}

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_CALL_SETTINGS_H_
