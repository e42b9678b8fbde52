#include "tools/launching/inherited_variables.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/invalid.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Number in a variable; nullopt if it is not set.
absl::StatusOr<std::optional<int>> Number(const Environment& environment, const char* name) {
  const std::optional<std::string> text = environment(name);
  if (!text.has_value() || text->empty()) return std::optional<int>();
  int number = 0;
  if (!absl::SimpleAtoi(*text, &number) || number < 0) {
    return Invalid("the variable ", name, " is '", *text, "', must be a number from 0 on; unset it");
  }
  return std::optional<int>(number);
}

// Returns whether a launcher's variables tell which of several processes launch is. One that started a single process
// may have started an interactive shell, and the shell of an sbatch script, which is no step, has SLURM_PROCID, too.
bool Counts(const Environment& environment, std::string_view name) {
  const auto is = [&](const char* variable, const char* value) { return environment(variable).value_or("") == value; };
  if (name == "OMPI_COMM_WORLD_RANK" || name == "OMPI_COMM_WORLD_SIZE" || name == "PMIX_RANK") {
    return !is("OMPI_COMM_WORLD_SIZE", "1");
  }
  if (name != "SLURM_PROCID") return true;
  const bool one = is("SLURM_STEP_NUM_TASKS", "1") || (is("SLURM_STEP_NUM_TASKS", "") && is("SLURM_NTASKS", "1"));
  int step = 0;
  return !one && absl::SimpleAtoi(environment("SLURM_STEP_ID").value_or(""), &step);
}

absl::Status StartedSeveralTimes(const std::string& what) {
  return Invalid(
      what, ": launch is itself one of several processes, each of which would start the whole job; start it ",
      "once, or once a node with --nnodes, or start trainer that way; if the variable is a leftover, unset it");
}

absl::Status ReadRank(const Environment& environment, bool several, PlacementFlags* flags) {
  std::string source = "--node_rank";
  int rank = several ? flags->node_rank : 0;
  for (const char* name :
       {"NODE_RANK", "GROUP_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "PADDLE_TRAINER_ID"}) {
    const bool of_fluid = std::string_view(name) == "PADDLE_TRAINER_ID";
    if ((!several && of_fluid) || !Counts(environment, name)) continue;
    ASSIGN_OR_RETURN(const std::optional<int> number, Number(environment, name));
    if (!number.has_value() || *number == rank) continue;
    if (!several) return StartedSeveralTimes(absl::StrCat("the variable ", name, " is ", *number));
    if (rank >= 0) {
      return Invalid(source, " is ", rank, " but the variable ", name, " is ", *number,
                     ": launch runs once a node, so both must be the node's rank; correct or unset one");
    }
    rank = *number;
    source = absl::StrCat("the variable ", name);
  }
  if (several) flags->node_rank = rank;
  return absl::OkStatus();
}

absl::Status CheckSizes(const Environment& environment, int nodes) {
  for (const char* name : {"GROUP_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}) {
    if (!Counts(environment, name)) continue;
    ASSIGN_OR_RETURN(const std::optional<int> number, Number(environment, name));
    if (!number.has_value() || *number == nodes) continue;
    const std::string what = absl::StrCat("the variable ", name, " is ", *number);
    if (nodes == 1) return StartedSeveralTimes(what);
    return Invalid(what, ", but --nnodes is ", nodes, ": launch runs once a node; correct or unset one");
  }
  return absl::OkStatus();
}

absl::Status ReadMaster(const Environment& environment, bool several, PlacementFlags* flags) {
  const std::optional<std::string> address = environment("MASTER_ADDR");
  if (address.has_value() && !address->empty()) {
    if (flags->master_addr.empty() && several) flags->master_addr = *address;
    if (!flags->master_addr.empty() && flags->master_addr != *address) {
      return Invalid("--master_addr is ", flags->master_addr, " but the variable MASTER_ADDR is ", *address,
                     ": give one of them");
    }
  }
  ASSIGN_OR_RETURN(const std::optional<int> port, Number(environment, "MASTER_PORT"));
  if (!port.has_value()) return absl::OkStatus();
  // torchrun's agent listens at MASTER_PORT itself.
  if (several && !environment("TORCHELASTIC_RUN_ID").value_or("").empty()) {
    if (flags->master_port < 0) flags->master_port = *port + 1;
    return absl::OkStatus();
  }
  if (flags->master_port < 0 && several) flags->master_port = *port;
  if (flags->master_port >= 0 && flags->master_port != *port) {
    return Invalid("--master_port is ", flags->master_port, " but the variable MASTER_PORT is ", *port,
                   ": give one of them");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadInherited(const Environment& environment, PlacementFlags* flags) {
  const int nodes = std::max(1, flags->nnodes);
  RETURN_IF_ERROR(ReadRank(environment, nodes > 1, flags));
  RETURN_IF_ERROR(CheckSizes(environment, nodes));
  return ReadMaster(environment, nodes > 1, flags);
}

absl::Status CheckInherited(const Environment& environment, const Placement& placement) {
  const int nodes = std::max(1, placement.nodes);
  for (const char* name : {"WORLD_SIZE", "PADDLE_TRAINERS_NUM", "PADDLE_NUM_TRAINERS"}) {
    // Cluster scripts set Fluid's variables for other jobs.
    if (nodes == 1 && std::string_view(name) != "WORLD_SIZE") continue;
    ASSIGN_OR_RETURN(const std::optional<int> number, Number(environment, name));
    if (!number.has_value() || *number == placement.trainers || *number == nodes) continue;
    return Invalid("the variable ", name, " is ", *number, ", but launch starts ", placement.trainers,
                   placement.trainers == 1 ? " trainer" : " trainers", " on ", nodes, nodes == 1 ? " node" : " nodes",
                   "; correct or unset it");
  }
  if (placement.hosts.size() != 1) return absl::OkStatus();
  const int local = placement.hosts[0].trainers;
  ASSIGN_OR_RETURN(const std::optional<int> number, Number(environment, "LOCAL_WORLD_SIZE"));
  if (!number.has_value() || *number == local || *number == 1) return absl::OkStatus();
  return Invalid("the variable LOCAL_WORLD_SIZE is ", *number, ", but launch starts ", local,
                 local == 1 ? " trainer" : " trainers", " on this node; correct or unset it");
}

}  // namespace weir
