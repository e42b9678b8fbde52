// Criteo-shaped DeepFM: 26 fields of 100,000 ids, width 16, 13 dense values, tower 400-400-400, global batch 2048,
// Adagrad rows and Adam tower, 8 lanes, sync. Examples per second of the whole cluster:
//
//   deepfm_bench                 one process with an embedded server, then 2 servers + 2 trainers as real processes
//   deepfm_bench --only=local|cluster
//   deepfm_bench --only=async    the cluster in async, by turns without and with distribute.prefetch_rows
//   deepfm_bench --only=ahead    the cluster in sync, likewise
//   deepfm_bench --only=all_reduce
//                                by turns with one process: 2 trainers that hold the dense parameters and add their
//                                gradients among themselves, each with half of the rows; --backend=GLOO|WIRE
//   deepfm_bench --peer="python3 tests/bench/deepfm_torch.py"
//                                by turns with PyTorch, one process and two, and the ratios; with --only=all_reduce the
//                                2 trainers beside two processes of PyTorch
//   deepfm_bench --precision=BF16
//                                products of matrices in bfloat16; --arithmetic=AMX_BF16|AVX512_BF16
//   deepfm_bench --only=... --profile=FILE --profile_steps=60:80
//                                also writes a trace of these steps and prints its table
//
// Ids are uniform, fresh in every batch, and made before the timer; de-duplication, look-up, update and wire are inside
// it. The first 49 steps bring every id once, so that the timed ones find all rows there, as those of a peer with a
// dense table do; --new_rows leaves them out. Every run ends with the digest of all values and optimizer state; the
// figures count only if all digests of one call are equal, which also makes them equal to an untimed run of the same
// job. In async, where they cannot be, the mean losses of the timed steps must agree. --network_ms=N holds every
// message of a trainer up for 0 to N ms each way, as a network would.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/graph/training_mode.h"
#include "framework/process/command_line.h"
#include "framework/profile/profile_run.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "pserver/channels/make_replica_channel.h"
#include "pserver/client/client.h"
#include "pserver/inside/in_process.h"
#include "pserver/inside/own_server.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "pserver/server/server_core.h"
#include "pserver/trainer_group.h"
#include "tests/testing/faulty_transport.h"
#include "tools/hosts/reserved_ports.h"
#include "trainer/data/data_spec.h"
#include "trainer/loop/ahead_thread.h"
#include "trainer/session/session.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/split/transpile.h"

ABSL_FLAG(std::string, only, "",
          "local, cluster, async, ahead or all_reduce; empty: the first two, and compare their digests");
ABSL_FLAG(std::string, backend, "AUTO", "all_reduce: comm.backend");
ABSL_FLAG(std::string, precision, "FP32", "train.precision: FP32 or BF16");
ABSL_FLAG(std::string, arithmetic, "AUTO", "train.arithmetic");
ABSL_FLAG(std::string, peer, "",
          "command of the same job elsewhere (tests/bench/deepfm_torch.py); runs in the directory of the call");
ABSL_FLAG(int, turns, 3, "async, ahead, all_reduce and peer: runs of each");
ABSL_FLAG(double, network_ms, 0, "longest delay of a message of the cluster");
ABSL_FLAG(bool, shared_memory, true, "cluster.shared_memory");
ABSL_FLAG(int, steps, 60, "timed steps");
ABSL_FLAG(int, warmup, 10, "steps before the timer");
ABSL_FLAG(bool, new_rows, false, "leave it to the timed steps to make the rows they meet first");
ABSL_FLAG(int, threads, 0, "threads of the machine to use; 0 = all");
ABSL_FLAG(std::string, pserver, "", "the pserver binary; default: beside this one in bazel-bin");
// Flags that the parent process passes to its trainers.
ABSL_FLAG(int, trainer_id, -1, "internal: be this trainer");
ABSL_FLAG(std::string, pservers, "", "internal: endpoints");
ABSL_FLAG(std::string, mode, "", "internal: sync, async, their _ahead, sync_early, or all_reduce");
ABSL_FLAG(std::string, cpu_of, "", "internal: other processes whose processor time counts");

namespace weir {
namespace {

constexpr int kFields = 26;
constexpr int64_t kIdsPerField = 100'000;
constexpr int kDense = 13;

constexpr char kJob[] = R"(
name: "deepfm_bench"
data {
  train { files: "none" }
  criteo {}
  batch_size: 2048
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "field_vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "field_weights" pooling: SUM } }
  layer { name: "fm" fm_interaction { input: "fields" } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" mlp { input: "input" sizes: [400, 400, 400] activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "fm" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "field_vectors" width: 16 is_sparse: true is_distributed: true
  optimizer { adagrad { learning_rate: 0.05 } } }
table { name: "field_weights" width: 1 is_sparse: true is_distributed: true
  optimizer { adagrad { learning_rate: 0.05 } } }
optimizer { adam { learning_rate: 0.001 } }
distribute { sync: true }
train { seed: 1 lanes: 8 }
)";

// Steps before all others in which every id comes once, so that the tables have all their rows, as a peer's have from
// the start.
int64_t StepsOfAllRows(int64_t batch_size) {
  return absl::GetFlag(FLAGS_new_rows) ? 0 : (kIdsPerField + batch_size - 1) / batch_size;
}

// One lane's part of one step: a function of (step, lane) alone. `all_rows`: of StepsOfAllRows.
LaneBatch MakeBatch(int64_t step, int lane, int lanes, int64_t examples, bool all_rows) {
  LaneBatch batch{.examples = examples};
  Tensor label(v1::FLOAT32, {examples, 1}), dense(v1::FLOAT32, {examples, kDense});
  IdBatch ids{.slots = kFields};
  ids.values.resize(examples * kFields);
  ids.offsets.resize(examples * kFields + 1);
  for (int64_t i = 0; i < examples; ++i) {
    const uint64_t example = (static_cast<uint64_t>(step) * 1024 + lane) * 65536 + i;
    label.data<float>()[i] = Philox(1, example, 0).v[0] % 4 == 0;
    for (int j = 0; j < kDense; ++j)
      dense.data<float>()[i * kDense + j] = UniformFloat(Philox(2, example, j).v[0]) - 0.5f;
    for (int f = 0; f < kFields; ++f) {
      const int64_t raw =
          (all_rows ? (step * lanes + lane) * examples + i : int64_t{Philox(3, example, f).v[0]}) % kIdsPerField;
      // Spread over all of int64, as salted ids are.
      ids.values[i * kFields + f] = static_cast<int64_t>(MixId(f * kIdsPerField + raw));
      ids.offsets[i * kFields + f + 1] = i * kFields + f + 1;
    }
  }
  batch.vars = {std::move(label), std::move(dense), std::move(ids)};
  return batch;
}

// Processor time of this process, or of another one, in seconds.
double ProcessorSeconds() {
  rusage used = {};
  CHECK_EQ(getrusage(RUSAGE_SELF, &used), 0);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}
double ProcessorSeconds(const std::string& pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text(std::istreambuf_iterator<char>(in), {});
  // The name in parentheses may have spaces. Behind it, field 3 is the first.
  const std::vector<std::string> fields = absl::StrSplit(text.substr(std::min(text.size(), text.rfind(')') + 2)), ' ');
  constexpr size_t kUser = 14 - 3, kSystem = 15 - 3;
  double ticks = 0, more = 0;
  CHECK(fields.size() > kSystem && absl::SimpleAtod(fields[kUser], &ticks) && absl::SimpleAtod(fields[kSystem], &more))
      << "no process " << pid;
  return (ticks + more) / static_cast<double>(sysconf(_SC_CLK_TCK));
}
// Of this process and those of --cpu_of.
double ProcessorSecondsOfAll() {
  double all = ProcessorSeconds();
  const std::vector<std::string> others = absl::StrSplit(absl::GetFlag(FLAGS_cpu_of), ',', absl::SkipEmpty());
  for (const std::string& pid : others) all += ProcessorSeconds(pid);
  return all;
}

struct RunResult {
  double examples_per_s = 0;
  double cpu_us = 0;  // processor time of all processes, an example
  uint64_t values = 0, state = 0;
  double loss = 0;
};

std::vector<std::string> SettingsOf(const std::string& mode, int servers, int trainers) {
  std::vector<std::string> settings = {absl::StrCat("distribute.servers=", servers),
                                       absl::StrCat("distribute.trainers=", trainers)};
  if (mode == "all_reduce") {
    settings.push_back("distribute.dense=ALL_REDUCE");
    settings.push_back(absl::StrCat("comm.backend=", absl::GetFlag(FLAGS_backend)));
  } else if (mode == "async" || mode == "async_ahead") {
    settings.push_back("distribute.sync=false");
  }
  if (mode == "sync_ahead" || mode == "sync_early" || mode == "async_ahead")
    settings.push_back("distribute.prefetch_rows=true");
  settings.push_back(absl::StrCat("cluster.shared_memory=", absl::GetFlag(FLAGS_shared_memory)));
  settings.push_back(absl::StrCat("train.precision=", absl::GetFlag(FLAGS_precision)));
  settings.push_back(absl::StrCat("train.arithmetic=", absl::GetFlag(FLAGS_arithmetic)));
  return settings;
}

absl::StatusOr<Job> MakeJob(const std::string& mode, int servers, int trainers) {
  return ParseJob(kJob, "deepfm_bench.textproto", SettingsOf(mode, servers, trainers));
}

ClientOptions MakeClientOptions(const Job& job, const Programs& programs, int trainer, Transport* transport,
                                ThreadPool* pool) {
  return {.plan = programs.main.plan(),
          .trainer_id = trainer,
          .job_name = job.config.name(),
          .plan_text = PlanText(job, programs.main.plan()),
          .deadlines = job.config.deadlines(),
          .process = absl::StrCat("localhost:", getpid()),
          .arithmetic = ResolvedArithmetic(PrecisionOnCpu(job.config.train())),
          .transport = transport,
          .clock = Clock::Real(),
          .pool = pool,
          .receives_beside_sends = true};
}

// What a trainer has that holds the dense parameters.
struct Dense {
  std::unique_ptr<TrainerGroup> group;
  std::unique_ptr<DenseReplica> replica;
  std::unique_ptr<ReplicaChannel> channel;
};

absl::StatusOr<Dense> MakeDense(const Job& job, const Programs& programs, int trainer, Client* client,
                                ThreadPool* pool) {
  Dense dense;
  ASSIGN_OR_RETURN(dense.group, TrainerGroup::Form({.client = client,
                                                    .trainer_id = trainer,
                                                    .trainers = programs.main.plan().trainers(),
                                                    .host = "127.0.0.1",
                                                    .network = job.config.cluster(),
                                                    .settings = job.config.comm(),
                                                    .deadlines = job.config.deadlines()}));
  ASSIGN_OR_RETURN(dense.replica, MakeReplica({.main = &programs.main,
                                               .startup = &programs.startup,
                                               .pool = pool,
                                               .collective = dense.group->collective()}));
  ASSIGN_OR_RETURN(dense.channel, MakeReplicaChannel({.main = &programs.main,
                                                      .trainer_id = trainer,
                                                      .replica = dense.replica.get(),
                                                      .servers = &client->steps()}));
  return dense;
}

// Joins, trains, and, on trainer 0, reads the digest at the end.
absl::StatusOr<RunResult> RunTrainer(const Job& job, const Programs& programs, int trainer, Client* client,
                                     ThreadPool* pool) {
  RETURN_IF_ERROR(client->Join());
  Dense dense;
  if (ModeOf(programs.main).has_all_reduce()) {
    ASSIGN_OR_RETURN(dense, MakeDense(job, programs, trainer, client, pool));
  }
  ParamChannel* const channel =
      dense.channel == nullptr ? static_cast<ParamChannel*>(&client->steps()) : dense.channel.get();
  std::vector<Column> columns;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(job.config.data()));
    columns = parser->columns();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                   Session::Create({.main = programs.main,
                                    .startup = programs.startup,
                                    .trainer_id = trainer,
                                    .precision = PrecisionOnCpu(job.config.train()),
                                    .columns = columns,
                                    .channel = channel,
                                    .pool = pool,
                                    .ahead = ModeOf(programs.main).prefetch_rows() ? &client->ahead() : nullptr}));
  const int64_t all_rows = StepsOfAllRows(job.config.data().batch_size());
  const int64_t warmup = all_rows + absl::GetFlag(FLAGS_warmup), steps = warmup + absl::GetFlag(FLAGS_steps);
  const LaneRange lanes = session->lanes();
  const int64_t per_lane = job.config.data().batch_size() / job.config.train().lanes();
  std::vector<std::vector<LaneBatch>> batches(steps);
  for (int64_t step = 0; step < steps; ++step) {
    for (int lane = 0; lane < lanes.count; ++lane) {
      batches[step].push_back(
          MakeBatch(step, lanes.begin + lane, job.config.train().lanes(), per_lane, step < all_rows));
    }
  }
  RETURN_IF_ERROR(client->board().Exchange("ready", "").status());
  RETURN_IF_ERROR(session->Start(0));
  absl::Time start = absl::Now();
  double cpu_start = 0;
  int64_t examples = 0;
  double loss_sum = 0;
  client->ahead().PullAheadOfVersion(absl::GetFlag(FLAGS_mode) != "sync_early");
  AheadThread ahead([client] { client->ahead().Cancel(); });
  const bool rows_ahead = session->mode().prefetch_rows();
  const auto pull_ahead = [&](int64_t step) {
    if (rows_ahead && step < steps) ahead.Start([&, step] { return session->PullAhead(step, &batches[step]); });
  };
  pull_ahead(0);
  for (int64_t step = 0; step < steps; ++step) {
    const ProfiledStep profiled(step);
    const ProfileSpan span(step, ProfileKind::kStep, "step");
    if (step == warmup) {
      start = absl::Now();
      cpu_start = ProcessorSecondsOfAll();
      examples = 0;
      loss_sum = 0;
    }
    if (rows_ahead) {
      RETURN_IF_ERROR(ahead.Finish());
      RETURN_IF_ERROR(session->TakeAhead());
      pull_ahead(step + 1);
    }
    ASSIGN_OR_RETURN(const StepResult result, session->Train(step, /*batch=*/0, &batches[step]));
    examples += result.outcome.samples;
    loss_sum += result.loss_sum;
  }
  RunResult result{.examples_per_s = static_cast<double>(examples) / absl::ToDoubleSeconds(absl::Now() - start),
                   .cpu_us = 1e6 * (ProcessorSecondsOfAll() - cpu_start) / static_cast<double>(examples),
                   .loss = loss_sum / static_cast<double>((steps - warmup) * lanes.count * per_lane)};
  RETURN_IF_ERROR(client->board().Exchange("end", "").status());
  if (trainer == 0 && programs.main.plan().sync()) {
    v1::ControlRequest request;
    request.mutable_digest()->set_step(steps);
    ASSIGN_OR_RETURN(std::vector<v1::ControlReply> replies, client->member().Control(request));
    if (dense.replica != nullptr) {
      ASSIGN_OR_RETURN(replies.emplace_back(), dense.replica->Digest());
    }
    for (const v1::ControlReply& reply : replies) {
      result.values += reply.values();
      result.state += reply.state();
    }
  }
  RETURN_IF_ERROR(client->member().Done());
  return result;
}

int Threads() {
  const int given = absl::GetFlag(FLAGS_threads);
  return given > 0 ? given : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

ServerOptions MakeServerOptions(const Job& job, Programs programs, int server, ThreadPool* pool) {
  std::string plan_text = PlanText(job, programs.main.plan());
  return {.server_id = server,
          .main = std::move(programs.main),
          .startup = std::move(programs.startup),
          .job_name = job.config.name(),
          .plan_text = std::move(plan_text),
          .deadlines = job.config.deadlines(),
          .process = absl::StrCat("localhost:", getpid()),
          .arithmetic = ResolvedArithmetic(PrecisionOnCpu(job.config.train())),
          .clock = Clock::Real(),
          .pool = pool};
}

absl::StatusOr<RunResult> RunLocal() {
  ASSIGN_OR_RETURN(ProfileRun profile, ProfileRun::Start("trainer 0"));
  ASSIGN_OR_RETURN(const Job job, MakeJob("sync", 1, 1));
  ThreadPool pool("weir-compute", Threads() - 1);
  ASSIGN_OR_RETURN(const Programs programs, TrainerPrograms(job, "", ""));
  ASSIGN_OR_RETURN(Programs server, ServerPrograms(job, 0, "", ""));
  std::vector<ServerOptions> servers;
  servers.push_back(MakeServerOptions(job, std::move(server), 0, &pool));
  ASSIGN_OR_RETURN(std::unique_ptr<InProcessServers> transport, InProcessServers::Create(std::move(servers), true));
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                   Client::Create(MakeClientOptions(job, programs, 0, transport.get(), &pool)));
  ASSIGN_OR_RETURN(const RunResult result, RunTrainer(job, programs, 0, client.get(), &pool));
  std::fputs(profile.Finish().c_str(), stdout);
  return result;
}

void PrintResult(const RunResult& result) {
  std::printf("result %.1f %s %s %.6f %.3f\n", result.examples_per_s, DigestHex(result.values).c_str(),
              DigestHex(result.state).c_str(), result.loss, result.cpu_us);
}

// A trainer process of a cluster without servers: it has one inside.
absl::Status RunTrainerThatServes(const std::vector<std::string>& endpoints) {
  ASSIGN_OR_RETURN(const Job job, MakeJob(absl::GetFlag(FLAGS_mode), 0, static_cast<int>(endpoints.size())));
  const int id = absl::GetFlag(FLAGS_trainer_id), threads = std::max(1, Threads() / 2);
  ThreadPool pool("weir-compute", threads - 1), server_pool("weir-server", threads);
  ASSIGN_OR_RETURN(const Programs programs, TrainerPrograms(job, "", ""));
  ASSIGN_OR_RETURN(Programs server_programs, ServerPrograms(job, id, "", ""));
  ASSIGN_OR_RETURN(const std::unique_ptr<ServerCore> core,
                   ServerCore::Create(MakeServerOptions(job, std::move(server_programs), id, &server_pool)));
  ASSIGN_OR_RETURN(const std::unique_ptr<GrpcServer> server,
                   GrpcServer::Start({.endpoint = endpoints[static_cast<size_t>(id)], .core = core.get()}));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Transport> network,
      MakeGrpcTransport({.endpoints = endpoints, .network = job.config.cluster(), .servers_in_trainers = true}));
  const std::unique_ptr<Transport> transport =
      MakeOwnServerTransport({.own = id, .core = core.get(), .others = network.get(), .pool = &server_pool});
  ASSIGN_OR_RETURN(ProfileRun profile, ProfileRun::Start(absl::StrCat("trainer ", id)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                   Client::Create(MakeClientOptions(job, programs, id, transport.get(), &pool)));
  std::thread ticks([&] {
    for (; !core->Finished(); absl::SleepFor(absl::Milliseconds(100))) core->Tick();
  });
  const absl::StatusOr<RunResult> result = RunTrainer(job, programs, id, client.get(), &pool);
  if (!result.ok()) {
    client->member().ReportFailure(result.status());
    core->ReportFailure(result.status());
  }
  ticks.join();
  server->Shutdown(absl::Seconds(2));
  RETURN_IF_ERROR(result.status());
  profile.Finish();
  PrintResult(*result);
  return absl::OkStatus();
}

// A trainer process of the cluster.
absl::Status RunClusterTrainer() {
  const std::vector<std::string> endpoints = absl::StrSplit(absl::GetFlag(FLAGS_pservers), ',');
  if (absl::GetFlag(FLAGS_mode) == "all_reduce") return RunTrainerThatServes(endpoints);
  ASSIGN_OR_RETURN(const Job job, MakeJob(absl::GetFlag(FLAGS_mode), static_cast<int>(endpoints.size()), 2));
  ThreadPool pool("weir-compute", std::max(1, Threads() / 2) - 1);
  ASSIGN_OR_RETURN(const Programs programs, TrainerPrograms(job, "", ""));
  ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                   MakeGrpcTransport({.endpoints = endpoints, .network = job.config.cluster()}));
  const int id = absl::GetFlag(FLAGS_trainer_id);
  ASSIGN_OR_RETURN(ProfileRun profile, ProfileRun::Start(absl::StrCat("trainer ", id)));
  std::unique_ptr<Transport> network;
  FaultCounters delayed;
  if (const double ms = absl::GetFlag(FLAGS_network_ms); ms > 0) {
    network = std::move(transport);
    transport = std::make_unique<FaultyTransport>(
        network.get(), Clock::Real(), id, FaultOptions{.delay = 1, .max_delay = absl::Milliseconds(ms)}, &delayed);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                   Client::Create(MakeClientOptions(job, programs, id, transport.get(), &pool)));
  ASSIGN_OR_RETURN(const RunResult result, RunTrainer(job, programs, id, client.get(), &pool));
  profile.Finish();
  PrintResult(result);
  return absl::OkStatus();
}

// Starts a program with its output in a file.
pid_t Spawn(const std::vector<std::string>& args, const std::string& output) {
  const pid_t pid = fork();
  CHECK_GE(pid, 0);
  if (pid == 0) {
    CHECK(std::freopen(output.c_str(), "w", stdout) != nullptr);
    CHECK(std::freopen((output + ".err").c_str(), "w", stderr) != nullptr);
    std::vector<char*> argv;
    argv.reserve(args.size() + 1);
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return pid;
}

std::string Contents(const std::string& file) {
  std::ifstream in(file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Processes of a cluster and their files.
class ClusterRun {
 public:
  static absl::StatusOr<ClusterRun> Create(const std::string& self, const std::string& mode) {
    ASSIGN_OR_RETURN(const ProfileFlags profile, ReadProfileFlags());
    return ClusterRun(self, mode, profile);
  }

  // Starts two servers, and waits until they listen.
  absl::Status StartServers() {
    std::ofstream(dir_ + "/job.textproto") << kJob;
    std::string pserver = absl::GetFlag(FLAGS_pserver);
    if (pserver.empty()) {
      pserver = std::filesystem::path(self_).parent_path().parent_path().parent_path() / "pserver" / "pserver";
    }
    for (int i = 0; i < 2; ++i) {
      std::vector<std::string> args = {pserver,
                                       absl::StrCat("--job=", dir_, "/job.textproto"),
                                       absl::StrCat("--server_id=", i),
                                       "--endpoint=127.0.0.1:0",
                                       absl::StrCat("--threads=", std::max(1, Threads() / 2)),
                                       absl::StrCat("--port_file=", dir_, "/port.", i)};
      for (const std::string& setting : SettingsOf(mode_, 2, 2)) args.insert(args.end(), {"--set", setting});
      AddProfileFlags(absl::StrCat("server ", i), &args);
      children_.push_back(Spawn(args, absl::StrCat(dir_, "/pserver.", i)));
      servers_.push_back(children_.back());
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    for (int i = 0; i < 2; ++i) {
      std::string port;
      while ((port = Contents(absl::StrCat(dir_, "/port.", i))).empty()) {
        if (absl::Now() > deadline) {
          return absl::UnavailableError(
              absl::StrCat("server ", i, " did not start:\n", Contents(absl::StrCat(dir_, "/pserver.", i, ".err"))));
        }
        absl::SleepFor(absl::Milliseconds(20));
      }
      endpoints_.push_back(std::string(absl::StripAsciiWhitespace(port)));
    }
    return absl::OkStatus();
  }

  // Draws a port for each of two trainers, each of which has a server inside.
  absl::Status DrawPorts() {
    ASSIGN_OR_RETURN(reserved_, ReservedPorts::Draw(2));
    for (const int port : reserved_.ports()) endpoints_.push_back(absl::StrCat("127.0.0.1:", port));
    return absl::OkStatus();
  }

  void StartTrainers() {
    for (int i = 0; i < 2; ++i) {
      std::vector<std::string> args = {self_,
                                       absl::StrCat("--trainer_id=", i),
                                       absl::StrCat("--pservers=", absl::StrJoin(endpoints_, ",")),
                                       absl::StrCat("--threads=", Threads()),
                                       absl::StrCat("--steps=", absl::GetFlag(FLAGS_steps)),
                                       absl::StrCat("--warmup=", absl::GetFlag(FLAGS_warmup)),
                                       absl::StrCat("--new_rows=", absl::GetFlag(FLAGS_new_rows)),
                                       absl::StrCat("--shared_memory=", absl::GetFlag(FLAGS_shared_memory)),
                                       absl::StrCat("--mode=", mode_),
                                       absl::StrCat("--precision=", absl::GetFlag(FLAGS_precision)),
                                       absl::StrCat("--arithmetic=", absl::GetFlag(FLAGS_arithmetic)),
                                       absl::StrCat("--backend=", absl::GetFlag(FLAGS_backend)),
                                       absl::StrCat("--network_ms=", absl::GetFlag(FLAGS_network_ms))};
      if (i == 0) args.push_back(absl::StrCat("--cpu_of=", absl::StrJoin(servers_, ",")));
      AddProfileFlags(absl::StrCat("trainer ", i), &args);
      children_.push_back(Spawn(args, absl::StrCat(dir_, "/trainer.", i)));
    }
  }

  // Waits until all have ended, and returns what trainer 0 says.
  absl::StatusOr<RunResult> Result() {
    bool failed = false;
    for (const pid_t child : children_) {
      int status = 0;
      waitpid(child, &status, 0);
      failed |= status != 0;
    }
    const std::string out = Contents(dir_ + "/trainer.0"), other = Contents(dir_ + "/trainer.1");
    if (failed || out.rfind("result ", 0) != 0) {
      return absl::InternalError(
          absl::StrCat("a process failed; trainer 0 says:\n", out, Contents(dir_ + "/trainer.0.err")));
    }
    if (!parts_.empty()) {
      ASSIGN_OR_RETURN(const std::string table, MergeProfiles(parts_, profile_.file));
      std::fputs(table.c_str(), stdout);
    }
    const std::vector<std::string> fields = absl::StrSplit(absl::StripAsciiWhitespace(out), ' ');
    const std::vector<std::string> of_other = absl::StrSplit(absl::StripAsciiWhitespace(other), ' ');
    RunResult result;
    double cpu_us = 0;
    CHECK(fields.size() == 6 && of_other.size() == 6 && absl::SimpleAtod(fields[1], &result.examples_per_s) &&
          absl::SimpleAtod(fields[4], &result.loss) && absl::SimpleAtod(fields[5], &result.cpu_us) &&
          absl::SimpleAtod(of_other[5], &cpu_us));
    result.cpu_us += cpu_us;
    result.values = std::strtoull(fields[2].c_str(), nullptr, 16);
    result.state = std::strtoull(fields[3].c_str(), nullptr, 16);
    std::filesystem::remove_all(dir_);
    return result;
  }

 private:
  ClusterRun(std::string self, std::string mode, ProfileFlags profile)
      : self_(std::move(self)), mode_(std::move(mode)), profile_(std::move(profile)) {
    char pattern[] = "/tmp/deepfm_bench.XXXXXX";
    CHECK(mkdtemp(pattern) != nullptr);
    dir_ = pattern;
  }
  void AddProfileFlags(const std::string& process, std::vector<std::string>* args) {
    if (profile_.file.empty()) return;
    parts_.push_back({process, absl::StrCat(dir_, "/", process, ".json")});
    args->insert(args->end(),
                 {"--profile=" + parts_.back().file,
                  absl::StrCat("--profile_steps=", profile_.begin, ":", profile_.end), "--profile_table=false"});
  }

  std::string self_, mode_;
  ProfileFlags profile_;
  std::string dir_;
  ReservedPorts reserved_;
  std::vector<std::string> endpoints_;
  std::vector<pid_t> children_, servers_;
  std::vector<ProfilePart> parts_;
};

absl::StatusOr<RunResult> RunCluster(const std::string& self, const std::string& mode) {
  ASSIGN_OR_RETURN(ClusterRun run, ClusterRun::Create(self, mode));
  RETURN_IF_ERROR(mode == "all_reduce" ? run.DrawPorts() : run.StartServers());
  run.StartTrainers();
  return run.Result();
}

void Print(const char* name, const RunResult& result) {
  std::printf("%-28s %8.0f examples/s   %5.1f us of processor time each   values=%s state=%s\n", name,
              result.examples_per_s, result.cpu_us, DigestHex(result.values).c_str(), DigestHex(result.state).c_str());
  std::fflush(stdout);
}

absl::Status CheckDigests(const std::vector<RunResult>& results) {
  for (const RunResult& r : results) {
    if (r.values != results[0].values || r.state != results[0].state) {
      return absl::InternalError(
          "digests differ: the figures above are of different computations and count for nothing");
    }
  }
  return absl::OkStatus();
}

// In async a trainer counts its own examples; the figure is that of trainer 0.
absl::Status BenchAsync(const std::string& self) {
  std::vector<double> rates[2], losses;
  for (int turn = 0; turn < absl::GetFlag(FLAGS_turns); ++turn) {
    for (const bool ahead : {false, true}) {
      ASSIGN_OR_RETURN(const RunResult result, RunCluster(self, ahead ? "async_ahead" : "async"));
      std::printf("%-28s %8.0f examples/s of one trainer   loss %.6f\n", ahead ? "async, rows ahead" : "async",
                  result.examples_per_s, result.loss);
      std::fflush(stdout);
      rates[ahead].push_back(result.examples_per_s);
      losses.push_back(result.loss);
    }
  }
  for (std::vector<double>& of : rates) std::sort(of.begin(), of.end());
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  // Runs of one job differ by who comes first, and by a few thousandths.
  if (*most - *least > 0.03)
    return absl::InternalError("losses differ: the figures above are of different computations");
  std::printf("ratio of the medians %.3f, of the best %.3f\n",
              rates[1][rates[1].size() / 2] / rates[0][rates[0].size() / 2], rates[1].back() / rates[0].back());
  return absl::OkStatus();
}

absl::Status BenchAhead(const std::string& self) {
  // Without prefetch_rows, and with each of its ways (trainer/loop/overlap_switch.h).
  const char* const modes[] = {"sync", "sync_early", "sync_ahead"};
  std::vector<double> rates[3];
  std::vector<RunResult> results;
  for (int turn = 0; turn < absl::GetFlag(FLAGS_turns); ++turn) {
    for (int m = 0; m < 3; ++m) {
      ASSIGN_OR_RETURN(const RunResult result, RunCluster(self, modes[m]));
      Print(modes[m], result);
      rates[m].push_back(result.examples_per_s);
      results.push_back(result);
    }
  }
  RETURN_IF_ERROR(CheckDigests(results));
  for (std::vector<double>& of : rates) std::sort(of.begin(), of.end());
  const size_t middle = rates[0].size() / 2;
  std::printf("ratios of the medians to sync: early %.3f, ahead %.3f\n", rates[1][middle] / rates[0][middle],
              rates[2][middle] / rates[0][middle]);
  return absl::OkStatus();
}

// Parses the last line that a peer's command prints: "NAME: RATE examples/s".
absl::StatusOr<double> RunPeer(const std::string& command) {
  FILE* const out = popen(command.c_str(), "r");
  if (out == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot run ", command));
  std::string last;
  char line[512];
  while (std::fgets(line, sizeof(line), out) != nullptr) last = line;
  const int status = pclose(out);
  const size_t colon = last.rfind(": ");
  double rate = 0;
  if (status != 0 || colon == std::string::npos || (rate = std::atof(last.c_str() + colon + 2)) <= 0) {
    return absl::InternalError(
        absl::StrCat("'", command, "' ended with ", status, " and says '", last, "'; want 'NAME: RATE examples/s'"));
  }
  std::printf("%s", last.c_str());
  std::fflush(stdout);
  return rate;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// By turns, so that a machine that slows down slows both.
absl::Status BenchPeer(const std::string& self, const std::string& command) {
  std::vector<double> local, cluster, peer, peers;
  uint64_t values = 0;
  for (int turn = 0; turn < absl::GetFlag(FLAGS_turns); ++turn) {
    ASSIGN_OR_RETURN(const RunResult one, RunLocal());
    Print("local", one);
    local.push_back(one.examples_per_s);
    ASSIGN_OR_RETURN(const double theirs, RunPeer(absl::StrCat(command, " --threads=", Threads())));
    peer.push_back(theirs);
    ASSIGN_OR_RETURN(const RunResult four, RunCluster(self, "sync"));
    Print("2 servers + 2 trainers", four);
    cluster.push_back(four.examples_per_s);
    ASSIGN_OR_RETURN(const double of_two, RunPeer(absl::StrCat(command, " --processes=2")));
    peers.push_back(of_two);
    if (turn == 0) values = one.values;
    if (one.values != values || four.values != values) {
      return absl::InternalError(
          "digests differ: the figures above are of different computations and count for nothing");
    }
  }
  std::printf(
      "medians: local %.0f, peer %.0f, ratio %.2f; 2 servers + 2 trainers %.0f, peer with two processes %.0f, ratio "
      "%.2f\n",
      Median(local), Median(peer), Median(local) / Median(peer), Median(cluster), Median(peers),
      Median(cluster) / Median(peers));
  return absl::OkStatus();
}

// By turns: one process, two trainers with all-reduce, and, if there is a command, two processes of a peer.
absl::Status BenchAllReduce(const std::string& self, const std::string& command) {
  std::vector<double> local, trainers, peers;
  for (int turn = 0; turn < absl::GetFlag(FLAGS_turns); ++turn) {
    ASSIGN_OR_RETURN(const RunResult one, RunLocal());
    Print("local", one);
    local.push_back(one.examples_per_s);
    ASSIGN_OR_RETURN(const RunResult two, RunCluster(self, "all_reduce"));
    Print("2 trainers, all-reduce", two);
    trainers.push_back(two.examples_per_s);
    if (one.values != two.values || one.state != two.state) {
      return absl::InternalError(
          "digests differ: the figures above are of different computations and count for nothing");
    }
    if (command.empty()) continue;
    ASSIGN_OR_RETURN(const double theirs, RunPeer(absl::StrCat(command, " --processes=2")));
    peers.push_back(theirs);
  }
  std::printf("medians: 2 trainers %.0f, local %.0f, ratio %.2f", Median(trainers), Median(local),
              Median(trainers) / Median(local));
  if (!peers.empty()) {
    std::printf("; peer with two processes %.0f, ratio %.2f", Median(peers), Median(trainers) / Median(peers));
  }
  std::printf("\n");
  return absl::OkStatus();
}

absl::Status Bench(const std::string& self) {
  ASSIGN_OR_RETURN(const Job job, MakeJob("sync", 1, 1));
  const ProductPrecision precision = PrecisionOnCpu(job.config.train());
  RETURN_IF_ERROR(SetArithmetic(job.config.train().arithmetic(), precision));
  if (absl::GetFlag(FLAGS_trainer_id) >= 0) return RunClusterTrainer();
  const std::string only = absl::GetFlag(FLAGS_only);
  std::printf(
      "DeepFM 26 x 100,000 ids x 16, 13 dense, 400-400-400, batch 2048, lanes 8, %s; %d threads, %s, %d steps\n",
      only == "async" ? "async" : "sync", Threads(), ResolvedArithmetic(precision).c_str(), absl::GetFlag(FLAGS_steps));
  std::fflush(stdout);  // or children say it again
  if (only == "async") return BenchAsync(self);
  if (only == "ahead") return BenchAhead(self);
  if (only == "all_reduce") return BenchAllReduce(self, absl::GetFlag(FLAGS_peer));
  if (const std::string peer = absl::GetFlag(FLAGS_peer); !peer.empty()) return BenchPeer(self, peer);
  std::vector<RunResult> results;
  if (only != "cluster") {
    ASSIGN_OR_RETURN(const RunResult local, RunLocal());
    Print("local", local);
    results.push_back(local);
  }
  if (only != "local") {
    ASSIGN_OR_RETURN(const RunResult cluster, RunCluster(self, "sync"));
    Print("2 servers + 2 trainers", cluster);
    results.push_back(cluster);
  }
  return CheckDigests(results);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  absl::StatusOr<weir::CommandLine> command = weir::ParseCommandLine(argc, argv);
  absl::Status status = command.status();
  if (status.ok()) status = weir::Bench(std::filesystem::canonical("/proc/self/exe"));
  if (!status.ok()) std::fprintf(stderr, "deepfm_bench: %s\n", std::string(status.message()).c_str());
  return weir::ExitCodeOf(status);
}
