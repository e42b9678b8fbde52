// Which ops of a block may give a view of their input (reshape by reference) where they would copy it.
#ifndef WEIR_FRAMEWORK_RUNTIME_VIEW_OPS_H_
#define WEIR_FRAMEWORK_RUNTIME_VIEW_OPS_H_

#include <functional>
#include <string_view>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// Whether ops of this type can.
bool HasViews(const v1::OpDesc& op);

// The ops of a block that may, by their places; `shares_buffer` tells the variables that live in a buffer with others.
//
// A view and its whole have one memory until the step ends, and a tensor that is written while a view of it stands
// takes new memory. So both are variables of a lane that one op writes and no other, neither shares a buffer (an op in
// place would lose what it reads), and the whole is no data: that is filled for the next step while the view still
// stands.
std::vector<int> ViewOps(const v1::BlockDesc& block, const std::function<bool(std::string_view)>& shares_buffer);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_VIEW_OPS_H_
