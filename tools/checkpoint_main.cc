// checkpoint: looks at checkpoints, proves that they are whole, turns them into arrays.

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/command_line.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/digest_log.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/checkpoint/npz.h"

ABSL_FLAG(std::string, output, "", "export: the .npz file to write");
ABSL_FLAG(int64_t, step, -1, "this step of a directory of checkpoints; default: the newest complete one");
ABSL_FLAG(bool, state, false, "export: optimizer state too");

namespace weir {
namespace {

constexpr char kUsage[] =
    "checkpoint list DIR                   what is there, newest last\n"
    "checkpoint verify DIR                 reads every byte of every checkpoint (or of one step)\n"
    "checkpoint digest DIR                 one line per variable, then the digests of all: values=... state=...\n"
    "checkpoint export DIR --output=F.npz  dense parameters by name; tables as <table>.ids and <table>.values\n"
    "checkpoint compare LOG LOG            two logs of trainer --digest_log: the first step, variables and ranges that differ\n"
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
    for (const v1::TableEntry& e : shard.tables()) rows += e.row_count();
  }
  return rows;
}

std::string Describe(const v1::CheckpointManifest& manifest) {
  std::string text = absl::StrCat("step=", manifest.step(), " job=", manifest.job(), " shards=", manifest.shards_size(),
                                  " bytes=", TotalBytes(manifest), " rows=", TotalRows(manifest),
                                  " values=", DigestHex(manifest.values_digest()), " state=", DigestHex(manifest.state_digest()));
  if (manifest.has_eval_auc()) absl::StrAppend(&text, " eval_auc=", manifest.eval_auc());
  if (manifest.has_eval_loss()) absl::StrAppend(&text, " eval_loss=", manifest.eval_loss());
  return text;
}

absl::StatusOr<NewestCheckpoint> Open(const std::string& dir) {
  const int64_t step = absl::GetFlag(FLAGS_step);
  ASSIGN_OR_RETURN(NewestCheckpoint opened,
                   OpenCheckpoint(step < 0 ? dir : absl::StrCat(dir, "/", StepDirectoryName(step))));
  for (const std::string& refused : opened.refused) std::fprintf(stderr, "refused %s\n", refused.c_str());
  return opened;
}

// One step's directory, or all that a directory of checkpoints holds.
absl::StatusOr<std::vector<CheckpointPath>> All(const std::string& dir) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(dir)) return absl::NotFoundError(absl::StrCat(dir, " is no directory"));
  const std::string name = fs::path(dir + "/").lexically_normal().parent_path().filename().string();
  if (fs::exists(dir + "/MANIFEST") || ParseStepDirectoryName(name).has_value()) {
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
    std::printf("%s %s\n", each.name.c_str(),
                manifest.ok() ? Describe(*manifest).c_str() : absl::StrCat("BAD ", manifest.status().message()).c_str());
  }
  return absl::OkStatus();
}

// Checksums of all files, and digests computed again from their contents.
absl::Status VerifyOne(const CheckpointPath& each, std::string* description) {
  ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, VerifyCheckpoint(each.path));
  ASSIGN_OR_RETURN(const DigestTable digests, CheckpointDigests(each.path, manifest));
  const VariableDigestSum total = Total(digests);
  if (total.values != manifest.values_digest() || total.state != manifest.state_digest()) {
    return absl::DataLossError(absl::StrCat("digests are values=", DigestHex(total.values), " state=", DigestHex(total.state),
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
    std::printf("%s %s\n", each.name.c_str(),
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
  // Variable and state ("" = values), each once however many shards hold pieces of it.
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

// Rows in order of id, so that the file does not depend on the servers that wrote the checkpoint.
absl::Status ExportTable(const NewestCheckpoint& opened, const std::string& table, NpzWriter* npz) {
  std::vector<int64_t> ids;
  std::vector<float> rows;
  size_t width = 0, floats = 0;
  for (const v1::CheckpointShard& shard : opened.manifest.shards()) {
    std::unique_ptr<ShardReader> reader;
    for (int i = 0; i < shard.tables_size(); ++i) {
      const v1::TableEntry& e = shard.tables(i);
      if (e.table() != table) continue;
      width = static_cast<size_t>(e.width());
      floats = width + static_cast<size_t>(e.state_width());
      if (reader == nullptr) {
        // Checksums were verified when the checkpoint was opened.
        ASSIGN_OR_RETURN(reader, ShardReader::Open(opened.found.path, shard, /*check_sum=*/false));
      }
      RETURN_IF_ERROR(reader->ReadTable(i, [&](absl::Span<const int64_t> run, absl::Span<const float> values) {
        ids.insert(ids.end(), run.begin(), run.end());
        rows.insert(rows.end(), values.begin(), values.end());
        return absl::OkStatus();
      }));
    }
  }
  std::vector<size_t> order(ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&ids](size_t a, size_t b) { return ids[a] < ids[b]; });

  const int64_t n = static_cast<int64_t>(ids.size());
  RETURN_IF_ERROR(npz->BeginInts(table + ".ids", {n}));
  for (const size_t i : order) RETURN_IF_ERROR(npz->Append(&ids[i], sizeof(int64_t)));
  RETURN_IF_ERROR(npz->End());
  RETURN_IF_ERROR(npz->BeginFloats(table + ".values", {n, static_cast<int64_t>(width)}));
  for (const size_t i : order) RETURN_IF_ERROR(npz->Append(&rows[i * floats], width * sizeof(float)));
  RETURN_IF_ERROR(npz->End());
  if (!absl::GetFlag(FLAGS_state) || floats == width) return absl::OkStatus();
  RETURN_IF_ERROR(npz->BeginFloats(table + ".state", {n, static_cast<int64_t>(floats - width)}));
  for (const size_t i : order) RETURN_IF_ERROR(npz->Append(&rows[i * floats + width], (floats - width) * sizeof(float)));
  return npz->End();
}

absl::Status Export(const std::string& dir) {
  const std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) return absl::InvalidArgumentError("export needs --output=FILE.npz");
  ASSIGN_OR_RETURN(const NewestCheckpoint opened, Open(dir));
  ASSIGN_OR_RETURN(std::unique_ptr<NpzWriter> npz, NpzWriter::Create(output));
  RETURN_IF_ERROR(ExportDense(opened, npz.get()));
  std::set<std::string> tables;
  for (const v1::CheckpointShard& shard : opened.manifest.shards()) {
    for (const v1::TableEntry& e : shard.tables()) tables.insert(e.table());
  }
  for (const std::string& table : tables) RETURN_IF_ERROR(ExportTable(opened, table, npz.get()));
  RETURN_IF_ERROR(npz->Finish());
  std::printf("%s: step %" PRId64 " of job %s\n", output.c_str(), opened.manifest.step(), opened.manifest.job().c_str());
  return absl::OkStatus();
}

// kExitFailure when the logs differ.
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
    return absl::InvalidArgumentError(absl::StrCat("expected a command and a directory, got ", line.rest.size(),
                                                   " words; see checkpoint --help"));
  }
  if (!line.overrides.empty()) return absl::InvalidArgumentError("--set is for jobs; checkpoint has none");
  const std::string& command = line.rest[0];
  const std::string& dir = line.rest[1];
  if (command == "list") return OkOr(List(dir));
  if (command == "verify") return OkOr(Verify(dir));
  if (command == "digest") return OkOr(Digest(dir));
  if (command == "export") return OkOr(Export(dir));
  return absl::InvalidArgumentError(absl::StrCat("unknown command '", command, "'; expected list, verify, digest, export or compare"));
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::printf("%s", HelpText(kUsage).c_str());
    return kExitOk;
  }
  const absl::StatusOr<ExitCode> code = line.ok() ? Run(*line) : line.status();
  if (code.ok()) return *code;
  std::fprintf(stderr, "checkpoint: %s\n", std::string(code.status().message()).c_str());
  return ExitCodeOf(code.status());
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
