// Transpilation of a job to the programs of every process. Pure functions of the job: no clock, no environment, no
// salted hash; equal jobs give equal bytes in every process.
#ifndef WEIR_TRANSPILER_SPLIT_TRANSPILE_H_
#define WEIR_TRANSPILER_SPLIT_TRANSPILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/programs.h"
#include "transpiler/passes/passes.h"

#include "proto/job.pb.h"
namespace weir {

struct Job;

// Returns the single-machine program of the job's model: forward, backward, optimizer ops.
absl::StatusOr<Programs> BuildSingleMachine(const Job& job);

// Returns the programs of a trainer as they are after pass `trace->stop_after`. InvalidArgument if there is no such
// pass.
absl::StatusOr<Programs> TranspileUntil(const Job& job, PassTrace* trace);

class Transpiled {
 public:
  const v1::Plan& plan() const { return single_.main.plan(); }
  // Returns the programs of every trainer: trainers differ only in their id, which is not part of the program.
  const Programs& trainer() const { return trainer_; }
  // Returns a server's programs, verified by themselves and against the trainer's. InvalidArgument unless 0 <= server <
  // plan().servers().
  absl::StatusOr<Programs> Server(int server) const;
  // Returns the programs of what a trainer updates itself (transpiler/passes/make_replica_program.h), verified by
  // themselves. InvalidArgument: trainers of the job update nothing themselves. Requires: 0 <= trainer <
  // plan().trainers().
  absl::StatusOr<Programs> Replica(int trainer) const;

 private:
  friend absl::StatusOr<Transpiled> Transpile(const Job& job, PassTrace* trace);
  std::shared_ptr<const Job> job_;
  Programs single_;
  Programs trainer_;
};

// Transpiles a job: layers to program, backward, optimizer, slice, place, insert communication; verified after each
// pass. The split is verified with all servers' programs, or with server 0's if there are more than kWholeSetServers
// (transpiler/verify/verify_plan.h). Errors carry file:line:column of the job if a setting is at fault.
absl::StatusOr<Transpiled> Transpile(const Job& job, PassTrace* trace = nullptr);

// Returns the forward part of a trainer's main program (prefetch, forward, losses and predictions; no backward, no
// sends, no recv). Evaluation runs it on parameters received before. Works on programs read from disk.
v1::ProgramDesc EvaluationProgram(const v1::ProgramDesc& trainer_main);
// Returns the part of it that a prediction needs: prefetch, and the operators that `prediction` is computed by.
v1::ProgramDesc PredictionProgram(const v1::ProgramDesc& trainer_main, const std::string& prediction);

// Returns the settings that every process of a job must agree on, as text lines "path: value" in a fixed order: the
// plan, and every setting of the job that is marked "same". PlanFingerprint is the xxh3 of this text.
std::string PlanText(const Job& job, const v1::Plan& plan);
// Returns the lines of PlanText that are settings of the job.
std::string SettingsText(const v1::JobConfig& config);
uint64_t PlanFingerprint(std::string_view plan_text);
// Returns "distribute.servers: 2 here, 3 there"; empty if the texts are equal.
std::string FirstDifference(std::string_view here, std::string_view there);

}  // namespace weir

#endif  // WEIR_TRANSPILER_SPLIT_TRANSPILE_H_
