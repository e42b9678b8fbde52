#include "transpiler/split/write_programs.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/graph/program_text.h"

namespace weir {
absl::StatusOr<std::string> WriteProcessPrograms(const Job& job, const Transpiled& transpiled,
                                                 const std::string& directory, std::string_view format) {
  const std::string ending = format == "text" ? "program" : std::string(format);
  if (ending != "program" && ending != "textproto" && ending != "json") {
    return absl::InvalidArgumentError(absl::StrCat("--format must be text, textproto or json, got '", ending, "'"));
  }
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(directory, " cannot be made: ", error.message()));
  std::string written;
  const auto write = [&](const std::string& name, const Programs& programs) -> absl::Status {
    for (const bool main : {true, false}) {
      const std::string path = absl::StrCat(directory, "/", name, main ? ".main." : ".startup.", ending);
      RETURN_IF_ERROR(WriteProgramFile(path, main ? programs.main : programs.startup));
      absl::StrAppend(&written, path, "\n");
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(write("trainer", transpiled.trainer()));
  for (int s = 0; s < transpiled.plan().servers(); ++s) {
    ASSIGN_OR_RETURN(const Programs server, transpiled.Server(s));
    RETURN_IF_ERROR(write(absl::StrCat("server", s), server));
  }
  const std::string agreement = directory + "/agreement.txt";
  RETURN_IF_ERROR(WriteFileAtomically(agreement, PlanText(job, transpiled.plan())));
  return absl::StrCat(written, agreement, "\n");
}

}  // namespace weir
