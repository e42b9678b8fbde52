// Implementation of `transpile --verify`: runs the unsplit program and the whole split set side by side in one process,
// on the same batches.
//
// The split set is what a cluster runs: the programs of every server and every trainer, the real servers and clients,
// over direct calls instead of a network. After each step every parameter, its optimizer state and every table on the
// servers, and every parameter that a trainer has received, must have the bits of the unsplit run
// (trainer/verify/unsplit_run.h).
#ifndef WEIR_TRAINER_VERIFY_VERIFY_SPLIT_H_
#define WEIR_TRAINER_VERIFY_VERIFY_SPLIT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "pserver/inside/in_process.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

struct VerifyOptions {
  int64_t steps = 10;
  // Uses generated batches even if the job has data.
  bool made_up = false;
  // Total number of threads.
  int threads = 1;
  // Lets tests plant defects: called before the run with each server's programs, and with the trainers' programs and
  // server -1.
  std::function<void(int server, Programs* programs)> edit = {};
  // Passed to every server (ServerOptions::dense_sum).
  const DenseSum* dense_sum = nullptr;
};

struct VerifyReport {
  bool equal = false;
  // Number of steps compared.
  int64_t steps = 0;
  // "generated batches" or "the job's data".
  std::string data;
  // First difference: the step after which it was seen (0: before the first step) and the variable, "" if the split set
  // stopped with an error that names none.
  int64_t step = 0;
  std::string variable;
  // Text for the user, one line or more: "equal after each of 10 steps ...", or the step, every variable that differs,
  // and the rows.
  std::string text;
};

// Compares the two runs. InvalidArgument for a job whose result depends on its cluster: not sync, average BY_TRAINERS,
// async_tables.
absl::StatusOr<VerifyReport> VerifySplit(const Job& job, const VerifyOptions& options);

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_VERIFY_SPLIT_H_
