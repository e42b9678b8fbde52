// A rendezvous over TCP: the part of trainer 0, and that of the others.
#ifndef WEIR_PSERVER_RENDEZVOUS_TCP_MEETING_H_
#define WEIR_PSERVER_RENDEZVOUS_TCP_MEETING_H_

#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"
#include "pserver/rendezvous/cancellation.h"
#include "pserver/rendezvous/rendezvous_options.h"

namespace weir {

// Listens until all have come, and until they have their answers; those that do not take them get five seconds. `own`:
// greeting of this process, which is trainer 0. Returns the complete answer; errors are those of Meet.
absl::StatusOr<v1::RendezvousAnswer> HostTcpMeeting(const RendezvousOptions& options, const v1::RendezvousGreeting& own,
                                                    const Cancellation& cancellation);

// Asks at every port of the method until one answers for this job and run, and waits there. Returns the complete
// answer; errors are those of Meet.
absl::StatusOr<v1::RendezvousAnswer> AttendTcpMeeting(const RendezvousOptions& options,
                                                      const v1::RendezvousGreeting& own,
                                                      const Cancellation& cancellation);

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_TCP_MEETING_H_
