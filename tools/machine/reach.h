// Checks whether hosts reach each other: a listener that answers checks, and the checks.
//
// The protocol belongs to `doctor` alone. Both sides say a line of 32 bytes first, so that another service at a port is
// told from a doctor; then the side that has connected asks for small messages to be sent back, and for bytes to be
// taken and given whose content both sides know. All numbers are little-endian.
#ifndef WEIR_TOOLS_MACHINE_REACH_H_
#define WEIR_TOOLS_MACHINE_REACH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "tools/machine/machine_report.pb.h"

namespace weir {

// Answers the checks of other doctors, each on a thread of its own. Thread-safe.
class ReachListener {
 public:
  // Listens at a port of all interfaces, IPv4 and IPv6; 0: the system chooses one. FailedPrecondition: the port is
  // taken, or not allowed.
  static absl::StatusOr<std::unique_ptr<ReachListener>> Start(int port);
  // Ends connections under way.
  ~ReachListener();

  int port() const { return port_; }
  // Random number of this process, by which a check knows that it has reached itself.
  uint64_t id() const { return id_; }
  // Doctors that have finished a check of this process, as they call themselves; in the order of their names.
  std::vector<std::string> CheckedBy() const;

 private:
  // Connections answered at once; more are closed. Each has a thread.
  static constexpr size_t kMostConnections = 256;
  struct Connection {
    int fd = -1;
    std::thread thread;
    bool ended = false;  // guarded by mu_
  };

  ReachListener() = default;
  void Accept();
  void Answer(Connection* connection);
  // Joins the threads of connections that have ended.
  void Reap() ABSL_LOCKS_EXCLUDED(mu_);

  int fd_ = -1;
  int stop_[2] = {-1, -1};  // pipe: readable when the listener ends
  int port_ = 0;
  uint64_t id_ = 0;
  mutable Mutex mu_;
  std::vector<std::string> checked_by_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Connection>> connections_ ABSL_GUARDED_BY(mu_);
  std::thread accepts_;
};

struct ReachOptions {
  // host:port of each.
  std::vector<std::string> hosts;
  // Name of this process for others.
  std::string name;
  // ReachListener::id of this process; 0: it does not listen.
  uint64_t own_id = 0;
  // Bytes sent each way; at least 1.
  int64_t bytes = int64_t{16} << 20;
  // Limit for each step of a check: looking up a name, connecting, a small message, 1 MiB of bytes.
  absl::Duration deadline = absl::Seconds(5);
  // Time for a host whose port refuses connections to come up; its doctor may start later.
  absl::Duration wait = absl::ZeroDuration();
};

// Checks each host from here, one after the other. InvalidArgument: an endpoint that is none. FailedPrecondition:
// one host is an address of its own machine alone (127.0.0.1) and another is not.
absl::StatusOr<v1::ReachReport> CheckReach(const ReachOptions& options);

// Returns the error of the first host that has failed: Unavailable, FailedPrecondition if another service listens
// there, DataLoss if bytes were damaged.
absl::Status ReachStatus(const v1::ReachReport& report);
// Returns the report as text for people.
std::string ReachText(const v1::ReachReport& report);

}  // namespace weir

#endif  // WEIR_TOOLS_MACHINE_REACH_H_
