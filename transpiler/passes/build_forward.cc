// Pass: builds a job's model as a forward program, or takes the program the user has brought.
//
// Before: an empty main program. After: data variables that are read, parameters, tables, layers in order, losses and
// predictions, ProgramDesc.losses; or the contents of the job's `program` file, verified. Errors: unknown inputs and
// tables, shapes that do not fit (with the layer's place in the job), tables that nothing reads, a transform of what a
// loss takes as it is. Returns false if main already has blocks.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/def_use.h"
#include "framework/graph/format_version.h"
#include "framework/graph/infer.h"
#include "framework/graph/loss_inputs.h"
#include "framework/graph/op_view.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/check_job.h"
#include "transpiler/job/data_schema.h"
#include "transpiler/job/job.h"
#include "transpiler/layers/layer.h"
#include "transpiler/losses/loss.h"
#include "transpiler/model/model_context.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

absl::Status BuildLayer(const Job& job, int i, ModelState* state) {
  const v1::Layer& layer = job.config.model().layer(i);
  const Setting at(&layer, absl::StrCat("model.layer[", i, "]"), &job.positions);
  ASSIGN_OR_RETURN(const Kind kind, KindOf(at, "kind"));
  ASSIGN_OR_RETURN(const LayerRule* rule, LayerRegistry().Find(kind));
  ModelContext ctx(state, absl::StrCat("layer '", layer.name(), "'"), layer.name(), kind.setting);
  return (*rule)(kind.setting.message(), ctx);
}

// Returns the name of a loss; by default its kind, without the package of a custom message.
std::string LossName(const v1::Loss& loss, const Kind& kind) {
  if (!loss.name().empty()) return loss.name();
  const size_t dot = kind.key.rfind('.');
  return dot == std::string::npos ? kind.key : kind.key.substr(dot + 1);
}

// Operators [begin, end) of the program, which a layer or loss has appended: "loss 'ctr'".
struct AppendedOps {
  std::string name;
  int begin = 0, end = 0;
};

// Returns the variables that known_label reads in the operators of a part: labels that may be missing.
std::set<std::string> KnownLabelsOf(const v1::BlockDesc& block, const AppendedOps& part) {
  std::set<std::string> labels;
  for (int i = part.begin; i < part.end; ++i) {
    if (block.ops(i).type() == "known_label") labels.insert(InputOf(block.ops(i), "X"));
  }
  return labels;
}

// Checks that nothing needs a label that may be missing to be there. The last of `parts` are the model's losses.
absl::Status CheckMissingLabels(const Job& job, const v1::BlockDesc& block, const std::vector<AppendedOps>& parts) {
  const int losses = job.config.model().loss_size();
  for (int l = 0; l < losses; ++l) {
    const AppendedOps& loss = parts[parts.size() - static_cast<size_t>(losses - l)];
    for (const std::string& label : KnownLabelsOf(block, loss)) {
      for (const AppendedOps& part : parts) {
        for (int i = part.begin; i < part.end; ++i) {
          const v1::OpDesc& op = block.ops(i);
          if (op.type() == "known_label" || !Reads(op, label)) continue;
          const Setting at(&job.config.model().loss(l), absl::StrCat("model.loss[", l, "]"), &job.positions);
          return at.Error("label_may_be_missing",
                          absl::StrCat("is set for '", label, "', but ", part.name,
                                       " needs it in every example: set label_may_be_missing there too, if it is a "
                                       "loss, or take it out here"));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status BuildLoss(const Job& job, int i, ModelState* state) {
  const v1::Loss& loss = job.config.model().loss(i);
  const Setting at(&loss, absl::StrCat("model.loss[", i, "]"), &job.positions);
  ASSIGN_OR_RETURN(const Kind kind, KindOf(at, "kind"));
  ASSIGN_OR_RETURN(const LossRule* rule, LossRegistry().Find(kind));
  v1::LossDesc desc;
  desc.set_name(LossName(loss, kind));
  desc.set_weight(loss.weight());
  for (const v1::LossDesc& earlier : state->program.losses()) {
    if (earlier.name() != desc.name()) continue;
    return at.Error("", absl::StrCat("has the name '", desc.name(), "' of an earlier loss; give it one of its own"));
  }
  ModelContext ctx(state, absl::StrCat("loss '", desc.name(), "'"), desc.name(), kind.setting);
  ctx.set_label_may_be_missing(loss.label_may_be_missing());
  const int begin = state->program.blocks(0).ops_size();
  RETURN_IF_ERROR((*rule)(kind.setting.message(), ctx, &desc));
  const AppendedOps part{.begin = begin, .end = state->program.blocks(0).ops_size()};
  if (loss.label_may_be_missing() && KnownLabelsOf(state->program.blocks(0), part).empty()) {
    return at.Error("label_may_be_missing", absl::StrCat("is not for ", kind.key,
                                                         ", which takes every label as it is: take it out, or use "
                                                         "another loss"));
  }
  if (i == 0 && loss.label_may_be_missing() && desc.kind() != v1::LossDesc::BINARY) {
    return at.Error("label_may_be_missing",
                    "is for later losses, or one of two classes: evaluations judge every example by the first loss");
  }
  if (loss.learned_weight()) RETURN_IF_ERROR(AppendLearnedWeight(ctx, &desc));
  *state->program.add_losses() = std::move(desc);
  return absl::OkStatus();
}

absl::StatusOr<v1::ProgramDesc> BuildModel(const Job& job) {
  ModelState state;
  state.job = &job;
  ASSIGN_OR_RETURN(state.schema, DataSchema(Setting(&job.config.data(), "data", &job.positions)));
  v1::BlockDesc* block = state.program.add_blocks();
  block->set_index(0);
  const v1::Model& model = job.config.model();
  ASSIGN_OR_RETURN(state.id_spaces, SharedIdSpaces(job.config.data()));
  std::vector<AppendedOps> parts;
  const auto add_part = [&](std::string name) {
    parts.push_back({std::move(name), parts.empty() ? 0 : parts.back().end, block->ops_size()});
  };
  for (int i = 0; i < model.layer_size(); ++i) {
    RETURN_IF_ERROR(BuildLayer(job, i, &state));
    add_part(absl::StrCat("layer '", model.layer(i).name(), "'"));
  }
  for (int i = 0; i < model.loss_size(); ++i) {
    RETURN_IF_ERROR(BuildLoss(job, i, &state));
    add_part(absl::StrCat("loss '", state.program.losses(i).name(), "'"));
  }
  RETURN_IF_ERROR(CheckMissingLabels(job, *block, parts));
  for (int i = 0; i < job.config.table_size(); ++i) {
    if (state.tables_used.contains(job.config.table(i).name())) continue;
    return job.positions.Error(absl::StrCat("table[", i, "]"),
                               absl::StrCat("no embedding reads table '", job.config.table(i).name(), "'"));
  }
  return std::move(state.program);
}

// Checks that the data gives the variables that the program is fed, in the same kind and width.
absl::Status CheckFed(const Job& job, const v1::ProgramDesc& program) {
  ASSIGN_OR_RETURN(const std::vector<v1::VarDesc> schema,
                   DataSchema(Setting(&job.config.data(), "data", &job.positions)));
  std::map<std::string, const v1::VarDesc*> given;
  for (const v1::VarDesc& var : schema) given[var.name()] = &var;
  const DefUse uses(program.blocks(0));
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    if (var.persistable() && given.contains(var.name())) {
      return job.positions.Error("program",
                                 absl::StrCat("variable '", var.name(), "' of ", job.config.program(),
                                              " is persistable and has the name of a variable of the data; every "
                                              "lane has data of its own"));
    }
    if (var.persistable() || uses.IsWritten(var.name())) continue;
    const auto found = given.find(var.name());
    if (found == given.end()) {
      return job.positions.Error("program", absl::StrCat("variable '", var.name(), "' of ", job.config.program(),
                                                         " is fed, but the data gives no such variable"));
    }
    const v1::VarDesc& from = *found->second;
    if (from.kind() == var.kind() && from.dtype() == var.dtype() && Dims(from) == Dims(var)) continue;
    return job.positions.Error("program", absl::StrCat("variable '", var.name(), "' of ", job.config.program(), " is ",
                                                       DescribeVar(var), "; the data gives ", DescribeVar(from)));
  }
  return absl::OkStatus();
}

// Checks that the job's settings of updates and tables apply to this program.
absl::Status CheckSettingsFit(const Job& job, const v1::ProgramDesc& program) {
  const std::vector<v1::ParamGrad> updated = UpdatedParameters(program);
  const auto refuse = [&](const std::string& path) {
    return job.positions.Error(path, absl::StrCat(path, " contradicts program: ", job.config.program(),
                                                  " brings updates of its own, of '", updated[0].param(),
                                                  "' for one; leave this out, or bring a program without "
                                                  "updates"));
  };
  if (!updated.empty() && job.config.has_optimizer()) return refuse("optimizer");
  for (int i = 0; i < job.config.table_size(); ++i) {
    const v1::Table& table = job.config.table(i);
    const std::string path = absl::StrCat("table[", i, "]");
    const std::pair<const char*, bool> of_updates[] = {
        {".optimizer", table.has_optimizer()},
        {".segment", table.segment_size() > 0},
        {".min_value", table.has_min_value()},
        {".max_value", table.has_max_value()},
        {".bad_gradient", table.bad_gradient() != v1::Table::NAN_POLICY}};
    for (const auto& [field, set] : of_updates) {
      if (!updated.empty() && set) return refuse(path + field);
    }
    const v1::VarDesc* const var = FindVar(program.blocks(0), table.name());
    if (var != nullptr && var->is_parameter()) {
      if (table.storage() == var->dtype() || !table.has_storage()) continue;
      return job.positions.Error(path + ".storage",
                                 absl::StrCat(path, ".storage contradicts program: ", job.config.program(), " has '",
                                              table.name(), "' as ", DescribeVar(*var), "; leave this out"));
    }
    return job.positions.Error(
        path, absl::StrCat("no parameter of program ", job.config.program(), " is named '", table.name(), "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ProgramDesc> LoadModel(const Job& job) {
  ASSIGN_OR_RETURN(v1::ProgramDesc program, ReadProgramFile(job.Path(job.config.program())));
  const absl::Status verified = VerifyProgram(program);
  if (!verified.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(job.Path(job.config.program()), ": ", verified.message()));
  }
  if (program.has_plan()) {
    return job.positions.Error("program", absl::StrCat(job.config.program(),
                                                       " is transpiled already; a job needs the "
                                                       "program of a single machine"));
  }
  if (program.losses_size() == 0) {
    return job.positions.Error("program", absl::StrCat(job.config.program(),
                                                       " names no losses: there is nothing to "
                                                       "minimise"));
  }
  RETURN_IF_ERROR(CheckFed(job, program));
  if (!job.program_given) RETURN_IF_ERROR(CheckSettingsFit(job, program));
  return program;
}

// Checks that data.dense.column transforms nothing that a loss takes as it is in the data.
absl::Status CheckTransforms(const Job& job, const v1::ProgramDesc& program) {
  const v1::DenseTransform& dense = job.config.data().dense();
  if (dense.column_size() == 0 || dense.except_size() > 0) return absl::OkStatus();
  const std::vector<std::string> untransformed = LossInputsOf(program).untransformed;
  for (int i = 0; i < dense.column_size(); ++i) {
    const std::string& variable = dense.column(i).variable();
    if (std::find(untransformed.begin(), untransformed.end(), variable) == untransformed.end()) continue;
    return RefuseTransform(job, i, kReadByLoss);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> BuildForward(const Job& job, Programs* programs) {
  if (programs->main.blocks_size() > 0) return false;
  ASSIGN_OR_RETURN(programs->main, job.config.has_program() ? LoadModel(job) : BuildModel(job));
  // Training, evaluation and prediction need both for the first loss.
  if (const v1::LossDesc& loss = programs->main.losses(0); loss.prediction().empty() || loss.label().empty()) {
    return job.positions.Error(
        job.config.has_program() ? "program" : "model.loss[0]",
        absl::StrCat("the first loss", loss.name().empty() ? "" : absl::StrCat(" '", loss.name(), "'"),
                     loss.var().empty() ? "" : absl::StrCat(" (variable '", loss.var(), "')"), " names no ",
                     loss.prediction().empty() ? "prediction" : "label",
                     "; a job is judged by the prediction and label of its first loss"));
  }
  RETURN_IF_ERROR(CheckTransforms(job, programs->main));
  programs->main.set_format_version(kFirstProgramFormat);
  programs->main.set_name(absl::StrCat(job.config.name(), ".main"));
  programs->main.set_seed(job.config.train().seed());
  return true;
}

REGISTER_PASS(build_forward)
({.name = "build_forward", .run = BuildForward, .phase = Phase::kSingleMachine});

}  // namespace
}  // namespace weir
