// The two programs of a process, and functions with which passes edit them. Reading them is the task of
// framework/graph/{op_view,var_index,def_use}.h.
#ifndef WEIR_TRANSPILER_BASE_PROGRAMS_H_
#define WEIR_TRANSPILER_BASE_PROGRAMS_H_

#include <functional>
#include <string_view>
#include <vector>

#include "framework/graph/op_view.h"
#include "framework/graph/var_index.h"
#include "proto/program.pb.h"

namespace weir {

struct Programs {
  v1::ProgramDesc main;
  v1::ProgramDesc startup;
};

// Returns the (parameter, gradient) pairs of the update ops of block 0, each parameter once, in program order.
std::vector<v1::ParamGrad> UpdatedParameters(const v1::ProgramDesc& main);
v1::ParamGrad Pair(std::string_view param, std::string_view grad);

// Returns `op` with a role and, if given, its parameter and gradient.
v1::OpDesc WithRole(v1::OpDesc op, v1::OpRole role, const v1::ParamGrad* pair = nullptr);

// Keeps the ops of a block for which `keep` returns true.
void FilterOps(v1::BlockDesc* block, const std::function<bool(const v1::OpDesc&)>& keep);
// Drops variables of block 0 that no op and no loss names.
void DropUnusedVars(v1::ProgramDesc* program);

}  // namespace weir

#endif  // WEIR_TRANSPILER_BASE_PROGRAMS_H_
