// Programs printed: as text, and as messages.
#include "framework/graph/program_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "framework/base/string_views.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"

namespace weir {
namespace {

std::string Quoted(std::string_view s) { return absl::StrCat("\"", absl::CEscape(Av(s)), "\""); }

std::string Name(bool has, std::string_view name) {
  if (!has) return "~";
  bool bare = !name.empty() && IsNameStart(name[0]);
  for (char c : name) bare = bare && IsNameChar(c);
  return bare ? std::string(name) : Quoted(name);
}

// The shortest digits that give the same bits, and always something that tells a float from an integer.
std::string FloatText(double v) {
  if (std::isnan(v)) return std::signbit(v) ? "-nan" : "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), v).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string MessageText(const google::protobuf::Message& message, bool one_line) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(one_line);
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  printer.PrintToString(message, &text);
  if (one_line) absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

template <typename List, typename Print>
std::string ListText(const char* empty, const List& list, Print print) {
  if (list.empty()) return absl::StrCat(empty, "[]");
  std::string text = "[";
  for (const auto& v : list) absl::StrAppend(&text, text.size() == 1 ? "" : ", ", print(v));
  return text + "]";
}

std::string BoolText(bool v) { return v ? "true" : "false"; }

std::string AttrText(const v1::OpAttr& attr) {
  const auto integer = [](int64_t v) { return absl::StrCat(v); };
  switch (attr.value_case()) {
    case v1::OpAttr::kB:
      return BoolText(attr.b());
    case v1::OpAttr::kI:
      return integer(attr.i());
    case v1::OpAttr::kF:
      return FloatText(attr.f());
    case v1::OpAttr::kS:
      return Quoted(attr.s());
    case v1::OpAttr::kBools:
      return ListText("bools", attr.bools().v(), BoolText);
    case v1::OpAttr::kInts:
      return ListText("ints", attr.ints().v(), integer);
    case v1::OpAttr::kFloats:
      return ListText("floats", attr.floats().v(), FloatText);
    case v1::OpAttr::kStrings:
      return ListText("strings", attr.strings().v(), [](const std::string& s) { return Quoted(s); });
    case v1::OpAttr::kBlock:
      return absl::StrCat("block(", attr.block(), ")");
    case v1::OpAttr::kBlocks: {
      const std::string list = ListText("", attr.blocks().v(), integer);
      return "blocks" + list;
    }
    case v1::OpAttr::kDtype:
      return absl::StrCat("dtype(", v1::DType_Name(attr.dtype()), ")");
    case v1::OpAttr::kInitializer:
      return absl::StrCat("initializer { ", MessageText(attr.initializer(), true), " }");
    case v1::OpAttr::VALUE_NOT_SET:
      return "none";
  }
  return "none";
}

std::string SlotsText(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots) {
  std::string text;
  for (const v1::OpSlot& slot : slots) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", Name(slot.has_name(), slot.name()), "=");
    if (slot.vars_size() == 1) {
      absl::StrAppend(&text, Name(true, slot.vars(0)));
      continue;
    }
    std::string vars;
    for (const std::string& var : slot.vars()) absl::StrAppend(&vars, vars.empty() ? "" : ", ", Name(true, var));
    absl::StrAppend(&text, "[", vars, "]");
  }
  return text;
}

std::string VarText(const v1::VarDesc& var) {
  std::string text = absl::StrCat("var ", Name(var.has_name(), var.name()));
  if (var.has_kind()) absl::StrAppend(&text, " ", absl::AsciiStrToLower(v1::VarKind_Name(var.kind())));
  if (var.has_dtype()) absl::StrAppend(&text, " ", absl::AsciiStrToLower(v1::DType_Name(var.dtype())));
  absl::StrAppend(&text, " ", ListText("", var.dims(), [](int64_t d) { return absl::StrCat(d); }));
  v1::VarDesc rest = var;
  rest.clear_name();
  rest.clear_kind();
  rest.clear_dtype();
  rest.clear_dims();
  const std::string fields = MessageText(rest, true);
  return fields.empty() ? text : absl::StrCat(text, " ", fields);
}

}  // namespace

std::string OpText(const v1::OpDesc& op) {
  std::string text;
  if (op.outputs_size() > 0) text = absl::StrCat(SlotsText(op.outputs()), " <- ");
  absl::StrAppend(&text, Name(op.has_type(), op.type()), "(", SlotsText(op.inputs()), ")");
  for (const v1::OpAttr& attr : op.attrs()) {
    absl::StrAppend(&text, " ", Name(attr.has_name(), attr.name()), "=", AttrText(attr));
  }
  if (op.has_role()) absl::StrAppend(&text, " @", v1::OpRole_Name(op.role()));
  if (op.param_grads_size() > 0) {
    std::string pairs;
    for (const v1::ParamGrad& pair : op.param_grads()) {
      absl::StrAppend(&pairs, pairs.empty() ? "" : ", ", Name(pair.has_param(), pair.param()), "=",
                      Name(pair.has_grad(), pair.grad()));
    }
    absl::StrAppend(&text, " grads(", pairs, ")");
  }
  return text;
}

std::string ProgramText(const v1::ProgramDesc& program) {
  std::string text = "weir program";
  if (program.has_format_version()) absl::StrAppend(&text, " ", program.format_version());
  absl::StrAppend(&text, "\n");
  if (program.has_name()) absl::StrAppend(&text, "name ", Quoted(program.name()), "\n");
  if (program.has_seed()) absl::StrAppend(&text, "seed ", program.seed(), "\n");
  for (const v1::LossDesc& loss : program.losses()) absl::StrAppend(&text, "loss ", MessageText(loss, true), "\n");
  for (const std::string& kept : program.kept()) absl::StrAppend(&text, "kept ", Quoted(kept), "\n");
  if (program.has_mode()) absl::StrAppend(&text, "mode ", MessageText(program.mode(), true), "\n");
  if (program.has_plan()) {
    // Indented, so that a line of '}' alone ends it.
    std::string plan;
    google::protobuf::TextFormat::Printer printer;
    printer.SetInitialIndentLevel(1);
    printer.SetUseShortRepeatedPrimitives(true);
    printer.PrintToString(program.plan(), &plan);
    absl::StrAppend(&text, "plan {\n", plan, "}\n");
  }
  for (const v1::BlockDesc& block : program.blocks()) {
    absl::StrAppend(&text, "\nblock");
    if (block.has_index()) absl::StrAppend(&text, " ", block.index());
    if (block.has_parent()) absl::StrAppend(&text, " parent ", block.parent());
    absl::StrAppend(&text, " {\n");
    for (const v1::VarDesc& var : block.vars()) absl::StrAppend(&text, "  ", VarText(var), "\n");
    for (const v1::OpDesc& op : block.ops()) absl::StrAppend(&text, "  ", OpText(op), "\n");
    absl::StrAppend(&text, "}\n");
  }
  return text;
}

absl::StatusOr<std::string> FormatProgram(const v1::ProgramDesc& program, std::string_view format) {
  if (format == "text") return ProgramText(program);
  if (format == "textproto") return MessageText(program, /*one_line=*/false);
  if (format != "json") {
    return absl::InvalidArgumentError(absl::StrCat("unknown format '", Av(format), "'; known: text, textproto, json"));
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(program, &json, options);
  if (!status.ok()) return absl::InternalError(status.ToString());
  return json;
}

}  // namespace weir
