// Registers parameters that are running averages of values an operator measures in training, such as the mean of a
// batch.
//
// No optimizer updates them. In training the operator does not read them; its gradient rule returns, as their
// "gradient", the measured values times the lane's examples. Servers therefore merge measurements like gradients, lane
// by lane and divided by the samples of the step, and the update op `running_average` replaces the optimizer's.
// Otherwise they are parameters: cut, sent, received, digested and kept in checkpoints. In evaluation the operator
// reads them.
#ifndef WEIR_FRAMEWORK_GRAPH_RUNNING_AVERAGES_H_
#define WEIR_FRAMEWORK_GRAPH_RUNNING_AVERAGES_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.pb.h"

namespace weir {

// At namespace scope:  REGISTER_RUNNING_AVERAGES(batch_norm)({.op = "batch_norm", .inputs = {"Mean"}, .momentum =
// "momentum"});
struct RunningAveragesDef {
  std::string op;
  // Slots of its inputs.
  std::vector<std::string> inputs;
  // Attribute: running = momentum * running + (1 - momentum) * measured.
  std::string momentum;
};

struct RunningAveragesRegistrar {
  explicit RunningAveragesRegistrar(RunningAveragesDef def);
};
#define REGISTER_RUNNING_AVERAGES(name) static const ::weir::RunningAveragesRegistrar weir_running_averages_##name

// A parameter's momentum and the operator that measures it.
struct RunningAverage {
  double momentum = 0;
  std::string op;
};

// Returns the running averages of block 0, by name. InvalidArgument names one that another forward operator of the
// program reads too: its gradient would be undefined.
absl::StatusOr<std::map<std::string, RunningAverage>> RunningAveragesOf(const v1::ProgramDesc& program);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_RUNNING_AVERAGES_H_
