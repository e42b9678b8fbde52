// What an operator's registered rules say about its place in a program: is it well-formed, what are its outputs, what
// does it cost. Shared by builder, verifier, autodiff and explain. Pure functions.
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

// Description of a variable by name; nullptr when there is none. Pointers live as long as the program does not change.
using VarLookup = std::function<const v1::VarDesc*(std::string_view)>;

// Variables of a program by name, from a block outwards. Borrows the program, which must not change meanwhile.
class ProgramIndex {
 public:
  explicit ProgramIndex(const v1::ProgramDesc& program);
  // Looks into the block, then into its parents. nullptr when none declares it, or when there is no such block.
  const v1::VarDesc* Find(int block, std::string_view name) const;
  VarLookup Lookup(int block) const;
  // Names visible from a block, sorted; for suggestions.
  std::vector<std::string> Names(int block) const;

 private:
  const v1::ProgramDesc& program_;
  std::vector<std::unordered_map<std::string_view, const v1::VarDesc*>> vars_;
};

// "block 0, op 3 (relu)"
std::string OpPlace(int block, int index, const v1::OpDesc& op);

// Type, slots, attributes and kinds of variables agree with the operator's signature; inputs are declared, and outputs
// too unless `outputs_may_be_new`. Errors name slot, attribute or variable; the caller adds the place. An update op of
// a TABLE carries no state: its rows do.
absl::StatusOr<const OpDef*> CheckSignature(const v1::OpDesc& op, const VarLookup& find, bool outputs_may_be_new);

// Descriptions of the outputs, in the order they stand in the op, by the shape rule. What the rule does not set stays
// as declared. CheckSignature has passed.
absl::StatusOr<std::vector<v1::VarDesc>> InferOutputs(const v1::OpDesc& op, const OpDef& def, const VarLookup& find);

// Arithmetic and traffic of one run on `batch` examples; zero for an op without a cost rule.
Cost CostOf(const v1::OpDesc& op, const OpDef& def, const VarLookup& find, int64_t batch);

// Same rank, and every pair of dims equal or one of them -1.
bool DimsAgree(absl::Span<const int64_t> a, absl::Span<const int64_t> b);

// "float32 [-1, 8]", "selected rows float32 [-1, 8]"
std::string DescribeVar(const v1::VarDesc& var);

// "float", "list of integers", ...: the type of an attribute's value, for people.
std::string AttrTypeName(v1::OpAttr::ValueCase type);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_INFER_H_
