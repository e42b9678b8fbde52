// Verifies that the runtime can run a program. The executor and the servers trust verified programs.
#ifndef WEIR_FRAMEWORK_GRAPH_VERIFIER_H_
#define WEIR_FRAMEWORK_GRAPH_VERIFIER_H_

#include "absl/status/status.h"
#include "proto/program.pb.h"

namespace weir {

// Returns the first error, with block, op index, op type and variable: "block 0, op 3 (relu): input X: variable
// 'fc_9.out' is not declared". Checked:
//   - format version; blocks at their index, parents before children;
//   - variables: name, unique from any block outwards, dims, requirements of their kind; a piece (block_of) inside its
//     whole variable;
//   - ops: known type, slots and kinds of variables, attributes known, typed and present, block references;
//   - every variable declared, and defined before it is read: persistable, written by an earlier op, or fed from
//     outside. Fed are variables with stop_gradient that no op writes without reading them (data, labels, gradients
//     that arrive);
//   - outputs of every op declared exactly as its shape rule infers them;
//   - outputs of a gate op read by no lane op, and its inputs written by no op before the next step op;
//   - update ops: Param, Grad, LearningRate and state agree; each output is the variable of its input;
//   - param_grads of backward and update ops: both declared, shapes agree, and for an update op its own Param and Grad;
//   - losses: variables declared, dense numbers of a batch, used by an op of block 0. Prediction and label may be
//     absent: training needs them, differentiation does not.
// Never aborts, whatever the program holds.
absl::Status VerifyProgram(const v1::ProgramDesc& program);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_VERIFIER_H_
