#include "pserver/protocol/norm_cuts.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_view.h"

namespace weir {

namespace {

std::vector<std::string> VarsOf(const OpSlots& slots, std::string_view name) {
  const NameList& vars = SlotVars(slots, name);
  return {vars.begin(), vars.end()};
}

}  // namespace

absl::StatusOr<std::vector<NormCut>> NormCutsOf(const v1::BlockDesc& optimize) {
  std::vector<NormCut> cuts;
  for (int i = 0; i < optimize.ops_size(); ++i) {
    const v1::OpDesc& op = optimize.ops(i);
    if (op.type() != "whole_norm") continue;
    const std::vector<std::string> parts = VarsOf(op.inputs(), "X");
    const v1::OpAttr* const name = FindAttr(op, "name");
    if (i == 0 || parts.size() != 1 || name == nullptr || name->s().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("op ", i,
                       " (whole_norm): on a server it stands behind a sum_of_squares, has "
                       "one part and a name; this one has ",
                       parts.size(), " parts"));
    }
    if (cuts.empty() || cuts.back().end != i) cuts.push_back({.begin = i});
    cuts.back().end = i + 1;
    cuts.back().norms.push_back({name->s(), parts[0], VarsOf(op.outputs(), "Out")});
  }
  return cuts;
}

absl::StatusOr<std::optional<TableClip>> TakeTableClip(const std::string& grad, std::vector<const v1::OpDesc*>* ops) {
  if (ops->empty() || ops->front()->type() != "sum_of_squares") return std::optional<TableClip>();
  const bool all = ops->size() > 3 && (*ops)[1]->type() == "whole_norm" && (*ops)[2]->type() == "clip_by_norm";
  if (!all) {
    return absl::InvalidArgumentError(
        "a norm of a table's gradient is there to clip it: sum_of_squares, whole_norm, clip_by_norm, "
        "then the update");
  }
  const v1::OpDesc &sum = *(*ops)[0], &norm = *(*ops)[1], &clip = *(*ops)[2];
  const std::vector<std::string> part = VarsOf(sum.outputs(), "Out"), whole = VarsOf(norm.outputs(), "Out");
  const bool fit = part.size() == 1 && whole.size() == 1 && OnlyVar(sum.inputs(), "X") == grad &&
                   OnlyVar(norm.inputs(), "X") == part[0] && OnlyVar(clip.inputs(), "X") == grad &&
                   OnlyVar(clip.inputs(), "Norm") == whole[0] && OnlyVar(clip.outputs(), "Out") == grad;
  const v1::OpAttr *const name = FindAttr(norm, "name"), *const max_norm = FindAttr(clip, "max_norm");
  if (!fit || name == nullptr || max_norm == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("sum_of_squares, whole_norm and clip_by_norm do not hand ", grad, " on to each other"));
  }
  ops->erase(ops->begin(), ops->begin() + 3);
  return std::optional<TableClip>(TableClip{name->s(), max_norm->f()});
}

}  // namespace weir
