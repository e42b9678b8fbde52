// Options of a process that takes part in a rendezvous.
#ifndef WEIR_PSERVER_RENDEZVOUS_RENDEZVOUS_OPTIONS_H_
#define WEIR_PSERVER_RENDEZVOUS_RENDEZVOUS_OPTIONS_H_

#include <string>

#include "absl/time/time.h"
#include "pserver/cluster/init_method.h"

namespace weir {

struct RendezvousOptions {
  InitMethod method;
  std::string job_name;
  // Name of the run: the same for all trainers, but those after trainer 0 may have kAnyRun. A server takes part if it
  // has that name too, or if it or trainer 0 has none.
  std::string run_id;
  // This process: a server, or a trainer, with its index or id.
  bool server = false;
  int id = 0;
  // Numbers of processes that meet. servers: 0 if every trainer has a server inside.
  int trainers = 1;
  int servers = 0;
  // host:port where this process listens already; "" for a trainer without a server inside.
  std::string endpoint;
  // "host:pid", for messages.
  std::string process;
  // Deadlines of the job.
  absl::Duration slow_warning = absl::Seconds(10);
  absl::Duration connect_deadline = absl::Seconds(300);
  absl::Duration lease = absl::Seconds(10);
};

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_RENDEZVOUS_OPTIONS_H_
