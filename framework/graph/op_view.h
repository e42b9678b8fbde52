// Accessors for an op of a program: the variables of its slots and its attributes, as they are written. They use
// neither signature nor defaults (AttrReader of framework/graph/op_registry.h does), so they work on any op, also on
// one that the verifier has not seen. References are valid until the op changes.
#ifndef WEIR_FRAMEWORK_GRAPH_OP_VIEW_H_
#define WEIR_FRAMEWORK_GRAPH_OP_VIEW_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "proto/program.pb.h"

namespace weir {

using OpSlots = google::protobuf::RepeatedPtrField<v1::OpSlot>;
using NameList = google::protobuf::RepeatedPtrField<std::string>;

// Returns the variables of a slot, in order; empty if the op does not have the slot.
const NameList& SlotVars(const OpSlots& slots, std::string_view name);

// Returns the variable of a slot that has exactly one; "" for any other number.
const std::string& OnlyVar(const OpSlots& slots, std::string_view name);

// Return the first variable of a slot; "" if the op does not have the slot. For slots that take one variable.
std::string InputOf(const v1::OpDesc& op, std::string_view slot);
std::string OutputOf(const v1::OpDesc& op, std::string_view slot);

// Calls visit(name) for each variable of each slot, in order, as often as it is named.
template <typename Visit>
void ForEachVar(const OpSlots& slots, const Visit& visit) {
  for (const v1::OpSlot& slot : slots) {
    for (const std::string& var : slot.vars()) visit(var);
  }
}

bool Reads(const v1::OpDesc& op, std::string_view var);
bool Writes(const v1::OpDesc& op, std::string_view var);

// Returns nullptr if the op does not have the attribute.
const v1::OpAttr* FindAttr(const v1::OpDesc& op, std::string_view name);

// Return the value of an attribute; `absent` if the op does not have it.
bool BoolOr(const v1::OpDesc& op, std::string_view name, bool absent);
int64_t IntOr(const v1::OpDesc& op, std::string_view name, int64_t absent);

// Return a list; empty if the op does not have the attribute.
const google::protobuf::RepeatedField<int64_t>& IntsOf(const v1::OpDesc& op, std::string_view name);
const NameList& StringsOf(const v1::OpDesc& op, std::string_view name);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_OP_VIEW_H_
