// pserver: one parameter server. See `pserver --help`.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/stop_signals.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/profile/profile_run.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "pserver/cluster/cluster.h"
#include "pserver/cluster/cluster_flags.h"
#include "pserver/cluster/job_program.h"
#include "pserver/fault_point.h"
#include "pserver/network/grpc_server.h"
#include "pserver/server/server_core.h"
#include "transpiler/job/check_job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

ABSL_FLAG(std::string, port_file, "", "a file that gets this server's host:port once it listens");
ABSL_FLAG(int64_t, pending_rows_mb, 1024,
          "MiB of rows that one trainer's pushes of a step may take here, beside 64 KiB for each example");

namespace weir {
namespace {

constexpr char kUsage[] =
    "pserver --job=FILE --endpoint=HOST:PORT [--server_id=I] [--pservers=H:P,H:P]\n"
    "\n"
    "Serves blocks of parameters and rows of tables until every trainer is done. It prints\n"
    "\"ready server=<index> endpoint=<host:port>\" when it listens; port 0 takes a free one and needs --server_id.\n"
    "Any field of the job: --set path.to.field=value, many times. `launch` starts a whole cluster on this machine.\n"
    "Exit codes: 0 done, 2 bad input, 3 a peer is lost, 4 damaged data.\n";

// Interval of checking waits and deadlines; a small part of every deadline.
constexpr absl::Duration kTick = absl::Milliseconds(100);
// Time for last answers to be sent when the job is over.
constexpr absl::Duration kGrace = absl::Seconds(2);
// Time for the network to shut down after that. gRPC never finishes if it lacks threads or memory.
constexpr absl::Duration kEnd = absl::Seconds(10);

// State of one run. Members are destroyed in reverse order, as they depend on those above them.
struct Runtime {
  Job job;
  ClusterConfig cluster;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<ServerCore> core;
  std::unique_ptr<GrpcServer> server;
};

absl::Status ReadJob(const std::vector<std::string>& overrides, Runtime* r) {
  const std::string file = absl::GetFlag(FLAGS_job);
  if (file.empty()) return absl::InvalidArgumentError("--job=FILE is missing; see --help");
  ASSIGN_OR_RETURN(r->job, LoadJob(file, overrides));
  ASSIGN_OR_RETURN(r->cluster, ResolveCluster(Role::kPserver, ClusterFlagsOfThisProcess(overrides),
                                              EnvironmentOfThisProcess(), r->job.config));
  for (const std::string& warning : r->cluster.warnings) LOG(WARNING) << warning;
  if (r->cluster.overrides.empty()) return absl::OkStatus();
  std::vector<std::string> all = overrides;
  all.insert(all.end(), r->cluster.overrides.begin(), r->cluster.overrides.end());
  ASSIGN_OR_RETURN(r->job, LoadJob(file, all));
  return absl::OkStatus();
}

absl::Status MakeCore(Runtime* r) {
  const v1::JobConfig& config = r->job.config;
  RETURN_IF_ERROR(SetArithmetic(config.train().arithmetic()));
  ASSIGN_OR_RETURN(const int threads, ThreadSetting(absl::GetFlag(FLAGS_threads), config));
  r->pool = std::make_unique<ThreadPool>("weir-server", ComputeThreads(threads));
  const int id = r->cluster.server_id;
  ASSIGN_OR_RETURN(Programs programs,
                   ServerPrograms(r->job, id, absl::GetFlag(FLAGS_program), absl::GetFlag(FLAGS_startup_program)));
  PlaceTablesOnDisk(r->job, &programs.main);
  const std::string plan_text = PlanText(r->job, programs.main.plan());
  const std::string& checkpoint_dir = config.checkpoint().dir();
  const int64_t pending_rows_mb = absl::GetFlag(FLAGS_pending_rows_mb);
  if (pending_rows_mb < 0 || pending_rows_mb > int64_t{1} << 30) {
    return absl::InvalidArgumentError(
        absl::StrCat("--pending_rows_mb=", pending_rows_mb, "; it is 0 to ", int64_t{1} << 30));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ServerCore> core,
                   ServerCore::Create({.server_id = id,
                                       .main = std::move(programs.main),
                                       .startup = std::move(programs.startup),
                                       .job_name = config.name(),
                                       .plan_text = plan_text,
                                       .sync = config.distribute().sync(),
                                       .reproducible = config.distribute().reproducible(),
                                       .deadlines = config.deadlines(),
                                       .checkpoint_dir = checkpoint_dir.empty() ? "" : r->job.Path(checkpoint_dir),
                                       .row_files = RowFiles(r->job),
                                       .process = ProcessName(),
                                       .arithmetic = std::string(ResolvedArithmetic()),
                                       .clock = Clock::Real(),
                                       .pool = r->pool.get(),
                                       .pending_row_bytes = static_cast<size_t>(pending_rows_mb) << 20}));
  ASSIGN_OR_RETURN(r->core, WithFaultPoint(std::move(core), id));
  return absl::OkStatus();
}

absl::Status Listen(Runtime* r) {
  // Each trainer has two TCP connections and one through the socket. 32 more serve checkpoints and gRPC itself.
  const int trainers = r->job.config.distribute().trainers();
  RETURN_IF_ERROR(WantDescriptors(3 * trainers + 32,
                                  absl::StrCat("3 connections of each of ", trainers, " trainers and 32 files")));
  ASSIGN_OR_RETURN(r->server, GrpcServer::Start({.endpoint = r->cluster.endpoint, .core = r->core.get()}));
  if (const std::string file = absl::GetFlag(FLAGS_port_file); !file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(file, r->server->endpoint() + "\n"));
  }
  std::printf("ready server=%d endpoint=%s\n", r->cluster.server_id, r->server->endpoint().c_str());
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& overrides, StopSignals* signals) {
  Runtime r;
  RETURN_IF_ERROR(ReadJob(overrides, &r));
  ASSIGN_OR_RETURN(ProfileRun profile, ProfileRun::Start(absl::StrCat("server ", r.cluster.server_id)));
  RETURN_IF_ERROR(MakeCore(&r));
  RETURN_IF_ERROR(Listen(&r));
  signals->OnStop([core = r.core.get()] { core->RequestStop(); });
  while (!r.core->Finished()) {
    r.core->Tick();
    absl::SleepFor(kTick);
  }
  signals->OnStop({});
  std::fputs(profile.Finish().c_str(), stdout);
  std::fflush(stdout);
  absl::Status status = r.core->JobStatus();
  signals->EndWithin(kGrace + kEnd, ExitCodeOf(status),
                     absl::StrCat("pserver: ", status.message(), status.ok() ? "" : "; ",
                                  "the network has not shut down within ", absl::FormatDuration(kGrace + kEnd)));
  r.server->Shutdown(kGrace);
  // Freeing large tables may take longer than the network's deadline.
  signals->EndWithin(absl::InfiniteDuration(), ExitCodeOf(status), "");
  LOG(INFO) << "counters: " << r.core->counters().ToString();
  return status;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::RunJobProgram({.name = "pserver", .usage = weir::kUsage, .run = weir::Run}, argc, argv);
}
