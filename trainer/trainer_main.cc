// trainer: trains, predicts, or runs the whole job in one process. See `trainer --help`.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/graph/training_mode.h"
#include "framework/process/stop_signals.h"
#include "framework/profile/profile_run.h"
#include "framework/tensor/cuda_device.h"
#include "framework/tensor/cuda_machine.h"
#include "framework/tensor/device_memory.h"
#include "framework/watch/process_watch.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "ops/device/cublas.h"
#include "pserver/client/client.h"
#include "pserver/cluster/cluster.h"
#include "pserver/cluster/cluster_flags.h"
#include "pserver/cluster/job_program.h"
#include "pserver/collective/backends.h"
#include "pserver/collective/nccl_library.h"
#include "pserver/fault_point.h"
#include "pserver/host/host_link.h"
#include "pserver/host/host_transport.h"
#include "pserver/inside/in_process.h"
#include "pserver/inside/own_server.h"
#include "pserver/job_server.h"
#include "pserver/meet_others.h"
#include "pserver/network/grpc_transport.h"
#include "pserver/network/interfaces.h"
#include "pserver/network/local_address.h"
#include "pserver/protocol/handshake.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "pserver/server/server_core.h"
#include "pserver/server_watch.h"
#include "pserver/trainer_group.h"
#include "trainer/files/piped_command.h"
#include "trainer/loop/train_loop.h"
#include "trainer/predict/importance.h"
#include "trainer/predict/predict.h"
#include "trainer/progress/training_watch.h"
#include "transpiler/job/check_job.h"
#include "transpiler/job/checkpoint_job.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job_dir.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"
#include "transpiler/start/start_from_flag.h"

ABSL_FLAG(bool, resume, false, "go on from the newest complete checkpoint in checkpoint.dir");
ABSL_FLAG(bool, resume_run, false,
          "go on from the newest complete checkpoint that this run (--run_id) has written; begin at the first step if "
          "there is none");
ABSL_FLAG(int64_t, restarts, 0, "how often the job was started again after a death (launch --restarts), for figures");
ABSL_FLAG(int, local_rank, -1, "place of this process on its machine; chooses the CUDA device");
ABSL_FLAG(std::string, checkpoint, "", "--role=predict, importance: directory of checkpoints, or of one step");
ABSL_FLAG(bool, checkpoint_job, false,
          "--role=predict, importance: the model of the job in the checkpoint, instead of that of --job, which may be "
          "left out then; files, batches and the cluster remain those of --job");
ABSL_FLAG(std::string, input, "",
          "--role=predict, importance: files to score (a pattern); default: data.eval of the job");
ABSL_FLAG(
    std::string, output, "",
    "--role=predict: file for the predictions, in input order: .csv, .tfrecord, .examples; .txt and others: text, "
    "one line per example; a further .gz or .zst compresses. --role=importance: file for the figures as JSON; default: "
    "none");
ABSL_FLAG(std::vector<std::string>, carry, {},
          "--role=predict: columns of the input that the output carries: user,item");
ABSL_FLAG(std::string, alter, "shuffle",
          "--role=importance: shuffle gives each example the value of another one, blank takes the value away");
ABSL_FLAG(int, repeats, 0,
          "--role=importance: how often each part is shuffled; errors are from the differences. Default: 5");
ABSL_FLAG(std::vector<std::string>, parts, {},
          "--role=importance: patterns of the inputs that are measured: age,cat.C.*; default: all");
ABSL_FLAG(std::vector<std::string>, together, {},
          "--role=importance: inputs that are altered together: items+categories,city+country");
ABSL_FLAG(std::string, server_program, "",
          "distribute.servers: 0: main program of the server in this trainer, dumped by `transpile`");
ABSL_FLAG(std::string, server_startup_program, "", "startup program of that server; goes with --server_program");
ABSL_FLAG(bool, allow_pipes, false, "run the commands that the job names (data.pipe, data.pipe_list)");
ABSL_FLAG(std::string, digest_log, "", "the chief appends digests of every variable here, with 64 ranges each");

namespace weir {
namespace {

// Limit for the network to shut down when the work is over. gRPC never finishes if it lacks threads or memory.
constexpr absl::Duration kEnd = absl::Seconds(60);

constexpr char kUsage[] =
    "trainer --job=FILE [--role=trainer] --trainer_id=N --pservers=H:P,H:P   one trainer of a cluster\n"
    "trainer --job=FILE [--role=trainer] --init_method=tcp://H:P             the same; they meet at H:P\n"
    "trainer --job=FILE --role=local                                         the whole job in this process\n"
    "trainer --job=FILE --role=predict --checkpoint=DIR --output=FILE        scores files\n"
    "        [--input=PATTERN] [--carry=COLUMN,COLUMN] [--checkpoint_job]\n"
    "trainer --job=FILE --role=importance --checkpoint=DIR [--output=FILE]   shows what each input is worth\n"
    "        [--alter=shuffle|blank] [--repeats=N] [--parts=NAME,NAME] [--together=NAME+NAME]\n"
    "\n"
    "With distribute.servers: 0 --pservers has the address of every trainer, where it serves its part of the "
    "parameters\n"
    "to the others until all are done.\n"
    "\n"
    "torchrun, mpirun and srun may start trainers, too: they give each its id (RANK, OMPI_COMM_WORLD_RANK, "
    "SLURM_PROCID)\n"
    "and their number. torchrun gives the place to meet as well; the others need --init_method.\n"
    "Any field of the job: --set path.to.field=value, many times. `launch` starts a whole cluster on this machine.\n"
    "Exit codes: 0 the work is complete, 2 bad input, 3 a peer is lost, 4 damaged data, 5 a signal has stopped the "
    "job;\n"
    "after 3 and 5 run again with --resume.\n";

// Moves gradients between devices, with comm.backend: NCCL.
struct Nccl {
  const NcclLibrary* library = nullptr;
  // The device of this trainer again, with queues of their own.
  std::unique_ptr<DeviceRuntime> device;
  std::string device_identity;
};

// Returns whether the whole job runs in this process, with one server and one trainer whatever the job's cluster is.
bool IsEmbedded(const ClusterConfig& cluster) {
  return cluster.role == Role::kLocal ||
         (IsScoring(cluster.role) && cluster.pservers.empty() && !cluster.init_method.has_value());
}

// Connects to the servers of the cluster.
absl::StatusOr<std::unique_ptr<Transport>> Connect(const ClusterConfig& cluster, const v1::Cluster& network,
                                                   int lanes) {
  // Each server has two TCP connections and, on this machine, a Unix-domain socket and the two descriptors of shared
  // memory. Each lane has a file open; 32 more are for other uses.
  const int servers = static_cast<int>(cluster.pservers.size());
  const int files = lanes + 32;
  RETURN_IF_ERROR(WantDescriptors(
      5 * servers + files, absl::StrCat("5 connections to each of ", servers, " servers and ", files, " files")));
  return MakeGrpcTransport(
      {.endpoints = cluster.pservers, .network = network, .servers_in_trainers = cluster.servers_in_trainers});
}

// Learns the addresses of the others, if the processes have to meet; nullopt: they are known. `listening`: where this
// one serves; "": it does not.
absl::StatusOr<std::optional<Addresses>> Meet(const Job& job, const std::string& listening, StopSignals* signals,
                                              ClusterConfig* cluster) {
  if (!cluster->init_method.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(Addresses addresses, MeetOthers(job.config, *cluster, listening, ProcessName(), signals));
  if (cluster->run_id == kAnyRun) cluster->run_id = addresses.run_id;
  return addresses;
}

// The servers of the job as this process reaches them. By itself: servers that run elsewhere.
class WayToServers {
 public:
  static std::unique_ptr<WayToServers> Choose(const ClusterConfig& cluster);
  virtual ~WayToServers() = default;

  // Makes the way, and sets the addresses of the servers in *cluster. Borrows `pool`, and `cluster` for the call.
  virtual absl::Status Reach(const Job& job, ThreadPool* /*pool*/, int /*threads*/, StopSignals* signals,
                             ClusterConfig* cluster) {
    ASSIGN_OR_RETURN(std::optional<Addresses> addresses, Meet(job, "", signals, cluster));
    if (addresses.has_value()) cluster->pservers = std::move(addresses->servers);
    ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                     Connect(*cluster, job.config.cluster(), job.config.train().lanes()));
    ASSIGN_OR_RETURN(transport_, WithFaultPoint(std::move(transport), cluster->trainer_id));
    return absl::OkStatus();
  }
  // Requires: Reach.
  Transport* transport() const { return transport_.get(); }
  // Returns the server in this process, null: there is none; and whether event files are to have its figures.
  virtual ServerCore* core() const { return nullptr; }
  virtual bool HasEvents() const { return false; }
  // Returns whether a server takes its settings from the job of this process.
  virtual bool TakesSettings() const { return false; }
  // Returns the address of this machine at which the other trainers reach it; an IPv6 address without brackets.
  virtual absl::StatusOr<std::string> Host(const ClusterConfig& cluster) const {
    return LocalAddressTowards(cluster.pservers[0]);
  }

  // Asks a server that serves others for the end of the job.
  virtual void RequestStop() const {}
  // Serves the other trainers when this one has ended with `status`, until they are done too or know that the job has
  // failed. Returns the error of the process.
  virtual absl::Status ServeToTheEnd(const absl::Status& status, int /*trainer*/, StopSignals* /*signals*/) {
    return status;
  }
  // Ends a server that serves others, and the network; `release` frees what uses this way. Returns true if it has.
  virtual bool ShutDown(const std::function<void()>& /*release*/) { return false; }

 protected:
  std::unique_ptr<Transport> transport_;
};

// The one server of a job that runs in this process as a whole.
class EmbeddedServer : public WayToServers {
 public:
  absl::Status Reach(const Job& job, ThreadPool* pool, int /*threads*/, StopSignals* /*signals*/,
                     ClusterConfig* /*cluster*/) override {
    ASSIGN_OR_RETURN(Programs programs, ServerPrograms(job, 0, "", ""));
    std::vector<ServerOptions> options(1);
    ASSIGN_OR_RETURN(options[0], JobServerOptions(job, 0, std::move(programs), pool));
    ASSIGN_OR_RETURN(std::unique_ptr<InProcessServers> servers,
                     InProcessServers::Create(std::move(options), /*tick_thread=*/true));
    core_ = &servers->server(0);
    transport_ = std::move(servers);
    return absl::OkStatus();
  }
  ServerCore* core() const override { return core_; }
  // Without rows the server of a local run has nothing to say, and would be one more run on the page.
  bool HasEvents() const override { return !core_->Report().tables.empty(); }
  bool TakesSettings() const override { return true; }

 private:
  ServerCore* core_ = nullptr;
};

// Returns whether a server has no block and no part of a table.
bool HoldsNothing(const v1::Plan& plan, int server) {
  return plan.tables().empty() &&
         std::none_of(plan.blocks().begin(), plan.blocks().end(),
                      [server](const v1::PlacedBlock& block) { return block.server() == server; });
}

// A server in each trainer: this one's, and the way to the others. It has threads of its own, so that it answers others
// while lanes compute.
class OwnServer : public WayToServers {
 public:
  // Others may call until the server is down.
  ~OwnServer() override { transport_ = nullptr; }

  absl::Status Reach(const Job& job, ThreadPool* /*pool*/, int threads, StopSignals* signals,
                     ClusterConfig* cluster) override {
    const int id = cluster->trainer_id;
    pool_ = std::make_unique<ThreadPool>("weir-server", ComputeThreads(threads));
    ASSIGN_OR_RETURN(Programs programs, ServerPrograms(job, id, absl::GetFlag(FLAGS_server_program),
                                                       absl::GetFlag(FLAGS_server_startup_program)));
    const bool holds_nothing = HoldsNothing(programs.main.plan(), id);
    ASSIGN_OR_RETURN(ServerOptions options, JobServerOptions(job, id, std::move(programs), pool_.get()));
    ASSIGN_OR_RETURN(const std::string endpoint, WhereToListen(*cluster));
    ASSIGN_OR_RETURN(server_, JobServer::Start(std::move(options), endpoint, job.config.cluster()));
    cluster->endpoint = server_->endpoint();
    LOG(INFO) << "server " << id << " is in this process and listens at " << cluster->endpoint;
    // Others are told where this one listens.
    ASSIGN_OR_RETURN(std::optional<Addresses> addresses, Meet(job, cluster->endpoint, signals, cluster));
    if (addresses.has_value()) cluster->pservers = std::move(addresses->trainers);
    ASSIGN_OR_RETURN(network_, Connect(*cluster, job.config.cluster(), job.config.train().lanes()));
    ASSIGN_OR_RETURN(transport_, WithFaultPoint(MakeOwnServerTransport({.own = id,
                                                                        .core = server_->core(),
                                                                        .others = network_.get(),
                                                                        .pool = pool_.get(),
                                                                        .holds_nothing = holds_nothing}),
                                                id));
    return absl::OkStatus();
  }
  ServerCore* core() const override { return server_->core(); }
  bool HasEvents() const override { return true; }
  bool TakesSettings() const override { return true; }
  absl::StatusOr<std::string> Host(const ClusterConfig& cluster) const override {
    ASSIGN_OR_RETURN(const Endpoint own, ParseEndpoint(cluster.endpoint));
    // A trainer that listens on all interfaces takes the one that leads to another trainer.
    const size_t other = cluster.trainer_id == 0 ? cluster.pservers.size() - 1 : 0;
    return own.IsWildcard() ? LocalAddressTowards(cluster.pservers[other])
                            : absl::StatusOr<std::string>(own.BareHost());
  }

  // Trainers that have not joined are not waited for.
  void RequestStop() const override { core()->RequestStop(); }
  absl::Status ServeToTheEnd(const absl::Status& status, int trainer, StopSignals* signals) override {
    signals->OnStop([this] { core()->RequestStop(); });
    // A trainer that some server has not let in has no voice in the job, but its own server goes with it.
    if (!status.ok()) {
      core()->ReportFailure(absl::Status(status.code(), absl::StrCat("trainer ", trainer, ": ", status.message())));
    }
    server_->AwaitFinished();
    return status.ok() ? core()->JobStatus() : status;
  }
  bool ShutDown(const std::function<void()>& release) override {
    server_->Shutdown();
    release();
    transport_ = nullptr;
    network_ = nullptr;
    return true;
  }

 private:
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<JobServer> server_;
  std::unique_ptr<Transport> network_;  // to the servers of the others
};

std::unique_ptr<WayToServers> WayToServers::Choose(const ClusterConfig& cluster) {
  if (IsEmbedded(cluster)) return std::make_unique<EmbeddedServer>();
  if (cluster.servers_in_trainers) return std::make_unique<OwnServer>();
  return std::make_unique<WayToServers>();
}

// State of one run. Members are destroyed in reverse order, as they depend on those above them.
struct Runtime {
  Job job;
  ClusterConfig cluster;
  // Set with train.device: CUDA.
  std::unique_ptr<DeviceRuntime> device;
  std::unique_ptr<DeviceMemory> device_memory;
  Nccl nccl;
  // Address of the network interface that the job names; "" if it names none.
  std::string interface_address;
  Programs programs;
  std::string plan_text;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<WayToServers> servers;
  // Set if trainers of one host may merge what they send: the way through their relay, and the relay.
  std::unique_ptr<HostTransport> way;
  std::unique_ptr<Client> client;
  std::unique_ptr<HostLink> host;
  // Set if the program adds dense gradients among trainers: the group of trainers (null in one process), what it runs
  // in one process, and the dense parameters of this trainer.
  std::unique_ptr<TrainerGroup> group;
  std::unique_ptr<LocalMeshes> alone;
  std::unique_ptr<Collective> collective;
  std::unique_ptr<DenseReplica> replica;
  ProfileRun profile;
  std::unique_ptr<ServerEvents> server_events;  // null: no event file
  std::unique_ptr<TrainingWatch> figures;
  std::unique_ptr<ProcessWatch> watch;  // null: nobody watches
};

// A flag that goes with some roles only, and whether it was given.
struct RoleFlag {
  const char* name;
  bool given;
  std::vector<Role> roles;
};

absl::Status CheckFlags(const ClusterConfig& cluster) {
  const std::vector<Role> scoring = {Role::kPredict, Role::kImportance};
  for (const RoleFlag& flag : {RoleFlag{"checkpoint_job", absl::GetFlag(FLAGS_checkpoint_job), scoring},
                               RoleFlag{"checkpoint", !absl::GetFlag(FLAGS_checkpoint).empty(), scoring},
                               RoleFlag{"output", !absl::GetFlag(FLAGS_output).empty(), scoring},
                               RoleFlag{"input", !absl::GetFlag(FLAGS_input).empty(), scoring},
                               RoleFlag{"carry", !absl::GetFlag(FLAGS_carry).empty(), {Role::kPredict}},
                               RoleFlag{"alter", absl::GetFlag(FLAGS_alter) != "shuffle", {Role::kImportance}},
                               RoleFlag{"repeats", absl::GetFlag(FLAGS_repeats) != 0, {Role::kImportance}},
                               RoleFlag{"parts", !absl::GetFlag(FLAGS_parts).empty(), {Role::kImportance}},
                               RoleFlag{"together", !absl::GetFlag(FLAGS_together).empty(), {Role::kImportance}}}) {
    if (!flag.given || std::find(flag.roles.begin(), flag.roles.end(), cluster.role) != flag.roles.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", flag.name, " goes with --role=",
        absl::StrJoin(flag.roles, " or ", [](std::string* out, Role role) { out->append(RoleName(role)); }),
        ", the role is ", std::string(RoleName(cluster.role))));
  }
  if (!IsScoring(cluster.role)) return absl::OkStatus();
  const bool needs_output = cluster.role == Role::kPredict;
  if (absl::GetFlag(FLAGS_checkpoint).empty() || (needs_output && absl::GetFlag(FLAGS_output).empty())) {
    return absl::InvalidArgumentError(absl::StrCat("--role=", std::string(RoleName(cluster.role)),
                                                   " needs --checkpoint=DIR",
                                                   needs_output ? " and --output=FILE" : ""));
  }
  ASSIGN_OR_RETURN(const ProfileFlags profile, ReadProfileFlags());
  if (!profile.file.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile is of steps of training; --role=", std::string(RoleName(cluster.role)), " has none"));
  }
  if (absl::GetFlag(FLAGS_checkpoint_job) && !absl::GetFlag(FLAGS_program).empty()) {
    return absl::InvalidArgumentError("--program and --checkpoint_job both replace the model: give one of them");
  }
  return absl::OkStatus();
}

// The text of a job, and what is beside it.
struct JobInput {
  std::string text, file;
  BesideJob beside;
};

absl::StatusOr<JobInput> ReadJobInput() {
  JobInput input{.file = absl::GetFlag(FLAGS_job)};
  ASSIGN_OR_RETURN(input.beside.directory, JobDirectory());
  ASSIGN_OR_RETURN(input.beside.start_from, StartFromFlag());
  const std::string checkpoint = absl::GetFlag(FLAGS_checkpoint);
  if (absl::GetFlag(FLAGS_checkpoint_job)) {
    if (checkpoint.empty())
      return absl::InvalidArgumentError(
          "--checkpoint_job goes with --role=predict or importance, and --checkpoint=DIR");
    ASSIGN_OR_RETURN(input.beside.trained, JobTextOfCheckpoint(checkpoint));
  }
  if (!input.file.empty()) {
    ASSIGN_OR_RETURN(input.text, ReadJobFile(input.file));
  } else if (!input.beside.trained.empty()) {
    input.text = input.beside.trained;
    input.file = absl::StrCat("the job in ", checkpoint);
    if (input.beside.directory.empty()) input.beside.directory = ".";
  } else {
    return absl::InvalidArgumentError("--job=FILE is missing; see --help");
  }
  return input;
}

absl::Status ReadJob(const std::vector<std::string>& overrides, Runtime* r) {
  ASSIGN_OR_RETURN(const JobInput input, ReadJobInput());
  ASSIGN_OR_RETURN(r->job, ParseJob(input.text, input.file, overrides, input.beside));
  ASSIGN_OR_RETURN(r->cluster, ResolveCluster(Role::kTrainer, ClusterFlagsOfThisProcess(overrides),
                                              EnvironmentOfThisProcess(), r->job.config));
  RETURN_IF_ERROR(CheckFlags(r->cluster));
  r->servers = WayToServers::Choose(r->cluster);
  std::vector<std::string> all = overrides;
  all.insert(all.end(), r->cluster.overrides.begin(), r->cluster.overrides.end());
  if (IsEmbedded(r->cluster)) {
    all.push_back("distribute.servers=1");
    all.push_back("distribute.trainers=1");
    // A mode without servers would contradict the one in this process.
    if (AllReduces(r->job.config.distribute())) all.push_back("distribute.dense=ALL_REDUCE");
    // Addresses of a cluster mean nothing in one process.
    all.push_back("cluster={}");
    r->cluster.trainer_id = 0;
  }
  if (IsScoring(r->cluster.role)) {
    // The servers read the checkpoint from their checkpoint.dir.
    std::string dir = std::filesystem::absolute(absl::GetFlag(FLAGS_checkpoint)).lexically_normal().string();
    while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
    if (std::filesystem::path(dir).filename().string().starts_with("step-"))
      dir = std::filesystem::path(dir).parent_path();
    if (r->servers->TakesSettings()) all.push_back(absl::StrCat("checkpoint.dir=\"", dir, "\""));
  }
  ASSIGN_OR_RETURN(r->job, ParseJob(input.text, input.file, all, input.beside));
  if (IsScoring(r->cluster.role) && !absl::GetFlag(FLAGS_program).empty()) {
    LOG(WARNING) << "--program: what the program computes is not compared with the job of the checkpoint";
  }
  if (!input.beside.trained.empty()) {
    LOG(INFO) << "--checkpoint_job: the model is that of the checkpoint's job"
              << (r->job.replaced.empty() ? "" : absl::StrCat(", not this one: ", r->job.replaced));
  }
  for (const std::string& warning : r->cluster.warnings) LOG(WARNING) << warning;
  return absl::OkStatus();
}

// Runs first, so that a missing device ends the process before anything else starts.
absl::Status OpenDevice(Runtime* r) {
  const int given = r->job.config.train().device_id();
  int rank = absl::GetFlag(FLAGS_local_rank);
  if (const MaybeSourced& of_launcher = r->cluster.local_rank) {
    ASSIGN_OR_RETURN(const int given_rank, Number(*of_launcher, "the place of this process on its machine, from 0"));
    if (rank >= 0 && rank != given_rank) {
      return absl::InvalidArgumentError(absl::StrCat("--local_rank is ", rank, " but ", of_launcher->source, " is ",
                                                     given_rank, ": leave out the one that is wrong"));
    }
    rank = given_rank;
  }
  absl::StatusOr<std::unique_ptr<ReplayingDevice>> device = OpenCudaDevice(given >= 0 ? given : std::max(rank, 0));
  if (!device.ok()) {
    return r->job.positions.Error("train.device",
                                  absl::StrCat("device: CUDA: ", std::string(device.status().message())));
  }
  r->device = *std::move(device);
  r->device_memory = std::make_unique<DeviceMemory>(r->device.get());
  if (const absl::Status cublas = device::Cublas::Of(r->device_memory.get()).status(); !cublas.ok()) {
    return r->job.positions.Error("train.device", absl::StrCat("device: CUDA: ", std::string(cublas.message())));
  }
  LOG(INFO) << "lanes compute on " << r->device->info().name;
  return absl::OkStatus();
}

// Loads NCCL if the job wants it, so that a machine without it says so before anything else starts.
absl::Status LoadNccl(Runtime* r) {
  if (r->job.config.comm().backend() != v1::Comm::NCCL || IsEmbedded(r->cluster)) return absl::OkStatus();
  const absl::StatusOr<const NcclLibrary*> library = NcclLibrary::Load();
  if (!library.ok()) {
    const std::string usable = UsableBackends(CollectiveBackends(library.status(), absl::OkStatus()));
    return r->job.positions.Error("comm.backend", absl::StrCat("comm.backend: NCCL: ", library.status().message(),
                                                               "; this machine can use ", usable));
  }
  r->nccl.library = *library;
  LOG(INFO) << "gradients go by NCCL " << (*library)->VersionText() << " (" << (*library)->path() << ")";
  return absl::OkStatus();
}

// Opens the trainer's device for NCCL, if that was loaded.
absl::Status OpenDeviceForNccl(Runtime* r) {
  if (r->nccl.library == nullptr) return absl::OkStatus();
  const int id = r->device->info().id;
  ASSIGN_OR_RETURN(r->nccl.device, OpenCudaDevice(id));
  ASSIGN_OR_RETURN(r->nccl.device_identity, CudaDeviceIdentity(id));
  return absl::OkStatus();
}

absl::Status ChooseInterface(Runtime* r) {
  const v1::Comm& comm = r->job.config.comm();
  if (!comm.has_interface() || IsEmbedded(r->cluster)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<NetworkInterface> interfaces, NetworkInterfaces());
  absl::StatusOr<std::string> address = AddressOfInterface(interfaces, comm.interface());
  if (!address.ok()) {
    return r->job.positions.Error("comm.interface", absl::StrCat("comm.interface: ", address.status().message()));
  }
  r->interface_address = *std::move(address);
  return absl::OkStatus();
}

absl::Status Prepare(const std::vector<std::string>& overrides, StopSignals* signals, Runtime* r) {
  if (absl::GetFlag(FLAGS_allow_pipes)) AllowPipes();
  RETURN_IF_ERROR(ReadJob(overrides, r));
  if (IsScoring(r->cluster.role)) {
    signals->SetMeaning(absl::StrCat("the ", r->cluster.role == Role::kPredict ? "prediction" : "importance",
                                     " ends at once, and writes no output"));
  }
  const v1::Train& train = r->job.config.train();
  RETURN_IF_ERROR(LoadNccl(r));
  if (train.device() == v1::Train::CUDA) RETURN_IF_ERROR(OpenDevice(r));
  RETURN_IF_ERROR(OpenDeviceForNccl(r));
  RETURN_IF_ERROR(ChooseInterface(r));
  RETURN_IF_ERROR(SetArithmetic(train.arithmetic(), PrecisionOnCpu(train)));
  ASSIGN_OR_RETURN(const int threads, ThreadSetting(absl::GetFlag(FLAGS_threads), r->job.config));
  r->pool = std::make_unique<ThreadPool>("weir-compute", PoolWorkers(threads));

  ASSIGN_OR_RETURN(r->programs,
                   TrainerPrograms(r->job, absl::GetFlag(FLAGS_program), absl::GetFlag(FLAGS_startup_program)));
  r->plan_text = PlanText(r->job, r->programs.main.plan());
  RETURN_IF_ERROR(r->servers->Reach(r->job, r->pool.get(), threads, signals, &r->cluster));
  const v1::Plan& plan = r->programs.main.plan();
  const bool servers_elsewhere = r->servers->core() == nullptr;
  if (plan.merge_hosts() != v1::Plan::OFF && plan.trainers() > 1 && servers_elsewhere) {
    r->way = std::make_unique<HostTransport>(r->servers->transport());
  }
  const v1::CheckpointConfig& checkpoint = r->job.config.checkpoint();
  ASSIGN_OR_RETURN(r->client,
                   Client::Create({.plan = r->programs.main.plan(),
                                   .trainer_id = r->cluster.trainer_id,
                                   .job_name = r->job.config.name(),
                                   .plan_text = r->plan_text,
                                   .deadlines = r->job.config.deadlines(),
                                   .checkpoint_dir = checkpoint.dir().empty() ? "" : r->job.Path(checkpoint.dir()),
                                   .checkpoint_per_host = checkpoint.per_host(),
                                   .process = ProcessName(),
                                   .arithmetic = ResolvedArithmetic(PrecisionOnCpu(train)),
                                   .transport = r->way != nullptr ? r->way.get() : r->servers->transport(),
                                   .clock = Clock::Real(),
                                   .pool = r->pool.get(),
                                   .bounded_staleness = ModeOf(r->programs.main).staleness() >= 0,
                                   .compresses = Compresses(r->job.config.distribute()),
                                   .receives_beside_sends = true}));
  return absl::OkStatus();
}

// Finds the trainers of this host, if they may merge what they send.
absl::Status MeetHost(Runtime* r) {
  if (r->way == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(r->host, HostLink::Form({.client = r->client.get(),
                                            .way = r->way.get(),
                                            .servers = r->servers->transport(),
                                            .pool = r->pool.get(),
                                            .plan = &r->programs.main.plan(),
                                            .trainer_id = r->cluster.trainer_id,
                                            .process = ProcessName(),
                                            .deadlines = r->job.config.deadlines(),
                                            .shared_memory = r->job.config.cluster().shared_memory(),
                                            .host = HostIdentity()}));
  return absl::OkStatus();
}

// Makes what a trainer has that holds the dense parameters.
absl::Status HoldDense(Runtime* r) {
  if (!ModeOf(r->programs.main).has_all_reduce()) return absl::OkStatus();
  const v1::JobConfig& config = r->job.config;
  Collective* collective = nullptr;
  if (IsEmbedded(r->cluster)) {
    r->alone = std::make_unique<LocalMeshes>(1);
    r->collective = std::make_unique<Collective>(r->alone->mesh(0), Collective::Options{});
    collective = r->collective.get();
  } else {
    std::string host = r->interface_address;
    if (host.empty()) {
      ASSIGN_OR_RETURN(host, r->servers->Host(r->cluster));
    }
    LOG(INFO) << "other trainers reach this one at " << host;
    ASSIGN_OR_RETURN(r->group,
                     TrainerGroup::Form({.client = r->client.get(),
                                         .trainer_id = r->cluster.trainer_id,
                                         .trainers = r->programs.main.plan().trainers(),
                                         .host = host,
                                         .network = config.cluster(),
                                         .settings = config.comm(),
                                         .merge_hosts = r->programs.main.plan().merge_hosts() != v1::Plan::OFF,
                                         .deadlines = config.deadlines(),
                                         .nccl = r->nccl.library,
                                         .device = r->nccl.device.get(),
                                         .device_identity = r->nccl.device_identity}));
    collective = r->group->collective();
  }
  ASSIGN_OR_RETURN(r->replica, MakeReplica({.main = &r->programs.main,
                                            .startup = &r->programs.startup,
                                            .pool = r->pool.get(),
                                            .collective = collective}));
  return absl::OkStatus();
}

// Reports the state of this trainer, from the entries that TrainingWatch and the client make.
void ReportStatus(int trainer, v1::ProcessStatus* status) {
  const std::string prefix = absl::StrCat("trainer.", trainer, ".");
  double step_time = 0, data = 0, servers = 0;
  for (const Counters::Entry& entry : Counters::Process().Snapshot()) {
    if (!entry.name.starts_with(prefix)) continue;
    const std::string name = entry.name.substr(prefix.size());
    const double seconds = 1e-6 * static_cast<double>(entry.value);
    if (name == "steps") status->set_step(static_cast<double>(entry.value));
    if (name == "step_time") step_time = 1e-6 * static_cast<double>(entry.histogram.sum);
    if (name == "wait.data") data = seconds;
    if (name == "wait.servers") servers = seconds;
    if (name == "wait.border") (*status->mutable_time())["border"] = seconds;
    if (entry.kind == Counters::Kind::kGauge) (*status->mutable_figure())[name] = entry.gauge;
  }
  (*status->mutable_time())["read"] = data;
  (*status->mutable_time())["wait"] = servers;
  (*status->mutable_time())["compute"] = std::max(0.0, step_time - data - servers);
}

// Starts what the flags ask for that watches this process.
absl::Status StartWatching(Runtime* r) {
  const int id = r->cluster.trainer_id;
  ASSIGN_OR_RETURN(EventFlags events, ReadEventFlags());
  if (events.histogram_steps > 0 && r->device != nullptr) {
    LOG(WARNING) << "--tensorboard_histograms: parameters and gradients on a device are not read; there are none";
    events.histogram_steps = 0;
  }
  if (!IsScoring(r->cluster.role)) {
    ASSIGN_OR_RETURN(r->figures, TrainingWatch::Create({.trainer_id = id,
                                                        .tensorboard = events.directory,
                                                        .histogram_steps = events.histogram_steps}));
    if (r->servers->HasEvents()) {
      ASSIGN_OR_RETURN(r->server_events, ServerEvents::Start(r->servers->core(), id));
    }
  }
  ServerCore* const core = r->servers->core();
  ASSIGN_OR_RETURN(
      r->watch,
      ProcessWatch::Start(
          {.role = "trainer",
           .id = id,
           .job = r->job.config.name(),
           .fingerprint = absl::StrCat(absl::Hex(PlanFingerprint(r->plan_text), absl::kZeroPad16)),
           .build = std::string(kBuild),
           .entries = [core,
                       id] { return core == nullptr ? std::vector<Counters::Entry>() : ServerEntries(*core, id); },
           .status =
               [core, id](v1::ProcessStatus* status) {
                 ReportStatus(id, status);
                 if (core != nullptr) ReportServer(*core, status);
               }}));
  return absl::OkStatus();
}

Scoring ScoringOf(Runtime* r) {
  return {.job = &r->job,
          .programs = &r->programs,
          .client = r->client.get(),
          .replica = r->replica.get(),
          .pool = r->pool.get(),
          .trainer_id = r->cluster.trainer_id,
          .device = r->device_memory.get(),
          .checkpoint = absl::GetFlag(FLAGS_checkpoint),
          .input = absl::GetFlag(FLAGS_input)};
}

absl::Status Predict(Runtime* r, std::string* last_line) {
  ASSIGN_OR_RETURN(const int64_t examples, RunPredict({.scoring = ScoringOf(r),
                                                       .output = absl::GetFlag(FLAGS_output),
                                                       .carry = absl::GetFlag(FLAGS_carry)}));
  *last_line = absl::StrCat("predicted examples=", examples, " output=", absl::GetFlag(FLAGS_output));
  return absl::OkStatus();
}

absl::Status MeasureImportance(Runtime* r, std::string* last_line) {
  const std::string alter = absl::AsciiStrToLower(absl::GetFlag(FLAGS_alter));
  if (alter != "shuffle" && alter != "blank") {
    return absl::InvalidArgumentError(
        absl::StrCat("--alter is '", absl::GetFlag(FLAGS_alter), "', must be shuffle or blank"));
  }
  const int repeats = absl::GetFlag(FLAGS_repeats);
  ASSIGN_OR_RETURN(const v1::Importance found,
                   RunImportance({.scoring = ScoringOf(r),
                                  .alteration = alter == "blank" ? v1::Importance::BLANK : v1::Importance::SHUFFLE,
                                  .repeats = repeats != 0 ? repeats : (alter == "blank" ? 1 : 5),
                                  .parts = absl::GetFlag(FLAGS_parts),
                                  .together = absl::GetFlag(FLAGS_together),
                                  .output = absl::GetFlag(FLAGS_output)}));
  if (r->cluster.trainer_id == 0) std::fputs(ImportanceText(found).c_str(), stdout);
  *last_line = absl::StrCat("importance examples=", found.examples(), " parts=", found.part_size());
  const std::string output = absl::GetFlag(FLAGS_output);
  if (!output.empty()) absl::StrAppend(last_line, " output=", output);
  return absl::OkStatus();
}

// Trains, predicts or measures. Sets *stopped if the training has ended before it was complete because its end was
// requested.
absl::Status Work(Runtime* r, std::string* last_line, bool* stopped) {
  RETURN_IF_ERROR(MeetHost(r));
  RETURN_IF_ERROR(HoldDense(r));
  if (r->cluster.role == Role::kPredict) return Predict(r, last_line);
  if (r->cluster.role == Role::kImportance) return MeasureImportance(r, last_line);
  if (absl::GetFlag(FLAGS_resume_run)) {
    if (absl::GetFlag(FLAGS_resume)) {
      return absl::InvalidArgumentError(
          "--resume goes on from any checkpoint in checkpoint.dir, --resume_run from one of this run: give one of "
          "them");
    }
    if (r->cluster.run_id.empty()) {
      return absl::InvalidArgumentError("--resume_run needs the name of the run: give --run_id");
    }
  }
  ASSIGN_OR_RETURN(std::function<void(int, int64_t)> before_batch, ReaderFaultPoint(r->cluster.trainer_id));
  ASSIGN_OR_RETURN(const TrainSummary summary,
                   RunTraining({.job = &r->job,
                                .programs = &r->programs,
                                .client = r->client.get(),
                                .replica = r->replica.get(),
                                .pool = r->pool.get(),
                                .clock = Clock::Real(),
                                .trainer_id = r->cluster.trainer_id,
                                .device = r->device_memory.get(),
                                .before_batch = std::move(before_batch),
                                .after_step = [r](int64_t steps) { r->profile.AfterStep(steps); },
                                .resume = absl::GetFlag(FLAGS_resume),
                                .run = r->cluster.run_id,
                                .resume_run = absl::GetFlag(FLAGS_resume_run),
                                .restarts = absl::GetFlag(FLAGS_restarts),
                                .out = stdout,
                                .live = isatty(STDOUT_FILENO) == 1,
                                .digest_log = absl::GetFlag(FLAGS_digest_log),
                                .watch = r->figures.get()}));
  r->figures->End(!summary.stopped);
  *stopped = summary.stopped;
  *last_line = summary.DoneLine();
  return absl::OkStatus();
}

// Asks for the end of the job at a common border.
void RequestStop(const Runtime& r) {
  r.client->member().RequestStop();
  r.servers->RequestStop();
}

absl::Status Run(const std::vector<std::string>& overrides, StopSignals* signals) {
  Runtime runtime;
  RETURN_IF_ERROR(Prepare(overrides, signals, &runtime));
  RETURN_IF_ERROR(StartWatching(&runtime));
  ASSIGN_OR_RETURN(runtime.profile, ProfileRun::Start(absl::StrCat("trainer ", runtime.cluster.trainer_id)));
  signals->OnStop([&runtime] { RequestStop(runtime); });
  std::string last_line;
  bool stopped = false;
  absl::Status status = runtime.client->Join();
  if (status.ok()) {
    status = Work(&runtime, &last_line, &stopped);
    if (status.ok() && runtime.host != nullptr) status = runtime.host->AwaitOthers();
    if (stopped) SetStopped(signals);
    if (status.ok()) {
      status = runtime.client->member().Done(stopped);
    } else {
      // If the job failed elsewhere, that failure is the cause to report; an error of this trainer ends the others.
      // Every server is told before the connections close, since otherwise it would wait for this trainer and then
      // blame it.
      const absl::Status job = runtime.client->member().JobStatus();
      if (runtime.group != nullptr) runtime.group->collective()->Abort(status);
      runtime.client->member().ReportFailure(status);
      if (!job.ok()) status = job;
    }
  }
  status = runtime.servers->ServeToTheEnd(status, runtime.cluster.trainer_id, signals);
  signals->OnStop({});
  // A failed run prints it too, as other processes may have been the cause.
  std::fputs(runtime.profile.Finish().c_str(), stdout);
  if (!IsEmbedded(runtime.cluster)) {
    signals->EndWithin(kEnd, JobExitCode(status, signals),
                       absl::StrCat("trainer: ", status.message(), status.ok() ? "" : "; ",
                                    "the network has not shut down within ", absl::FormatDuration(kEnd)));
  }
  const bool network_is_down = runtime.servers->ShutDown([&runtime] {
    runtime.replica = nullptr;
    runtime.group = nullptr;
    runtime.host = nullptr;
    runtime.client = nullptr;
    runtime.way = nullptr;
  });
  // Freeing large tables may take longer than the network's deadline.
  if (network_is_down) signals->EndWithin(absl::InfiniteDuration(), JobExitCode(status, signals), "");
  RETURN_IF_ERROR(status);
  std::printf("%s\n", last_line.c_str());
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::RunJobProgram({.name = "trainer", .usage = weir::kUsage, .run = weir::Run}, argc, argv);
}
