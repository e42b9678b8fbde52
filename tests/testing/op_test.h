// Tests one operator: values, shapes, gradient, batch of 0, in-place.
//
//   OpTest t("elementwise_mul");
//   t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6}).Fixed("Y", {3}, {1, 10, 100});
//   ASSERT_OK(t.Run());
//   t.ExpectOutput("Out", {2, 3}, {1, 20, 300, 4, 50, 600});
//   t.CheckGradient({.inputs = {"X", "Y"}});
//   t.CheckBatchZero();
//
// Variables are named "<slot>_<i>". Kernels run directly, on one lane, with the registered rules of the operator.
#ifndef WEIR_TESTS_TESTING_OP_TEST_H_
#define WEIR_TESTS_TESTING_OP_TEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "framework/tensor/tensor.h"
#include "proto/program.pb.h"

#ifndef ASSERT_OK
#define ASSERT_OK(expr)                                 \
  do {                                                  \
    const absl::Status weir_assert_ok = (expr);         \
    ASSERT_TRUE(weir_assert_ok.ok()) << weir_assert_ok; \
  } while (false)
#define EXPECT_OK(expr)                                 \
  do {                                                  \
    const absl::Status weir_expect_ok = (expr);         \
    EXPECT_TRUE(weir_expect_ok.ok()) << weir_expect_ok; \
  } while (false)
#endif

namespace weir {

class OpTest {
 public:
  explicit OpTest(std::string type, std::vector<v1::OpAttr> attrs = {});

  // Add inputs. A slot that is given again gets one more variable. Batched: dims[0] is the batch, declared as -1; the
  // first batched input, or the first ids, determine the number of examples. Fixed: parameters, scalars, targets
  // without batch.
  OpTest& Batched(std::string_view slot, absl::Span<const int64_t> dims, const std::vector<float>& values);
  OpTest& Batched(std::string_view slot, Tensor value);
  OpTest& Fixed(std::string_view slot, absl::Span<const int64_t> dims, const std::vector<float>& values);
  OpTest& Fixed(std::string_view slot, Tensor value);
  OpTest& Ids(std::string_view slot, IdBatch value);
  // Adds selected rows, declared as [value.height, width].
  OpTest& Rows(std::string_view slot, SelectedRows value, int64_t width);
  // Adds a dense input that nothing has written: an absent gradient.
  OpTest& Absent(std::string_view slot, absl::Span<const int64_t> declared_dims);
  // Sets the number of variables of an output slot. The default is 1, and none for optional slots.
  OpTest& Outputs(std::string_view slot, int count);
  // Makes the output the same variable as the input, as for optimizers (ParamOut is Param).
  OpTest& SameVariable(std::string_view output, std::string_view input);

  // Step context of the kernels: training, seed 1, step 0, unless changed.
  StepContext& step() { return step_; }
  void set_lane(int lane) { lane_ = lane; }
  // Sets the number of examples in the lane, if no input determines it.
  void set_batch(int64_t batch) { batch_ = batch; }
  const v1::OpDesc& op() const { return op_; }

  // Infers shapes and runs the kernel. Also fails if outputs do not have the inferred shape, or if running in place (as
  // the op's in-place rules allow) gives other bits.
  absl::Status Run();
  // Runs only the shape rule; returns its error.
  absl::Status InferShapes();
  // Valid after InferShapes or Run.
  const v1::VarDesc& OutputDesc(std::string_view slot, int i = 0) const;

  // Valid after Run.
  const Variable& OutputVar(std::string_view slot, int i = 0) const;
  const Tensor& Output(std::string_view slot, int i = 0) const;
  std::vector<float> Values(std::string_view slot, int i = 0) const;
  void ExpectOutput(std::string_view slot, absl::Span<const int64_t> dims, const std::vector<float>& values,
                    double tolerance = 1e-6, int i = 0) const;

  struct GradientCheck {
    // Slots, with all their variables.
    std::vector<std::string> inputs;
    // Slots that have a gradient; empty means the first one. The gradients put in are fixed numbers between 0.5 and
    // 1.5.
    std::vector<std::string> outputs = {};
    // Step of the four-point difference; values near a kink must be more than twice this away from it.
    double eps = 1e-2;
    // Bound: |analytic - numeric| <= tolerance * max(1, |numeric|).
    double tolerance = 2e-3;
  };
  // Compares the registered gradient with numeric differences of the kernel (sums in double), and checks that the
  // gradient of each input has the same bits when it alone is wanted. Gradients as selected rows are first added up to
  // a matrix.
  void CheckGradient(const GradientCheck& check);
  // Returns the gradient of an input for given output gradients ("Out" -> values), to be compared with values computed
  // by hand.
  absl::StatusOr<Variable> Gradient(std::string_view input_slot, int input_index,
                                    const std::vector<std::pair<std::string, Tensor>>& output_grads);

  // Runs forward, and backward if there is a gradient rule, with no examples. Checks that there is no error, and that
  // shapes have 0 for the batch. Backward starts from the given output slots; empty means the first one.
  void CheckBatchZero(std::vector<std::string> outputs = {});

 private:
  // Variables that the op and its gradient ops read and write.
  using Values_ = std::map<std::string, Variable, std::less<>>;
  using Descs = std::map<std::string, v1::VarDesc, std::less<>>;

  OpTest& Add(std::string_view slot, Variable value, v1::VarDesc desc);
  void FillOutputs(v1::OpDesc* op, Descs* descs) const;
  absl::Status Infer(const v1::OpDesc& op, Descs* descs) const;
  absl::Status RunOp(const v1::OpDesc& op, const Descs& descs, Values_* values) const;
  absl::Status CheckShapes(const v1::OpDesc& op, const Descs& descs, const Values_& values) const;
  absl::Status CheckInPlace(const v1::OpDesc& op, const Descs& descs, const Values_& before,
                            const Values_& after) const;
  absl::StatusOr<Values_> Backward(const std::vector<std::string>& wanted,
                                   const std::vector<std::pair<std::string, Tensor>>& output_grads,
                                   const Values_& forward);
  std::vector<std::string> Vars(bool outputs, std::string_view slot) const;

  const OpDef* def_;
  v1::OpDesc op_;
  Descs input_descs_;
  Values_ inputs_;
  std::map<std::string, int, std::less<>> output_counts_;
  std::map<std::string, std::string, std::less<>> same_variable_;
  std::map<std::string, bool, std::less<>> batched_;
  int64_t batch_ = -1;
  StepContext step_;
  int lane_ = 0;
  // Results of the last Run or InferShapes.
  Descs descs_;
  Values_ values_;
};

// Returns what examples [first, first + rows) of a batch have of values that are divided evenly among its examples.
std::vector<float> PartOfBatch(const std::vector<float>& values, int64_t batch, int64_t first, int64_t rows);

// Checks that an example's results have the same bits among any number of others. `run` sets the results of examples
// [first, first + rows), each divided evenly among them.
void ExpectBitsOfExamplesAlone(
    int64_t batch,
    const std::function<void(int64_t first, int64_t rows, std::vector<std::vector<float>>* results)>& run);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_OP_TEST_H_
