// One trainer of a group as a process, for group_faults_test.cc: joins the server, forms the group, runs operations,
// and obeys a planted fault. Prints "fault" when it is about to obey, and "end <text>" when an operation has failed;
// then it ends as a trainer does. Exit codes are those of every program.

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "pserver/client/client.h"
#include "pserver/network/grpc_transport.h"
#include "pserver/trainer_group.h"
#include "tests/pserver/group_job.h"

ABSL_FLAG(std::string, server, "", "endpoint");
ABSL_FLAG(std::string, backend, "WIRE", "WIRE or GLOO");
ABSL_FLAG(int, rank, 0, "this one");
ABSL_FLAG(int, ranks, 3, "all");
ABSL_FLAG(int, victim, 1, "rank that obeys");
ABSL_FLAG(std::string, action, "", "KILL or STOP; empty: none");
ABSL_FLAG(std::string, moment, "",
          "of the fault: joined (no group yet), before, during or after the large operation, small (among many small "
          "ones)");

namespace weir {
namespace {

constexpr int64_t kLarge = int64_t{16} << 20;  // floats
constexpr int kSmall = 300;

void Obey(const std::string& moment) {
  if (absl::GetFlag(FLAGS_moment) != moment || absl::GetFlag(FLAGS_rank) != absl::GetFlag(FLAGS_victim)) return;
  const std::string action = absl::GetFlag(FLAGS_action);
  if (action.empty()) return;
  std::printf("fault\n");
  std::fflush(stdout);
  ::raise(action == "KILL" ? SIGKILL : SIGSTOP);
}

// Sums values over all ranks. The victim of a fault `during` it obeys when the first results of another rank are there.
absl::Status RunLarge(Collective* collective) {
  const int ranks = collective->size();
  std::vector<float> values(static_cast<size_t>(kLarge), static_cast<float>(collective->rank() + 1));
  std::vector<float> out(values.size(), -1);
  const Collective::PendingPtr pending = collective->AllReduce(
      {.name = "large", .shape = {kLarge}, .addends = collective->Own(values.data())}, out.data());
  if (absl::GetFlag(FLAGS_moment) == "during" && collective->rank() == absl::GetFlag(FLAGS_victim)) {
    // First element of the slice of another rank.
    const int64_t at = collective->rank() == 0 ? kLarge - kLarge / ranks + 64 : 0;
    const std::atomic_ref<float> first(out[static_cast<size_t>(at)]);
    while (first.load(std::memory_order_relaxed) == -1) std::this_thread::yield();
    Obey("during");
  }
  RETURN_IF_ERROR(pending->Wait());
  const auto sum = static_cast<float>((ranks * (ranks + 1)) >> 1);
  for (const float each : out) {
    if (each != sum) return absl::InternalError(absl::StrCat("a sum is ", each, ", expected ", sum));
  }
  return absl::OkStatus();
}

absl::Status RunSmall(Collective* collective) {
  std::vector<std::vector<int64_t>> values;
  for (int i = 0; i < kSmall; ++i) values.emplace_back(static_cast<size_t>(i % 40), collective->rank() + i);
  std::vector<Collective::PendingPtr> pending;
  for (int i = 0; i < kSmall; ++i) {
    std::vector<int64_t>& of = values[static_cast<size_t>(i)];
    pending.push_back(collective->AllReduce({.name = absl::StrCat("small.", i),
                                             .dtype = v1::INT64,
                                             .shape = {i % 40},
                                             .addends = collective->Own(of.data())},
                                            of.data()));
    // Some have ended, some are under way, and some have not begun.
    if (i == kSmall / 2) (void)pending[kSmall / 4]->Wait();
    if (i == kSmall / 2) Obey("small");
  }
  // All of them, since they use memory of this function.
  absl::Status status;
  for (const Collective::PendingPtr& each : pending) status.Update(each->Wait());
  return status;
}

absl::Status RunOperations(Collective* collective) {
  RETURN_IF_ERROR(collective->Barrier("begin")->Wait());
  if (absl::GetFlag(FLAGS_moment) == "small") RETURN_IF_ERROR(RunSmall(collective));
  Obey("before");
  RETURN_IF_ERROR(RunLarge(collective));
  Obey("after");
  RETURN_IF_ERROR(collective->Barrier("end")->Wait());
  return absl::OkStatus();
}

absl::Status FormAndRun(Client* client, std::unique_ptr<TrainerGroup>* group) {
  RETURN_IF_ERROR(client->Join());
  // All have joined.
  RETURN_IF_ERROR(client->board().Exchange("joined", "").status());
  Obey("joined");
  v1::Comm settings;
  settings.set_backend(absl::GetFlag(FLAGS_backend) == "WIRE" ? v1::Comm::WIRE : v1::Comm::GLOO);
  ASSIGN_OR_RETURN(*group, TrainerGroup::Form({.client = client,
                                               .trainer_id = absl::GetFlag(FLAGS_rank),
                                               .trainers = absl::GetFlag(FLAGS_ranks),
                                               .host = "127.0.0.1",
                                               .settings = settings,
                                               .deadlines = GroupDeadlines()}));
  return RunOperations((*group)->collective());
}

// Ends as a trainer does (trainer/trainer_main.cc).
absl::Status Run(Client* client) {
  std::unique_ptr<TrainerGroup> group;
  const absl::Status status = FormAndRun(client, &group);
  if (status.ok()) return client->member().Done();
  std::printf("end %s\n", std::string(status.message()).c_str());
  std::fflush(stdout);
  const absl::Status job = client->member().JobStatus();
  if (group != nullptr) group->collective()->Abort(status);
  client->member().ReportFailure(status);
  return job.ok() ? status : job;
}

absl::Status Main() {
  ThreadPool pool("compute", 0);
  ASSIGN_OR_RETURN(const std::unique_ptr<Transport> transport,
                   MakeGrpcTransport({.endpoints = {absl::GetFlag(FLAGS_server)}}));
  const HandMadeJob job = GroupJob(absl::GetFlag(FLAGS_ranks));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                   Client::Create({.plan = job.Plan(),
                                   .trainer_id = absl::GetFlag(FLAGS_rank),
                                   .job_name = kGroupJob,
                                   .plan_text = job.PlanText(),
                                   .deadlines = GroupDeadlines(),
                                   .process = absl::StrCat("127.0.0.1:", ::getpid()),
                                   .arithmetic = kGroupArithmetic,
                                   .transport = transport.get(),
                                   .clock = Clock::Real(),
                                   .pool = &pool}));
  return Run(client.get());
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = weir::Main();
  if (!status.ok()) std::fprintf(stderr, "group_rank: %s\n", std::string(status.message()).c_str());
  return weir::ExitCodeOf(status);
}
