// Reads and writes the training mode of a program (v1::TrainingMode), for processes that run a dumped program.
#ifndef WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
#define WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_

#include "absl/status/status.h"
#include "proto/plan.pb.h"
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

// Return InvalidArgument if a number of the mode is out of range or two of its parts contradict each other; and if a
// part needs another plan.
absl::Status CheckModeValues(const v1::TrainingMode& mode);
absl::Status CheckModeFits(const v1::TrainingMode& mode, const v1::Plan& plan);

// Returns why rows that are pulled a batch ahead (prefetch_rows) would be wrong, with a server or a trainer of this
// mode; null if they would not.
const char* WhyNotAhead(const v1::TrainingMode& mode);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
