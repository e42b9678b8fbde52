// append_backward: the ops that compute the gradient of every trainable parameter, behind the ops that are there.
#ifndef WEIR_FRAMEWORK_GRAPH_AUTODIFF_H_
#define WEIR_FRAMEWORK_GRAPH_AUTODIFF_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/program.pb.h"

namespace weir {

// Before: block 0 computes `program->losses`. After: behind it, with role BACKWARD, for each loss a seed
//   Out=loss@GRAD <- fill_like_batch(X=loss) value=<weight> scalar_times_batch=false
// then the gradient ops in reverse order of the ops they belong to, and for a variable read several times
//   Out=x@GRAD <- sum(X=[x@GRAD@0, x@GRAD@1])
// right behind the last of them, in order of use. The op that writes a parameter's gradient for the last time carries
// the pair in param_grads. Gradient variables are declared as the gradient op's shape rule says, else like their
// variable.
//
// A loss is a [B, 1] or [B] variable, the `mean` of one, or a weighted sum of such; scalar terms that no data reaches
// count once per sample (docs/program.md, "Gradients"). Scalars are seeded with weight times the lane's number of
// samples.
//
// No gradient flows into variables with stop_gradient, into parameters that are not trainable, or into other types than
// floats. `without_gradient` (may be null) gets the trainable parameters that no loss depends on, sorted: they have no
// gradient and no update may be added for them.
//
// InvalidArgument names the loss and the op: no loss, a loss of another form, an op between a loss and a parameter that
// has no gradient, a variable on that way that two ops write. AlreadyExists when backward is there. Then nothing has
// changed.
absl::Status AppendBackward(v1::ProgramDesc* program, std::vector<std::string>* without_gradient = nullptr);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_AUTODIFF_H_
