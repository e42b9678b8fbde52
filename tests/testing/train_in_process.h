// A whole cluster in one process: the real train loop, readers, clients and servers over direct calls, one thread per
// trainer.
#ifndef WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_
#define WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "pserver/client/client.h"
#include "pserver/protocol/transport.h"
#include "pserver/server/server_core.h"
#include "trainer/train_loop.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// As the flags --program and --startup_program; empty: made from the job.
struct ProgramFiles {
  std::string main, startup;
};

struct InProcessRun {
  std::string job_text;
  // Paths in the job are relative to it.
  std::string directory;
  // As --set.
  std::vector<std::string> overrides;
  int servers = 1;
  int trainers = 1;
  // Of each trainer, and of the servers together.
  int threads = 1;
  bool resume = false;
  // Where each trainer's lanes compute; null: on the CPU.
  std::function<DeviceMemory*(int trainer)> device = {};
  // Of every trainer.
  ProgramFiles trainer_programs = {};
  // By server.
  std::map<int, ProgramFiles> server_programs = {};
  // The chief's --digest_log.
  std::string digest_log = {};
  // How each trainer ended, if not null; filled in whatever the result is, but not when no trainer started.
  std::vector<absl::Status>* trainer_ends = nullptr;
  // By trainer: its lines, and by server: ServerCore::JobStatus when all trainers have ended. In the same way.
  std::vector<std::string>* outputs = nullptr;
  std::vector<absl::Status>* server_ends = nullptr;
  // When trainer 0 ends with an error another process takes its place, as soon as servers let it.
  bool replace_trainer_0 = false;
  // Put between each client and the servers; empty: nothing. Asked again for what takes the place of trainer 0. Owned
  // by the run.
  std::function<std::unique_ptr<Transport>(int trainer, Transport* servers)> between = {};
  // With checkpoint.per_host: each process's own directory; the trainers' has server -1. Empty: checkpoint.dir for all.
  std::function<std::string(int server)> checkpoint_dir = {};
  // Of every server.
  PlantedFaults planted = {};
  // Programs are edited before they run; empty: not. The trainers' has server -1.
  std::function<void(int server, Programs* programs)> edit = {};
  // What one trainer has otherwise than the others: its job, and its programs. Empty: nothing.
  std::function<void(int trainer, Job* job, Programs* programs)> edit_trainer = {};
};

struct InProcessResult {
  TrainSummary summary;  // the chief's
  // The chief's lines that begin with "digest ".
  std::vector<std::string> digests;
  std::string output;  // all of the chief's lines
  v1::Plan plan;
  std::vector<Client::Counters> counters;                       // by trainer
  std::vector<TrainSummary> summaries;                          // by trainer
  std::vector<std::map<std::string, int64_t>> server_counters;  // ServerCore::counters, by server
};

// The first error of any trainer, by id.
absl::StatusOr<InProcessResult> TrainInProcess(const InProcessRun& run);

// --role=predict on every trainer of the cluster, whose checkpoint.dir is `checkpoints`. Number of examples scored.
struct InProcessPrediction {
  std::string checkpoints;
  std::string input;  // empty: data.eval
  std::string output;
};
absl::StatusOr<int64_t> PredictInProcess(const InProcessRun& run, const InProcessPrediction& prediction);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_
