// Applies an operator's registered rules to an op of a program: checks its signature, infers its outputs, computes its
// cost. Shared by builder, verifier, autodiff and explain. Pure functions.
#ifndef WEIR_FRAMEWORK_GRAPH_INFER_H_
#define WEIR_FRAMEWORK_GRAPH_INFER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/graph/op_registry.h"
#include "proto/program.pb.h"

namespace weir {

// Returns the description of a variable by name; nullptr if there is none. Pointers are valid as long as the program
// does not change.
using VarLookup = std::function<const v1::VarDesc*(std::string_view)>;

// Finds variables of a program by name, from a block outwards. Borrows the program, which must not change meanwhile.
class ProgramIndex {
 public:
  explicit ProgramIndex(const v1::ProgramDesc& program);
  // Looks into the block, then into its parents. Returns nullptr if none declares it, or if there is no such block.
  const v1::VarDesc* Find(int block, std::string_view name) const;
  VarLookup Lookup(int block) const;
  // Returns the names visible from a block, sorted; for suggestions.
  std::vector<std::string> Names(int block) const;

 private:
  const v1::ProgramDesc& program_;
  std::vector<std::unordered_map<std::string_view, const v1::VarDesc*>> vars_;
};

// Returns "block 0, op 3 (relu)".
std::string OpPlace(int block, int index, const v1::OpDesc& op);

// Checks that type, slots, attributes and kinds of variables agree with the operator's signature, that inputs are
// declared, and outputs too unless `outputs_may_be_new`. Errors name slot, attribute or variable; the caller adds the
// place. An update op of a TABLE has no state variables: the state is in the rows.
absl::StatusOr<const OpDef*> CheckSignature(const v1::OpDesc& op, const VarLookup& find, bool outputs_may_be_new);

// Returns the descriptions of the outputs by the shape rule, in the order of the op. Fields that the rule does not set
// stay as declared. CheckSignature must have passed.
absl::StatusOr<std::vector<v1::VarDesc>> InferOutputs(const v1::OpDesc& op, const OpDef& def, const VarLookup& find);

// Returns arithmetic and memory traffic of one run on `batch` examples; zero for an op without a cost rule.
Cost CostOf(const v1::OpDesc& op, const OpDef& def, const VarLookup& find, int64_t batch);

// Returns the product of dims from outside, of a program that has not been verified: 1 for a scalar; -1 if one is
// negative or the product overflows. ElementCount requires valid dims.
int64_t KnownCount(absl::Span<const int64_t> dims);

// Returns OK if each dimension is a count, or -1 for the first, and the elements of one example (or row) are at most
// 2^48. Enforced for the builder, the verifier and the outputs of every shape rule, so arithmetic in shape rules does
// not overflow.
absl::Status CheckDims(const v1::VarDesc& var);

// Returns true if the ranks are equal and in every pair of dims both are equal or one is -1.
bool DimsAgree(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

// Returns "float32 [-1, 8]", "selected rows float32 [-1, 8]".
std::string DescribeVar(const v1::VarDesc& var);

// Returns the type of an attribute's value for messages: "float", "list of integers", ...
std::string AttrTypeName(v1::OpAttr::ValueCase type);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_INFER_H_
