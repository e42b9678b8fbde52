// Addresses of the processes of a job that meet (pserver/rendezvous). For main files.
#ifndef WEIR_PSERVER_MEET_OTHERS_H_
#define WEIR_PSERVER_MEET_OTHERS_H_

#include <string>

#include "absl/status/statusor.h"
#include "framework/process/stop_signals.h"
#include "proto/job.pb.h"
#include "pserver/cluster/cluster.h"
#include "pserver/rendezvous/rendezvous.h"

namespace weir {

// Returns the address of this machine, without a port, that the others are told: the one from which it sends to the
// meeting point, or the meeting point's own name if this machine looks it up as a loopback address; with file:// the
// one that leads out of this machine, or 127.0.0.1 if none does. Unavailable: the meeting point's host is unknown.
absl::StatusOr<std::string> HostForOthers(const InitMethod& method);

// Returns where a server of this process shall listen: cluster.endpoint; if that is "", any port at HostForOthers, or
// at every interface if that is a name.
absl::StatusOr<std::string> WhereToListen(const ClusterConfig& cluster);

// Meets the other processes, with the job's deadlines. cluster.init_method is set. `listening`: where this process
// listens; "" if it does not. `process`: "host:pid". Errors are those of Meet; a stop signal ends it at once.
absl::StatusOr<Addresses> MeetOthers(const v1::JobConfig& job, const ClusterConfig& cluster,
                                     const std::string& listening, std::string process, StopSignals* signals);

}  // namespace weir

#endif  // WEIR_PSERVER_MEET_OTHERS_H_
