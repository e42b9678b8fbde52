// checkpoint: inspects checkpoints, verifies that they are complete, reports on their tables, and exports them as
// arrays.

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/digest_log.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/npz.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "framework/watch/message_json.h"
#include "tools/export_rows.h"
#include "tools/reporting/read_slot_uses.h"
#include "tools/reporting/report.h"

ABSL_FLAG(std::string, output, "",
          "export: the file to write, .npz or (with --table) any other name; rows: the .npz to write");
ABSL_FLAG(std::string, table, "", "export, report: this table alone");
ABSL_FLAG(bool, json, false, "report: JSON for scripts");
ABSL_FLAG(std::string, data, "",
          "report: files (a pattern) that the job in the checkpoint reads, by whose slots rows are counted as well");
ABSL_FLAG(std::string, since, "",
          "export: only rows that differ from those of this step of DIR (or of the checkpoint in this directory), and "
          "the ids that "
          "are gone since");
ABSL_FLAG(int64_t, step, -1, "this step of a directory of checkpoints; default: the newest complete one");
ABSL_FLAG(bool, state, false, "export: optimizer state too");

namespace weir {
namespace {

constexpr char kUsage[] =
    "checkpoint list DIR                   what is there, newest last\n"
    "checkpoint verify DIR                 reads every byte of every checkpoint (or of one step)\n"
    "checkpoint digest DIR                 one line per variable, then the digests of all: values=... state=...\n"
    "checkpoint report DIR [--data=FILES]  rows, norms, state and ages of each table, and what other settings would "
    "save;\n"
    "                                      with files that the job reads also by their slots\n"
    "checkpoint export DIR --output=F.npz  dense parameters by name; tables as <table>.ids and <table>.values\n"
    "checkpoint export DIR --table=T --output=F.rows [--since=STEP]\n"
    "                                      one table as a checksummed row file, or what changed in it since an earlier "
    "step\n"
    "checkpoint rows F.rows                reads every byte of a row file; with --output=F.npz also as arrays\n"
    "checkpoint compare LOG LOG            two logs of trainer --digest_log: the first step, variables and ranges that "
    "differ\n"
    "\n"
    "DIR is a directory of checkpoints (the newest complete one is taken, or --step) or a step's directory.\n"
    "Exit codes: 0 done (compare: equal), 1 compare: they differ, 2 bad input, 4 damaged data.\n";

int64_t TotalBytes(const v1::CheckpointManifest& manifest) {
  int64_t bytes = 0;
  for (const v1::CheckpointShard& shard : manifest.shards()) bytes += shard.file().bytes();
  for (const v1::CheckpointFile& extra : manifest.extra()) bytes += extra.bytes();
  return bytes;
}

int64_t TotalRows(const v1::CheckpointManifest& manifest) {
  int64_t rows = 0;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    for (const v1::TableEntry& e : shard.tables()) {
      // Entries such as "vectors@candidates" hold ids that have no row yet.
      if (e.table().find('@') == std::string::npos) rows += e.row_count();
    }
  }
  return rows;
}

std::string Describe(const v1::CheckpointManifest& manifest) {
  std::string text =
      absl::StrCat("step=", manifest.step(), " job=", manifest.job(), " shards=", manifest.shards_size(),
                   " bytes=", TotalBytes(manifest), " rows=", TotalRows(manifest),
                   " values=", DigestHex(manifest.values_digest()), " state=", DigestHex(manifest.state_digest()));
  if (manifest.has_eval_auc()) absl::StrAppend(&text, " eval_auc=", manifest.eval_auc());
  if (manifest.has_eval_loss()) absl::StrAppend(&text, " eval_loss=", manifest.eval_loss());
  for (const v1::EvalFigure& figure : manifest.eval_figure()) {
    absl::StrAppend(&text, " ", figure.name(), "=", figure.value());
  }
  return text;
}

absl::StatusOr<NewestCheckpoint> Open(const std::string& dir) {
  const int64_t step = absl::GetFlag(FLAGS_step);
  ASSIGN_OR_RETURN(NewestCheckpoint opened,
                   OpenCheckpoint(step < 0 ? dir : absl::StrCat(dir, "/", StepDirectoryName(step))));
  for (const std::string& refused : opened.refused) std::fprintf(stderr, "refused %s\n", refused.c_str());
  return opened;
}

// Returns the checkpoint in `dir`, or all that a directory of checkpoints holds.
absl::StatusOr<std::vector<CheckpointPath>> All(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) return absl::NotFoundError(absl::StrCat(dir, " is no directory"));
  const std::string name = fs::path(dir + "/").lexically_normal().parent_path().filename().string();
  if (PathExists(dir + "/MANIFEST") || ParseStepDirectoryName(name).has_value()) {
    return std::vector<CheckpointPath>{{.step = ParseStepDirectoryName(name).value_or(0), .name = name, .path = dir}};
  }
  ASSIGN_OR_RETURN(std::vector<CheckpointPath> found, ListCheckpoints(dir));
  if (found.empty()) return absl::NotFoundError(absl::StrCat("no checkpoint in ", dir));
  return found;
}

absl::Status List(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> found, All(dir));
  for (const CheckpointPath& each : found) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = VerifyCheckpoint(each.path, /*sizes_only=*/true);
    std::printf(
        "%s %s\n", each.name.c_str(),
        manifest.ok() ? Describe(*manifest).c_str() : absl::StrCat("BAD ", manifest.status().message()).c_str());
  }
  return absl::OkStatus();
}

// Verifies the checksums of all files, and digests computed again from their contents.
absl::Status VerifyOne(const CheckpointPath& each, std::string* description) {
  ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, VerifyCheckpoint(each.path));
  ASSIGN_OR_RETURN(const DigestTable digests, CheckpointDigests(each.path, manifest));
  const VariableDigestSum total = Total(digests);
  if (total.values != manifest.values_digest() || total.state != manifest.state_digest()) {
    return absl::DataLossError(absl::StrCat("digests are values=", DigestHex(total.values),
                                            " state=", DigestHex(total.state),
                                            ", the manifest says values=", DigestHex(manifest.values_digest()),
                                            " state=", DigestHex(manifest.state_digest())));
  }
  *description = Describe(manifest);
  return absl::OkStatus();
}

absl::Status Verify(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> found, All(dir));
  absl::Status first;
  for (const CheckpointPath& each : found) {
    std::string description;
    const absl::Status status = VerifyOne(each, &description);
    std::printf(
        "%s %s\n", each.name.c_str(),
        status.ok() ? absl::StrCat("OK ", description).c_str() : absl::StrCat("BAD ", status.message()).c_str());
    first.Update(status);
  }
  return first;
}

absl::Status Digest(const std::string& dir) {
  ASSIGN_OR_RETURN(const NewestCheckpoint opened, Open(dir));
  ASSIGN_OR_RETURN(const DigestTable digests, CheckpointDigests(opened.found.path, opened.manifest));
  for (const auto& [name, sum] : digests) {
    std::printf("%s values=%s state=%s\n", name.c_str(), DigestHex(sum.values).c_str(), DigestHex(sum.state).c_str());
  }
  const VariableDigestSum total = Total(digests);
  std::printf("values=%s state=%s\n", DigestHex(total.values).c_str(), DigestHex(total.state).c_str());
  return absl::OkStatus();
}

absl::Status ExportDense(const NewestCheckpoint& opened, NpzWriter* npz) {
  // Keyed by variable and state ("" for values), so that each is written once even if several shards hold pieces of it.
  std::map<std::pair<std::string, std::string>, std::string> names;
  for (const v1::CheckpointShard& shard : opened.manifest.shards()) {
    for (const v1::DenseEntry& e : shard.dense()) {
      if (e.has_state_of() && !absl::GetFlag(FLAGS_state)) continue;
      names[{e.has_state_of() ? e.state_of() : e.variable(), e.state_name()}] = e.variable();
    }
  }
  for (const auto& [key, name] : names) {
    ASSIGN_OR_RETURN(const WholeVariable whole, ReadWhole(opened.found.path, opened.manifest, key.first, key.second));
    RETURN_IF_ERROR(npz->Add(name, whole.dims, whole.values));
  }
  return absl::OkStatus();
}

// Opens the checkpoint that --since names by a step of the same directory or by a path; nullopt without the flag.
absl::StatusOr<std::optional<NewestCheckpoint>> Since(const std::string& dir) {
  const std::string since = absl::GetFlag(FLAGS_since);
  if (since.empty()) return std::nullopt;
  int64_t step = 0;
  const std::string path = absl::SimpleAtoi(since, &step) ? absl::StrCat(dir, "/", StepDirectoryName(step)) : since;
  ASSIGN_OR_RETURN(NewestCheckpoint opened, OpenCheckpoint(path));
  return opened;
}

std::set<std::string> TableNames(const v1::CheckpointManifest& manifest) {
  std::set<std::string> tables;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    for (const v1::TableEntry& e : shard.tables()) tables.insert(e.table());
  }
  return tables;
}

std::string Describe(const v1::RowFile& file) {
  std::string text = absl::StrCat("table=", file.table(), " job=", file.job(), " step=", file.step());
  if (file.has_since_step()) absl::StrAppend(&text, " since=", file.since_step());
  absl::StrAppend(&text, " rows=", file.rows(), " removed=", file.removed(), " width=", file.width());
  for (int i = 0; i < file.state_names_size(); ++i)
    absl::StrAppend(&text, " ", file.state_names(i), "=", file.state_widths(i));
  return absl::StrCat(text, " values=", DigestHex(file.values_digest()));
}

absl::Status Export(const std::string& dir) {
  const std::string output = absl::GetFlag(FLAGS_output);
  const std::string table = absl::GetFlag(FLAGS_table);
  const bool npz_wanted = absl::EndsWith(output, ".npz");
  if (output.empty())
    return absl::InvalidArgumentError("export needs --output=FILE.npz, or --table=T --output=FILE.rows");
  if (table.empty() && !npz_wanted) {
    return absl::InvalidArgumentError(absl::StrCat("--output=", output,
                                                   ": a whole model is exported as .npz; a row file holds one "
                                                   "table: name it with --table"));
  }
  ASSIGN_OR_RETURN(const NewestCheckpoint opened, Open(dir));
  ASSIGN_OR_RETURN(const std::optional<NewestCheckpoint> since, Since(dir));
  const RowExport rows = {.now = opened, .since = since, .state = absl::GetFlag(FLAGS_state)};
  if (!npz_wanted) {
    ASSIGN_OR_RETURN(const v1::RowFile file, ExportToRowFile(rows, table, output));
    std::printf("%s: %s\n", output.c_str(), Describe(file).c_str());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<NpzWriter> npz, NpzWriter::Create(output));
  if (!table.empty()) {
    RETURN_IF_ERROR(ExportToNpz(rows, table, npz.get()));
  } else {
    RETURN_IF_ERROR(ExportDense(opened, npz.get()));
    for (const std::string& name : TableNames(opened.manifest)) RETURN_IF_ERROR(ExportToNpz(rows, name, npz.get()));
  }
  RETURN_IF_ERROR(npz->Finish());
  std::printf("%s: step %" PRId64 " of job %s\n", output.c_str(), opened.manifest.step(),
              opened.manifest.job().c_str());
  return absl::OkStatus();
}

// Opens the newest checkpoint, or that of --step, without reading its files.
absl::StatusOr<NewestCheckpoint> OpenBySizes(const std::string& dir) {
  const int64_t step = absl::GetFlag(FLAGS_step);
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> found,
                   All(step < 0 ? dir : absl::StrCat(dir, "/", StepDirectoryName(step))));
  ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, VerifyCheckpoint(found.back().path, /*sizes_only=*/true));
  return NewestCheckpoint{.found = found.back(), .manifest = std::move(manifest)};
}

// Reports on a checkpoint, with figures by slot if --data names files.
absl::StatusOr<v1::CheckpointReport> Measure(const NewestCheckpoint& checkpoint, ReportOptions options) {
  const std::string data = absl::GetFlag(FLAGS_data);
  if (data.empty()) return ReportOn(checkpoint, options);
  ASSIGN_OR_RETURN(const SlotUsesByTable slots, ReadSlotUses(checkpoint, data));
  options.slots = &slots;
  ASSIGN_OR_RETURN(v1::CheckpointReport report, ReportOn(checkpoint, options));
  report.set_data(data);
  return report;
}

absl::StatusOr<v1::CheckpointReport> MeasureTables(const std::string& dir, ThreadPool* pool) {
  ReportOptions options = {.table = absl::GetFlag(FLAGS_table), .check_sums = true, .pool = pool};
  if (const absl::StatusOr<NewestCheckpoint> newest = OpenBySizes(dir); newest.ok()) {
    absl::StatusOr<v1::CheckpointReport> report = Measure(*newest, options);
    if (report.ok()) return report;
  }
  // Damaged, or replaced meanwhile: looks for the newest that verifies, and says what is wrong with others.
  options.check_sums = false;
  ASSIGN_OR_RETURN(const NewestCheckpoint opened, Open(dir));
  return Measure(opened, options);
}

absl::Status Report(const std::string& dir) {
  // Each thread takes memory, and a disk seldom feeds more of them.
  constexpr int kMostThreads = 16;
  ThreadPool pool("report", std::min(UsableCores(), kMostThreads) - 1);
  ASSIGN_OR_RETURN(const v1::CheckpointReport report, MeasureTables(dir, &pool));
  std::string text = ReportText(report);
  if (absl::GetFlag(FLAGS_json)) {
    ASSIGN_OR_RETURN(text, MessageAsJson(report));
    text.push_back('\n');
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

absl::Status Rows(const std::string& file) {
  const std::string output = absl::GetFlag(FLAGS_output);
  if (!output.empty() && !absl::EndsWith(output, ".npz")) {
    return absl::InvalidArgumentError(absl::StrCat("--output=", output, ": rows writes .npz"));
  }
  ASSIGN_OR_RETURN(const v1::RowFile description, ReadRowFile(file, output));
  std::printf("%s: OK %s\n", file.c_str(), Describe(description).c_str());
  return absl::OkStatus();
}

// Returns kExitFailure if the logs differ.
absl::StatusOr<ExitCode> Compare(const std::string& file_a, const std::string& file_b) {
  ASSIGN_OR_RETURN(const DigestComparison comparison, CompareDigestLogs(file_a, file_b));
  std::printf("%s\n", comparison.text.c_str());
  return comparison.equal ? kExitOk : kExitFailure;
}

absl::StatusOr<ExitCode> OkOr(const absl::Status& status) {
  if (!status.ok()) return status;
  return kExitOk;
}

absl::StatusOr<ExitCode> Run(const CommandLine& line) {
  if (line.rest.size() == 3 && line.rest[0] == "compare") return Compare(line.rest[1], line.rest[2]);
  if (line.rest.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a command and a directory, got ", line.rest.size(), " words; see checkpoint --help"));
  }
  if (!line.overrides.empty()) return absl::InvalidArgumentError("--set is for jobs; checkpoint has none");
  const std::string& command = line.rest[0];
  const std::string& dir = line.rest[1];
  if (command == "list") return OkOr(List(dir));
  if (command == "verify") return OkOr(Verify(dir));
  if (command == "digest") return OkOr(Digest(dir));
  if (command == "export") return OkOr(Export(dir));
  if (command == "report") return OkOr(Report(dir));
  if (command == "rows") return OkOr(Rows(dir));
  return absl::InvalidArgumentError(
      absl::StrCat("unknown command '", command, "'; expected list, verify, digest, report, export, rows or compare"));
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::printf("%s", HelpText(kUsage, /*reads_job=*/false).c_str());
    return kExitOk;
  }
  const absl::StatusOr<ExitCode> code = line.ok() ? Run(*line) : line.status();
  if (code.ok()) return *code;
  std::fprintf(stderr, "checkpoint: %s\n", std::string(code.status().message()).c_str());
  return ExitCodeOf(code.status());
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::EndWithOutput("checkpoint", weir::Main(argc, argv)); }
