// Registry of operator definitions: signature, shape, gradient, cost and in-place rules, optimizer state. Kernels are
// registered in framework/runtime/kernel.h.
//
// Passes, the verifier, autodiff and `explain` use these rules; none of them refers to an operator of a user's model by
// name. An operator registers itself from its file in ops/ with REGISTER_OP. Registration happens before main; after
// that the registry is read-only and may be read from any thread.
#ifndef WEIR_FRAMEWORK_GRAPH_OP_REGISTRY_H_
#define WEIR_FRAMEWORK_GRAPH_OP_REGISTRY_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"
#include "proto/program.pb.h"

namespace weir {

// A formal argument.
struct SlotDef {
  std::string name;
  // Accepted kinds of variable; empty means DENSE only.
  std::vector<v1::VarKind> kinds = {};
  bool optional = false;
  // Accepts any number of variables, at least one unless optional.
  bool variadic = false;
  // Outputs of kStep ops only: one variable per lane instead of one for all (Index of prefetch).
  bool per_lane = false;
};

// Typed attribute. The oneof case of the default is its type; required attributes have an empty value of that type.
struct AttrDef {
  std::string name;
  v1::OpAttr default_value;
  bool required = false;
};
AttrDef BoolAttr(std::string_view name, bool default_value);
AttrDef IntAttr(std::string_view name, int64_t default_value);
AttrDef FloatAttr(std::string_view name, double default_value);
AttrDef StringAttr(std::string_view name, std::string_view default_value);
AttrDef IntsAttr(std::string_view name);
AttrDef FloatsAttr(std::string_view name);
AttrDef StringsAttr(std::string_view name);
AttrDef BlockAttr(std::string_view name);
AttrDef BlocksAttr(std::string_view name);
AttrDef DTypeAttr(std::string_view name, DType default_value);
AttrDef Required(AttrDef def);

// Number of runs of an operator in one step of a trainer.
enum class OpScope {
  // Once for every lane, on that lane's variables. Forward and backward.
  kLane,
  // Once, when every lane has reached this point; sees the variables of all lanes. The lanes continue without waiting:
  // nothing in a lane may depend on its outputs. send.
  kGate,
  // Once, when every lane has reached this point; lanes wait for it. prefetch, recv, barriers, optimizers.
  kStep,
};

// Reads attributes with the defaults of the signature filled in. CHECK-fails on a wrong type or an unknown name, which
// the verifier has refused before.
class AttrReader {
 public:
  AttrReader(const v1::OpDesc& op, const struct OpDef& def) : op_(op), def_(def) {}
  bool Bool(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  double Float(std::string_view name) const;
  const std::string& String(std::string_view name) const;
  std::vector<int64_t> Ints(std::string_view name) const;
  std::vector<double> Floats(std::string_view name) const;
  std::vector<std::string> Strings(std::string_view name) const;
  std::vector<int32_t> Blocks(std::string_view name) const;
  DType Type(std::string_view name) const;
  bool Has(std::string_view name) const;  // written in the op, not defaulted

 private:
  const v1::OpAttr& Find(std::string_view name) const;
  const v1::OpDesc& op_;
  const struct OpDef& def_;
};

// Gives shape rules the descriptions of the inputs; the rule fills in those of the outputs.
class InferContext {
 public:
  virtual ~InferContext() = default;
  virtual const v1::OpDesc& op() const = 0;
  virtual AttrReader attrs() const = 0;
  // Number of variables given for a slot; 0 when absent.
  virtual int InputCount(std::string_view slot) const = 0;
  virtual int OutputCount(std::string_view slot) const = 0;
  virtual const v1::VarDesc& Input(std::string_view slot, int i = 0) const = 0;
  // Returns the description to write kind, dtype and dims into. Its name is set.
  virtual v1::VarDesc* Output(std::string_view slot, int i = 0) = 0;

  Shape InputShape(std::string_view slot, int i = 0) const;
  void SetOutput(std::string_view slot, absl::Span<const int64_t> dims, DType dtype = v1::FLOAT32, int i = 0);
  // Returns InvalidArgument "<type>: <text>"; the caller adds the op's place.
  absl::Status Error(std::string_view text) const;
};
using ShapeRule = std::function<absl::Status(InferContext&)>;

// Gives gradient rules the names of the gradients of the op's outputs and inputs.
class GradContext {
 public:
  virtual ~GradContext() = default;
  virtual const v1::OpDesc& op() const = 0;
  virtual AttrReader attrs() const = 0;
  // Returns the name of the gradient of output i of a slot; empty if no loss depends on that output.
  virtual std::string OutputGrad(std::string_view slot, int i = 0) const = 0;
  // Returns the name of the variable for the gradient of input i of a slot; empty if it is not wanted (data,
  // stop_gradient).
  virtual std::string InputGrad(std::string_view slot, int i = 0) = 0;
  virtual const v1::VarDesc& Var(std::string_view name) const = 0;
};
// Returns the ops that compute the wanted input gradients. Roles and param_grads are filled in by autodiff, which also
// adds gradients of a variable used several times. The rule is not called for an op whose outputs all lack gradients.
using GradRule = std::function<absl::StatusOr<std::vector<v1::OpDesc>>(GradContext&)>;

// Arithmetic and memory traffic of one run on the given shapes (batch dimensions already replaced by a number).
struct Cost {
  double flops = 0;
  double bytes = 0;
};
using CostRule = std::function<Cost(InferContext&)>;

// Allows output `output` to use the memory of input `input` if nothing reads that input later.
struct InPlaceRule {
  std::string input;
  std::string output;
};

// State of an optimizer op: input slot (its output is "<slot>Out"), shape, initial value.
struct StateDef {
  std::string slot;
  // kCount: updates so far; [1] with a dense gradient, one per row of the parameter ([rows]) when the gradient comes as
  // selected rows.
  enum Like { kParameter, kScalar, kCount } like = kParameter;
  // Attribute with the initial value, or "" for `initial`.
  std::string initial_attr;
  double initial = 0;
};

// Effect of an op on per-sample losses, from which autodiff recognizes the form of a scalar loss (docs/program.md,
// "Gradients").
enum class LossForm {
  kOther,
  // Out [] is the mean over X.
  kMean,
  // Out is a weighted sum of its dense inputs, element by element, perhaps plus a constant.
  kWeightedSum,
};

// Names of the elements along an axis, in order: element k of a run is number first + k of `of`. Equal names in two
// programs mean the same: "cat.C7" is slot C7 of the data in both, wherever it stands. A name of several parts,
// "cat.C7/vectors", is made by the operators that an element comes through (framework/graph/elements.h).
struct ElementRun {
  std::string of;
  int64_t first = 0;
  int64_t count = 1;
  bool operator==(const ElementRun&) const = default;
};
using ElementAxis = std::vector<ElementRun>;
// By axis; of a variable of an example without that of the batch.
using ElementAxes = std::vector<ElementAxis>;

// Effect of elements of an input on the elements of the outputs that are not theirs: whether a part can be added to a
// model without a change of what it predicted before.
enum class ElementEffect {
  // Changes them, or that is unknown.
  kMixed,
  // None: relu, concat.
  kApart,
  // None, if they are 0: sums.
  kAdded,
  // None, if those of one input are 0: products of vectors.
  kMultiplied,
  // None, if what the parameter W has for them is 0: fc.
  kWeighted,
};

// Gives naming rules the names of the elements of inputs; the rule names those of outputs and parameters.
class ElementContext {
 public:
  virtual ~ElementContext() = default;
  virtual const v1::OpDesc& op() const = 0;
  virtual AttrReader attrs() const = 0;
  virtual int InputCount(std::string_view slot) const = 0;
  virtual int OutputCount(std::string_view slot) const = 0;
  // Name and dims of a variable. Requires: it is given.
  virtual const v1::VarDesc& Input(std::string_view slot, int i = 0) const = 0;
  virtual const v1::VarDesc& Output(std::string_view slot, int i = 0) const = 0;
  // Names of an input that is no parameter.
  virtual const ElementAxes& Names(std::string_view slot, int i = 0) const = 0;
  // Names the elements of an input that is a parameter, the axes that servers cut first. Ignored for other inputs.
  virtual void NameParameter(std::string_view slot, ElementAxes axes, int i = 0) = 0;
  virtual void NameOutput(std::string_view slot, ElementAxes axes, int i = 0) = 0;
  // Say that this op differs from what its definition says of effect and zero_of_zero.
  virtual void SetEffect(ElementEffect effect) = 0;
  virtual void NotZeroOfZero() = 0;
};
using ElementRule = std::function<void(ElementContext&)>;

struct OpDef {
  std::string type;
  // One line of description for users.
  std::string summary;
  std::vector<SlotDef> inputs;
  std::vector<SlotDef> outputs;
  std::vector<AttrDef> attrs;
  OpScope scope = OpScope::kLane;
  ShapeRule shape;
  // Empty if the op is not differentiable or has no differentiable outputs (auc).
  GradRule gradient;
  CostRule cost;
  std::vector<InPlaceRule> in_place;
  // Names the output that other ops wait for if it costs about as much as the other outputs together (the gradient of a
  // layer's input); "" for none. All outputs of such an op are optional, and a kernel run for this output alone, and
  // another for the others, give the same bits as one run for all: both may run at the same time.
  std::string apart;
  LossForm loss_form = LossForm::kOther;
  // Empty: elements are known by their places in variables of the same name.
  ElementRule elements;
  ElementEffect effect = ElementEffect::kMixed;
  // Output elements are 0 where the inputs, but for parameters, are.
  bool zero_of_zero = false;
  // Update ops only: inputs Param, Grad, LearningRate and the states; outputs ParamOut and "<state>Out".
  bool is_optimizer = false;
  std::vector<StateDef> state;

  int InputIndex(std::string_view slot) const;   // -1 when there is none
  int OutputIndex(std::string_view slot) const;  // -1 when there is none
};

class OpRegistry {
 public:
  // Returns the registry of the operators linked into this program.
  static OpRegistry& Global();
  // CHECK-fails on a type registered twice.
  void Register(OpDef def);
  // Returns nullptr if the type is unknown. The pointer is always valid.
  const OpDef* Find(std::string_view type) const;
  // NotFound names the nearest known type.
  absl::StatusOr<const OpDef*> Get(std::string_view type) const;
  // Returns all types, sorted.
  std::vector<std::string> Types() const;

 private:
  std::vector<std::pair<std::string, const OpDef*>> ops_;
};

struct OpRegistrar {
  explicit OpRegistrar(OpDef def) { OpRegistry::Global().Register(std::move(def)); }
};
#define REGISTER_OP(name) static const ::weir::OpRegistrar weir_op_registrar_##name
// At namespace scope:  REGISTER_OP(relu)({.type = "relu", ...});

// Builds an op; the functions below build its attributes. For gradient rules and passes.
v1::OpDesc MakeOp(std::string_view type, std::vector<std::pair<std::string, std::vector<std::string>>> inputs,
                  std::vector<std::pair<std::string, std::vector<std::string>>> outputs,
                  std::vector<v1::OpAttr> attrs = {});
v1::OpAttr AttrB(std::string_view name, bool v);
v1::OpAttr AttrI(std::string_view name, int64_t v);
v1::OpAttr AttrF(std::string_view name, double v);
v1::OpAttr AttrS(std::string_view name, std::string_view v);
v1::OpAttr AttrInts(std::string_view name, absl::Span<const int64_t> v);
v1::OpAttr AttrFloats(std::string_view name, absl::Span<const double> v);
v1::OpAttr AttrStrings(std::string_view name, absl::Span<const std::string> v);
v1::OpAttr AttrBlock(std::string_view name, int32_t v);
v1::OpAttr AttrBlocks(std::string_view name, absl::Span<const int32_t> v);
v1::OpAttr AttrType(std::string_view name, DType v);

// Returns "x@GRAD".
std::string GradName(std::string_view var);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_OP_REGISTRY_H_
