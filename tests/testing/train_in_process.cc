#include "tests/testing/train_in_process.h"

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "ops/arithmetic.h"
#include "pserver/in_process.h"
#include "transpiler/job.h"
#include "transpiler/process_programs.h"
#include "transpiler/transpile.h"

namespace weir {
namespace {

struct Trainer {
  absl::Status status;
  TrainSummary summary;
  std::string output;
  Client::Counters counters;
};

absl::Status RunTrainer(const InProcessRun& run, const Job& job, const Programs& programs, int id, Transport* transport,
                        Trainer* trainer) {
  ThreadPool pool("compute", run.threads - 1);
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                   Client::Create({.plan = programs.main.plan(),
                                   .trainer_id = id,
                                   .job_name = job.config.name(),
                                   .plan_text = PlanText(job, programs.main.plan()),
                                   .deadlines = job.config.deadlines(),
                                   .checkpoint_dir = job.config.checkpoint().dir().empty() ? "" : job.Path(job.config.checkpoint().dir()),
                                   .process = absl::StrCat("test:", id),
                                   .arithmetic = ResolvedArithmetic(),
                                   .transport = transport,
                                   .clock = Clock::Real(),
                                   .pool = &pool}));
  RETURN_IF_ERROR(client->Join());
  char* text = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  absl::StatusOr<TrainSummary> summary = RunTraining({.job = &job,
                                                      .programs = &programs,
                                                      .client = client.get(),
                                                      .pool = &pool,
                                                      .clock = Clock::Real(),
                                                      .trainer_id = id,
                                                      .reader_threads = 1,
                                                      .resume = run.resume,
                                                      .out = out});
  std::fclose(out);
  trainer->output.assign(text, size);
  std::free(text);
  trainer->counters = client->counters();
  if (!summary.ok()) {
    client->ReportFailure(summary.status());
    return summary.status();
  }
  trainer->summary = *summary;
  return client->Done();
}

}  // namespace

absl::StatusOr<InProcessResult> TrainInProcess(const InProcessRun& run) {
  RETURN_IF_ERROR(SetArithmetic(v1::Train::AUTO));
  std::vector<std::string> overrides = run.overrides;
  overrides.push_back(absl::StrCat("distribute.servers=", run.servers));
  overrides.push_back(absl::StrCat("distribute.trainers=", run.trainers));
  ASSIGN_OR_RETURN(const Job job, ParseJob(run.job_text, run.directory + "/job.textproto", overrides));
  ASSIGN_OR_RETURN(Programs programs, TrainerPrograms(job, "", ""));
  if (run.edit) run.edit(-1, &programs);
  ThreadPool pool("servers", run.threads - 1);
  std::vector<ServerOptions> options(run.servers);
  for (int i = 0; i < run.servers; ++i) {
    ASSIGN_OR_RETURN(Programs server, ServerPrograms(job, i, "", ""));
    if (run.edit) run.edit(i, &server);
    options[i] = {.server_id = i,
                  .main = std::move(server.main),
                  .startup = std::move(server.startup),
                  .job_name = job.config.name(),
                  .plan_text = PlanText(job, programs.main.plan()),
                  .sync = job.config.distribute().sync(),
                  .reproducible = job.config.distribute().reproducible(),
                  .deadlines = job.config.deadlines(),
                  .checkpoint_dir = job.config.checkpoint().dir().empty() ? "" : job.Path(job.config.checkpoint().dir()),
                  .process = absl::StrCat("server:", i),
                  .arithmetic = ResolvedArithmetic(),
                  .clock = Clock::Real(),
                  .pool = &pool};
  }
  ASSIGN_OR_RETURN(std::unique_ptr<InProcessServers> servers, InProcessServers::Create(std::move(options), true));
  std::vector<Trainer> trainers(run.trainers);
  std::vector<std::unique_ptr<Transport>> between(run.trainers);
  std::vector<std::thread> threads;
  for (int id = 0; id < run.trainers; ++id) {
    if (run.between) between[id] = run.between(id, servers.get());
    Transport* transport = between[id] != nullptr ? between[id].get() : servers.get();
    threads.emplace_back([&, id, transport] {
      trainers[id].status = RunTrainer(run, job, programs, id, transport, &trainers[id]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Trainer& trainer : trainers) RETURN_IF_ERROR(trainer.status);
  InProcessResult result{.summary = trainers[0].summary, .output = trainers[0].output, .plan = programs.main.plan()};
  for (const auto line : absl::StrSplit(result.output, '\n')) {
    if (line.substr(0, 7) == "digest ") result.digests.emplace_back(line);
  }
  for (const Trainer& trainer : trainers) result.counters.push_back(trainer.counters);
  return result;
}

}  // namespace weir
