// One wait with warnings and a deadline.
#ifndef WEIR_PSERVER_RENDEZVOUS_WAITING_H_
#define WEIR_PSERVER_RENDEZVOUS_WAITING_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "pserver/rendezvous/cancellation.h"

namespace weir {

class Waiting {
 public:
  // Begins now.
  Waiting(absl::Duration slow_warning, absl::Duration deadline);

  // Call it again and again. Warns with what_for() ("at tcp://10.0.0.1:6170 for trainer 1") each time slow_warning has
  // passed. DeadlineExceeded after the deadline, Cancelled once it is cancelled; both say what for.
  absl::Status Check(const std::function<std::string()>& what_for, const Cancellation& cancellation);
  // Returns the time until Check has something to say; at least 0.
  absl::Duration Next() const;

 private:
  const absl::Duration slow_warning_, limit_;
  const absl::Time begin_;
  absl::Time next_warning_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_WAITING_H_
