#include "pserver/cluster/launched.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr char kUnset[] = "unset the one that does not describe this process";

struct RankAndSize {
  MaybeSourced rank, size;
  bool given() const { return rank.has_value() || size.has_value(); }
};

// Checks that both are numbers and fit each other, so that a message can rely on it.
absl::Status Check(const RankAndSize& of) {
  int rank = 0, size = 0;
  if (of.rank.has_value()) {
    ASSIGN_OR_RETURN(rank, Number(*of.rank, "the rank of this process, from 0"));
  }
  if (!of.size.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(size, Number(*of.size, "the number of processes"));
  if (size == 0) return absl::InvalidArgumentError(absl::StrCat(of.size->source, " is 0, must be at least 1"));
  if (!of.rank.has_value() || rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(of.rank->source, " is ", rank, " but ", of.size->source, " is ", size,
                                                 ": ranks are 0 to ", size - 1));
}

// A launcher that has started one process may have started a shell, or another launcher, and says nothing.
bool StartedOne(const RankAndSize& of) { return of.size.has_value() && of.size->value == "1"; }

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// Returns the list of numbers "0 1"; empty if it is something else.
std::vector<int> Numbers(const MaybeSourced& text) {
  std::vector<int> numbers;
  if (!text.has_value()) return numbers;
  for (const std::string& each : std::vector<std::string>(absl::StrSplit(text->value, ' ', absl::SkipEmpty()))) {
    numbers.emplace_back();
    if (!absl::SimpleAtoi(each, &numbers.back())) return {};
  }
  return numbers;
}

// Finds the program by the numbers of processes. Ranks count through, program by program; OMPI_FIRST_RANKS would say
// so, but has zeros in Open MPI 4.1.
std::optional<Launched::Program> ProgramOfOpenMpi(const Environment& environment, const RankAndSize& of) {
  int rank = 0;
  if (!of.rank.has_value() || !absl::SimpleAtoi(of.rank->value, &rank)) return std::nullopt;
  const std::vector<int> sizes = Numbers(ReadVariable(environment, "OMPI_APP_CTX_NUM_PROCS"));
  if (sizes.size() < 2) return std::nullopt;
  int64_t first = 0;
  for (const int size : sizes) {
    if (size < 0 || first > rank) return std::nullopt;
    if (rank - first < size) return Launched::Program{static_cast<int>(first), size};
    first += size;
  }
  return std::nullopt;
}

RankAndSize OfSlurm(const Environment& environment) {
  RankAndSize of = {ReadVariable(environment, "SLURM_PROCID"), ReadVariable(environment, "SLURM_STEP_NUM_TASKS")};
  if (!of.size.has_value()) of.size = ReadVariable(environment, "SLURM_NTASKS");
  return of;
}

// Takes what mpirun or srun says into `launched`, which has RANK and WORLD_SIZE.
absl::Status Take(const std::string& launcher, const RankAndSize& of, std::string run_id, Launched* launched) {
  RETURN_IF_ERROR(Check(of));
  ASSIGN_OR_RETURN(launched->rank, OneOf(launched->rank, of.rank, /*ignore_case=*/false, kUnset));
  ASSIGN_OR_RETURN(launched->size, OneOf(launched->size, of.size, /*ignore_case=*/false, kUnset));
  launched->launcher = launcher;
  launched->run_id = std::move(run_id);
  return absl::OkStatus();
}

std::string ValueOf(const Environment& environment, std::string_view name) {
  const MaybeSourced variable = ReadVariable(environment, name);
  return variable.has_value() ? variable->value : "";
}

}  // namespace

absl::StatusOr<Launched> ReadLaunched(const Environment& environment) {
  Launched launched;
  const RankAndSize plain = {ReadVariable(environment, "RANK"), ReadVariable(environment, "WORLD_SIZE")};
  RETURN_IF_ERROR(Check(plain));
  launched.rank = plain.rank;
  launched.size = plain.size;
  if (const MaybeSourced run = ReadVariable(environment, "TORCHELASTIC_RUN_ID"); run.has_value() && plain.given()) {
    launched.launcher = "torchrun";
    // torchrun names every run "none" to which the user gives no name.
    const std::string port = ValueOf(environment, "MASTER_PORT");
    launched.run_id = port.empty() ? run->value : absl::StrCat(run->value, ":", port);
    launched.agent_has_master_port = true;
    return launched;
  }
  const RankAndSize mpi = {ReadVariable(environment, "OMPI_COMM_WORLD_RANK"),
                           ReadVariable(environment, "OMPI_COMM_WORLD_SIZE")};
  const bool in_step = IsNumber(ValueOf(environment, "SLURM_STEP_ID"));
  const RankAndSize slurm = OfSlurm(environment);
  if (mpi.given()) {
    if (StartedOne(mpi)) return launched;
    launched.program = ProgramOfOpenMpi(environment, mpi);
    RETURN_IF_ERROR(Take("Open MPI", mpi, ValueOf(environment, "PMIX_NAMESPACE"), &launched));
  } else if (slurm.rank.has_value() && !in_step) {
    launched.in_batch_shell = true;
  } else if (slurm.rank.has_value() && !StartedOne(slurm)) {
    const std::string programs = ValueOf(environment, "SLURM_HET_SIZE");
    launched.several_programs = !programs.empty() && programs != "1";
    RETURN_IF_ERROR(Take("Slurm", slurm,
                         absl::StrCat(ValueOf(environment, "SLURM_JOB_ID"), ".", ValueOf(environment, "SLURM_STEP_ID")),
                         &launched));
  }
  return launched;
}

MaybeSourced ReadLocalRank(const Environment& environment) {
  if (MaybeSourced rank = ReadVariable(environment, "LOCAL_RANK")) return rank;
  if (MaybeSourced gpu = ReadVariable(environment, "FLAGS_selected_gpus"); gpu.has_value() && IsNumber(gpu->value)) {
    return gpu;
  }
  if (MaybeSourced rank = ReadVariable(environment, "OMPI_COMM_WORLD_LOCAL_RANK")) return rank;
  if (!IsNumber(ValueOf(environment, "SLURM_STEP_ID"))) return std::nullopt;
  return ReadVariable(environment, "SLURM_LOCALID");
}

}  // namespace weir
