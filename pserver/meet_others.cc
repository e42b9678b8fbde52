#include "pserver/meet_others.h"

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "framework/base/status_macros.h"
#include "framework/net/socket_address.h"
#include "glog/logging.h"
#include "pserver/network/local_address.h"
#include "pserver/rendezvous/cancellation.h"

namespace weir {
namespace {

// An address that no machine has (RFC 5737), behind the default route. Nothing is sent there.
constexpr char kElsewhere[] = "203.0.113.1:9";

// Returns the address of this machine, without a port, that leads to the meeting point. Nullopt if the machine looks
// the point's name up as a loopback address, as Debian's /etc/hosts has its own name (127.0.1.1): others reach it by
// that name alone.
absl::StatusOr<std::optional<std::string>> OwnAddress(const InitMethod& method) {
  if (method.kind != InitMethod::Kind::kTcp) {
    const absl::StatusOr<std::string> host = LocalAddressTowards(kElsewhere);
    return host.ok() ? *host : std::optional<std::string>("127.0.0.1");
  }
  ASSIGN_OR_RETURN(std::string host, LocalAddressTowards(method.address.ToString()));
  if (IsLoopback(host) && !method.address.IsLoopback()) return std::optional<std::string>();
  return std::optional<std::string>(std::move(host));
}

}  // namespace

absl::StatusOr<std::string> HostForOthers(const InitMethod& method) {
  ASSIGN_OR_RETURN(std::optional<std::string> own, OwnAddress(method));
  return own.has_value() ? *std::move(own) : method.address.host;
}

absl::StatusOr<std::string> WhereToListen(const ClusterConfig& cluster) {
  if (!cluster.endpoint.empty() || !cluster.init_method.has_value()) return cluster.endpoint;
  ASSIGN_OR_RETURN(const std::optional<std::string> own, OwnAddress(*cluster.init_method));
  return JoinHostPort(own.value_or("0.0.0.0"), 0);
}

absl::StatusOr<Addresses> MeetOthers(const v1::JobConfig& job, const ClusterConfig& cluster,
                                     const std::string& listening, std::string process, StopSignals* signals) {
  CHECK(cluster.init_method.has_value());
  const bool server = cluster.role == Role::kPserver;
  const v1::Deadlines& deadlines = job.deadlines();
  RendezvousOptions options = {.method = *cluster.init_method,
                               .job_name = job.name(),
                               .run_id = cluster.run_id,
                               .server = server,
                               .id = server ? cluster.server_id : cluster.trainer_id,
                               .trainers = cluster.trainers,
                               .servers = job.distribute().servers(),
                               .endpoint = listening,
                               .process = std::move(process),
                               .slow_warning = absl::Seconds(deadlines.slow_warning_s()),
                               .connect_deadline = absl::Seconds(deadlines.connect_deadline_s()),
                               .lease = absl::Seconds(deadlines.lease_s())};
  if (!listening.empty()) {
    ASSIGN_OR_RETURN(const Endpoint own, ParseEndpoint(listening));
    if (own.IsWildcard()) {
      ASSIGN_OR_RETURN(const std::string host, HostForOthers(options.method));
      options.endpoint = JoinHostPort(host, own.port);
    }
  }
  Cancellation cancellation;
  signals->OnStop([&cancellation] { cancellation.Cancel(); });
  absl::StatusOr<Addresses> addresses = Meet(options, cancellation);
  signals->OnStop({});
  return addresses;
}

}  // namespace weir
