#include "pserver/cluster/launched.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Environment Of(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Variables With(Variables some, const Variables& more) {
  for (const auto& [name, value] : more) some[name] = value;
  return some;
}

// What torchrun sets for one of three workers on two nodes.
const Variables& Torchrun() {
  static const auto* const variables = new Variables{{"RANK", "2"},
                                                     {"WORLD_SIZE", "3"},
                                                     {"LOCAL_RANK", "0"},
                                                     {"LOCAL_WORLD_SIZE", "1"},
                                                     {"GROUP_RANK", "1"},
                                                     {"GROUP_WORLD_SIZE", "2"},
                                                     {"ROLE_RANK", "2"},
                                                     {"ROLE_WORLD_SIZE", "3"},
                                                     {"ROLE_NAME", "default"},
                                                     {"MASTER_ADDR", "127.0.0.1"},
                                                     {"MASTER_PORT", "29500"},
                                                     {"TORCHELASTIC_RUN_ID", "run7"},
                                                     {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                     {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                                     {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  return *variables;
}

const Variables& OpenMpi() {
  static const auto* const variables =
      new Variables{{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "3"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                    {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"OMPI_UNIVERSE_SIZE", "3"},
                    {"PMIX_NAMESPACE", "1234567"},       {"PMIX_RANK", "1"}};
  return *variables;
}

// What srun sets for task 1 of 2, beside what sbatch has set.
const Variables& Srun() {
  static const auto* const variables = new Variables{
      {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"},  {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "1"}, {"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "3"},        {"SLURM_JOB_NODELIST", "n[0-1]"}};
  return *variables;
}

// Describes what was read: "torchrun 2/3 of run7"; or returns the error.
std::string Line(const absl::StatusOr<Launched>& launched) {
  if (!launched.ok()) return std::string(launched.status().message());
  const auto value = [](const MaybeSourced& of) { return of.has_value() ? of->value : "-"; };
  std::string line = absl::StrCat(launched->launcher.empty() ? "nobody" : launched->launcher, " ",
                                  value(launched->rank), "/", value(launched->size));
  if (!launched->run_id.empty()) absl::StrAppend(&line, " of ", launched->run_id);
  if (launched->agent_has_master_port) line += " agent";
  if (launched->in_batch_shell) line += " batch";
  if (launched->several_programs) line += " several";
  if (launched->program.has_value()) {
    absl::StrAppend(&line, " program ", launched->program->first_rank, "+", launched->program->size);
  }
  return line;
}

struct Case {
  std::string name;
  Variables variables;
  std::string expected;
};

TEST(LaunchedTest, TheInnermostLauncherCounts) {
  const Variables batch = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "17"}};
  // A task of srun of one mpirun daemon or torchrun agent for each of two nodes.
  const Variables daemon = With(Srun(), {{"SLURM_PROCID", "0"}});
  const Variables shell = With(Srun(), {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "1"}});
  const std::vector<Case> cases = {
      {"nobody", {}, "nobody -/-"},
      {"torchrun", Torchrun(), "torchrun 2/3 of run7:29500 agent"},
      {"a script", {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}, "nobody 1/2"},
      {"a rank alone", {{"RANK", "1"}}, "nobody 1/-"},
      {"mpirun", OpenMpi(), "Open MPI 1/3 of 1234567"},
      {"srun", Srun(), "Slurm 1/2 of 17.3"},
      {"srun, of old", With(Srun(), {{"SLURM_STEP_NUM_TASKS", ""}}), "Slurm 1/2 of 17.3"},
      {"srun of two programs", With(Srun(), {{"SLURM_HET_SIZE", "2"}}), "Slurm 1/2 of 17.3 several"},
      {"the step counts, not the job", With(Srun(), {{"SLURM_NTASKS", "8"}}), "Slurm 1/2 of 17.3"},
      {"the shell of an sbatch script", batch, "nobody -/- batch"},
      {"salloc", {{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "17"}}, "nobody -/-"},
      {"a batch step by name", With(batch, {{"SLURM_STEP_ID", "batch"}}), "nobody -/- batch"},
      {"an interactive shell of srun", shell, "nobody -/-"},
      {"torchrun in an sbatch script", With(batch, Torchrun()), "torchrun 2/3 of run7:29500 agent"},
      {"torchrun by srun, once a node", With(daemon, Torchrun()), "torchrun 2/3 of run7:29500 agent"},
      {"torchrun by mpirun, once a node", With(OpenMpi(), Torchrun()), "torchrun 2/3 of run7:29500 agent"},
      {"mpirun by srun's daemons", With(daemon, OpenMpi()), "Open MPI 1/3 of 1234567"},
      {"an mpirun of one", With(Srun(), {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), "nobody -/-"},
      {"a script that says the same", With(OpenMpi(), {{"RANK", "1"}, {"WORLD_SIZE", "3"}}), "Open MPI 1/3 of 1234567"},
      {"a script that says half", With(Srun(), {{"WORLD_SIZE", "2"}}), "Slurm 1/2 of 17.3"},
      {"the name of a run alone", {{"TORCHELASTIC_RUN_ID", "x"}}, "nobody -/-"},
  };
  for (const Case& c : cases) EXPECT_EQ(Line(ReadLaunched(Of(c.variables))), c.expected) << c.name;
}

TEST(LaunchedTest, ProgramsOfOneMpirunAreToldApart) {
  // As Open MPI 4.1.4 sets them.
  const Variables two = {{"OMPI_FIRST_RANKS", "0 0"}, {"OMPI_APP_CTX_NUM_PROCS", "1 2"}};
  EXPECT_EQ(Line(ReadLaunched(Of(With(OpenMpi(), two)))), "Open MPI 1/3 of 1234567 program 1+2");
  const Variables first = With(two, {{"OMPI_COMM_WORLD_RANK", "0"}});
  EXPECT_EQ(Line(ReadLaunched(Of(With(OpenMpi(), first)))), "Open MPI 0/3 of 1234567 program 0+1");
  const Variables last = With(two, {{"OMPI_COMM_WORLD_RANK", "2"}});
  EXPECT_EQ(Line(ReadLaunched(Of(With(OpenMpi(), last)))), "Open MPI 2/3 of 1234567 program 1+2");
  for (const char* sizes : {"3", "1 0", "1 x", "1 -1", "-1 2", "4000000000 1", ""}) {
    const Variables other = {{"OMPI_APP_CTX_NUM_PROCS", sizes}};
    EXPECT_EQ(Line(ReadLaunched(Of(With(OpenMpi(), other)))), "Open MPI 1/3 of 1234567");
  }
}

TEST(LaunchedTest, WhatContradictsItselfIsNamedWithBothValues) {
  const std::vector<Case> cases = {
      {"a rank that is none", {{"RANK", "x"}}, "RANK is 'x', must be the rank of this process"},
      {"a rank below 0", {{"RANK", "-1"}}, "RANK is '-1', must be the rank"},
      {"nobody", {{"WORLD_SIZE", "0"}}, "WORLD_SIZE is 0, must be at least 1"},
      {"a number that is none", {{"WORLD_SIZE", "two"}}, "WORLD_SIZE is 'two', must be the number of processes"},
      {"past the end", {{"RANK", "3"}, {"WORLD_SIZE", "3"}}, "RANK is 3 but WORLD_SIZE is 3: ranks are 0 to 2"},
      {"past mpirun's end", With(OpenMpi(), {{"OMPI_COMM_WORLD_RANK", "3"}}),
       "OMPI_COMM_WORLD_RANK is 3 but OMPI_COMM_WORLD_SIZE is 3"},
      {"one rank for all tasks", With(Srun(), {{"RANK", "0"}}), "RANK is 0 but SLURM_PROCID is 1: unset"},
      {"the number of nodes", With(OpenMpi(), {{"WORLD_SIZE", "2"}}),
       "WORLD_SIZE is 2 but OMPI_COMM_WORLD_SIZE is 3: unset"},
      {"srun's number", With(Srun(), {{"WORLD_SIZE", "4"}}), "WORLD_SIZE is 4 but SLURM_STEP_NUM_TASKS is 2"},
      {"no number by srun", With(Srun(), {{"SLURM_STEP_NUM_TASKS", "x"}}), "SLURM_STEP_NUM_TASKS is 'x'"},
  };
  for (const Case& c : cases) {
    const absl::StatusOr<Launched> launched = ReadLaunched(Of(c.variables));
    EXPECT_EQ(launched.status().code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(Line(launched), HasSubstr(c.expected)) << c.name;
  }
}

TEST(LaunchedTest, ThePlaceOnTheMachine) {
  const std::vector<Case> cases = {
      {"none", {}, "-"},
      {"torchrun", With(OpenMpi(), Torchrun()), "LOCAL_RANK=0"},
      {"Fluid", {{"FLAGS_selected_gpus", "3"}}, "FLAGS_selected_gpus=3"},
      {"Fluid with many", {{"FLAGS_selected_gpus", "0,1"}}, "-"},
      {"mpirun", OpenMpi(), "OMPI_COMM_WORLD_LOCAL_RANK=1"},
      {"srun", Srun(), "SLURM_LOCALID=0"},
      {"the shell of an sbatch script", {{"SLURM_LOCALID", "0"}, {"SLURM_PROCID", "0"}}, "-"},
  };
  for (const Case& c : cases) {
    const MaybeSourced place = ReadLocalRank(Of(c.variables));
    EXPECT_EQ(place.has_value() ? absl::StrCat(place->source, "=", place->value) : "-", c.expected) << c.name;
  }
}

}  // namespace
}  // namespace weir
