// Measures what a job costs on this machine, for predictions of step times (transpiler/explain/speed_model.h).
//
// The job's own programs run in this process on its own batches: with one trainer and one server on one thread, with
// two trainers, with half the batch, and with all cores. Self times of the profiler's spans give the costs of the parts
// (proto/calibration.proto); counts of rows and bytes come from explain's model of the same cluster. Messages of gRPC
// are measured between a server and a client of this process, over TCP on the loopback interface and over a Unix-domain
// socket.
//
// Needs a machine that does little else meanwhile.
#ifndef WEIR_TRAINER_VERIFY_CALIBRATE_H_
#define WEIR_TRAINER_VERIFY_CALIBRATE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/calibration.pb.h"
#include "pserver/inside/in_process.h"

namespace weir {

struct Job;

// The network of a calibration: this room does not know gRPC (transpiler/loopback.h).
struct CalibrationNetwork {
  // Returns a transport to servers of this process, over Unix-domain sockets if there are any.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(InProcessServers*)> to_servers;
  // Returns a transport to a server that answers Deliver with an empty message, over a Unix-domain socket or TCP.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(bool unix_socket)> echo;
};

struct CalibrateOptions {
  // About how long to measure, after the data's statistics have been collected where the job needs them.
  double seconds = 30;
  CalibrationNetwork network;
};

// Returns an error that names --calibrate_seconds unless it is positive and at most an hour.
absl::Status CheckCalibrateSeconds(double seconds);

// Uses the profiler of the process. Errors are those of the job's run; FailedPrecondition if its data has fewer
// examples than one step.
absl::StatusOr<v1::Calibration> Calibrate(const Job& job, const CalibrateOptions& options);

// Returns the digest of the program before it is split: field `program` of a calibration.
absl::StatusOr<std::string> CalibratedProgram(const Job& job);

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_CALIBRATE_H_
