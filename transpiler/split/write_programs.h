// Files with all programs that a job's processes run.
#ifndef WEIR_TRANSPILER_SPLIT_WRITE_PROGRAMS_H_
#define WEIR_TRANSPILER_SPLIT_WRITE_PROGRAMS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transpiler/split/transpile.h"

namespace weir {

struct Job;

// Writes trainer.main, trainer.startup, server<i>.main and server<i>.startup into `directory`, which is made, with the
// extension of `format` ("text": .program, "textproto", "json"), and the text that processes agree on as agreement.txt.
// Equal jobs give equal bytes. Returns the paths, one per line. InvalidArgument for another format or a directory that
// cannot be written.
absl::StatusOr<std::string> WriteProcessPrograms(const Job& job, const Transpiled& transpiled,
                                                 const std::string& directory, std::string_view format);

}  // namespace weir

#endif  // WEIR_TRANSPILER_SPLIT_WRITE_PROGRAMS_H_
