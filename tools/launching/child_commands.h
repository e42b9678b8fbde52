// Command lines and environments of the processes that launch starts.
#ifndef WEIR_TOOLS_LAUNCHING_CHILD_COMMANDS_H_
#define WEIR_TOOLS_LAUNCHING_CHILD_COMMANDS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/hosts/child_process.h"
#include "tools/launching/launch_options.h"
#include "tools/launching/placement.h"

namespace weir {

struct ChildCommand {
  std::vector<std::string> command;
  Variables environment;
};

// Returns where the servers of a placement listen, by index; port 0 for those that choose one.
std::vector<std::string> ServerEndpoints(const Placement& placement);

// Name of a process and of its part of a profile: "pserver.0", "trainer.3"; "server 0", "trainer 3".
std::string ProcessName(bool server, int id);
std::string ProfileName(bool server, int id);
// File in the log directory that gets a process's part of the profile.
std::string ProfileFile(const LaunchOptions& options, bool server, int id);

// Returns how server `id` is started, with that many threads.
ChildCommand ServerCommand(const LaunchOptions& options, int id, int threads);

// Addresses and numbers of the others, for one trainer.
struct Meeting {
  // Addresses of the servers by index, or of the trainers by id if they serve. Without meaning if the processes meet
  // (Placement::meet_at_master).
  std::vector<std::string> endpoints;
  std::string master_addr;
  int master_port = 0;
};

struct TrainerPlace {
  // Index in options.placement.hosts, and the place of the trainer there.
  size_t host = 0;
  int local_rank = 0;
  int threads = 1;
  // CUDA_VISIBLE_DEVICES; "": left as it is.
  std::string gpus;
};

// Returns how a trainer is started. It gets the variables by which Fluid, torch.distributed and torchrun tell processes
// who they are, and none of those that another launcher has set for launch itself.
ChildCommand TrainerCommand(const LaunchOptions& options, const Meeting& meeting, const TrainerPlace& place);

// InvalidArgument if `name` is no name of a variable, or one that launch sets itself.
absl::Status CheckVariable(const std::string& name);

// Returns the last value that the arguments of a program give a flag, "" for --flag alone at the end; nullopt if they
// do not give it. Dashes in the name are underscores.
std::optional<std::string> ValueOf(const std::vector<std::string>& arguments, std::string_view flag);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_CHILD_COMMANDS_H_
