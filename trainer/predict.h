// Scores files with a trained model: one line per example, in input order, on any number of trainers.
#ifndef WEIR_TRAINER_PREDICT_H_
#define WEIR_TRAINER_PREDICT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/device_memory.h"
#include "pserver/client/client.h"
#include "transpiler/job.h"
#include "transpiler/transpile.h"

namespace weir {

struct PredictOptions {
  // All borrowed for the call.
  const Job* job = nullptr;
  const Programs* programs = nullptr;
  Client* client = nullptr;  // joined
  ThreadPool* pool = nullptr;
  int trainer_id = 0;
  // Where lanes compute; null: on the CPU.
  DeviceMemory* device = nullptr;
  int reader_threads = 0;
  // A checkpoint directory (newest complete one) or a step's directory. The servers read theirs,
  // <checkpoint.dir>/<step>, and refuse when that is another one.
  std::string checkpoint;
  // Files to score, as a pattern relative to the working directory; empty: data.eval of the job. Labels may be empty.
  std::string input;
  // Written by the chief, whole or not at all. A line holds the prediction of the first loss: one number, or one per
  // class separated by blanks; nine significant digits, so that float32 comes back to the bit. A line of the input that
  // does not parse (data.bad_line: SKIP; else it is an error) has nan for each.
  std::string output;
};

// Number of examples scored, over all trainers. Every trainer of the job calls it.
absl::StatusOr<int64_t> RunPredict(const PredictOptions& options);

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_H_
