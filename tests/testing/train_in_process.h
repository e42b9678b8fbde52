// A whole cluster in one process: the real train loop, readers, clients and servers over direct calls, one thread per trainer.
#ifndef WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_
#define WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "pserver/client.h"
#include "pserver/transport.h"
#include "trainer/train_loop.h"
#include "transpiler/programs.h"

namespace weir {

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
  // Put between each client and the servers; empty: nothing. Owned by the run.
  std::function<std::unique_ptr<Transport>(int trainer, Transport* servers)> between = {};
  // Programs are edited before they run; empty: not. The trainers' has server -1.
  std::function<void(int server, Programs* programs)> edit = {};
};

struct InProcessResult {
  TrainSummary summary;  // the chief's
  // The chief's lines that begin with "digest ".
  std::vector<std::string> digests;
  std::string output;  // all of the chief's lines
  v1::Plan plan;
  std::vector<Client::Counters> counters;  // by trainer
};

// The first error of any trainer, by id.
absl::StatusOr<InProcessResult> TrainInProcess(const InProcessRun& run);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_TRAIN_IN_PROCESS_H_
