#include "framework/graph/op_view.h"

namespace weir {
namespace {

std::string FirstVar(const OpSlots& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name && slot.vars_size() > 0) return slot.vars(0);
  }
  return "";
}

bool Names(const OpSlots& slots, std::string_view var) {
  for (const v1::OpSlot& slot : slots) {
    for (const std::string& name : slot.vars()) {
      if (name == var) return true;
    }
  }
  return false;
}

}  // namespace

const NameList& SlotVars(const OpSlots& slots, std::string_view name) {
  static const auto* const none = new NameList();
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return slot.vars();
  }
  return *none;
}

const std::string& OnlyVar(const OpSlots& slots, std::string_view name) {
  static const auto* const none = new std::string();
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name && slot.vars_size() == 1) return slot.vars(0);
  }
  return *none;
}

std::string InputOf(const v1::OpDesc& op, std::string_view slot) { return FirstVar(op.inputs(), slot); }
std::string OutputOf(const v1::OpDesc& op, std::string_view slot) { return FirstVar(op.outputs(), slot); }

bool Reads(const v1::OpDesc& op, std::string_view var) { return Names(op.inputs(), var); }
bool Writes(const v1::OpDesc& op, std::string_view var) { return Names(op.outputs(), var); }

const v1::OpAttr* FindAttr(const v1::OpDesc& op, std::string_view name) {
  for (const v1::OpAttr& attr : op.attrs()) {
    if (attr.name() == name) return &attr;
  }
  return nullptr;
}

bool BoolOr(const v1::OpDesc& op, std::string_view name, bool absent) {
  const v1::OpAttr* const attr = FindAttr(op, name);
  return attr == nullptr ? absent : attr->b();
}

int64_t IntOr(const v1::OpDesc& op, std::string_view name, int64_t absent) {
  const v1::OpAttr* const attr = FindAttr(op, name);
  return attr == nullptr ? absent : attr->i();
}

const google::protobuf::RepeatedField<int64_t>& IntsOf(const v1::OpDesc& op, std::string_view name) {
  static const auto* const none = new google::protobuf::RepeatedField<int64_t>();
  const v1::OpAttr* const attr = FindAttr(op, name);
  return attr == nullptr ? *none : attr->ints().v();
}

const NameList& StringsOf(const v1::OpDesc& op, std::string_view name) {
  static const auto* const none = new NameList();
  const v1::OpAttr* const attr = FindAttr(op, name);
  return attr == nullptr ? *none : attr->strings().v();
}

}  // namespace weir
