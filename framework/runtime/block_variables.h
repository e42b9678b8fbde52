// Variables of a prepared block on the host: one per lane, one for the step, or the scope's, as the block says.
//
// Pointers to variables are valid as long as this object and the scope. Not thread-safe: variables are located while a
// program is prepared; Find does not change the object.
#ifndef WEIR_FRAMEWORK_RUNTIME_BLOCK_VARIABLES_H_
#define WEIR_FRAMEWORK_RUNTIME_BLOCK_VARIABLES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/prepared_block.h"
#include "framework/runtime/scope.h"

namespace weir {

class BlockVariables {
 public:
  // `block` and `scope` are borrowed.
  BlockVariables(const PreparedBlock* block, Scope* scope, int lanes)
      : block_(block), scope_(scope), of_lanes_(static_cast<size_t>(lanes)) {}
  BlockVariables(const BlockVariables&) = delete;
  BlockVariables& operator=(const BlockVariables&) = delete;

  int lanes() const { return static_cast<int>(of_lanes_.size()); }
  // Finds a variable, or creates it with an empty value of its declared kind. NotFound if it is not declared.
  absl::StatusOr<Variable*> Locate(int lane, const std::string& name);
  // Returns nullptr if the variable was not located. CHECK-fails on a lane that does not exist.
  Variable* Find(int lane, std::string_view name);

  // Returns the contexts of an op's CPU kernel, with the variables located: one per lane, or one that sees all lanes
  // (BlockOp.per_lane). `step` and `batch`, the numbers of examples by lane, are borrowed.
  absl::StatusOr<std::vector<KernelContext>> ContextsOf(const BlockOp& op, const StepContext* step,
                                                        const int64_t* batch);

 private:
  // Keys are the names under which variables are kept (PreparedBlock::Storage).
  using VarMap = std::map<std::string, Variable, std::less<>>;

  const PreparedBlock* const block_;
  Scope* const scope_;
  VarMap of_step_;
  std::vector<VarMap> of_lanes_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_BLOCK_VARIABLES_H_
