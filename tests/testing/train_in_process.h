// A whole cluster in one process: the real train loop, readers, clients and servers over direct calls, one thread per
// trainer.
#ifndef WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_
#define WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/collective/mesh.h"
#include "proto/plan.pb.h"
#include "pserver/client/client.h"
#include "pserver/protocol/transport.h"
#include "pserver/server/server_core.h"
#include "trainer/loop/train_loop.h"
#include "trainer/predict/importance.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Files as for the flags --program and --startup_program; empty: made from the job.
struct ProgramFiles {
  std::string main, startup;
};

struct InProcessRun {
  std::string job_text;
  // Directory that paths in the job are relative to.
  std::string directory;
  // Overrides as for --set.
  std::vector<std::string> overrides;
  // 0: a server in each trainer, which calls its own without a transport (pserver/inside/own_server.h).
  int servers = 1;
  int trainers = 1;
  // Number of threads of each trainer, and of the servers together.
  int threads = 1;
  bool resume = false;
  // TrainOptions::run, resume_run and plan_start.
  std::string run_id = {};
  bool resume_run = false;
  StartPlanner plan_start = nullptr;
  // Asks for the end of the job, as a signal to trainer 0 does, once it is true; before its work if it is from the
  // beginning. Null: nobody asks.
  const std::atomic<bool>* stop = nullptr;
  // TrainOptions::always_ahead.
  bool always_ahead = false;
  // Returns the device that computes a trainer's lanes; null: the CPU.
  std::function<DeviceMemory*(int trainer)> device = {};
  // Program files of every trainer.
  ProgramFiles trainer_programs = {};
  // Program files by server.
  std::map<int, ProgramFiles> server_programs = {};
  // File for the chief's --digest_log.
  std::string digest_log = {};
  // If not null, receives the status that each trainer ended with, whatever the result is, unless no trainer started.
  std::vector<absl::Status>* trainer_ends = nullptr;
  // If not null, receive likewise each trainer's lines, by trainer, and each server's ServerCore::JobStatus after all
  // trainers have ended, by server.
  std::vector<std::string>* outputs = nullptr;
  std::vector<absl::Status>* server_ends = nullptr;
  // If trainer 0 ends with an error, another process takes its place as soon as servers let it. Not with servers = 0.
  bool replace_trainer_0 = false;
  // Makes a transport between a client and the servers that are not its own; empty: none. Called again for the process
  // that takes the place of trainer 0. The run owns the results.
  std::function<std::unique_ptr<Transport>(int trainer, Transport* servers)> between = {};
  // Returns the host of a trainer, where trainers may merge (distribute.merge_hosts); empty: none merges.
  std::function<std::string(int trainer)> host = {};
  // With checkpoint.per_host: returns each process's own directory; the trainers' has server -1. Empty: checkpoint.dir
  // for all.
  std::function<std::string(int server)> checkpoint_dir = {};
  // Seed of short delays between trainers that add gradients among themselves (LocalMeshes); 0: none.
  uint64_t shuffle = 0;
  // Returns the mesh of a trainer that adds gradients with others, instead of LocalMeshes; empty: LocalMeshes. Called
  // on the trainer's thread. The caller keeps the mesh until the run has ended.
  std::function<absl::StatusOr<Mesh*>(int trainer)> mesh = {};
  // Planted faults of every server, and the order of its dense sums (ServerOptions).
  OnRepeat on_repeat = {};
  const DenseSum* dense_sum = nullptr;
  // Edits programs before they run; may be empty. Called for the trainers' programs with server -1.
  std::function<void(int server, Programs* programs)> edit = {};
  // Edits the job and the programs of single trainers, so that they differ from the others; may be empty.
  std::function<void(int trainer, Job* job, Programs* programs)> edit_trainer = {};
};

struct InProcessResult {
  TrainSummary summary;  // the chief's
  // Lines of the chief that begin with "digest ".
  std::vector<std::string> digests;
  std::string output;  // all of the chief's lines
  v1::Plan plan;
  std::vector<Client::Counters> counters;                       // by trainer
  std::vector<TrainSummary> summaries;                          // by trainer
  std::vector<std::map<std::string, int64_t>> server_counters;  // ServerCore::counters, by server
};

// Runs the training. Returns the error of the lowest trainer that failed.
absl::StatusOr<InProcessResult> TrainInProcess(const InProcessRun& run);

// Runs --role=predict on every trainer of the cluster, whose checkpoint.dir is `checkpoints`. Returns the number of
// examples scored.
struct InProcessPrediction {
  std::string checkpoints;
  std::string input;  // empty: data.eval
  std::string output;
  std::vector<std::string> carry = {};
};
absl::StatusOr<int64_t> PredictInProcess(const InProcessRun& run, const InProcessPrediction& prediction);

// Runs --role=importance likewise: `options` without its trainers' part of `scoring`, which has the checkpoint and the
// input. Returns what the chief has found.
absl::StatusOr<v1::Importance> ImportanceInProcess(const InProcessRun& run, const ImportanceOptions& options);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_
