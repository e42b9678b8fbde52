#include "tests/testing/train_in_process.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "framework/collective/hosts.h"
#include "framework/collective/local_mesh.h"
#include "framework/graph/training_mode.h"
#include "ops/arithmetic.h"
#include "pserver/host/host_link.h"
#include "pserver/host/host_transport.h"
#include "pserver/inside/in_process.h"
#include "pserver/inside/own_server.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "tests/testing/printed_lines.h"
#include "trainer/predict/importance.h"
#include "trainer/predict/predict.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/load_job.h"
#include "transpiler/job/start_paths.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

// Objects that one trainer works with.
struct Seat {
  const Job& job;
  const Programs& programs;
  Client* client;
  DenseReplica* replica;  // null: servers hold the dense parameters
  ThreadPool* pool;
  int id;
};
using Work = std::function<absl::Status(const Seat&)>;

// Asks for the end of a job once `stop` is true.
class Stopper {
 public:
  Stopper(const std::atomic<bool>* stop, Client* client) {
    if (stop == nullptr) return;
    if (*stop) {
      client->member().RequestStop();
      return;
    }
    thread_ = std::thread([this, stop, client] {
      while (!left_ && !*stop) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!left_) client->member().RequestStop();
    });
  }
  ~Stopper() {
    left_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> left_{false};
  std::thread thread_;
};

std::string CheckpointDir(const InProcessRun& run, const Job& job, int server) {
  if (run.checkpoint_dir) return run.checkpoint_dir(server);
  return job.config.checkpoint().dir().empty() ? "" : job.Path(job.config.checkpoint().dir());
}

// Returns the hosts of the trainers, for what they exchange among themselves.
Hosts HostsOf(const InProcessRun& run, const v1::Plan& plan) {
  if (!run.host || plan.merge_hosts() == v1::Plan::OFF) return Hosts();
  std::vector<std::string> names;
  for (int t = 0; t < run.trainers; ++t) names.push_back(run.host(t));
  return Hosts::Named(names);
}

absl::Status RunTrainer(const InProcessRun& run, Job job, Programs programs, int id, const std::string& process,
                        Transport* transport, Mesh* mesh, const Work& work) {
  if (run.edit_trainer) run.edit_trainer(id, &job, &programs);
  ThreadPool pool("compute", run.threads - 1);
  const bool merges = run.host && run.servers > 0 && programs.main.plan().merge_hosts() != v1::Plan::OFF;
  HostTransport way(transport);
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                   Client::Create({.plan = programs.main.plan(),
                                   .trainer_id = id,
                                   .job_name = job.config.name(),
                                   .plan_text = PlanText(job, programs.main.plan()),
                                   .deadlines = job.config.deadlines(),
                                   .checkpoint_dir = CheckpointDir(run, job, -1),
                                   .checkpoint_per_host = job.config.checkpoint().per_host(),
                                   .process = process,
                                   .arithmetic = ResolvedArithmetic(PrecisionOnCpu(job.config.train())),
                                   .transport = merges ? &way : transport,
                                   .clock = Clock::Real(),
                                   .pool = &pool,
                                   .bounded_staleness = ModeOf(programs.main).staleness() >= 0,
                                   .compresses = Compresses(job.config.distribute()),
                                   .receives_beside_sends = true}));
  RETURN_IF_ERROR(client->Join());
  std::unique_ptr<HostLink> host;
  if (merges) {
    ASSIGN_OR_RETURN(host, HostLink::Form({.client = client.get(),
                                           .way = &way,
                                           .servers = transport,
                                           .pool = &pool,
                                           .plan = &programs.main.plan(),
                                           .trainer_id = id,
                                           .process = process,
                                           .deadlines = job.config.deadlines(),
                                           .host = run.host(id)}));
  }
  std::unique_ptr<Collective> collective;
  std::unique_ptr<DenseReplica> replica;
  if (mesh != nullptr) {
    collective = std::make_unique<Collective>(
        mesh, Collective::Options{.waits = {.deadline = absl::Seconds(job.config.deadlines().progress_deadline_s()),
                                            .job = [&client] { return client->member().JobStatus(); },
                                            .excused = [&client] { return client->member().AnyAwaitsFiles(); }},
                                  .hosts = HostsOf(run, programs.main.plan()),
                                  .counted_as = absl::StrCat("trainer.", id)});
    ASSIGN_OR_RETURN(
        replica,
        MakeReplica(
            {.main = &programs.main, .startup = &programs.startup, .pool = &pool, .collective = collective.get()}));
  }
  absl::Status status = work({job, programs, client.get(), replica.get(), &pool, id});
  if (status.ok() && host != nullptr) status = host->AwaitOthers();
  if (status.ok()) return client->member().Done();
  if (collective != nullptr) collective->Abort(status);
  // When the job failed elsewhere, that is the story; an error of ours ends the others.
  const absl::Status failed_elsewhere = client->member().JobStatus();
  client->member().ReportFailure(status);
  return failed_elsewhere.ok() ? status : failed_elsewhere;
}

struct ClusterRun {
  v1::Plan plan;
  std::vector<std::map<std::string, int64_t>> server_counters;
};

// The whole cluster: servers, then `work` on a thread per trainer. The first error of any trainer, by id.
absl::StatusOr<ClusterRun> RunCluster(const InProcessRun& run, std::vector<std::string> overrides, const Work& work) {
  overrides.push_back(absl::StrCat("distribute.servers=", run.servers));
  overrides.push_back(absl::StrCat("distribute.trainers=", run.trainers));
  ASSIGN_OR_RETURN(const Job job, ParseJob(run.job_text, run.directory + "/job.textproto", overrides));
  RETURN_IF_ERROR(SetArithmetic(v1::Train::AUTO, PrecisionOnCpu(job.config.train())));
  ASSIGN_OR_RETURN(Programs programs, TrainerPrograms(job, run.trainer_programs.main, run.trainer_programs.startup));
  if (run.edit) run.edit(-1, &programs);
  const bool inside = run.servers == 0;
  const int count = inside ? run.trainers : run.servers;
  // Calls of a trainer to its own server run on a worker.
  ThreadPool pool("servers", std::max(inside ? 1 : 0, run.threads - 1));
  std::vector<ServerOptions> options(count);
  for (int i = 0; i < count; ++i) {
    const auto files = run.server_programs.find(i);
    ASSIGN_OR_RETURN(Programs server, files == run.server_programs.end()
                                          ? ServerPrograms(job, i, "", "")
                                          : ServerPrograms(job, i, files->second.main, files->second.startup));
    PlaceTablesOnDisk(job, &server.main);
    if (run.edit) run.edit(i, &server);
    options[i] = {.server_id = i,
                  .main = std::move(server.main),
                  .startup = std::move(server.startup),
                  .job_name = job.config.name(),
                  .plan_text = PlanText(job, programs.main.plan()),
                  .sync = job.config.distribute().sync(),
                  .equal_arithmetic = PromisesEqualBits(job.config.distribute()),
                  .deadlines = job.config.deadlines(),
                  .checkpoint_dir = CheckpointDir(run, job, i),
                  .row_files = RowFiles(job),
                  .start_from = StartPaths(job),
                  .process = absl::StrCat("server:", i),
                  .arithmetic = ResolvedArithmetic(PrecisionOnCpu(job.config.train())),
                  .clock = Clock::Real(),
                  .pool = &pool,
                  .on_repeat = run.on_repeat,
                  .dense_sum = run.dense_sum};
  }
  ASSIGN_OR_RETURN(std::unique_ptr<InProcessServers> servers,
                   InProcessServers::Create(std::move(options), /*tick_thread=*/true,
                                            /*check_payloads=*/inside || run.between != nullptr));
  std::unique_ptr<LocalMeshes> meshes;
  if (ModeOf(programs.main).has_all_reduce()) {
    meshes = std::make_unique<LocalMeshes>(run.trainers, run.shuffle);
    // As messages of backend WIRE.
    meshes->TakeAnySize();
  }
  std::vector<absl::Status> ends(run.trainers);
  std::vector<std::unique_ptr<Transport>> between(run.trainers), with_own(run.trainers);
  std::vector<std::thread> threads;
  for (int id = 0; id < run.trainers; ++id) {
    if (run.between) between[id] = run.between(id, servers.get());
    Transport* transport = between[id] != nullptr ? between[id].get() : servers.get();
    if (inside) {
      with_own[id] =
          MakeOwnServerTransport({.own = id, .core = &servers->server(id), .others = transport, .pool = &pool});
      transport = with_own[id].get();
    }
    threads.emplace_back([&, id, transport] {
      Mesh* mesh = meshes == nullptr ? nullptr : meshes->mesh(id);
      if (mesh != nullptr && run.mesh) {
        const absl::StatusOr<Mesh*> other = run.mesh(id);
        ends[id] = other.status();
        if (!other.ok()) return;
        mesh = *other;
      }
      ends[id] = RunTrainer(run, job, programs, id, absl::StrCat("test:", id), transport, mesh, work);
      if (id != 0 || !run.replace_trainer_0 || ends[id].ok()) return;
      const std::unique_ptr<Transport> again = run.between ? run.between(id, servers.get()) : nullptr;
      do {
        ends[id] = RunTrainer(run, job, programs, id, absl::StrCat("again:", id),
                              again != nullptr ? again.get() : servers.get(), mesh, work);
      } while (absl::StrContains(ends[id].message(), "is held by"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (run.trainer_ends != nullptr) *run.trainer_ends = ends;
  if (run.server_ends != nullptr) {
    run.server_ends->clear();
    for (int i = 0; i < count; ++i) run.server_ends->push_back(servers->server(i).JobStatus());
  }
  for (const absl::Status& end : ends) RETURN_IF_ERROR(end);
  ClusterRun result{.plan = programs.main.plan()};
  for (int i = 0; i < count; ++i) {
    std::map<std::string, int64_t>& counters = result.server_counters.emplace_back();
    for (const Counters::Entry& entry : servers->server(i).counters().Snapshot()) counters[entry.name] = entry.value;
  }
  return result;
}

}  // namespace

absl::StatusOr<InProcessResult> TrainInProcess(const InProcessRun& run) {
  InProcessResult result;
  result.counters.resize(run.trainers);
  if (run.outputs != nullptr) run.outputs->assign(run.trainers, "");
  result.summaries.resize(run.trainers);
  ASSIGN_OR_RETURN(ClusterRun cluster, RunCluster(run, run.overrides, [&](const Seat& seat) -> absl::Status {
                     PrintedLines lines;
                     const Stopper stopper(seat.id == 0 ? run.stop : nullptr, seat.client);
                     const absl::StatusOr<TrainSummary> summary =
                         RunTraining({.job = &seat.job,
                                      .programs = &seat.programs,
                                      .client = seat.client,
                                      .replica = seat.replica,
                                      .pool = seat.pool,
                                      .clock = Clock::Real(),
                                      .trainer_id = seat.id,
                                      .device = run.device ? run.device(seat.id) : nullptr,
                                      .reader_threads = 1,
                                      .resume = run.resume,
                                      .run = run.run_id,
                                      .resume_run = run.resume_run,
                                      .plan_start = run.plan_start,
                                      .always_ahead = run.always_ahead,
                                      .out = lines.file(),
                                      .digest_log = run.digest_log});
                     if (run.outputs != nullptr) (*run.outputs)[seat.id] = lines.Text();
                     RETURN_IF_ERROR(summary.status());
                     result.summaries[seat.id] = *summary;
                     if (seat.id == 0) result.output = lines.Text();
                     result.counters[seat.id] = seat.client->counters();
                     return absl::OkStatus();
                   }));
  result.plan = std::move(cluster.plan);
  result.server_counters = std::move(cluster.server_counters);
  result.summary = result.summaries[0];
  for (const auto line : absl::StrSplit(result.output, '\n')) {
    if (line.substr(0, 7) == "digest ") result.digests.emplace_back(line);
  }
  return result;
}

absl::StatusOr<int64_t> PredictInProcess(const InProcessRun& run, const InProcessPrediction& prediction) {
  std::vector<std::string> overrides = run.overrides;
  overrides.push_back(absl::StrCat("checkpoint.dir=\"", prediction.checkpoints, "\""));
  std::vector<int64_t> scored(run.trainers);
  RETURN_IF_ERROR(RunCluster(run, std::move(overrides), [&](const Seat& seat) -> absl::Status {
                    const Stopper stopper(seat.id == 0 ? run.stop : nullptr, seat.client);
                    ASSIGN_OR_RETURN(scored[seat.id],
                                     RunPredict({.scoring = {.job = &seat.job,
                                                             .programs = &seat.programs,
                                                             .client = seat.client,
                                                             .replica = seat.replica,
                                                             .pool = seat.pool,
                                                             .trainer_id = seat.id,
                                                             .device = run.device ? run.device(seat.id) : nullptr,
                                                             .reader_threads = 1,
                                                             .checkpoint = prediction.checkpoints,
                                                             .input = prediction.input},
                                                 .output = prediction.output,
                                                 .carry = prediction.carry}));
                    return absl::OkStatus();
                  }).status());
  return *std::max_element(scored.begin(), scored.end());
}

absl::StatusOr<v1::Importance> ImportanceInProcess(const InProcessRun& run, const ImportanceOptions& options) {
  std::vector<std::string> overrides = run.overrides;
  overrides.push_back(absl::StrCat("checkpoint.dir=\"", options.scoring.checkpoint, "\""));
  std::vector<v1::Importance> found(run.trainers);
  RETURN_IF_ERROR(RunCluster(run, std::move(overrides), [&](const Seat& seat) -> absl::Status {
                    const Stopper stopper(seat.id == 0 ? run.stop : nullptr, seat.client);
                    ImportanceOptions of_trainer = options;
                    of_trainer.scoring = {.job = &seat.job,
                                          .programs = &seat.programs,
                                          .client = seat.client,
                                          .replica = seat.replica,
                                          .pool = seat.pool,
                                          .trainer_id = seat.id,
                                          .device = run.device ? run.device(seat.id) : nullptr,
                                          .reader_threads = 1,
                                          .checkpoint = options.scoring.checkpoint,
                                          .input = options.scoring.input};
                    ASSIGN_OR_RETURN(found[seat.id], RunImportance(of_trainer));
                    return absl::OkStatus();
                  }).status());
  return found[0];
}

}  // namespace weir
