#include "transpiler/job/checkpoint_job.h"

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "transpiler/job/check_metrics.h"
#include "transpiler/job/trained_job.h"

namespace weir {
namespace {

// Returns the variables of the data that losses name and data.dense therefore leaves as they are.
std::set<std::string> ExemptVariables(const v1::JobConfig& job, const std::set<std::string>& candidates) {
  std::set<std::string> exempt;
  if (job.data().dense().except_size() > 0) return exempt;
  for (const std::string& each : candidates) {
    if (IsLabelOrWeight(each, job)) exempt.insert(each);
  }
  return exempt;
}

bool Transforms(const v1::JobConfig& job) {
  const v1::DenseTransform& dense = job.data().dense();
  return dense.transform() != v1::DenseTransform::NONE || dense.column_size() > 0;
}

}  // namespace

std::vector<SettingDifference> ScoreDifferences(const v1::JobConfig& trained, const Job& job) {
  std::vector<SettingDifference> found = ModelDifferences(trained, job.config, CheckpointUse::kPrediction);
  // With the list `except` on both sides a difference has been found.
  if (trained.data().dense().except_size() > 0 || job.config.data().dense().except_size() > 0 ||
      (!Transforms(trained) && !Transforms(job.config))) {
    return found;
  }
  std::set<std::string> read = VariablesRead(trained);
  for (const std::string& each : VariablesRead(job.config)) read.insert(each);
  for (const v1::JobConfig* each : {&trained, &job.config}) {
    for (const v1::Layer& layer : each->model().layer()) read.erase(layer.name());
  }
  const std::set<std::string> was = ExemptVariables(trained, read), is = ExemptVariables(job.config, read);
  for (const std::string& each : read) {
    if (was.contains(each) == is.contains(each)) continue;
    const std::string name = absl::StrCat("the exemption of \"", each, "\"");
    found.push_back({.path = absl::StrCat("data.dense: ", name),
                     .was = was.contains(each) ? "that of a label or weight" : "none",
                     .is = is.contains(each) ? "that of a label or weight" : "none",
                     .place = "model.loss"});
  }
  return found;
}

std::string DifferenceText(const SettingDifference& difference, const Job& job) {
  const std::string at = job.positions.At(difference.place);
  return absl::StrCat(at, at.empty() ? "" : ": ", difference.path, " was ", difference.was,
                      " in the checkpoint's job, and is ", difference.is, " here");
}

absl::Status CheckSameScores(const Job& job, std::string_view job_text, const std::string& path, std::string* unknown) {
  unknown->clear();
  if (job_text.empty()) {
    *unknown = absl::StrCat("the checkpoint ", path, " does not have its job, so that this one is not compared");
    return absl::OkStatus();
  }
  const absl::StatusOr<v1::JobConfig> trained = ReadTrainedJob(job_text);
  if (!trained.ok()) {
    *unknown = absl::StrCat("the job in the checkpoint ", path, " cannot be read by this build and is not compared");
    return absl::OkStatus();
  }
  if (trained->has_program() || job.config.has_program()) {
    *unknown = absl::StrCat("the checkpoint ", path,
                            " does not have what is in a file of `program`, so that the model is not compared");
  }
  const std::vector<SettingDifference> found = ScoreDifferences(*trained, job);
  if (found.empty()) return absl::OkStatus();
  const size_t more = found.size() - 1;
  const std::string others =
      more == 0 ? "" : absl::StrCat(" (", more, more == 1 ? " more setting differs)" : " more settings differ)");
  return absl::FailedPreconditionError(
      absl::StrCat(DifferenceText(found[0], job), others, ": the scores would not be those of the model in ", path,
                   "; set it back, or give --checkpoint_job, which takes the model from the job in the checkpoint"));
}

absl::StatusOr<std::string> JobTextOfCheckpoint(const std::string& path) {
  std::vector<std::string> candidates;
  const std::filesystem::path named = std::filesystem::path(path).lexically_normal();
  const std::filesystem::path last = named.has_filename() ? named.filename() : named.parent_path().filename();
  std::error_code ignored;
  if (ParseStepDirectoryName(last.string()).has_value() || std::filesystem::exists(named / "MANIFEST", ignored)) {
    candidates.push_back(path);
  } else {
    ASSIGN_OR_RETURN(const std::vector<CheckpointPath> all, ListCheckpoints(path));
    for (auto each = all.rbegin(); each != all.rend(); ++each) candidates.push_back(each->path);
  }
  const bool of_step = candidates.size() == 1 && candidates[0] == path;
  absl::Status first = absl::NotFoundError(absl::StrCat("no complete checkpoint in ", path));
  for (const std::string& each : candidates) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(each);
    if (!manifest.ok()) {
      if (of_step) return manifest.status();
      if (each == candidates.front()) {
        first = absl::NotFoundError(absl::StrCat(first.message(), ": ", manifest.status().message()));
      }
      continue;
    }
    if (!manifest->job_text().empty()) return manifest->job_text();
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint ", each,
        " does not have its job: give the job file that it was trained with as --job, without ", "--checkpoint_job"));
  }
  return first;
}

}  // namespace weir
