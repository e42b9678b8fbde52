// Implements append_backward: appends the ops that compute the gradient of every trainable parameter.
#ifndef WEIR_FRAMEWORK_GRAPH_AUTODIFF_H_
#define WEIR_FRAMEWORK_GRAPH_AUTODIFF_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/program.pb.h"

namespace weir {

// Appends the backward ops to block 0, which computes `program->losses`. The appended ops have role BACKWARD: for each
// loss a seed
//   Out=loss@GRAD <- fill_like_batch(X=loss) value=<weight> scalar_times_batch=false
// then the gradient ops in reverse order of their forward ops, and for a variable read several times
//   Out=x@GRAD <- sum(X=[x@GRAD@0, x@GRAD@1])
// right after the last of its gradients, in order of use. The op that writes a parameter's gradient last carries the
// pair in param_grads. Gradient variables are declared by the gradient op's shape rule, else like their variable.
//
// A loss is a [B, 1] or [B] variable, the `mean` of one, or a weighted sum of these; scalar terms that do not depend on
// data count once per sample (docs/program.md, "Gradients"). Scalars are seeded with weight times the lane's number of
// samples.
//
// No gradient flows into variables with stop_gradient, into parameters that are not trainable, or into types other than
// floats. `without_gradient` (may be null) receives the trainable parameters that no loss depends on, sorted: they have
// no gradient and no update may be added for them.
//
// InvalidArgument names the loss and the op: no loss, a loss of another form, an op without a gradient rule between a
// loss and a parameter, a variable on that path that two ops write. AlreadyExists if the program has backward ops. On
// error the program is unchanged.
absl::Status AppendBackward(v1::ProgramDesc* program, std::vector<std::string>* without_gradient = nullptr);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_AUTODIFF_H_
