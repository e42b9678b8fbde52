// Modes in which the processes of a job work together, with facts of each, so that other code need not know which modes
// exist. A mode is a row of modes.cc; one that changes the rules of the servers also has a file in pserver/consistency.
#ifndef WEIR_TRANSPILER_JOB_MODES_H_
#define WEIR_TRANSPILER_JOB_MODES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"

namespace weir {

// Blocks of a trainer's program that update what it holds itself.
struct OwnUpdates {
  std::vector<int32_t> blocks;
  int lr_block = -1;  // -1: none
};

// Mode that a setting of the job chooses.
struct JobMode {
  using Write = void (*)(const v1::Distribute& distribute, const OwnUpdates& updates, v1::TrainingMode* mode);

  const char* setting;  // in `distribute`
  bool (*chosen)(const v1::Distribute& distribute);
  // Returns the remark of an explanation on it; null: there is none.
  std::string (*note)(const v1::JobConfig& config) = nullptr;
  // Why no norm can cover gradients on several servers: no moment has all of a step. Null: one can.
  const char* against_norms = nullptr;
  // Why the time of a step is not predicted; null: it is.
  const char* against_prediction = nullptr;
  // Write the mode into the main and the startup program of a trainer, and into that of a server. Null: nothing to
  // write.
  Write in_trainer = nullptr, in_startup = nullptr, in_server = nullptr;
};

// Returns the modes that the job has chosen, in a fixed order. The pointers stay valid until the process ends.
std::vector<const JobMode*> ModesOf(const v1::Distribute& distribute);
// Writes the modes of the job into `program`. `where`: the function for its kind, as &JobMode::in_trainer.
void WriteModes(const v1::Distribute& distribute, JobMode::Write JobMode::*where, const OwnUpdates& updates,
                v1::ProgramDesc* program);

// How the steps of trainers relate: all are at the same step, or each is at one of its own.
struct StepFacts {
  const char* name;              // "sync"
  const char* norms_from;        // trainers that bring norms over several servers: "trainer 0"
  bool servers_serve_all;        // servers work on a step of all trainers at once
  bool pulls_name_version;       // a pull waits for the version that it names; else explanations take it to name 0
  bool messages_name_first;      // pushes and answers have the number of examples of the first step
  bool every_server_is_awaited;  // a step ends with an answer of each server, even one without blocks
};
const StepFacts& StepFactsOf(bool sync);

// Returns the trainer inside which a server runs; -1 for a server in a process of its own.
int TrainerAround(const v1::Plan& plan, int server);

// Returns why a resume needs as many trainers as before; null if it does not.
const char* WhyTrainersAreFixed(const v1::JobConfig& config);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_MODES_H_
