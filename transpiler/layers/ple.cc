// ple: progressive layered extraction. Each task has experts of its own at every level, beside those that all share;
// its gate weighs both. A gate of the level weighs all experts for the shared experts of the next. What experts and
// gates of the next level read are the variables "<name>.<l>.task<t>" and "<name>.<l>.shared".
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/expert_parts.h"

namespace weir {
namespace {

// Inputs of a level: a variable for each task, and one for the shared experts.
struct LevelInput {
  std::vector<std::string> tasks;
  std::string shared;
};

// Appends `count` experts "<part>.expert0", ... that read `input`, and adds the names of their outputs.
absl::Status AppendExperts(ModelContext& ctx, const ExpertParts& expert, const std::string& input, int count,
                           const std::string& part, std::vector<std::string>* outputs) {
  for (int e = 0; e < count; ++e) {
    ASSIGN_OR_RETURN(std::string output, AppendExpert(ctx, expert, input, absl::StrCat(part, ".expert", e)));
    outputs->push_back(std::move(output));
  }
  return absl::OkStatus();
}

absl::Status AppendLevel(const v1::Ple& m, ModelContext& ctx, const ExpertParts& expert, int level, LevelInput* x) {
  const std::string at = absl::StrCat(level);
  const int64_t width = expert.sizes.back();
  const bool last = level + 1 == m.levels();
  std::vector<std::string> shared;
  RETURN_IF_ERROR(AppendExperts(ctx, expert, x->shared, m.shared_experts(), at + ".shared", &shared));
  std::vector<std::string> all;
  LevelInput next;
  for (int t = 0; t < m.tasks(); ++t) {
    const std::string task = absl::StrCat(at, ".task", t);
    std::vector<std::string> experts;
    RETURN_IF_ERROR(AppendExperts(ctx, expert, x->tasks[static_cast<size_t>(t)], m.task_experts(), task, &experts));
    all.insert(all.end(), experts.begin(), experts.end());
    experts.insert(experts.end(), shared.begin(), shared.end());
    ASSIGN_OR_RETURN(const std::string joined, JoinExperts(ctx, experts, width, task + "."));
    next.tasks.push_back(last ? absl::StrCat(ctx.name(), ".", t) : absl::StrCat(ctx.name(), ".", task));
    RETURN_IF_ERROR(AppendGate(ctx, x->tasks[static_cast<size_t>(t)], joined, static_cast<int>(experts.size()),
                               absl::StrCat(at, ".gate", t), next.tasks.back()));
  }
  if (!last) {
    all.insert(all.end(), shared.begin(), shared.end());
    ASSIGN_OR_RETURN(const std::string joined, JoinExperts(ctx, all, width, at + ".shared."));
    next.shared = absl::StrCat(ctx.name(), ".", at, ".shared");
    RETURN_IF_ERROR(AppendGate(ctx, x->shared, joined, static_cast<int>(all.size()), at + ".gate.shared", next.shared));
  }
  *x = std::move(next);
  return absl::OkStatus();
}

absl::Status BuildPle(const v1::Ple& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  RETURN_IF_ERROR(CheckExperts(ctx,
                               {{"tasks", m.tasks()},
                                {"task_experts", m.task_experts()},
                                {"shared_experts", m.shared_experts()},
                                {"levels", m.levels()}},
                               m.sizes()));
  const ExpertParts expert = {.sizes = m.sizes(),
                              .activation = m.activation(),
                              .weight = m.has_weight_initializer() ? &m.weight_initializer() : nullptr};
  LevelInput x = {.tasks = std::vector<std::string>(static_cast<size_t>(m.tasks()), m.input()), .shared = m.input()};
  for (int level = 0; level < m.levels(); ++level) RETURN_IF_ERROR(AppendLevel(m, ctx, expert, level, &x));
  return absl::OkStatus();
}
REGISTER_LAYER(ple, v1::Ple, BuildPle);

}  // namespace
}  // namespace weir
