// From a job to the programs of every process. Pure functions of the job: no clock, no environment, no salted hash; the
// same job gives the same bytes in every process.
#ifndef WEIR_TRANSPILER_TRANSPILE_H_
#define WEIR_TRANSPILER_TRANSPILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "transpiler/job.h"
#include "transpiler/passes.h"
#include "transpiler/programs.h"

namespace weir {

// The single-machine program of the job's model: forward, backward, optimizer ops.
absl::StatusOr<Programs> BuildSingleMachine(const Job& job);

// The programs of a trainer as they are behind pass `trace->stop_after`. InvalidArgument when there is no such pass.
absl::StatusOr<Programs> TranspileUntil(const Job& job, PassTrace* trace);

class Transpiled {
 public:
  const v1::Plan& plan() const { return single_.main.plan(); }
  // Trainers differ in nothing but their id, which is no part of the program.
  const Programs& trainer() const { return trainer_; }
  // InvalidArgument unless 0 <= server < plan().servers(). Verified, by itself and against the trainer's.
  absl::StatusOr<Programs> Server(int server) const;

 private:
  friend absl::StatusOr<Transpiled> Transpile(const Job& job, PassTrace* trace);
  Job job_;
  Programs single_;
  Programs trainer_;
};

// Layers to program, backward, optimizer, slice, place, insert communication; verified after each pass. The split is
// verified with all servers' programs, or with server 0's when there are more than kWholeSetServers
// (transpiler/verify_plan.h). Errors carry file:line:column of the job where a setting is at fault.
absl::StatusOr<Transpiled> Transpile(const Job& job, PassTrace* trace = nullptr);

// Forward part of a trainer's main program (prefetch, forward, losses and predictions; no backward, no sends, no recv):
// what evaluation and prediction run on parameters received before. Works on programs read from disk.
v1::ProgramDesc EvaluationProgram(const v1::ProgramDesc& trainer_main);

// What every process of a job must agree on, as text lines "path: value" in a fixed order: the plan, and every setting
// of the job that is marked "same". The fingerprint is xxh3 of it.
std::string PlanText(const Job& job, const v1::Plan& plan);
// Its lines that are settings of the job.
std::string SettingsText(const v1::JobConfig& config);
uint64_t PlanFingerprint(std::string_view plan_text);
// "distribute.servers: 2 here, 3 there"; empty when equal.
std::string FirstDifference(std::string_view here, std::string_view there);

}  // namespace weir

#endif  // WEIR_TRANSPILER_TRANSPILE_H_
