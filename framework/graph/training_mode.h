// Reads and writes the training mode of a program (v1::TrainingMode), for processes that run a dumped program.
#ifndef WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
#define WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_

#include "proto/program.pb.h"

namespace weir {

// Returns the mode of a verified program: its field `mode`, or what attributes say in programs of format version 1, or
// the defaults.
v1::TrainingMode ModeOf(const v1::ProgramDesc& program);

// Returns the program's mode for writing, and raises format_version to the first that has the field: older builds then
// refuse the program instead of training it in another mode.
v1::TrainingMode* MutableMode(v1::ProgramDesc* program);

// Returns the attribute of a format version 1 that says a part of the mode, or nullptr if `op` has none.
const v1::OpAttr* ModeAttr(const v1::OpDesc& op);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
