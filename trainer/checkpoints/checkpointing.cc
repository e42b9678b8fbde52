#include "trainer/checkpoints/checkpointing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/file.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "trainer/metrics/early_stop.h"
#include "transpiler/job/model_differences.h"

namespace weir {
namespace {

// Interval of looking at a mark of another run that may still be alive.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(200);

absl::StatusOr<std::string> ReadExtra(const std::string& directory, const v1::CheckpointManifest& manifest,
                                      const char* name) {
  for (const v1::CheckpointFile& file : manifest.extra()) {
    if (file.name() == name) {
      return ReadRegularFile(absl::StrCat(directory, "/", file.name()), static_cast<uint64_t>(file.bytes()));
    }
  }
  return std::string();
}

absl::Status WriteExtra(const std::string& directory, const char* name, const std::string& bytes,
                        v1::CheckpointManifest* manifest) {
  if (bytes.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory, "/", name), bytes, Links::kRefuse));
  v1::CheckpointFile* file = manifest->add_extra();
  file->set_name(name);
  file->set_bytes(static_cast<int64_t>(bytes.size()));
  file->set_checksum(StableHash(bytes));
  return absl::OkStatus();
}

// Leaves out figures that are not numbers, since they cannot rank checkpoints.
void SetFigures(const MetricResult& eval, const std::string& best_by, v1::CheckpointManifest* manifest) {
  if (const double loss = eval.Measure("loss"); std::isfinite(loss)) manifest->set_eval_loss(loss);
  if (const double auc = eval.Measure("auc"); !std::isnan(auc)) manifest->set_eval_auc(auc);
  manifest->clear_eval_figure();
  for (const Figure& figure : eval.figures) {
    if (!std::isfinite(figure.value)) continue;
    v1::EvalFigure* const out = manifest->add_eval_figure();
    out->set_name(figure.name);
    out->set_value(figure.value);
  }
  manifest->clear_eval_rank();
  manifest->clear_eval_ranked_by();
  // Without best_by eval_auc and eval_loss rank, unless the job has an exact auc.
  const std::string ranked_by = best_by.empty() && eval.HasFigure("auc") ? "auc" : best_by;
  const std::optional<double> rank = ranked_by.empty() ? std::nullopt : eval.RankBy(ranked_by);
  if (rank.has_value()) {
    manifest->set_eval_rank(*rank);
    manifest->set_eval_ranked_by(ranked_by);
  }
}

// Writes the residuals of all trainers to a file of any size; returns when the last trainer has sent its own.
absl::Status WriteResiduals(const std::string& directory, const SavedTrainers& trainers,
                            v1::CheckpointManifest* manifest) {
  if (trainers.residuals == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<FileWriter> writer,
                   FileWriter::Create(absl::StrCat(directory, "/", kResidualsFile)));
  RETURN_IF_ERROR(
      trainers.residuals([&](std::string_view bytes) { return writer->Append(bytes.data(), bytes.size()); }));
  // An unclosed file is dropped.
  if (writer->size() == 0) return absl::OkStatus();
  RETURN_IF_ERROR(writer->Close());
  v1::CheckpointFile* file = manifest->add_extra();
  file->set_name(kResidualsFile);
  file->set_bytes(writer->size());
  file->set_checksum(writer->checksum());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadInPieces(const std::string& path, const TakeBytes& take) {
  ASSIGN_OR_RETURN(const std::unique_ptr<FileReader> file, FileReader::Open(path));
  std::string piece;
  for (int64_t at = 0; at < file->size(); at += static_cast<int64_t>(piece.size())) {
    piece.resize(static_cast<size_t>(std::min<int64_t>(file->size() - at, int64_t{1} << 20)));
    RETURN_IF_ERROR(file->Read(at, piece.data(), piece.size()));
    RETURN_IF_ERROR(take(piece));
  }
  return absl::OkStatus();
}

Checkpointing::Checkpointing(std::string dir, const v1::JobConfig& config, const v1::Plan& plan, TrainFiles train_files,
                             Client* client, DenseReplica* replica, std::string run)
    : dir_(std::move(dir)),
      config_(config),
      plan_(plan),
      train_files_(std::move(train_files)),
      client_(client),
      replica_(replica),
      run_(std::move(run)),
      store_(CheckpointStore::Create(dir_, config, client)) {}

absl::Status LoadIntoServers(Client* client, const std::string& path, const v1::CheckpointManifest& manifest) {
  v1::ControlRequest request;
  const std::filesystem::path whole(path);
  request.mutable_load()->set_name(whole.filename().string());
  request.mutable_load()->set_directory(whole.parent_path().string());
  request.mutable_load()->set_manifest(ManifestIdentity(manifest));
  return client->member().Control(request, /*until_stop=*/true).status();
}

absl::StatusOr<std::string> ReadStatistics(const std::string& directory, const v1::CheckpointManifest& manifest) {
  return ReadExtra(directory, manifest, kStatisticsFile);
}

absl::Status Checkpointing::Explained(const absl::Status& load, const v1::CheckpointManifest& manifest) const {
  if (!absl::IsFailedPrecondition(load)) return load;
  const std::string difference = ModelDifferenceText(manifest.job_text(), config_, CheckpointUse::kLoading);
  if (difference.empty()) return load;
  return absl::FailedPreconditionError(
      absl::StrCat("--resume: ", load.message(), "; the setting ", difference, ": set it back, or start a fresh run ",
                   "without --resume; its tables can begin with the rows of this one (checkpoint export, table.load)"));
}

absl::Status Checkpointing::Own() {
  const std::string run = client_->member().RunId();
  v1::ControlRequest request;
  request.mutable_own()->set_run(run);
  if (owner_ != nullptr) {
    bool of_this_run = false;
    absl::Status status = owner_->Check(&of_this_run);
    if (!of_this_run) return status;
    // Another trainer has written meanwhile. Only the servers know whether this trainer is the chief; one that slept
    // and was declared dead is refused.
    RETURN_IF_ERROR(client_->member().Control(request).status());
    std::string holder;
    RETURN_IF_ERROR(owner_->Take(&holder).status());
    return owner_->Check();
  }
  const v1::Deadlines& deadlines = config_.deadlines();
  const absl::Duration beat = absl::Seconds(deadlines.heartbeat_s());
  auto owner = std::make_unique<DirectoryOwner>(OwnerOptions{
      .dir = dir_, .job = config_.name(), .run = run, .lease = absl::Seconds(deadlines.lease_s()), .beat = beat});
  std::string told;
  while (true) {
    std::string holder;
    RETURN_IF_ERROR(owner->Take(&holder).status());
    if (holder.empty()) {
      ASSIGN_OR_RETURN(holder, store_->OwnOthers(request));
    }
    if (holder.empty()) break;
    if (holder != told) LOG(WARNING) << holder << "; waits until it is known whether that run is alive";
    told = holder;
    RETURN_IF_ERROR(client_->member().JobStatus());
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(std::min(beat, kBetweenLooks)));
  }
  owner_ = std::move(owner);
  return absl::OkStatus();
}

absl::StatusOr<bool> Checkpointing::HasOfThisRun() {
  RETURN_IF_ERROR(Own());
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> all, ListCheckpoints(dir_));
  return std::any_of(all.begin(), all.end(), [this](const CheckpointPath& each) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(each.path);
    return manifest.ok() && manifest->run() == run_;
  });
}

absl::StatusOr<ResumePoint> Checkpointing::Resume() {
  RETURN_IF_ERROR(Own());
  ResumePoint point;
  ASSIGN_OR_RETURN(const std::optional<CheckpointStore::Found> found, store_->Find());
  if (!found.has_value()) return point;
  for (const std::string& reason : found->refused) LOG(WARNING) << "checkpoint refused: " << reason;
  const std::string path = absl::StrCat(dir_, "/", found->name);
  ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(path));
  RETURN_IF_ERROR(CheckResumable(path, manifest, config_, plan_, train_files_));
  RETURN_IF_ERROR(Explained(LoadIntoServers(client_, path, manifest), manifest));
  // Those that hold shares read them when the job begins.
  if (replica_ != nullptr && !replica_->sharded()) {
    RETURN_IF_ERROR(Explained(replica_->Load(path, manifest), manifest));
  }
  RETURN_IF_ERROR(store_->CheckLoaded(manifest));
  RETURN_IF_ERROR(store_->SetAside(manifest.step()));
  v1::Beginning& beginning = point.beginning;
  beginning.set_resumed(true);
  beginning.set_step(manifest.step());
  *beginning.mutable_trainer_steps() = manifest.data().trainer_steps();
  *beginning.mutable_trainers() = manifest.trainers();
  ASSIGN_OR_RETURN(*beginning.mutable_statistics(), ReadStatistics(path, manifest));
  for (const v1::CheckpointFile& file : manifest.extra()) {
    if (file.name() == kResidualsFile) point.residuals = absl::StrCat(path, "/", kResidualsFile);
    if (file.name() == kPlacesFile) beginning.set_places(true);
  }
  ASSIGN_OR_RETURN(point.places, ReadExtra(path, manifest, kPlacesFile));
  beginning.set_checkpoint(found->name);
  beginning.set_manifest(ManifestIdentity(manifest));
  beginning.set_not_evaluated(!manifest.has_eval_loss() && !manifest.has_eval_auc() &&
                              manifest.eval_figure_size() == 0);
  // An interruption may have prevented the evaluation of its step.
  if (store_->MayReplaceResumed()) published_ = Published{"", manifest};
  LOG(INFO) << "resumed from " << path;
  return point;
}

absl::Status Checkpointing::LoadReplica(const v1::Beginning& beginning, int chief) {
  if (!replica_->sharded()) return replica_->Broadcast(chief);
  RETURN_IF_ERROR(CheckFileName(beginning.checkpoint()));
  const std::string path = absl::StrCat(dir_, "/", beginning.checkpoint());
  const bool none = !PathExists(path);
  absl::StatusOr<v1::CheckpointManifest> manifest;
  if (!none) {
    manifest = ReadManifest(path);
    RETURN_IF_ERROR(manifest.status());
  }
  if (none || ManifestIdentity(*manifest) != beginning.manifest()) {
    return absl::FailedPreconditionError(
        absl::StrCat("trainer ", chief, " has resumed from ", beginning.checkpoint(),
                     " of checkpoint.dir, and this trainer, which ", "reads its share of it itself, has ",
                     none ? "none at " : "another one at ", path, ": give all trainers a directory that they share"));
  }
  return Explained(replica_->Load(path, *manifest), *manifest);
}

absl::Status Checkpointing::StartAfresh() {
  RETURN_IF_ERROR(Own());
  return store_->SetAside(/*above=*/-1);
}

absl::StatusOr<v1::CheckpointManifest> Checkpointing::WriteFiles(const std::string& name, int64_t version,
                                                                 const SavedTrainers& trainers) {
  v1::CheckpointManifest manifest;
  const std::string directory = absl::StrCat(dir_, "/", name);
  RETURN_IF_ERROR(WriteExtra(directory, kStatisticsFile, trainers.statistics, &manifest));
  // The other trainers wait until their residuals and places are taken, so this comes before the servers' work.
  RETURN_IF_ERROR(WriteResiduals(directory, trainers, &manifest));
  if (trainers.places != nullptr) {
    ASSIGN_OR_RETURN(const v1::StreamPlaces places, trainers.places());
    RETURN_IF_ERROR(WriteExtra(directory, kPlacesFile, places.SerializeAsString(), &manifest));
  }
  RETURN_IF_ERROR(WriteShards(name, version, &manifest));
  return manifest;
}

absl::Status Checkpointing::WriteShards(const std::string& name, int64_t version, v1::CheckpointManifest* manifest) {
  v1::ControlRequest request;
  request.mutable_save()->set_name(name);
  store_->Describe(request.mutable_save(), manifest);
  if (version >= 0) request.mutable_save()->set_step(version);
  // The other trainers write while the servers do.
  const int own = replica_ == nullptr ? 0 : replica_->collective().rank();
  if (replica_ != nullptr) RETURN_IF_ERROR(replica_->AgreeOnSave(own, name).status());
  ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->member().Control(request));
  for (const v1::ControlReply& reply : replies) {
    if (!manifest->add_shards()->ParseFromString(reply.shard())) {
      return absl::InternalError("a server's description of its shard cannot be read");
    }
  }
  if (replica_ != nullptr) {
    ASSIGN_OR_RETURN(std::vector<v1::CheckpointShard> shards, replica_->SaveShards(own, absl::StrCat(dir_, "/", name)));
    for (v1::CheckpointShard& shard : shards) {
      *shard.mutable_trainer_steps() = manifest->shards(0).trainer_steps();
      *manifest->add_shards() = std::move(shard);
    }
  }
  // In async servers save at moments of their own. A trainer resumes at the step of the last server: the others know
  // which of its steps they have and drop repeats. If servers exchange norms they cannot drop a step, so it resumes at
  // the step of the first server.
  std::vector<int64_t> steps(static_cast<size_t>(plan_.trainers()), -1);
  for (const v1::ControlReply& reply : replies) {
    if (reply.trainer_steps_size() != plan_.trainers())
      return absl::InternalError("a server saved without its trainers' steps");
    for (size_t t = 0; t < steps.size(); ++t) {
      const int64_t here = reply.trainer_steps(static_cast<int>(t));
      steps[t] = steps[t] < 0                        ? here
                 : client_->steps().ExchangesNorms() ? std::max(steps[t], here)
                                                     : std::min(steps[t], here);
    }
  }
  manifest->mutable_data()->mutable_trainer_steps()->Assign(steps.begin(), steps.end());
  manifest->mutable_data()->set_trainers(plan_.trainers());
  saved_trainer_steps_ = steps;
  return absl::OkStatus();
}

absl::Status Checkpointing::WriteShareFor(int chief) {
  ASSIGN_OR_RETURN(const std::string name, replica_->AgreeOnSave(chief, ""));
  // Any other name could be that of a published checkpoint.
  if (!IsTemporaryName(name)) {
    return absl::DataLossError(absl::StrCat("trainer ", chief, " saves to '", name.substr(0, 200),
                                            "', which is no name of a checkpoint that is being written"));
  }
  const std::string directory = absl::StrCat(dir_, "/", name);
  // The chief has made it; a file system on the network may not show it here yet. Errors come when the shard is
  // written.
  CreateDirectories(directory).IgnoreError();
  return replica_->SaveShards(chief, directory).status();
}

absl::StatusOr<std::string> Checkpointing::Save(int64_t step, int64_t version, const SavedTrainers& trainers,
                                                const std::optional<MetricResult>& eval) {
  absl::StatusOr<std::string> path = WriteAndPublish(step, version, trainers, eval);
  if (path.ok()) return path;
  const absl::StatusOr<std::vector<CheckpointPath>> left = ListCheckpoints(dir_);
  const std::string newest =
      !left.ok() || left->empty()
          ? absl::StrCat("there is no checkpoint in ", dir_)
          : absl::StrCat("the newest in ", dir_, " is ", left->back().name, ", from which --resume goes on");
  // A full disk is for the user to fix, like a read-only one, hence FailedPrecondition.
  const bool full = path.status().code() == absl::StatusCode::kResourceExhausted;
  return absl::Status(
      full ? absl::StatusCode::kFailedPrecondition : path.status().code(),
      absl::StrCat("the checkpoint of step ", step, " was not saved: ", path.status().message(), "; ", newest));
}

absl::StatusOr<std::string> Checkpointing::WriteAndPublish(int64_t step, int64_t version, const SavedTrainers& trainers,
                                                           const std::optional<MetricResult>& eval) {
  RETURN_IF_ERROR(Own());
  ASSIGN_OR_RETURN(const std::string temporary, BeginCheckpoint(dir_, step));
  absl::StatusOr<v1::CheckpointManifest> manifest = WriteFiles(temporary, version, trainers);
  if (!manifest.ok()) {
    AbandonCheckpoint(dir_, temporary);
    return manifest.status();
  }
  // Writing may have taken long enough for another trainer to take over.
  RETURN_IF_ERROR(owner_->Check());
  published_.reset();
  manifest->set_job(config_.name());
  manifest->set_step(step);
  if (!run_.empty()) manifest->set_run(run_);
  manifest->set_seed(plan_.seed());
  manifest->set_lanes(plan_.lanes());
  manifest->set_scheme_version(plan_.scheme_version());
  manifest->set_train_data(train_files_.description);
  *manifest->mutable_trainers() = trainers.state;
  if (trainers.follow != nullptr) {
    RETURN_IF_ERROR(trainers.follow(saved_trainer_steps_, manifest->mutable_trainers()));
  }
  google::protobuf::TextFormat::PrintToString(config_, manifest->mutable_job_text());
  if (eval.has_value()) SetFigures(*eval, config_.checkpoint().best_by(), &*manifest);
  SealManifest(&*manifest);
  RETURN_IF_ERROR(store_->Publish(temporary, *manifest));
  store_->Prune(*manifest);
  published_ = Published{temporary, *std::move(manifest)};
  return absl::StrCat(dir_, "/", StepDirectoryName(step));
}

absl::Status Checkpointing::RecordEvaluation(const MetricResult& eval, const EarlyStop* early_stop) {
  if (!published_.has_value()) return absl::OkStatus();
  // The evaluation may have taken long enough for another trainer to take over.
  RETURN_IF_ERROR(owner_->Check());
  v1::CheckpointManifest& manifest = published_->manifest;
  SetFigures(eval, config_.checkpoint().best_by(), &manifest);
  if (early_stop != nullptr) early_stop->Save(manifest.mutable_trainers());
  RETURN_IF_ERROR(store_->Replace(published_->temporary, manifest));
  store_->Prune(manifest);
  return absl::OkStatus();
}

}  // namespace weir
