#include "trainer/loop/lone_examples.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/graph/loss_facts.h"

namespace weir {
namespace {

// Returns the values of one example that are averaged together with those of the others: 1 for [B, W]. `kept`: the
// dimension of which each value is apart, beside that of examples; -1: the last.
int64_t ValuesTogether(const v1::VarDesc& x, int kept) {
  int64_t values = 1;
  const int last = kept < 0 ? x.dims_size() - 1 : kept;
  for (int d = 1; d < x.dims_size(); ++d) values *= d == last ? 1 : x.dims(d);
  return values;
}

const std::string* FirstVar(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name && slot.vars_size() > 0) return &slot.vars(0);
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> AcrossExamples(const v1::ProgramDesc& main) {
  std::vector<std::string> across;
  if (main.blocks_size() == 0) return across;
  std::map<std::string, const v1::VarDesc*> vars;
  for (const v1::VarDesc& var : main.blocks(0).vars()) vars[var.name()] = &var;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    const bool norm = op.type() == "batch_norm", dice = op.type() == "dice";
    const LossFacts* const loss = LossFactsOf(op.type());
    if (!norm && !dice && (loss == nullptr || !loss->across_examples)) continue;
    const std::string* const x = FirstVar(op.inputs(), "X");
    const std::string* const out = FirstVar(op.outputs(), "Out");
    if (const auto found = x == nullptr ? vars.end() : vars.find(*x);
        found != vars.end() && ValuesTogether(*found->second, norm ? 1 : -1) > 1) {
      continue;
    }
    across.push_back(absl::StrCat("'", out == nullptr ? "" : *out, "' (", op.type(), ")"));
  }
  return across;
}

std::string LoneExamples::Look(int64_t step, const std::vector<std::vector<LaneBatch>>& batches) {
  if (across_.empty()) return "";
  int64_t lone = 0, lanes = 0;
  for (const std::vector<LaneBatch>& of_worker : batches) {
    for (const LaneBatch& lane : of_worker) {
      lone += lane.examples == 1 ? 1 : 0;
      ++lanes;
    }
  }
  if (lone == 0) return "";
  const std::string layers = absl::StrJoin(across_, ", ");
  across_.clear();
  return absl::StrCat(
      "step ", step, ": the batches of ", lone, " of ", lanes, " lanes have a single example, and ", layers,
      " compute across the examples of a lane: they learn nothing from it, or the wrong thing. If this is not the rest "
      "at the end of the data, take fewer lanes (train.lanes), or leave such rests out (data.drop_last); later steps "
      "are not named");
}

}  // namespace weir
