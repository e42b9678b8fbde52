#include "tests/testing/in_process_cluster.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/training_mode.h"
#include "glog/logging.h"

namespace weir {

InProcessCluster::InProcessCluster(ClusterOptions options)
    : options_(std::move(options)),
      clock_(options_.fake_clock ? static_cast<Clock*>(&fake_) : Clock::Real()),
      pool_("cluster", options_.threads) {}

// Clients first, then what they call.
InProcessCluster::~InProcessCluster() {
  clients_.clear();
  transports_.clear();
  servers_.reset();
}

ClientOptions InProcessCluster::MakeClientOptions(int trainer, const std::string& process) {
  return {.plan = options_.plan,
          .trainer_id = trainer,
          .job_name = options_.job_name,
          .plan_text = options_.plan_text,
          .deadlines = options_.deadlines,
          .checkpoint_dir = options_.checkpoint_dir,
          .process = process,
          .arithmetic = "avx2",
          .transport = transports_[static_cast<size_t>(trainer)].get(),
          .clock = clock_,
          .pool = &pool_,
          .bounded_staleness = ModeOf(options_.main(0)).staleness() >= 0,
          .receives_beside_sends = options_.receives_beside_sends,
          .heartbeat_thread = !options_.fake_clock};
}

absl::StatusOr<std::unique_ptr<Client>> InProcessCluster::MakeClient(int trainer, const std::string& process) {
  return Client::Create(MakeClientOptions(trainer, process));
}

absl::StatusOr<std::unique_ptr<InProcessCluster>> InProcessCluster::Create(ClusterOptions options) {
  std::unique_ptr<InProcessCluster> cluster(new InProcessCluster(std::move(options)));
  const ClusterOptions& o = cluster->options_;
  std::vector<ServerOptions> servers;
  for (int s = 0; s < o.plan.servers(); ++s) {
    servers.push_back({.server_id = s,
                       .main = o.main(s),
                       .startup = o.startup(s),
                       .job_name = o.job_name,
                       .plan_text = o.plan_text,
                       .sync = o.plan.sync(),
                       .deadlines = o.deadlines,
                       .checkpoint_dir = o.checkpoint_dir,
                       .process = absl::StrCat("host:", 1000 + s),
                       .arithmetic = "avx2",
                       .clock = cluster->clock_,
                       .pool = &cluster->pool_,
                       .on_repeat = o.on_repeat,
                       .dense_sum = o.dense_sum});
  }
  ASSIGN_OR_RETURN(cluster->servers_, InProcessServers::Create(std::move(servers), /*tick_thread=*/!o.fake_clock,
                                                               /*check_payloads=*/true));
  for (int t = 0; t < o.plan.trainers(); ++t) {
    cluster->transports_.push_back(
        std::make_unique<FaultyTransport>(cluster->servers_.get(), cluster->clock_, t, o.faults, &cluster->counters_));
    ASSIGN_OR_RETURN(std::unique_ptr<Client> client, cluster->MakeClient(t, absl::StrCat("host:", 2000 + t)));
    cluster->clients_.push_back(std::move(client));
    cluster->dead_.push_back(false);
  }
  return cluster;
}

void InProcessCluster::Advance(absl::Duration d) {
  CHECK(options_.fake_clock);
  constexpr absl::Duration kStep = absl::Milliseconds(100);
  for (; d > absl::ZeroDuration(); d -= kStep) {
    fake_.Advance(std::min(d, kStep));
    for (size_t t = 0; t < clients_.size(); ++t) {
      if (!dead_[t]) clients_[t]->member().heartbeats().Round();
    }
    servers_->Tick();
  }
}

void InProcessCluster::KillTrainer(int trainer) {
  dead_[static_cast<size_t>(trainer)] = true;
  transports_[static_cast<size_t>(trainer)]->KillTrainer();
}

absl::Status InProcessCluster::RunTrainers(const std::function<absl::Status(int)>& fn) {
  std::vector<absl::Status> statuses(clients_.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < clients_.size(); ++t) {
    threads.emplace_back([&statuses, &fn, t] { statuses[t] = fn(static_cast<int>(t)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<InProcessCluster::Digest> InProcessCluster::GetDigest() {
  v1::ControlRequest request;
  request.mutable_digest();
  ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client(0).member().Control(request));
  Digest digest;
  for (const v1::ControlReply& reply : replies) {
    digest.values += reply.values();
    digest.state += reply.state();
  }
  return digest;
}

}  // namespace weir
