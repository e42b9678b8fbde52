// From a job to one process's programs, verifier included: seconds and memory over parameters, servers and trainers.
// The result is checked before it is timed: every block has one owner and one send.
//
//   bazel run //tests/bench:transpile_bench
//   bazel run //tests/bench:transpile_bench -- profile    the largest alone, ten times
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "framework/base/thread_budget.h"
#include "glog/logging.h"
#include "tests/testing/jobs/wide_job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Most that this process has held so far, in MB.
double PeakMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

Job Read(int layers, int servers, int trainers) {
  absl::StatusOr<Job> job = ParseJob(WideJob(layers, servers, trainers), "wide.textproto", {});
  CHECK(job.ok()) << job.status();
  return *std::move(job);
}

int64_t Sends(const v1::ProgramDesc& main) {
  int64_t sends = 0;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() == "send") sends += FindAttr(op, "blocks")->strings().v_size();
  }
  return sends;
}

void Measure(int layers, int servers, int trainers) {
  const double begin = Seconds();
  const Job job = Read(layers, servers, trainers);
  const double read = Seconds();
  absl::StatusOr<Transpiled> transpiled = Transpile(job);
  CHECK(transpiled.ok()) << transpiled.status();
  const double trainer = Seconds();
  const auto server = transpiled->Server(servers - 1);
  CHECK(server.ok()) << server.status();
  const double end = Seconds();
  CHECK_EQ(Sends(transpiled->trainer().main), transpiled->plan().blocks_size());
  std::printf("%10d %8d %8d %8d %9.3f %10.3f %9.3f %9.0f\n", 2 * layers, servers, trainers,
              transpiled->plan().blocks_size(), read - begin, trainer - read, end - trainer, PeakMegabytes());
}

void Run(bool profile) {
  if (profile) {
    for (int i = 0; i < 10; ++i) Measure(1000, 500, 1000);
    return;
  }
  std::printf("%d cores\n", UsableCores());
  std::printf("%10s %8s %8s %8s %9s %10s %9s %9s\n", "parameters", "servers", "trainers", "blocks", "read s",
              "transpile s", "server s", "peak MB");
  for (const int layers : {125, 250, 500, 1000}) Measure(layers, 500, 1000);
  for (const int servers : {1, 8, 64, 500}) Measure(1000, servers, 1000);
  for (const int trainers : {1, 100, 1000}) Measure(1000, 500, trainers);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Run(argc > 1 && std::strcmp(argv[1], "profile") == 0);
  return 0;
}
