// The processes of a job meet and learn each other's addresses. Trainer 0 collects them at the meeting point
// (pserver/cluster/init_method.h) and tells all when the last one has come. Knows nothing of parameters.
//
//   tcp://HOST:PORT   Trainer 0 listens there; the others connect and keep the connection until they are answered. A
//                     process whose connection breaks has left, and is missing again. Bytes that are no greeting of a
//                     Weir process end their connection and nothing else.
//   file:///PATH      Every process keeps a file in the directory and writes it anew every half second. Trainer 0
//                     counts a process once it has seen its file change, so that files that an earlier run has left
//                     are never waited for, whatever the clocks of the machines say; it removes those of its own job.
//                     Each process finds its answer in a file that has the random number of its own greeting in its
//                     name.
//
// A process of another job or run, with another number of trainers or servers, or with an id that another process has,
// is refused with a message that names both; the meeting goes on without it. Addresses of one machine alone (127.0.0.1)
// beside others end the meeting for all.
#ifndef WEIR_PSERVER_RENDEZVOUS_RENDEZVOUS_H_
#define WEIR_PSERVER_RENDEZVOUS_RENDEZVOUS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pserver/rendezvous/cancellation.h"
#include "pserver/rendezvous/rendezvous_options.h"

namespace weir {

struct Addresses {
  // Addresses of trainers, by id; empty if trainers do not listen.
  std::vector<std::string> trainers;
  // Addresses of servers, by index.
  std::vector<std::string> servers;
  // Name of the run, as trainer 0 has it.
  std::string run_id;
};

// Returns when all have come. Logs the missing processes every slow_warning. Requires: every process of the job calls
// it once, trainer 0 among them, on any thread.
//
// InvalidArgument, FailedPrecondition: a contradiction, an address that is not of this machine (trainer 0), a port that
// another program has, a directory that cannot be used. DeadlineExceeded, naming them: processes have not come within
// connect_deadline. Cancelled: `cancellation`, at once. Unavailable: the host of the meeting point is not known.
absl::StatusOr<Addresses> Meet(const RendezvousOptions& options, const Cancellation& cancellation);

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_RENDEZVOUS_H_
