// The words of the launcher of this process: its rank among the processes that it has started, their number, the
// place on its machine, and the name of the run.
//
//   launcher   rank                  number                on its machine              run
//   torchrun   RANK                  WORLD_SIZE            LOCAL_RANK                  TORCHELASTIC_RUN_ID:MASTER_PORT
//   Open MPI   OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE  OMPI_COMM_WORLD_LOCAL_RANK  PMIX_NAMESPACE
//   Slurm      SLURM_PROCID          SLURM_STEP_NUM_TASKS  SLURM_LOCALID               SLURM_JOB_ID.SLURM_STEP_ID
//
// SLURM_NTASKS stands for SLURM_STEP_NUM_TASKS if that is not set.
//
// RANK, WORLD_SIZE and LOCAL_RANK come from `launch` and from scripts, too. A launcher may start another one, and its
// variables stay in the environment; the inner one counts:
//
//   * torchrun (TORCHELASTIC_RUN_ID) is often started by srun or mpirun, once on a machine: their variables are then
//     those of torchrun's agent.
//   * mpirun inside a Slurm job starts its daemons by srun: Slurm's variables are then those of a daemon.
//   * The shell of an sbatch script has SLURM_PROCID=0 beside the job's SLURM_NTASKS, and what it starts without srun
//     inherits them. A task of srun has SLURM_STEP_ID as well, and only then Slurm's variables count.
//   * An mpirun or srun of one task (an interactive shell) says nothing: it may have started anything.
//
// RANK without TORCHELASTIC_RUN_ID must agree with Open MPI's or Slurm's rank, and WORLD_SIZE with their number: a
// script that exports RANK=0 for all its tasks is refused.
#ifndef WEIR_PSERVER_CLUSTER_LAUNCHED_H_
#define WEIR_PSERVER_CLUSTER_LAUNCHED_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "pserver/cluster/environment.h"

namespace weir {

struct Launched {
  // "torchrun", "Open MPI", "Slurm"; "" if the variables RANK and WORLD_SIZE stand alone, or there are none.
  std::string launcher;
  MaybeSourced rank, size;
  // Ranks of the processes that run the same program, if the launcher was given several programs in one command
  // (mpirun -n 1 A : -n 2 B): their first rank and their number.
  struct Program {
    int first_rank = 0;
    int size = 0;
  };
  std::optional<Program> program;
  // Name of the run: equal for all processes of the launcher, and different in nearly every other run; "" if it gives
  // none.
  std::string run_id;
  // torchrun's agent listens at MASTER_PORT.
  bool agent_has_master_port = false;
  // One srun has started several programs (srun -n1 A : -n2 B). Nothing says which ranks are of which.
  bool several_programs = false;
  // Variables of a Slurm job that do not count, because the process is no task of srun.
  bool in_batch_shell = false;
};

// InvalidArgument names two variables that contradict each other, with their values, or a variable that is no number.
absl::StatusOr<Launched> ReadLaunched(const Environment& environment);

// Returns the place of the process on its machine: LOCAL_RANK, FLAGS_selected_gpus (Fluid, if it is one number), or the
// launcher's; nothing if it is not given.
MaybeSourced ReadLocalRank(const Environment& environment);

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_LAUNCHED_H_
