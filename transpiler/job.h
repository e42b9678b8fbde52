// A job as read from its file, overridden and checked.
#ifndef WEIR_TRANSPILER_JOB_H_
#define WEIR_TRANSPILER_JOB_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/textproto.h"
#include "proto/job.pb.h"

namespace weir {

struct Job {
  v1::JobConfig config;
  std::string file;       // as given
  std::string directory;  // of the file; paths in the job are relative to it
  // Where each field stands in the file; overrides are at "--set".
  TextPositions positions;
  // Bytes of config.program, for the fingerprint; empty without one.
  std::string program_text;
  // The program was given beside the file, in the place of its model: what the file says of updates was meant for that.
  bool program_given = false;

  // An absolute path stays, a relative one starts at `directory`.
  std::string Path(std::string_view path) const;
};

// Reads, applies overrides ("distribute.servers=3", in order), checks every setting that can be checked without the
// data. `program`, when not empty, is a program file that takes the place of the job's model or program; relative to
// the working directory. InvalidArgument "job.textproto:12:5: ...". NotFound when there is no such file.
absl::StatusOr<Job> LoadJob(const std::string& file, const std::vector<std::string>& overrides,
                            const std::string& program = "");
absl::StatusOr<Job> ParseJob(std::string_view text, const std::string& file, const std::vector<std::string>& overrides,
                             const std::string& program = "");

// By table: its row files (table.load), with the job's directory in front.
std::map<std::string, std::vector<std::string>> RowFiles(const Job& job);

// Puts the place of the field in front of a message that begins with one of the job: "data.dense.column[0]: ...".
absl::Status AtField(const Job& job, const absl::Status& error);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_H_
