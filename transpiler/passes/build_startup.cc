#include "transpiler/passes/build_startup.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

// The op that gives `var` its initial value; `seed` of the program.
absl::StatusOr<v1::OpDesc> InitialValueOp(const v1::VarDesc& var, uint64_t seed) {
  const v1::Initializer& init = var.initializer();
  std::vector<v1::OpAttr> attrs = {AttrInts("shape", Dims(var))};
  std::string type;
  switch (init.kind_case()) {
    case v1::Initializer::kConstant:
      attrs.push_back(AttrType("dtype", var.dtype()));
      attrs.push_back(AttrF("value", init.constant().value()));
      return WithRole(MakeOp("fill_constant", {}, {{"Out", {var.name()}}}, attrs), v1::INIT);
    case v1::Initializer::kUniform:
      type = "uniform_random";
      attrs.push_back(AttrF("min", init.uniform().min()));
      attrs.push_back(AttrF("max", init.uniform().max()));
      break;
    case v1::Initializer::kGaussian:
      type = "gaussian_random";
      attrs.push_back(AttrF("mean", init.gaussian().mean()));
      attrs.push_back(AttrF("stddev", init.gaussian().stddev()));
      break;
    case v1::Initializer::kXavier:
      type = "xavier";
      attrs.push_back(AttrB("uniform", init.xavier().uniform()));
      attrs.push_back(AttrI("fan_in", init.xavier().fan_in()));
      attrs.push_back(AttrI("fan_out", init.xavier().fan_out()));
      break;
    case v1::Initializer::KIND_NOT_SET:
      return absl::InvalidArgumentError(
          absl::StrCat("variable '", var.name(), "' is persistable but has no initializer"));
  }
  attrs.push_back(AttrS("variable", var.has_block_of() ? var.block_of().variable() : var.name()));
  attrs.push_back(AttrI("seed", static_cast<int64_t>(seed)));
  attrs.push_back(AttrI("element_begin", var.block_of().element_begin()));
  return WithRole(MakeOp(type, {}, {{"Out", {var.name()}}}, attrs), v1::INIT);
}

// A matrix knows its fans; a user's program may leave them to us.
void FillFans(v1::VarDesc* var) {
  if (!var->initializer().has_xavier()) return;
  const auto whole = var->has_block_of() ? var->block_of().whole_dims() : var->dims();
  if (whole.size() < 2) return;
  v1::XavierInitializer* xavier = var->mutable_initializer()->mutable_xavier();
  if (xavier->fan_in() == 0) xavier->set_fan_in(whole.Get(0));
  if (xavier->fan_out() == 0) xavier->set_fan_out(whole.Get(1));
}

}  // namespace

absl::StatusOr<bool> BuildStartup(const Job& job, Programs* programs) {
  v1::ProgramDesc* startup = &programs->startup;
  if (startup->blocks_size() > 0) return false;
  const v1::ProgramDesc& main = programs->main;
  startup->set_format_version(main.format_version());
  startup->set_name(absl::StrCat(job.config.name(), ".startup"));
  startup->set_seed(main.seed());
  if (main.has_plan()) *startup->mutable_plan() = main.plan();
  v1::BlockDesc* block = startup->add_blocks();
  block->set_index(0);
  for (const bool parameters : {false, true}) {
    for (const v1::VarDesc& var : main.blocks(0).vars()) {
      if (!var.persistable() || var.kind() != v1::DENSE || var.is_parameter() != parameters) continue;
      v1::VarDesc filled = var;
      FillFans(&filled);
      ASSIGN_OR_RETURN(v1::OpDesc op, InitialValueOp(filled, main.seed()));
      *block->add_vars() = std::move(filled);
      *block->add_ops() = std::move(op);
    }
  }
  return true;
}

REGISTER_PASS(build_startup)
({.name = "build_startup", .run = BuildStartup, .phase = Phase::kSingleMachine, .after = "append_optimizer"});

}  // namespace weir
