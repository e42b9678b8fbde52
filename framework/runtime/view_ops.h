// Selects the ops of a block that may return a view of their input (reshape by reference) instead of a copy.
#ifndef WEIR_FRAMEWORK_RUNTIME_VIEW_OPS_H_
#define WEIR_FRAMEWORK_RUNTIME_VIEW_OPS_H_

#include <functional>
#include <string_view>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// Returns true if ops of this type can return a view.
bool HasViews(const v1::OpDesc& op);

// Returns the indices of the ops of a block that may return a view; `shares_buffer` returns true for variables that
// share a buffer.
//
// A view shares the memory of its input until the step ends, and a tensor that is written while a view of it exists
// takes new memory. Both must therefore be lane variables written by exactly one op, and neither may share a buffer (an
// op in place would lose its input). The input must not be data, which is filled for the next step while the view still
// exists.
std::vector<int> ViewOps(const v1::BlockDesc& block, const std::function<bool(std::string_view)>& shares_buffer);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_VIEW_OPS_H_
