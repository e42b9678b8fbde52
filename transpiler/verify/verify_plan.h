// Verification of a split: framework/graph/verifier.h checks one program; these functions check a trainer's programs, a
// server's, and all of them together. They run after every pass, on the programs that transpile has made, and on
// programs that processes read from files.
//
// Each rule has a name that its errors begin with: "sent_once: send of the gradient of block 'out.w' is missing".
//
//   owned          the plan's blocks of each parameter cover its elements once and in whole rows; their servers exist,
//                  or the trainers that update them, one for each block; every parameter that is updated is in the plan
//   sent_once      the gradient of every block leaves exactly once, to the block's owner, before send_barrier
//   buckets        gradients that trainers add among themselves have buckets that ascend in the order of the program,
//                  none with more parameters than one exchange can carry
//   received_once  received values cover each parameter exactly once, in the main and in the startup program: its
//                  blocks from their owners, joined in order; or its rows, by the one prefetch
//   ahead          rows are pulled a batch ahead only by a program that may miss the step in hand, and by prefetch ops
//                  that no op but share_buffers precedes
//   defined        received values are read behind fetch_barrier, and no op of a trainer reads a variable that only
//                  servers hold (and in every program what VerifyProgram asks)
//   initialised    the startup program gives every persistable variable that is read its value; a server's gives every
//                  block it owns the values of its place in the whole
//   updated_once   a server updates each block it owns in one optimize block, and nothing of another's; a trainer's
//                  program updates each block that every trainer holds; a table whose rows come is updated on every
//                  server
//   shapes         tensors that are sent, received and fetched have the shape of the plan and of the other side
//   agreed         server_id, trainers, lanes, sync, the plan and the norms over dense parameters and tables are equal
//                  on both sides; lanes are dealt to trainers completely; trainers share updates out in the mode if
//                  they do so in the plan
//   waits          no cycle of waits between programs, and no wait for a message that never comes
//
// Trainers run equal programs and differ in their id and their lanes; so one program is checked, for all ids at once.
// Pure functions; time is linear in programs and plan. Errors are InvalidArgument and name block, variable and op.
#ifndef WEIR_TRANSPILER_VERIFY_VERIFY_PLAN_H_
#define WEIR_TRANSPILER_VERIFY_VERIFY_PLAN_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "transpiler/base/programs.h"

namespace weir {

// Largest number of servers for which transpile verifies the whole set; with more, it verifies one server and the
// trainer.
inline constexpr int kWholeSetServers = 16;

// Verifies the plan of a program by itself and against the variables of its block 0. OK without a plan.
absl::Status VerifyOwnership(const v1::ProgramDesc& main);

// Verifies a trainer's programs as far as they are made: sends if there is a send_barrier, receives if there is a
// fetch_barrier. OK for a single-machine program. Both programs must have passed VerifyProgram.
absl::Status VerifyTrainer(const Programs& trainer);

// Verifies the programs of server `index`. Both must have passed VerifyProgram.
absl::Status VerifyServer(const Programs& server, int index);

struct ServerSide {
  int index = 0;
  const Programs* programs = nullptr;
};
// Verifies a trainer's programs against those of some servers, or of all. Each must have passed VerifyTrainer or
// VerifyServer.
absl::Status VerifySet(const Programs& trainer, absl::Span<const ServerSide> servers);

}  // namespace weir

#endif  // WEIR_TRANSPILER_VERIFY_VERIFY_PLAN_H_
