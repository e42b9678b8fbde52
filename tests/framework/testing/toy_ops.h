// Small operators with kernels, so that tests of graph and runtime need none of ops/.
//
//   lane    copy(X -> Out), plus(X, Y -> Out), times(X, Y -> Out), half(X -> Out, no gradient), average(X -> Out []),
//           dot(X [B, K], W [K, 1] -> Out [B, 1]), gather(Ids, W -> Out; gradient of W as selected rows),
//           sum(X* -> Out), fill_like_batch(X -> Out), fail(X -> Out; an error when `step` is the step),
//           stamp(X -> Out [1]), meet(X -> Out; waits until another one runs, an error when none comes),
//           pair(X -> Left = X + 1?, Right = X + 2?; with only one of the outputs it meets a pair with the other)
//   gate    post(X*): appends "post <note> [lanes]" to the log; gate_copy(X -> Out)
//   step    total(X* -> Out [1]): sum over lanes and elements, lane by lane;
//           mark(note): appends "mark <note>" to the log
//   update  descend(Param, Grad, LearningRate, Pace -> ParamOut, PaceOut)
#ifndef WEIR_TESTS_FRAMEWORK_TESTING_TOY_OPS_H_
#define WEIR_TESTS_FRAMEWORK_TESTING_TOY_OPS_H_

#include <string>
#include <vector>

#include "framework/base/mutex.h"

namespace weir::testing {

// Log of the actions of gate and step ops, in order. Thread-safe.
class ToyLog {
 public:
  static ToyLog& Get();
  void Add(std::string line);
  // Returns the lines and empties the log.
  std::vector<std::string> Take();

 private:
  Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir::testing

#endif  // WEIR_TESTS_FRAMEWORK_TESTING_TOY_OPS_H_
