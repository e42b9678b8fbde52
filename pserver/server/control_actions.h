// Actions of control calls: checkpoints, digests, loads. Requires: one thread at a time, while no update runs.
#ifndef WEIR_PSERVER_SERVER_CONTROL_ACTIONS_H_
#define WEIR_PSERVER_SERVER_CONTROL_ACTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/directory.h"
#include "proto/parameter_server.pb.h"
#include "pserver/params/server_checkpoints.h"
#include "pserver/params/server_params.h"

namespace weir {

class ControlActions {
 public:
  struct Options {
    std::string self;                // the server, for messages
    ServerParams* params = nullptr;  // borrowed
    // ServerOptions::row_files.
    std::map<std::string, std::vector<std::string>> row_files;
    OwnerOptions checkpoints;
    // ServerOptions::start_from.
    std::vector<std::string> start_from = {};
    int server_id = 0;
    int servers = 1;
  };
  explicit ControlActions(Options options);
  // Removes the probe.
  ~ControlActions();

  // Writes the probe by which trainers find out whether they see the same checkpoint directory, if the job has one.
  // Requires: called at most once, before Run.
  absl::Status WriteProbe();
  // Returns the probe; empty without a checkpoint directory.
  const DirectoryProbe& probe() const { return probe_; }

  // State of the server that an action reads.
  struct State {
    int64_t version = 0;
    absl::Status step;                   // CheckpointRules::CheckControlled of the step in the request
    bool pushed = false;                 // some trainer has pushed something
    std::vector<int64_t> trainer_steps;  // steps of each trainer that have taken effect
    // Transactions so far, where tables count them (ConsistencyFacts::counts_transactions).
    std::optional<int64_t> table_steps;
  };
  // Runs an action. Sets `loaded` if the action has loaded a checkpoint: the server goes on there.
  absl::StatusOr<v1::ControlReply> Run(const v1::ControlRequest& request, const State& state,
                                       std::optional<ServerCheckpoints::Loaded>* loaded);

 private:
  absl::StatusOr<v1::ControlReply> Dispatch(const v1::ControlRequest& request, const State& state,
                                            std::optional<ServerCheckpoints::Loaded>* loaded);
  absl::Status CheckNobodyHasPushed(const State& state, std::string_view what) const;
  absl::Status Load(const v1::LoadCheckpoint& load, const State& state,
                    std::optional<ServerCheckpoints::Loaded>* loaded);
  absl::Status LoadRows(const State& state);
  absl::Status Start(const v1::StartRun& start, const State& state);

  const Options options_;
  ServerCheckpoints checkpoints_;
  DirectoryProbe probe_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_CONTROL_ACTIONS_H_
