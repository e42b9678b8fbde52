// Is this program one that the runtime can run? The executor and the servers trust what has passed here.
#ifndef WEIR_FRAMEWORK_GRAPH_VERIFIER_H_
#define WEIR_FRAMEWORK_GRAPH_VERIFIER_H_

#include "absl/status/status.h"
#include "proto/program.pb.h"

namespace weir {

// The first thing wrong, with block, op index, op type and variable: "block 0, op 3 (relu): input X: variable
// 'fc_9.out' is not declared". Checked:
//   format version; blocks in their places, parents before children;
//   variables: name, unique from any block outwards, dims, and what their kind asks; a piece (block_of) inside its
//   whole; ops: known, slots and kinds of variables, attributes known, typed, present, block references; every variable
//   declared, and defined before it is read: persistable, written by an earlier op, or fed from outside.
//     Fed are variables with stop_gradient that no op writes without reading them (data, labels, gradients that
//     arrive);
//   the shape rule of every op against the declarations of its outputs, which are exactly what it gives;
//   a gate op's outputs are read by no lane op, and its inputs are written by none before the next step op;
//   update ops: Param, Grad, LearningRate and state agree, outputs are their inputs' variables;
//   param_grads of backward and update ops: both declared, shapes agree, and for an update op its own Param and Grad;
//   losses: variables declared, dense numbers of a batch, touched by an op of block 0. Prediction and label may be
//   absent:
//     whoever trains needs them, whoever differentiates does not.
// Bytes from outside never abort.
absl::Status VerifyProgram(const v1::ProgramDesc& program);

// Reads no larger format_version than this program writes.
inline constexpr int kProgramFormatVersion = 1;

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_VERIFIER_H_
