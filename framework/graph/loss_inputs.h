// Variables of the data that a program's losses read as numbers.
#ifndef WEIR_FRAMEWORK_GRAPH_LOSS_INPUTS_H_
#define WEIR_FRAMEWORK_GRAPH_LOSS_INPUTS_H_

#include <string>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// A number that is computed from data alone (cast, scaled, joined) stands for that data; one that a parameter or a
// table takes part in, for itself; and a constant, as the label of a loss without one, for nothing. Each variable is
// listed once, in order of first use.
struct LossInputs {
  // Labels, sample weights, and numbers that must be above 0: an example that lacks one is a bad line.
  std::vector<std::string> required;
  // These and the other LossFacts::numbers: data.dense leaves them as they are, unless data.dense.except is set.
  std::vector<std::string> untransformed;
};

// Works on any program whose forward ops are there, that of a trainer included.
LossInputs LossInputsOf(const v1::ProgramDesc& program);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_LOSS_INPUTS_H_
