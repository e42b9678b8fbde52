#include "pserver/job_server.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "pserver/cluster/job_program.h"
#include "pserver/fault_point.h"
#include "transpiler/job/job.h"
#include "transpiler/job/start_paths.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

ABSL_FLAG(int64_t, pending_rows_mb, 1024,
          "MiB of rows that one trainer's pushes of a step may take in a server, beside 64 KiB for each example");

namespace weir {

absl::StatusOr<ServerOptions> JobServerOptions(const Job& job, int server, Programs programs, ThreadPool* pool) {
  const int64_t pending_rows_mb = absl::GetFlag(FLAGS_pending_rows_mb);
  if (pending_rows_mb < 0 || pending_rows_mb > int64_t{1} << 30) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pending_rows_mb=", pending_rows_mb, "; it is 0 to ", int64_t{1} << 30));
  }
  PlaceTablesOnDisk(job, &programs.main);
  const v1::JobConfig& config = job.config;
  std::string plan_text = PlanText(job, programs.main.plan());
  return ServerOptions{.server_id = server,
                       .main = std::move(programs.main),
                       .startup = std::move(programs.startup),
                       .job_name = config.name(),
                       .plan_text = std::move(plan_text),
                       .sync = config.distribute().sync(),
                       .equal_arithmetic = PromisesEqualBits(config.distribute()),
                       .deadlines = config.deadlines(),
                       .checkpoint_dir = config.checkpoint().dir().empty() ? "" : job.Path(config.checkpoint().dir()),
                       .row_files = RowFiles(job),
                       .start_from = StartPaths(job),
                       .process = ProcessName(),
                       .arithmetic = ResolvedArithmetic(PrecisionOnCpu(config.train())),
                       .clock = Clock::Real(),
                       .pool = pool,
                       .pending_row_bytes = static_cast<size_t>(pending_rows_mb) << 20};
}

absl::StatusOr<std::unique_ptr<JobServer>> JobServer::Start(ServerOptions options, const std::string& endpoint,
                                                            const v1::Cluster& network) {
  // Count two TCP connections and two local ones for each trainer, and some for checkpoints and gRPC itself.
  const int trainers = options.main.plan().trainers();
  const int id = options.server_id;
  auto sleep = std::make_shared<Sleep>();
  options.on_tick_due = [sleep](absl::Time at) { sleep->Shorten(at); };
  ASSIGN_OR_RETURN(std::unique_ptr<ServerCore> made, ServerCore::Create(std::move(options)));
  ASSIGN_OR_RETURN(std::unique_ptr<ServerCore> core, WithFaultPoint(std::move(made), id));
  const int64_t connections = int64_t{4} * trainers;
  RETURN_IF_ERROR(WantDescriptors(
      connections + kKeptDescriptors,
      absl::StrCat("4 connections of each of ", trainers, " trainers and ", kKeptDescriptors, " files")));
  std::unique_ptr<JobServer> server(new JobServer(std::move(sleep), std::move(core)));
  ASSIGN_OR_RETURN(
      server->network_,
      GrpcServer::Start(
          {.endpoint = endpoint, .core = server->core(), .expected_descriptors = connections, .network = network}));
  server->ticks_ = StartThread("weir-tick", [server = server.get()] { server->Tick(); });
  return server;
}

bool JobServer::Sleep::Until(absl::Time until) {
  Clock* const clock = Clock::Real();
  MutexLock lock(&mu_);
  for (absl::Time now = clock->Now(); !stop_ && now < std::min(until, shortened_); now = clock->Now()) {
    changed_.WaitWithTimeout(&mu_, std::min(until, shortened_) - now);
  }
  shortened_ = absl::InfiniteFuture();
  return !stop_;
}

void JobServer::Sleep::Shorten(absl::Time until) {
  MutexLock lock(&mu_);
  shortened_ = std::min(shortened_, until);
  changed_.SignalAll();
}

void JobServer::Sleep::Stop() {
  MutexLock lock(&mu_);
  stop_ = true;
  changed_.SignalAll();
}

JobServer::~JobServer() {
  sleep_->Stop();
  if (ticks_.joinable()) ticks_.join();
}

void JobServer::Tick() {
  while (!core_->Finished()) {
    core_->Tick();
    if (!sleep_->Until(core_->NextTick())) return;
  }
}

void JobServer::AwaitFinished() {
  if (ticks_.joinable()) ticks_.join();
}

void JobServer::Shutdown() {
  network_->Shutdown(kGrace);
  LOG(INFO) << "counters: " << core_->counters().ToString();
}

}  // namespace weir
