// pserver: one parameter server. See `pserver --help`.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/process/stop_signals.h"
#include "framework/profile/profile_run.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "pserver/cluster/cluster.h"
#include "pserver/cluster/cluster_flags.h"
#include "pserver/cluster/job_program.h"
#include "pserver/job_server.h"
#include "pserver/meet_others.h"
#include "pserver/server_watch.h"
#include "transpiler/job/check_job.h"
#include "transpiler/job/checkpoint_job.h"
#include "transpiler/job/job_dir.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/start/start_from_flag.h"

ABSL_FLAG(std::string, checkpoint_job, "",
          "for trainers with --role=predict --checkpoint_job: their --checkpoint, whose job's model replaces that of "
          "--job");
ABSL_FLAG(std::string, port_file, "", "a file that gets this server's host:port once it listens");

namespace weir {
namespace {

constexpr char kUsage[] =
    "pserver --job=FILE --endpoint=HOST:PORT [--server_id=I] [--pservers=H:P,H:P]\n"
    "pserver --job=FILE --init_method=tcp://H:P --server_id=I      tells the trainers its address where they meet\n"
    "\n"
    "Serves blocks of parameters and rows of tables until every trainer is done. It prints\n"
    "\"ready server=<index> endpoint=<host:port>\" when it listens; port 0 takes a free one and needs --server_id.\n"
    "Any field of the job: --set path.to.field=value, many times. `launch` starts a whole cluster on this machine.\n"
    "Exit codes: 0 the job is complete, 2 bad input, 3 a peer is lost, 4 damaged data, 5 the job was stopped by a "
    "signal.\n";

// Limit for the network to shut down after JobServer::kGrace. gRPC never finishes if it lacks threads or memory.
constexpr absl::Duration kEnd = absl::Seconds(10);

// State of one run. Members are destroyed in reverse order, as they depend on those above them.
struct Runtime {
  Job job;
  ClusterConfig cluster;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<JobServer> server;
  std::unique_ptr<ServerWatch> watch;
};

absl::Status ReadJob(const std::vector<std::string>& overrides, Runtime* r) {
  const std::string file = absl::GetFlag(FLAGS_job);
  if (file.empty()) return absl::InvalidArgumentError("--job=FILE is missing; see --help");
  BesideJob beside;
  ASSIGN_OR_RETURN(beside.directory, JobDirectory());
  ASSIGN_OR_RETURN(beside.start_from, StartFromFlag());
  if (const std::string checkpoint = absl::GetFlag(FLAGS_checkpoint_job); !checkpoint.empty()) {
    ASSIGN_OR_RETURN(beside.trained, JobTextOfCheckpoint(checkpoint));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadJobFile(file));
  ASSIGN_OR_RETURN(r->job, ParseJob(text, file, overrides, beside));
  ASSIGN_OR_RETURN(r->cluster, ResolveCluster(Role::kPserver, ClusterFlagsOfThisProcess(overrides),
                                              EnvironmentOfThisProcess(), r->job.config));
  for (const std::string& warning : r->cluster.warnings) LOG(WARNING) << warning;
  if (r->cluster.overrides.empty()) return absl::OkStatus();
  std::vector<std::string> all = overrides;
  all.insert(all.end(), r->cluster.overrides.begin(), r->cluster.overrides.end());
  ASSIGN_OR_RETURN(r->job, ParseJob(text, file, all, beside));
  return absl::OkStatus();
}

absl::Status Listen(Runtime* r) {
  const v1::JobConfig& config = r->job.config;
  RETURN_IF_ERROR(SetArithmetic(config.train().arithmetic(), PrecisionOnCpu(config.train())));
  ASSIGN_OR_RETURN(const int threads, ThreadSetting(absl::GetFlag(FLAGS_threads), config));
  r->pool = std::make_unique<ThreadPool>("weir-server", ComputeThreads(threads));
  const int id = r->cluster.server_id;
  ASSIGN_OR_RETURN(Programs programs,
                   ServerPrograms(r->job, id, absl::GetFlag(FLAGS_program), absl::GetFlag(FLAGS_startup_program)));
  ASSIGN_OR_RETURN(ServerOptions options, JobServerOptions(r->job, id, std::move(programs), r->pool.get()));
  const std::string plan_text = options.plan_text;
  ASSIGN_OR_RETURN(const std::string endpoint, WhereToListen(r->cluster));
  ASSIGN_OR_RETURN(r->server, JobServer::Start(std::move(options), endpoint, r->job.config.cluster()));
  if (const std::string file = absl::GetFlag(FLAGS_port_file); !file.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(file, r->server->endpoint() + "\n"));
  }
  ASSIGN_OR_RETURN(r->watch, ServerWatch::Start(r->server->core(), id, config.name(), plan_text));
  std::printf("ready server=%d endpoint=%s\n", id, r->server->endpoint().c_str());
  std::fflush(stdout);
  return absl::OkStatus();
}

// Reports which trainers will wait for this server in vain, because it was asked to end before they have come.
void ReportAbsent(int server, ServerCore* core) {
  std::vector<std::string> absent;
  for (const ServerReport::Trainer& trainer : core->Report().trainers) {
    if (trainer.state == "absent") absent.push_back(trainer.name);
  }
  if (absent.empty() || !core->JobStatus().ok()) return;
  LOG(WARNING) << "server " << server << " ends, as it was asked to, without " << absl::StrJoin(absent, ", ");
}

absl::Status Run(const std::vector<std::string>& overrides, StopSignals* signals) {
  Runtime r;
  RETURN_IF_ERROR(ReadJob(overrides, &r));
  ASSIGN_OR_RETURN(ProfileRun profile, ProfileRun::Start(absl::StrCat("server ", r.cluster.server_id)));
  RETURN_IF_ERROR(Listen(&r));
  if (r.cluster.init_method.has_value()) {
    RETURN_IF_ERROR(MeetOthers(r.job.config, r.cluster, r.server->endpoint(), ProcessName(), signals).status());
  }
  ServerCore* const core = r.server->core();
  signals->SetMeaning(
      "the trainers are asked to end the job: at the next step border, with a checkpoint; a prediction at once");
  signals->OnStop([core] { core->RequestStop(); });
  r.server->AwaitFinished();
  signals->OnStop({});
  ReportAbsent(r.cluster.server_id, core);
  std::fputs(profile.Finish().c_str(), stdout);
  std::fflush(stdout);
  absl::Status status = core->JobStatus();
  if (core->Report().stopped) SetStopped(signals);
  const absl::Duration end = JobServer::kGrace + kEnd;
  signals->EndWithin(end, JobExitCode(status, signals),
                     absl::StrCat("pserver: ", status.message(), status.ok() ? "" : "; ",
                                  "the network has not shut down within ", absl::FormatDuration(end)));
  r.server->Shutdown();
  // Freeing large tables may take longer than the network's deadline.
  signals->EndWithin(absl::InfiniteDuration(), JobExitCode(status, signals), "");
  return status;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::RunJobProgram({.name = "pserver", .usage = weir::kUsage, .run = weir::Run}, argc, argv);
}
