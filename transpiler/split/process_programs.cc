#include "transpiler/split/process_programs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/program_text.h"
#include "framework/graph/training_mode.h"
#include "framework/graph/verifier.h"
#include "transpiler/job/job.h"
#include "transpiler/split/transpile.h"
#include "transpiler/verify/verify_plan.h"

namespace weir {
namespace {

absl::Status InFile(const std::string& file, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(file, ": ", status.message()));
}

absl::StatusOr<v1::ProgramDesc> ReadVerified(const Job& job, const v1::Plan& plan, const std::string& file) {
  ASSIGN_OR_RETURN(v1::ProgramDesc program, ReadProgramFile(file));
  RETURN_IF_ERROR(InFile(file, VerifyProgram(program)));
  if (!program.has_plan()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": has no plan; processes run programs that transpile has written for them"));
  }
  const std::string difference = FirstDifference(PlanText(job, program.plan()), PlanText(job, plan));
  if (!difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": its plan is not the job's ('here' is the file): ", difference));
  }
  return program;
}

// Checks that a program was made for the job's mode (framework/graph/training_mode.h), on which all processes must
// agree.
absl::Status CheckMode(const std::string& file, const v1::ProgramDesc& read, const v1::ProgramDesc& made) {
  const v1::TrainingMode theirs = ModeOf(read), ours = ModeOf(made);
  for (const auto& [what, of_file, of_job] :
       {std::tuple{"train.accumulate_steps", int64_t{theirs.accumulate()}, int64_t{ours.accumulate()}},
        std::tuple{"train.workers", int64_t{theirs.workers()}, int64_t{ours.workers()}},
        std::tuple{"distribute.bounded_staleness.steps", theirs.staleness(), ours.staleness()},
        std::tuple{"distribute.async_tables", int64_t{theirs.async_tables()}, int64_t{ours.async_tables()}},
        std::tuple{"distribute.dense (ALL_REDUCE)", int64_t{theirs.has_all_reduce()}, int64_t{ours.has_all_reduce()}},
        std::tuple{"distribute.local_sgd.every_steps", theirs.all_reduce().local_steps(),
                   ours.all_reduce().local_steps()},
        std::tuple{"distribute.reproducible (false: sums in any order)", int64_t{theirs.all_reduce().any_order()},
                   int64_t{ours.all_reduce().any_order()}},
        std::tuple{"distribute.all_reduce.compression", int64_t{theirs.all_reduce().compression()},
                   int64_t{ours.all_reduce().compression()}},
        std::tuple{"distribute.all_reduce.reduction (ADASUM)", int64_t{theirs.all_reduce().adasum()},
                   int64_t{ours.all_reduce().adasum()}},
        std::tuple{"distribute.update (SHARDED)", int64_t{theirs.all_reduce().sharded()},
                   int64_t{ours.all_reduce().sharded()}},
        std::tuple{"distribute.geo.every_steps", theirs.geo().every_steps(), ours.geo().every_steps()}}) {
    if (of_file == of_job) continue;
    return absl::InvalidArgumentError(absl::StrCat(file, ": was written for another mode: ", what, " is ", of_file,
                                                   " in it and ", of_job,
                                                   " in the job; write it again with transpile"));
  }
  return absl::OkStatus();
}

// Replaces the made programs by those of the files that are given.
absl::Status Overlay(const Job& job, const v1::Plan& plan, const std::string& main_file,
                     const std::string& startup_file, Programs* programs) {
  if (!main_file.empty()) {
    ASSIGN_OR_RETURN(v1::ProgramDesc read, ReadVerified(job, plan, main_file));
    RETURN_IF_ERROR(CheckMode(main_file, read, programs->main));
    programs->main = std::move(read);
  }
  if (!startup_file.empty()) {
    ASSIGN_OR_RETURN(programs->startup, ReadVerified(job, plan, startup_file));
  }
  return absl::OkStatus();
}

// Returns the file that most likely has the mistake.
std::string Which(const std::string& main_file, const std::string& startup_file, const std::string& made) {
  if (!main_file.empty()) return main_file;
  return startup_file.empty() ? made : startup_file;
}

}  // namespace

absl::StatusOr<Programs> TrainerPrograms(const Job& job, const std::string& main_file,
                                         const std::string& startup_file) {
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job));
  Programs programs = transpiled.trainer();
  RETURN_IF_ERROR(Overlay(job, transpiled.plan(), main_file, startup_file, &programs));
  const auto verify = [&]() -> absl::Status {
    RETURN_IF_ERROR(VerifyTrainer(programs));
    for (int s = 0; s < (transpiled.plan().servers() <= kWholeSetServers ? transpiled.plan().servers() : 1); ++s) {
      ASSIGN_OR_RETURN(const Programs server, transpiled.Server(s));
      const ServerSide side{.index = s, .programs = &server};
      RETURN_IF_ERROR(VerifySet(programs, absl::MakeConstSpan(&side, 1)));
    }
    return absl::OkStatus();
  };
  if (main_file.empty() && startup_file.empty()) return programs;  // verified as they were made
  RETURN_IF_ERROR(InFile(Which(main_file, startup_file, "trainer program"), verify()));
  return programs;
}

void PlaceTablesOnDisk(const Job& job, v1::ProgramDesc* main) {
  for (const v1::Table& table : job.config.table()) {
    for (v1::VarDesc& var : *main->mutable_blocks(0)->mutable_vars()) {
      if (table.has_disk() && var.name() == table.name()) var.mutable_disk()->set_dir(job.Path(table.disk().dir()));
    }
  }
}

absl::StatusOr<Programs> ServerPrograms(const Job& job, int server, const std::string& main_file,
                                        const std::string& startup_file) {
  ASSIGN_OR_RETURN(const Transpiled transpiled, Transpile(job));
  ASSIGN_OR_RETURN(Programs programs, transpiled.Server(server));
  RETURN_IF_ERROR(Overlay(job, transpiled.plan(), main_file, startup_file, &programs));
  const auto verify = [&]() -> absl::Status {
    RETURN_IF_ERROR(VerifyServer(programs, server));
    const ServerSide side{.index = server, .programs = &programs};
    return VerifySet(transpiled.trainer(), absl::MakeConstSpan(&side, 1));
  };
  if (main_file.empty() && startup_file.empty()) return programs;
  RETURN_IF_ERROR(InFile(Which(main_file, startup_file, "server program"), verify()));
  return programs;
}

}  // namespace weir
