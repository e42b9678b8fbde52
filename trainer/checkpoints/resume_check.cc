#include "trainer/checkpoints/resume_check.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/files/data_set.h"
#include "transpiler/job/check_modes.h"
#include "transpiler/job/model_differences.h"
#include "transpiler/job/trained_job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

absl::Status Same(const std::string& path, std::string_view field, const std::string& was, const std::string& is) {
  if (was == is) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("--resume: ", path, " was trained with ", std::string(field), " ", was, ", the job says ", is,
                   ": what follows would be neither run's; set it back, or start a fresh run without --resume"));
}

// Returns true for settings that determine which examples a step has, or what the servers make of them.
bool Decides(std::string_view setting) {
  if (setting.starts_with("data.train.where")) return true;
  for (const std::string_view free :
       {"data.eval.", "data.train.", "data.bad_line", "data.may_be_absent", "data.follow.until"}) {
    if (setting.starts_with(free)) return false;
  }
  for (const std::string_view one :
       {"train.accumulate_steps", "train.workers", "distribute.sync", "distribute.async_tables", "distribute.geo"}) {
    if (setting == one) return true;
  }
  return setting.starts_with("data.");
}

// Path and value, in the order of proto/job.proto.
using SettingList = std::vector<std::pair<std::string, std::string>>;
SettingList Settings(const v1::JobConfig& config) {
  SettingList settings;
  for (const absl::string_view line : absl::StrSplit(SettingsText(config), '\n')) {
    const std::pair<std::string, std::string> setting = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (Decides(setting.first)) settings.push_back(setting);
  }
  return settings;
}

absl::Status SameSettings(const std::string& path, const SettingList& was, const SettingList& is) {
  const auto value = [](const SettingList& settings, const std::string& name) -> std::string {
    for (const auto& [each, value] : settings) {
      if (each == name) return value;
    }
    return "not set";
  };
  for (const SettingList* list : {&was, &is}) {
    for (const auto& [name, unused] : *list) RETURN_IF_ERROR(Same(path, name, value(was, name), value(is, name)));
  }
  return absl::OkStatus();
}

absl::Status SameData(const std::string& path, std::string_view was, std::string_view is) {
  const std::string difference = FirstDataDifference(is, was);
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--resume: ", path, " was trained on other files: data.train: ",
                                                    difference, " ('here' is what the job finds now, 'there' what the ",
                                                    "checkpoint has seen). The place where reading goes on would mean "
                                                    "other examples. Give it the files that it began with, at any ",
                                                    "path, or start a fresh run without --resume; its tables can begin "
                                                    "with the rows of this one (checkpoint export, table.load)"));
}

std::string Files(const v1::DataSource& source) { return absl::StrCat("[", absl::StrJoin(source.files(), ", "), "]"); }

}  // namespace

absl::Status CheckResumable(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job,
                            const v1::Plan& plan, const TrainFiles& train_files) {
  if (manifest.has_seed()) {
    RETURN_IF_ERROR(Same(path, "train.seed", absl::StrCat(manifest.seed()), absl::StrCat(plan.seed())));
  }
  if (manifest.has_lanes()) {
    RETURN_IF_ERROR(Same(path, "train.lanes", absl::StrCat(manifest.lanes()), absl::StrCat(plan.lanes())));
  }
  if (manifest.has_scheme_version()) {
    RETURN_IF_ERROR(Same(path, "the placement scheme", absl::StrCat(manifest.scheme_version()),
                         absl::StrCat(plan.scheme_version())));
  }
  // Without lanes every trainer has a stream of its own.
  if (plan.lanes() == 0 && manifest.data().trainers() > 0) {
    RETURN_IF_ERROR(
        Same(path, "distribute.trainers", absl::StrCat(manifest.data().trainers()), absl::StrCat(plan.trainers())));
  }
  if (manifest.has_train_data()) RETURN_IF_ERROR(SameData(path, manifest.train_data(), train_files.description));
  // Before the first step nothing has been read.
  const int scheme = manifest.trainers().stream_scheme();
  if (!train_files.cuts_by(scheme) && manifest.step() > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--resume: ", path, " was trained by a build that cuts these files into streams by rule ", scheme,
                     ", which this one does not know for them; it has rule ", kStreamScheme,
                     " (docs/data.md) and would go on with other examples: finish the run with that "
                     "build, or start a fresh run without --resume"));
  }
  if (manifest.job_text().empty()) return absl::OkStatus();
  const absl::StatusOr<v1::JobConfig> earlier = ReadTrainedJob(manifest.job_text());
  if (!earlier.ok()) {
    LOG(WARNING) << "--resume: the job in the manifest of " << path
                 << " cannot be read by this build; its data settings and its "
                 << "model are not compared with this job's";
    return absl::OkStatus();
  }
  if (!manifest.has_train_data()) {
    RETURN_IF_ERROR(Same(path, "data.train.files", Files(earlier->data().train()), Files(job.data().train())));
  }
  RETURN_IF_ERROR(SameSettings(path, Settings(*earlier), Settings(job)));
  if (const std::string difference = ModelDifferenceText(manifest.job_text(), job, CheckpointUse::kTraining);
      !difference.empty()) {
    LOG(WARNING) << "--resume: " << path << " is of another model: " << difference
                 << "; training goes on with parameters that were trained for the model that it was";
  }
  return absl::OkStatus();
}

absl::Status CheckSameGeo(const std::string& path, const v1::CheckpointManifest& manifest, const v1::JobConfig& job) {
  const absl::StatusOr<v1::JobConfig> earlier = ReadTrainedJob(manifest.job_text());
  if (!earlier.ok() || SavesOptimizerState(earlier->distribute()) || !SavesOptimizerState(job.distribute()))
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the checkpoint ", path,
      " was trained with distribute.geo and holds no optimizer state, which the servers of this job look ",
      "for; give the job file that it was trained with, or --set distribute.sync=false --set distribute.geo={}"));
}

}  // namespace weir
