// Pass: keeps the variables of the model by which metrics rank items of a catalogue (proto/metric.proto, Catalogue).
//
// Before: forward and losses. After: the query and the item of each catalogue are in ProgramDesc.kept. Errors, at the
// metric: a variable that is not there or no vector for each example; an item that depends on other data than its id.
// Returns false if the job has no such metric, or they are kept already.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_view.h"
#include "framework/graph/var_index.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/check_metrics.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

// Returns the variables that the program is fed and of which `name` is made.
std::set<std::string> DataOf(const v1::BlockDesc& block, const std::string& name) {
  std::set<std::string> needed = {name};
  for (auto op = block.ops().rbegin(); op != block.ops().rend(); ++op) {
    bool writes = false;
    ForEachVar(op->outputs(), [&](const std::string& var) { writes |= needed.contains(var); });
    if (!writes) continue;
    ForEachVar(op->outputs(), [&](const std::string& var) { needed.erase(var); });
    ForEachVar(op->inputs(), [&](const std::string& var) { needed.insert(var); });
  }
  std::erase_if(needed, [&](const std::string& var) {
    const v1::VarDesc* const desc = FindVar(block, var);
    return desc == nullptr || desc->persistable();
  });
  return needed;
}

class Keeper {
 public:
  Keeper(const Job& job, v1::ProgramDesc* program) : job_(job), program_(program) {}

  // `path`: "metric[0].recall.catalogue".
  absl::Status Keep(const std::string& path, const v1::Metric::Catalogue& catalogue) {
    ASSIGN_OR_RETURN(const int64_t query, WidthOf(path + ".query", catalogue.query()));
    ASSIGN_OR_RETURN(const int64_t item, WidthOf(path + ".item", catalogue.item()));
    if (query != item) {
      return Error(path + ".item",
                   absl::StrCat("'", catalogue.item(), "' has ", item, " numbers for each example, '",
                                catalogue.query(), "' has ", query, "; they are multiplied with each other"));
    }
    std::set<std::string> data = DataOf(program_->blocks(0), catalogue.item());
    const bool of_id = data.erase(catalogue.id()) > 0;
    if (!data.empty()) {
      return Error(path + ".item", absl::StrCat("'", catalogue.item(), "' is made of '", absl::StrJoin(data, "', '"),
                                                of_id ? "' besides" : "', not of", " '", catalogue.id(),
                                                "'; the vector of a candidate is made of its id alone"));
    }
    if (!of_id) {
      return Error(path + ".item", absl::StrCat("'", catalogue.item(), "' is not made of '", catalogue.id(),
                                                "', the id of a candidate"));
    }
    Keep(catalogue.query());
    Keep(catalogue.item());
    return absl::OkStatus();
  }
  bool changed() const { return changed_; }

 private:
  absl::Status Error(const std::string& path, const std::string& text) const {
    return job_.positions.Error(path, absl::StrCat(path, " ", text));
  }
  absl::StatusOr<int64_t> WidthOf(const std::string& path, const std::string& name) const {
    const v1::VarDesc* const var = FindVar(program_->blocks(0), name);
    if (var == nullptr) {
      return Error(path, absl::StrCat("the model has no variable '", name, "'; name one of its layers"));
    }
    const bool vectors = var->kind() == v1::DENSE && var->dtype() == v1::FLOAT32 && !var->persistable() &&
                         var->dims_size() == 2 && var->dims(0) == -1 && var->dims(1) > 0;
    if (vectors) return var->dims(1);
    return Error(
        path, absl::StrCat("'", name, "' is ", DescribeVar(*var), "; expected one vector for each example, [-1, W]"));
  }
  void Keep(const std::string& name) {
    const auto& kept = program_->kept();
    if (std::find(kept.begin(), kept.end(), name) != kept.end()) return;
    program_->add_kept(name);
    changed_ = true;
  }

  const Job& job_;
  v1::ProgramDesc* const program_;
  bool changed_ = false;
};

absl::StatusOr<bool> KeepJudged(const Job& job, Programs* programs) {
  Keeper keeper(job, &programs->main);
  for (int i = 0; i < job.config.metric_size(); ++i) {
    const RankedMetric ranked = RankedOf(job.config.metric(i));
    if (ranked.catalogue == nullptr) continue;
    RETURN_IF_ERROR(keeper.Keep(absl::StrCat("metric[", i, "].", ranked.kind, ".catalogue"), *ranked.catalogue));
  }
  return keeper.changed();
}

REGISTER_PASS(keep_judged)
({.name = "keep_judged",
  .run = KeepJudged,
  .phase = Phase::kSingleMachine,
  .after = "build_forward",
  .before = "append_backward"});

}  // namespace
}  // namespace weir
