#include "pserver/client/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "glog/logging.h"

namespace weir {

namespace {

absl::Duration OfSeconds(double s) { return absl::Seconds(std::max(0.0, s)); }

CallSettings SettingsOf(const ClientOptions& options) {
  const v1::Deadlines& deadlines = options.deadlines;
  return {.job_name = options.job_name,
          .trainer_id = options.trainer_id,
          .trainers = options.plan.trainers(),
          .process = options.process,
          .needs_all_trainers = options.plan.sync(),
          .rpc = OfSeconds(deadlines.rpc_s()),
          .lease = OfSeconds(deadlines.lease_s()),
          .heartbeat_period = OfSeconds(deadlines.heartbeat_s()),
          .slow_warning = OfSeconds(deadlines.slow_warning_s()),
          .connect_deadline = OfSeconds(deadlines.connect_deadline_s()),
          .progress_deadline = OfSeconds(deadlines.progress_deadline_s()),
          .transport = options.transport,
          .clock = options.clock};
}

v1::JoinRequest Introduction(const ClientOptions& options) {
  v1::JoinRequest introduction;
  introduction.set_plan_fingerprint(StableHash(options.plan_text));
  introduction.set_plan_text(options.plan_text);
  introduction.set_arithmetic(options.arithmetic);
  return introduction;
}

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      member_(SettingsOf(options_), options_.checkpoint_per_host ? "" : options_.checkpoint_dir),
      placement_(&options_.plan),
      steps_(ServerSteps::Create({.placement = &placement_,
                                  .member = &member_,
                                  .buffers = &buffers_,
                                  .pool = options_.pool,
                                  .bounded_staleness = options_.bounded_staleness,
                                  .receives_beside_sends = options_.receives_beside_sends})),
      residuals_(&options_.plan, options_.trainer_id, steps_->pusher().nodes(), &steps_->pusher().residuals(),
                 &member_.exchanges(), options_.compresses) {}

absl::Status Client::Join() {
  // Heart-beats begin with the first session: a lease must not run out while another server is still missing.
  if (options_.heartbeat_thread) member_.heartbeats().Start();
  return member_.Join(Introduction(options_));
}

void Client::UseRelay(std::vector<bool> relayed, std::vector<std::vector<LaneRange>> nodes) {
  placement_.SetRelayed(std::move(relayed));
  residuals_.SetNodes(std::move(nodes));
}

Client::Counters Client::counters() const {
  const CallCounters& calls = member_.counters();
  return {.bytes_sent = calls.bytes_sent(),
          .bytes_received = calls.bytes_received(),
          .messages = calls.messages(),
          .rows_pulled = steps_->rows_pulled(),
          .rows_pushed = steps_->pusher().rows(),
          .retries = calls.retries(),
          .large_gradients = steps_->pusher().large_gradients()};
}

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  CHECK(options.transport != nullptr && options.clock != nullptr && options.pool != nullptr);
  const v1::Plan& plan = options.plan;
  if (options.trainer_id < 0 || options.trainer_id >= plan.trainers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer id ", options.trainer_id, "; the job has trainers 0 to ", plan.trainers() - 1));
  }
  if (options.transport->servers() != plan.servers()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.transport->servers(), " servers are given, the plan has ", plan.servers()));
  }
  return std::unique_ptr<Client>(new Client(std::move(options)));
}

}  // namespace weir
