// Does a split hold together? What framework/graph/verifier.h asks of one program, this asks of a trainer's, a
// server's, and of all of them together. It runs after every pass, on what transpile has made, and on programs that
// processes read from files.
//
// A set of rules, each with a name that its errors begin with: "sent_once: send of the gradient of block 'out.w' is
// missing".
//
//   owned          the plan's blocks of each parameter cover its elements once and in whole rows; servers are those
//   there are;
//                  every parameter that is updated is in it
//   sent_once      the gradient of every block leaves exactly once, to the block's owner, before send_barrier
//   received_once  received values cover each parameter exactly once, in the main and in the startup program: its
//   blocks from
//                  their owners, joined in order; or its rows, by the one prefetch
//   ahead          rows that are pulled a batch ahead are wanted by a program that may miss the step in hand, before
//   all its other ops defined        received values are read behind fetch_barrier, no op of a trainer reads what only
//   servers hold (and in
//                  every program what VerifyProgram asks)
//   initialised    the startup program gives every persistable variable that is read its value; a server's gives every
//   block it
//                  owns the values of its place in the whole
//   updated_once   a server updates each block it owns in one optimize block, and nothing of another's; a table whose
//   rows
//                  come is updated on every server
//   shapes         what is sent, received and fetched has the shape that the plan and the other side give it
//   agreed         server_id, trainers, lanes, sync and the plan are the same on both sides; lanes are dealt to
//   trainers
//                  completely
//   waits          no cycle of waits between programs, and none for what never comes
//
// Trainers run the same program and differ in their id and their lanes; so one program is checked, for all ids at once.
// Pure functions; time is linear in programs and plan. Errors are InvalidArgument and name block, variable and op.
#ifndef WEIR_TRANSPILER_VERIFY_PLAN_H_
#define WEIR_TRANSPILER_VERIFY_PLAN_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "transpiler/programs.h"

namespace weir {

// Servers up to which transpile verifies the whole set; of more, one server and the trainer.
inline constexpr int kWholeSetServers = 16;

// The plan of a program by itself and against the variables of its block 0. OK without a plan.
absl::Status VerifyOwnership(const v1::ProgramDesc& main);

// A trainer's programs as far as they are made: sends once there is a send_barrier, receives once there is a
// fetch_barrier. OK for a single-machine program. Both have passed VerifyProgram.
absl::Status VerifyTrainer(const Programs& trainer);

// The programs of server `server`. Both have passed VerifyProgram.
absl::Status VerifyServer(const Programs& server, int index);

struct ServerSide {
  int index = 0;
  const Programs* programs = nullptr;
};
// A trainer's programs against those of some servers, or of all. Each has passed VerifyTrainer or VerifyServer.
absl::Status VerifySet(const Programs& trainer, absl::Span<const ServerSide> servers);

}  // namespace weir

#endif  // WEIR_TRANSPILER_VERIFY_PLAN_H_
