// Job as read from its file, overridden and checked (transpiler/job/load_job.h).
#ifndef WEIR_TRANSPILER_JOB_JOB_H_
#define WEIR_TRANSPILER_JOB_JOB_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/textproto.h"
#include "proto/job.pb.h"

namespace weir {

struct Job {
  v1::JobConfig config;
  std::string file;  // as given
  // Paths in the job are relative to it: BesideJob::directory, else that of the file. "": the working directory.
  std::string directory;
  // Place of each field in the file; overrides are at "--set".
  TextPositions positions;
  // Bytes of config.program, for the fingerprint; empty without one.
  std::string program_text;
  // True if the program was given beside the file and replaces its model; settings of the file about updates were meant
  // for the model.
  bool program_given = false;
  // BesideJob::trained: settings of the file that were replaced and would have given other scores, for a message; "" if
  // there are none.
  std::string replaced;

  // Returns an absolute path unchanged, a relative one joined to `directory`.
  std::string Path(std::string_view path) const;
};

// Returns the row files of each table (table.load), with the job's directory prepended.
std::map<std::string, std::vector<std::string>> RowFiles(const Job& job);

// Returns the number of servers: distribute.servers or, if that is 0, one for each trainer, which runs inside it.
int ServersOf(const v1::Distribute& distribute);
// Returns true if the job promises the same bits on every cluster: sync, and reproducible.
bool PromisesEqualBits(const v1::Distribute& distribute);

// Prepends the place of the field to a message that begins with a field of the job: "data.dense.column[0]: ...".
absl::Status AtField(const Job& job, const absl::Status& error);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_JOB_H_
