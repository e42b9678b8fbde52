// Reads ops and variables of a server's program.
#ifndef WEIR_PSERVER_SERVER_PROGRAM_OPS_H_
#define WEIR_PSERVER_SERVER_PROGRAM_OPS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/program.pb.h"

namespace weir {

// Returns the variable of a slot; "" if the slot is missing or has another number of variables than one.
inline std::string OnlyVar(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return slot.vars_size() == 1 ? slot.vars(0) : "";
  }
  return "";
}

// Return nullptr if it is missing.
inline const v1::OpAttr* FindAttr(const v1::OpDesc& op, std::string_view name) {
  for (const v1::OpAttr& attr : op.attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}
inline const v1::VarDesc* FindVar(const v1::BlockDesc& block, std::string_view name) {
  for (const v1::VarDesc& var : block.vars()) {
    if (var.name() == name) return &var;
  }
  return nullptr;
}

// Returns `status` with "<what>: " in front.
inline absl::Status Prefixed(const std::string& what, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_PROGRAM_OPS_H_
