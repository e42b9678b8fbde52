// A rendezvous in a shared directory: the part of trainer 0, and that of the others.
#ifndef WEIR_PSERVER_RENDEZVOUS_FILE_MEETING_H_
#define WEIR_PSERVER_RENDEZVOUS_FILE_MEETING_H_

#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"
#include "pserver/rendezvous/cancellation.h"
#include "pserver/rendezvous/rendezvous_options.h"

namespace weir {

// Looks at the directory until all have come, and until they have taken their answers; those that do not get a lease.
// `own`: greeting of this process, which is trainer 0. Another trainer 0 of the same job and run, in the same directory
// and alive, is an error in one of the two. Returns the complete answer; errors are those of Meet.
absl::StatusOr<v1::RendezvousAnswer> HostFileMeeting(const RendezvousOptions& options,
                                                     const v1::RendezvousGreeting& own,
                                                     const Cancellation& cancellation);

// Leaves a greeting and waits for the answer to it. Returns the complete answer; errors are those of Meet.
absl::StatusOr<v1::RendezvousAnswer> AttendFileMeeting(const RendezvousOptions& options,
                                                       const v1::RendezvousGreeting& own,
                                                       const Cancellation& cancellation);

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_FILE_MEETING_H_
