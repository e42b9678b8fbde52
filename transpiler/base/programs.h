// The two programs of a process, and functions with which passes read and edit them.
#ifndef WEIR_TRANSPILER_BASE_PROGRAMS_H_
#define WEIR_TRANSPILER_BASE_PROGRAMS_H_

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "framework/tensor/tensor.h"
#include "proto/program.pb.h"

namespace weir {

struct Programs {
  v1::ProgramDesc main;
  v1::ProgramDesc startup;
};

// Returns a variable of this very block; nullptr if there is none.
const v1::VarDesc* FindVar(const v1::BlockDesc& block, std::string_view name);
v1::VarDesc* FindVar(v1::BlockDesc* block, std::string_view name);

// Index of the variables of one block by name, with the results of FindVar. Borrows the block; meanwhile names must not
// change and variables must not be removed. A variable that is added to the block must be passed to Add.
class VarIndex {
 public:
  explicit VarIndex(const v1::BlockDesc& block);
  // Returns nullptr if there is none.
  const v1::VarDesc* Find(std::string_view name) const {
    const auto found = vars_.find(name);
    return found == vars_.end() ? nullptr : found->second;
  }
  bool Contains(std::string_view name) const { return vars_.contains(name); }
  void Add(const v1::VarDesc& var) { vars_.emplace(var.name(), &var); }

 private:
  std::unordered_map<std::string_view, const v1::VarDesc*> vars_;
};

// Returns the only variable of a slot; "" if the op does not have the slot.
std::string InputOf(const v1::OpDesc& op, std::string_view slot);
std::string OutputOf(const v1::OpDesc& op, std::string_view slot);
bool Reads(const v1::OpDesc& op, std::string_view var);
bool Writes(const v1::OpDesc& op, std::string_view var);
const v1::OpAttr* FindAttr(const v1::OpDesc& op, std::string_view name);

// Returns the (parameter, gradient) pairs of the update ops of block 0, each parameter once, in program order.
std::vector<v1::ParamGrad> UpdatedParameters(const v1::ProgramDesc& main);
v1::ParamGrad Pair(std::string_view param, std::string_view grad);

// Returns `op` with a role and, if given, its parameter and gradient.
v1::OpDesc WithRole(v1::OpDesc op, v1::OpRole role, const v1::ParamGrad* pair = nullptr);

inline absl::Span<const int64_t> Dims(const v1::VarDesc& var) {
  return absl::MakeConstSpan(var.dims().data(), static_cast<size_t>(var.dims_size()));
}

// Keeps the ops of a block for which `keep` returns true.
void FilterOps(v1::BlockDesc* block, const std::function<bool(const v1::OpDesc&)>& keep);
// Drops variables of block 0 that no op and no loss names.
void DropUnusedVars(v1::ProgramDesc* program);

}  // namespace weir

#endif  // WEIR_TRANSPILER_BASE_PROGRAMS_H_
