#include "pserver/rendezvous/rendezvous.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "proto/rendezvous.pb.h"
#include "pserver/cluster/endpoint.h"
#include "pserver/rendezvous/file_meeting.h"
#include "pserver/rendezvous/gathering.h"
#include "pserver/rendezvous/tcp_meeting.h"

namespace weir {
namespace {

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

v1::RendezvousGreeting GreetingOf(const RendezvousOptions& options) {
  v1::RendezvousGreeting greeting;
  greeting.set_version(kRendezvousVersion);
  greeting.set_job_name(options.job_name);
  greeting.set_run_id(options.run_id);
  greeting.set_server(options.server);
  greeting.set_id(options.id);
  greeting.set_trainers(options.trainers);
  greeting.set_servers(options.servers);
  if (!options.endpoint.empty()) greeting.set_endpoint(options.endpoint);
  greeting.set_process(options.process);
  greeting.set_incarnation(RandomNumber());
  return greeting;
}

// Checks an answer, which came from outside, and returns what it says.
absl::StatusOr<Addresses> Read(const v1::RendezvousAnswer& answer, const RendezvousOptions& options) {
  const int listening = options.servers == 0 ? options.trainers : 0;
  if (answer.trainer_size() != listening || answer.server_size() != options.servers) {
    return absl::InternalError(absl::StrCat("the rendezvous names ", answer.trainer_size(), " trainers and ",
                                            answer.server_size(), " servers that listen; there must be ", listening,
                                            " and ", options.servers));
  }
  Addresses addresses = {.trainers = {answer.trainer().begin(), answer.trainer().end()},
                         .servers = {answer.server().begin(), answer.server().end()},
                         .run_id = answer.run_id()};
  for (const std::vector<std::string>* list : {&addresses.trainers, &addresses.servers}) {
    for (const std::string& text : *list) RETURN_IF_ERROR(ParseEndpoint(text).status());
  }
  return addresses;
}

}  // namespace

absl::StatusOr<Addresses> Meet(const RendezvousOptions& options, const Cancellation& cancellation) {
  const v1::RendezvousGreeting own = GreetingOf(options);
  const bool host = !options.server && options.id == 0;
  const bool tcp = options.method.kind == InitMethod::Kind::kTcp;
  LOG(INFO) << NameOf(own) << " meets " << (options.trainers + options.servers - 1) << " others at "
            << options.method.ToString();
  auto* const meet = tcp ? (host ? HostTcpMeeting : AttendTcpMeeting) : (host ? HostFileMeeting : AttendFileMeeting);
  ASSIGN_OR_RETURN(const v1::RendezvousAnswer answer, meet(options, own, cancellation));
  return Read(answer, options);
}

}  // namespace weir
