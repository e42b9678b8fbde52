#include "transpiler/start/start_source.h"

#include <algorithm>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/checkpoint/directory.h"
#include "framework/graph/elements.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/job/trained_job.h"
#include "transpiler/split/transpile.h"
#include "transpiler/start/data_elements.h"
#include "transpiler/start/element_match.h"

namespace weir {
namespace {

struct Opened {
  std::string path;
  v1::CheckpointManifest manifest;
};

// Opens a checkpoint, or the newest complete one of a directory, without reading its shards.
absl::StatusOr<Opened> OpenNewest(const std::string& path) {
  if (!PathExists(path)) return absl::NotFoundError(absl::StrCat("there is no ", path));
  if (PathExists(absl::StrCat(path, "/MANIFEST"))) {
    ASSIGN_OR_RETURN(v1::CheckpointManifest manifest, VerifyCheckpoint(path, /*sizes_only=*/true));
    return Opened{path, std::move(manifest)};
  }
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> all, ListCheckpoints(path));
  std::string refused;
  for (size_t i = all.size(); i-- > 0;) {
    absl::StatusOr<v1::CheckpointManifest> manifest = VerifyCheckpoint(all[i].path, /*sizes_only=*/true);
    if (manifest.ok()) return Opened{all[i].path, *std::move(manifest)};
    LOG(WARNING) << "checkpoint refused: " << manifest.status().message();
    if (refused.empty()) refused = absl::StrCat("; the newest was refused: ", manifest.status().message());
  }
  return absl::NotFoundError(absl::StrCat("there is no complete checkpoint in ", path, refused));
}

bool IsMemoryOfIds(std::string_view table) { return table.find('@') != std::string_view::npos; }

}  // namespace

absl::StatusOr<std::unique_ptr<StartSource>> StartSource::Open(const Job& job, int index,
                                                               const std::map<std::string, std::string>& meanings) {
  std::unique_ptr<StartSource> source(new StartSource);
  source->index_ = index;
  source->config_ = &job.config.start_from(index);
  const std::string field = absl::StrCat("start_from[", index, "].checkpoint");
  const std::string path =
      std::filesystem::absolute(job.Path(source->config_->checkpoint())).lexically_normal().string();
  absl::StatusOr<Opened> opened = OpenNewest(path.ends_with('/') ? path.substr(0, path.size() - 1) : path);
  if (!opened.ok()) {
    return absl::Status(opened.status().code(),
                        absl::StrCat(job.positions.At(field), ": ", field, ": ", opened.status().message(),
                                     ". Name a step that is complete, or a directory of checkpoints"));
  }
  source->path_ = opened->path;
  source->manifest_ = std::move(opened->manifest);
  for (const v1::StartFrom::Rename& rename : source->config_->rename()) {
    source->rules_.push_back({.from = std::make_unique<const RE2>(rename.from(), RE2::Quiet), .to = rename.to()});
  }
  source->take_ = NamePatterns::Of(source->config_->take());
  source->drop_ = NamePatterns::Of(source->config_->drop());
  RETURN_IF_ERROR(source->ReadVariables(job));
  source->ReadProgram(meanings);
  return source;
}

absl::Status StartSource::ReadVariables(const Job& job) {
  for (const v1::CheckpointShard& shard : manifest_.shards()) {
    for (const v1::DenseEntry& entry : shard.dense()) {
      const std::string& name = entry.has_state_of() ? entry.state_of() : entry.variable();
      // Counters of learning rates: a run that starts has its own.
      if (absl::StartsWith(name, "@")) continue;
      Dense& dense = dense_[name];
      dense.name = name;
      if (entry.state_name().empty()) {
        dense.dims.assign(entry.whole_dims().begin(), entry.whole_dims().end());
      } else {
        dense.states.insert(entry.state_name());
      }
    }
    for (const v1::TableEntry& entry : shard.tables()) {
      if (IsMemoryOfIds(entry.table())) continue;
      Table& table = tables_[entry.table()];
      table.name = entry.table();
      table.width = entry.width();
      table.rows += entry.row_count();
    }
  }
  const auto taken = [this](const std::string& name) { return take_.empty() || take_.Matches(name); };
  for (const auto& [name, dense] : dense_) {
    for (const std::string& here : Renamed(name)) {
      parts_.insert(here);
      if (!taken(here)) continue;
      const auto [other, is_first] = dense_here_.emplace(here, name);
      if (!is_first) return TwoOfOneName(job, here, other->second, name);
    }
  }
  // In the order of the rules, for tables that are merged.
  const auto add = [&](const std::string& here, const std::string& name) {
    std::vector<std::string>& all = tables_here_[here];
    parts_.insert(here);
    if (taken(here) && std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  };
  for (const Rule& rule : rules_) {
    for (const auto& [name, table] : tables_) {
      std::string here;
      if (!RE2::FullMatch(name, *rule.from)) continue;
      if (RE2::Extract(name, *rule.from, rule.to, &here)) add(here, name);
    }
  }
  for (const auto& [name, table] : tables_) {
    for (const std::string& here : Renamed(name)) add(here, name);
  }
  return absl::OkStatus();
}

absl::Status StartSource::TwoOfOneName(const Job& job, const std::string& here, const std::string& a,
                                       const std::string& b) const {
  // One of the two has it by a rule.
  size_t rule = 0;
  while (rule + 1 < rules_.size() && !RE2::FullMatch(a, *rules_[rule].from) && !RE2::FullMatch(b, *rules_[rule].from)) {
    ++rule;
  }
  const std::string field = absl::StrCat("start_from[", index_, "].rename[", rule, "]");
  return job.positions.Error(
      field, absl::StrCat(field, ": '", a, "' and '", b, "' of checkpoint ", path_, " are both '", here,
                          "' here, and only tables can be merged: rename the one that is not meant to a name that this "
                          "job does not have, and name that by drop"));
}

std::vector<std::string> StartSource::Renamed(const std::string& name) const {
  std::vector<std::string> names;
  for (const Rule& rule : rules_) {
    std::string here;
    if (!RE2::FullMatch(name, *rule.from) || !RE2::Extract(name, *rule.from, rule.to, &here)) continue;
    rule.used = true;
    if (std::find(names.begin(), names.end(), here) == names.end()) names.push_back(std::move(here));
  }
  if (names.empty()) names.push_back(name);
  return names;
}

void StartSource::ReadProgram(const std::map<std::string, std::string>& meanings) {
  const absl::StatusOr<v1::JobConfig> config = ReadTrainedJob(manifest_.job_text());
  if (manifest_.job_text().empty() || !config.ok()) {
    why_no_program_ = "whose job this build cannot read";
    return;
  }
  if (!config->has_model()) {
    why_no_program_ = "whose job has a program in place of a model";
    return;
  }
  job_ = *config;
  Job job;
  job.config = *config;
  job.file = absl::StrCat(path_, "/MANIFEST");
  absl::StatusOr<Programs> single = BuildSingleMachine(job);
  absl::StatusOr<std::map<std::string, ElementAxes>> data = DataElements(config->data());
  if (!single.ok() || !data.ok()) {
    why_no_program_ = absl::StrCat("whose model this build cannot make (",
                                   single.ok() ? data.status().message() : single.status().message(), ")");
    return;
  }
  const absl::StatusOr<std::map<std::string, std::string>> theirs = DataMeanings(config->data());
  // Ids depend on the names of their slots, so these have no other names.
  std::set<std::string> data_names, ids;
  for (const v1::VarDesc& var : single->main.blocks(0).vars()) {
    if (var.kind() == v1::IDS) ids.insert(var.name());
  }
  for (auto& [name, axes] : *data) {
    data_names.insert(name);
    for (ElementAxis& axis : axes) {
      for (ElementRun& run : axis) {
        const std::string there = run.of;
        if (ids.count(name) == 0) run.of = Renamed(there).front();
        const auto here = meanings.find(run.of);
        const auto meant = theirs.ok() ? theirs->find(there) : meanings.end();
        if (here == meanings.end() || !theirs.ok() || meant == theirs->end() || here->second == meant->second) continue;
        // Another thing by the same name.
        other_meanings_[run.of] = meant->second;
        run.of = absl::StrCat("earlier ", run.of);
      }
    }
  }
  auto main = std::make_unique<v1::ProgramDesc>(std::move(single->main));
  RenameProgram(main.get(), data_names);
  main_ = std::move(main);
  elements_ = std::make_unique<const ProgramElements>(*main_, *data);
  std::set<std::string> loss_inputs;
  for (const ProgramElements::Op& op : elements_->ops()) {
    if (op.op->role() == v1::LOSS) loss_inputs.insert(op.inputs.begin(), op.inputs.end());
  }
  const auto add = [this](const ElementAxes& axes) {
    for (const ElementAxis& axis : axes) {
      for (const ElementRun& run : axis) {
        for (std::string& part : NameParts(run.of)) parts_.insert(std::move(part));
      }
    }
  };
  for (const auto& [name, axes] : *data) {
    if (elements_->read_data().count(name) == 0) continue;
    add(axes);
    if (loss_inputs.count(name) > 0) continue;
    for (const ElementAxis& axis : axes) {
      for (const ElementRun& run : axis) read_inputs_.insert(run.of);
    }
  }
  for (const auto& [name, var] : elements_->parameters()) {
    if (var->kind() != v1::TABLE) add(elements_->Parameter(name));
  }
}

void StartSource::RenameProgram(v1::ProgramDesc* main, const std::set<std::string>& data) const {
  if (rules_.empty()) return;
  const auto rename = [&](std::string* name) {
    if (data.count(*name) == 0) *name = Renamed(*name).front();
  };
  for (v1::VarDesc& var : *main->mutable_blocks(0)->mutable_vars()) rename(var.mutable_name());
  for (v1::OpDesc& op : *main->mutable_blocks(0)->mutable_ops()) {
    for (auto* const slots : {op.mutable_inputs(), op.mutable_outputs()}) {
      for (v1::OpSlot& slot : *slots) {
        for (std::string& name : *slot.mutable_vars()) rename(&name);
      }
    }
  }
}

v1::StartSource StartSource::Describe() const {
  v1::StartSource source;
  source.set_name(std::filesystem::path(path_).filename().string());
  source.set_manifest(ManifestIdentity(manifest_));
  source.set_directory(std::filesystem::path(path_).parent_path().string());
  return source;
}

void StartSource::AddAncestors(v1::Lineage* lineage) const {
  v1::Ancestor* const nearest = lineage->add_ancestors();
  nearest->set_directory(path_);
  nearest->set_job(manifest_.job());
  if (manifest_.has_run()) nearest->set_run(manifest_.run());
  nearest->set_step(manifest_.step());
  nearest->set_values_digest(manifest_.values_digest());
  nearest->set_generation(1);
  for (const v1::Ancestor& each : manifest_.trainers().lineage().ancestors()) {
    v1::Ancestor* const farther = lineage->add_ancestors();
    *farther = each;
    farther->set_generation(each.generation() + 1);
  }
}

const StartSource::Dense* StartSource::FindDense(std::string_view name) const {
  const auto found = dense_here_.find(name);
  return found == dense_here_.end() ? nullptr : &dense_.at(found->second);
}

std::vector<const StartSource::Table*> StartSource::FindTables(std::string_view name) const {
  std::vector<const Table*> all;
  if (const auto found = tables_here_.find(name); found != tables_here_.end()) {
    for (const std::string& there : found->second) all.push_back(&tables_.at(there));
  }
  return all;
}

std::vector<std::pair<std::string, int64_t>> StartSource::Unused() const {
  std::vector<std::pair<std::string, int64_t>> unused;
  for (const auto& [name, dense] : dense_) {
    if (used_.count(name) > 0) continue;
    int64_t bytes = 4;
    for (const int64_t dim : dense.dims) bytes *= dim;
    unused.emplace_back(Renamed(name).front(), bytes);
  }
  for (const auto& [name, table] : tables_) {
    if (used_.count(name) == 0) unused.emplace_back(Renamed(name).front(), 4 * table.rows * table.width);
  }
  return unused;
}

std::optional<ElementAxes> StartSource::Axes(const Dense& dense) const {
  if (elements_ == nullptr) return std::nullopt;
  const std::string here = Renamed(dense.name).front();
  const v1::VarDesc* const var = elements_->Find(here);
  if (var == nullptr || !std::equal(var->dims().begin(), var->dims().end(), dense.dims.begin(), dense.dims.end())) {
    return std::nullopt;
  }
  return elements_->Parameter(here);
}

std::string StartSource::OtherMeaning(const std::string& input) const {
  const auto found = other_meanings_.find(input);
  return found == other_meanings_.end() ? "" : found->second;
}

bool StartSource::has_statistics() const {
  return std::any_of(manifest_.extra().begin(), manifest_.extra().end(),
                     [](const v1::CheckpointFile& file) { return file.name() == kStatisticsFile; });
}

bool StartSource::Reads(const std::string& input) const { return elements_ == nullptr || parts_.count(input) > 0; }

std::vector<std::pair<std::string, std::string>> StartSource::UnusedPatterns() const {
  std::vector<std::pair<std::string, std::string>> unused;
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (!rules_[i].used) unused.emplace_back(absl::StrCat("rename[", i, "].from"), rules_[i].from->pattern());
  }
  if (std::string text = take_.Unused(); !text.empty()) unused.emplace_back("take", std::move(text));
  if (std::string text = drop_.Unused(); !text.empty()) unused.emplace_back("drop", std::move(text));
  return unused;
}

}  // namespace weir
