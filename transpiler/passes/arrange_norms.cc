#include "transpiler/passes/arrange_norms.h"

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "transpiler/base/programs.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/job.h"
#include "transpiler/job/modes.h"

namespace weir {
namespace {

std::string NormName(const v1::OpDesc& op) {
  const v1::OpAttr* name = op.type() == "whole_norm" ? FindAttr(op, "name") : nullptr;
  return name == nullptr ? "" : name->s();
}

// Adds the variables and the pair of another whole_norm.
void Join(const v1::OpDesc& other, v1::OpDesc* op) {
  CHECK(op->inputs_size() == 1 && op->outputs_size() == 1 && other.inputs_size() == 1 && other.outputs_size() == 1);
  op->mutable_inputs(0)->mutable_vars()->MergeFrom(other.inputs(0).vars());
  op->mutable_outputs(0)->mutable_vars()->MergeFrom(other.outputs(0).vars());
  op->mutable_param_grads()->MergeFrom(other.param_grads());
}

}  // namespace

void ArrangeNorms(std::vector<v1::OpDesc>* ops) {
  std::map<std::string, int> missing;  // whole_norms of a name that have not been met
  for (const v1::OpDesc& op : *ops) {
    if (const std::string name = NormName(op); !name.empty()) ++missing[name];
  }
  std::erase_if(missing, [](const auto& entry) { return entry.second == 1; });
  if (missing.empty()) return;
  std::map<std::string, v1::OpDesc> joined;
  std::map<std::string, std::string> waits;  // parameter: the name that it waits for
  std::vector<v1::OpDesc> arranged, waiting;
  const std::function<void(v1::OpDesc)> take = [&](v1::OpDesc op) {
    const std::string param = op.param_grads_size() == 0 ? "" : op.param_grads(0).param();
    if (waits.contains(param)) {
      waiting.push_back(std::move(op));
      return;
    }
    const std::string name = NormName(op);
    const auto group = missing.find(name);
    if (group == missing.end()) {
      arranged.push_back(std::move(op));
      return;
    }
    const auto [entry, first] = joined.try_emplace(name, op);
    if (!first) Join(op, &entry->second);
    waits[param] = name;
    if (--group->second > 0) return;
    arranged.push_back(std::move(entry->second));
    std::erase_if(waits, [&](const auto& wait) { return wait.second == name; });
    std::vector<v1::OpDesc> again;
    again.swap(waiting);
    for (v1::OpDesc& each : again) take(std::move(each));
  };
  for (v1::OpDesc& op : *ops) take(std::move(op));
  CHECK(waiting.empty());
  *ops = std::move(arranged);
}

absl::Status CheckNormsFit(const Job& job, const std::vector<v1::OpDesc>& ops) {
  std::string name;
  for (const v1::OpDesc& op : ops) {
    if (name.empty()) name = NormName(op);
  }
  if (name.empty()) return absl::OkStatus();
  const v1::Distribute& distribute = job.config.distribute();
  const Setting at(&distribute, "distribute", &job.positions);
  const std::string why =
      absl::StrCat("the norm of '", name, "' is over gradients of several servers and needs a step that is complete");
  for (const JobMode* mode : ModesOf(distribute)) {
    if (mode->against_norms != nullptr) return at.Error(mode->setting, absl::StrCat(mode->against_norms, "; ", why));
  }
  return absl::OkStatus();
}

}  // namespace weir
