#include "trainer/verify/split_run.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/graph/training_mode.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/lane_tree.h"
#include "ops/arithmetic.h"
#include "pserver/channels/make_replica_channel.h"
#include "pserver/replica/make_replica.h"
#include "transpiler/job/job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Limit for a wait inside the run; a run that hangs is a finding too.
constexpr double kDeadlineSeconds = 60;

}  // namespace

SplitRun::SplitRun(const Job& job, SplitRunOptions options)
    : job_(job),
      options_(std::move(options)),
      loss_scaler_(job.config.train()),
      pool_("weir-servers", options_.threads - 1) {}

absl::Status SplitRun::Start(const std::vector<Column>& columns) {
  ASSIGN_OR_RETURN(trainer_, TrainerPrograms(job_, "", ""));
  // Another order of sums gives another result, and is no mistake in the split: all are added in the lane tree.
  if (ModeOf(trainer_.main).has_all_reduce()) MutableMode(&trainer_.main)->mutable_all_reduce()->clear_any_order();
  const std::string plan_text = PlanText(job_, trainer_.main.plan());
  v1::Deadlines deadlines = job_.config.deadlines();
  deadlines.set_progress_deadline_s(std::min(kDeadlineSeconds, deadlines.progress_deadline_s()));
  std::vector<ServerOptions> servers(static_cast<size_t>(plan().servers()));
  for (int s = 0; s < plan().servers(); ++s) {
    ASSIGN_OR_RETURN(Programs server, ServerPrograms(job_, s, "", ""));
    if (options_.edit) options_.edit(s, &server);
    servers[static_cast<size_t>(s)] = {.server_id = s,
                                       .main = std::move(server.main),
                                       .startup = std::move(server.startup),
                                       .job_name = job_.config.name(),
                                       .plan_text = plan_text,
                                       .sync = true,
                                       .deadlines = deadlines,
                                       .process = absl::StrCat("server:", s),
                                       .clock = Clock::Real(),
                                       .pool = &pool_,
                                       .dense_sum = options_.dense_sum};
  }
  ASSIGN_OR_RETURN(servers_,
                   InProcessServers::Create(std::move(servers), /*tick_thread=*/true, options_.check_payloads));
  if (options_.edit) options_.edit(-1, &trainer_);
  if (options_.network) {
    ASSIGN_OR_RETURN(network_, options_.network(servers_.get()));
  }
  for (int t = 0; t < plan().trainers(); ++t) {
    pools_.push_back(std::make_unique<ThreadPool>("weir-trainer", options_.threads - 1));
    ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                     Client::Create({.plan = plan(),
                                     .trainer_id = t,
                                     .job_name = job_.config.name(),
                                     .plan_text = plan_text,
                                     .deadlines = deadlines,
                                     .process = absl::StrCat("trainer:", t),
                                     .transport = network_ == nullptr ? servers_.get() : network_.get(),
                                     .clock = Clock::Real(),
                                     .pool = pools_.back().get()}));
    RETURN_IF_ERROR(client->Join());
    clients_.push_back(std::move(client));
  }
  if (ModeOf(trainer_.main).has_all_reduce()) {
    RETURN_IF_ERROR(MakeReplicas(deadlines));
    RETURN_IF_ERROR(GatherValues());
  }
  for (int t = 0; t < plan().trainers(); ++t) {
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                     Session::Create({.main = trainer_.main,
                                      .startup = trainer_.startup,
                                      .trainer_id = t,
                                      .precision = PrecisionOnCpu(job_.config.train()),
                                      .columns = columns,
                                      .channel = channel(t),
                                      .pool = pools_[static_cast<size_t>(t)].get()}));
    RETURN_IF_ERROR(session->Start(0));
    sessions_.push_back(std::move(session));
  }
  return absl::OkStatus();
}

absl::Status SplitRun::Step(int64_t step, const std::vector<std::vector<LaneBatch>>& batches) {
  std::vector<absl::Status> ends(sessions_.size());
  std::vector<uint8_t> skipped(sessions_.size(), 0);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < sessions_.size(); ++t) {
    sessions_[t]->SetLossScale(loss_scaler_.scale());
    threads.push_back(StartThread("weir-trainer", [&, t] {
      const ProfiledStep profiled(step);
      const LaneRange lanes = sessions_[t]->lanes();
      for (size_t b = 0; b < batches.size() && ends[t].ok(); ++b) {
        std::vector<LaneBatch> own(batches[b].begin() + lanes.begin, batches[b].begin() + lanes.begin + lanes.count);
        const absl::StatusOr<StepResult> result = sessions_[t]->Train(step, static_cast<int>(b), &own);
        ends[t] = result.status();
        skipped[t] = result.ok() && result->outcome.skipped ? 1 : 0;
      }
      // Reports the failure so that the other trainers end too.
      if (!ends[t].ok() && clients_[t]->member().JobStatus().ok()) clients_[t]->member().ReportFailure(ends[t]);
      if (!ends[t].ok() && !channels_.empty()) {
        channels_[t]->EndExchanges(ends[t]);
        // Others may wait for an exchange that this trainer has not begun.
        collectives_[t]->Abort(ends[t]);
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < ends.size(); ++t) {
    // Returns the first cause rather than an error that it caused elsewhere.
    if (!ends[t].ok()) return clients_[t]->member().JobStatus().ok() ? ends[t] : clients_[t]->member().JobStatus();
  }
  // All trainers skip the same steps.
  loss_scaler_.StepDone(skipped[0] != 0);
  return absl::OkStatus();
}

absl::Status SplitRun::MakeReplicas(const v1::Deadlines& deadlines) {
  meshes_ = std::make_unique<LocalMeshes>(plan().trainers());
  for (int t = 0; t < plan().trainers(); ++t) {
    Client* const client = clients_[static_cast<size_t>(t)].get();
    collectives_.push_back(std::make_unique<Collective>(
        meshes_->mesh(t), Collective::Options{.waits = {.deadline = absl::Seconds(deadlines.progress_deadline_s()),
                                                        .job = [client] { return client->member().JobStatus(); }}}));
    ASSIGN_OR_RETURN(replicas_.emplace_back(), MakeReplica({.main = &trainer_.main,
                                                            .startup = &trainer_.startup,
                                                            .pool = pools_[static_cast<size_t>(t)].get(),
                                                            .collective = collectives_.back().get()}));
    ASSIGN_OR_RETURN(
        channels_.emplace_back(),
        MakeReplicaChannel(
            {.main = &trainer_.main, .trainer_id = t, .replica = replicas_.back().get(), .servers = &client->steps()}));
    client->steps().SetNormParty(channels_.back()->norm_party());
  }
  return absl::OkStatus();
}

absl::Status SplitRun::GatherValues() {
  std::vector<absl::Status> ends(replicas_.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < replicas_.size(); ++t) {
    threads.push_back(StartThread("weir-trainer", [&, t] { ends[t] = replicas_[t]->Gather(); }));
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) RETURN_IF_ERROR(end);
  return absl::OkStatus();
}

ParamChannel* SplitRun::channel(int trainer) {
  const size_t t = static_cast<size_t>(trainer);
  return channels_.empty() ? static_cast<ParamChannel*>(&clients_[t]->steps()) : channels_[t].get();
}

absl::StatusOr<DigestTable> SplitRun::Digests(int64_t version) {
  v1::ControlRequest request;
  request.mutable_digest()->set_step(version);
  ASSIGN_OR_RETURN(std::vector<v1::ControlReply> replies, clients_[0]->member().Control(request));
  for (const auto& replica : replicas_) {
    // If each has everything, that of the first is enough.
    if (replica != replicas_[0] && !replica->sharded()) continue;
    ASSIGN_OR_RETURN(replies.emplace_back(), replica->Digest());
  }
  DigestTable table;
  for (const v1::ControlReply& reply : replies) {
    for (const v1::VariableDigest& v : reply.variables()) {
      VariableDigestSum sum{.values = v.values(), .state = v.state()};
      for (int i = 0; i < std::min(kDigestRanges, v.ranges_size()); ++i)
        sum.ranges[static_cast<size_t>(i)] = v.ranges(i);
      table[v.name()] += sum;
    }
  }
  return table;
}

const Tensor* SplitRun::Received(size_t trainer, const std::string& parameter) const {
  const Variable* var = sessions_[trainer]->Find(0, parameter);
  const Tensor* tensor = var == nullptr ? nullptr : std::get_if<Tensor>(var);
  return tensor != nullptr && tensor->initialized() ? tensor : nullptr;
}

}  // namespace weir
