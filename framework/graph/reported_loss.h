// Finds the loss that a job reports by the variable that training minimises in its place.
//
// LossDesc.var is what backward starts from. An operator that changes how much a loss counts, and not what the loss is,
// registers itself: progress and evaluations then show the variable that it reads.
#ifndef WEIR_FRAMEWORK_GRAPH_REPORTED_LOSS_H_
#define WEIR_FRAMEWORK_GRAPH_REPORTED_LOSS_H_

#include <string>

#include "proto/program.pb.h"

namespace weir {

// At namespace scope:  REGISTER_MINIMISED_LOSS(learned_weight)({.op = "learned_weight", .loss = "X"});
struct MinimisedLossDef {
  std::string op;
  // Slot of the loss that is reported.
  std::string loss;
};

struct MinimisedLossRegistrar {
  explicit MinimisedLossRegistrar(MinimisedLossDef def);
};
#define REGISTER_MINIMISED_LOSS(name) static const ::weir::MinimisedLossRegistrar weir_minimised_loss_##name

// Returns the variable of a loss that reports show: loss.var(), or what a registered operator made it from.
std::string ReportedLoss(const v1::ProgramDesc& program, const v1::LossDesc& loss);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_REPORTED_LOSS_H_
