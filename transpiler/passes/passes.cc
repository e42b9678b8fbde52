#include "transpiler/passes/passes.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "transpiler/verify/verify_plan.h"

namespace weir {

namespace {

// Verifies programs as they change. Most passes leave the startup program unchanged and some change the plan alone.
// Unchanged programs are not verified again, since verifying takes most of the time of a transpilation.
class PassVerifier {
 public:
  absl::Status Verify(const Programs& programs) {
    RETURN_IF_ERROR(VerifyIfNew(programs.main, &main_));
    RETURN_IF_ERROR(VerifyIfNew(programs.startup, &startup_));
    return VerifyTrainer(programs);
  }

 private:
  // Compares the parts of the program that VerifyProgram reads with those verified last.
  static absl::Status VerifyIfNew(const v1::ProgramDesc& program, std::string* verified) {
    if (program.blocks_size() == 0) return absl::OkStatus();
    std::string now = absl::StrCat(program.format_version(), "\n");
    for (const v1::BlockDesc& block : program.blocks()) block.AppendToString(&now);
    for (const v1::LossDesc& loss : program.losses()) loss.AppendToString(&now);
    for (const std::string& kept : program.kept()) absl::StrAppend(&now, "\n", kept);
    if (now == *verified) return absl::OkStatus();
    *verified = std::move(now);
    return VerifyProgram(program);
  }

  std::string main_, startup_;
};

std::vector<Pass> PassesOf(Phase phase) {
  std::vector<Pass> passes;
  for (const Pass& pass : AllPasses()) {
    if (pass.phase == phase) passes.push_back(pass);
  }
  return passes;
}

}  // namespace

const std::vector<Pass>& SingleMachinePasses() {
  static const auto* const passes = new std::vector<Pass>(PassesOf(Phase::kSingleMachine));
  return *passes;
}

const std::vector<Pass>& PlacementPasses() {
  static const auto* const passes = new std::vector<Pass>(PassesOf(Phase::kPlacement));
  return *passes;
}

const std::vector<Pass>& TrainerPasses() {
  static const auto* const passes = new std::vector<Pass>(PassesOf(Phase::kTrainer));
  return *passes;
}

absl::Status RunPasses(absl::Span<const Pass> passes, const Job& job, Programs* programs, PassTrace* trace) {
  PassVerifier verifier;
  for (const Pass& pass : passes) {
    if (trace != nullptr && trace->stopped) return absl::OkStatus();
    const absl::StatusOr<bool> changed = pass.run(job, programs);
    if (!changed.ok()) return changed.status();
    if (trace != nullptr) {
      RETURN_IF_ERROR(DumpPrograms(pass.name, *programs, trace));
      trace->stopped = trace->stop_after == pass.name;
    }
    if (!*changed) continue;
    const absl::Status verified = verifier.Verify(*programs);
    if (!verified.ok()) return absl::InternalError(absl::StrCat("after pass ", pass.name, ": ", verified.message()));
  }
  return absl::OkStatus();
}

std::vector<std::string> PassNames() {
  std::vector<std::string> names;
  for (const Pass& pass : AllPasses()) names.emplace_back(pass.name);
  return names;
}

absl::Status DumpPrograms(const std::string& what, const Programs& programs, PassTrace* trace) {
  ++trace->passes;
  if (trace->dump_dir.empty()) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(trace->dump_dir, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(trace->dump_dir, " cannot be made: ", error.message()));
  }
  for (const auto& [kind, program] : {std::pair("main", &programs.main), std::pair("startup", &programs.startup)}) {
    if (program->blocks_size() == 0) continue;
    RETURN_IF_ERROR(WriteProgramFile(
        absl::StrCat(trace->dump_dir, "/", absl::Dec(trace->passes, absl::kZeroPad2), "_", what, ".", kind, ".program"),
        *program));
  }
  return absl::OkStatus();
}

}  // namespace weir
