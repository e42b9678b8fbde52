#include "trainer/checkpointing.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/host_part.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "trainer/resume_check.h"

namespace weir {
namespace {

constexpr char kStatisticsFile[] = "statistics";
constexpr char kResidualsFile[] = "residuals";

absl::StatusOr<std::string> ReadExtra(const std::string& directory, const v1::CheckpointManifest& manifest, const char* name) {
  for (const v1::CheckpointFile& file : manifest.extra()) {
    if (file.name() == name) return ReadWholeFile(absl::StrCat(directory, "/", file.name()));
  }
  return std::string();
}

absl::Status WriteExtra(const std::string& directory, const char* name, const std::string& bytes, v1::CheckpointManifest* manifest) {
  if (bytes.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory, "/", name), bytes));
  v1::CheckpointFile* file = manifest->add_extra();
  file->set_name(name);
  file->set_bytes(static_cast<int64_t>(bytes.size()));
  file->set_checksum(StableHash(bytes));
  return absl::OkStatus();
}

}  // namespace

Checkpointing::Checkpointing(std::string dir, const v1::JobConfig& config, const v1::Plan& plan, Client* client)
    : dir_(std::move(dir)), config_(config), plan_(plan), client_(client), per_host_(config.checkpoint().per_host()) {}

absl::Status LoadIntoServers(Client* client, const std::string& path, const v1::CheckpointManifest& manifest) {
  v1::ControlRequest request;
  const std::filesystem::path whole(path);
  request.mutable_load()->set_name(whole.filename().string());
  request.mutable_load()->set_directory(whole.parent_path().string());
  request.mutable_load()->set_manifest(StableHash(ManifestText(manifest)));
  return client->Control(request).status();
}

absl::StatusOr<std::string> ReadStatistics(const std::string& directory, const v1::CheckpointManifest& manifest) {
  return ReadExtra(directory, manifest, kStatisticsFile);
}

absl::StatusOr<std::optional<Checkpointing::Found>> Checkpointing::FindShared() {
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> all, ListCheckpoints(dir_));
  if (all.empty()) return std::nullopt;
  absl::StatusOr<NewestCheckpoint> newest = FindNewestComplete(dir_, config_.name());
  if (!newest.ok()) {
    return absl::DataLossError(absl::StrCat("--resume: no checkpoint in ", dir_, " is complete: ",
                                            std::string(newest.status().message())));
  }
  return Found{.name = newest->found.name, .refused = std::move(newest->refused)};
}

absl::StatusOr<std::optional<Checkpointing::Found>> Checkpointing::FindOnAllHosts() {
  v1::ControlRequest request;
  request.mutable_find();
  ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->Control(request));
  ASSIGN_OR_RETURN(const HostParts own, FindParts(dir_, config_.name(), ""));
  Found found{.refused = own.refused};
  std::map<std::pair<int64_t, uint64_t>, size_t> holders;  // of a checkpoint: step and manifest
  for (const HostPart& part : own.parts) ++holders[{part.step, part.manifest}];
  bool any = !own.parts.empty() || !own.refused.empty();
  std::string held = absl::StrCat("the chief ", own.parts.size());
  for (size_t s = 0; s < replies.size(); ++s) {
    for (const v1::FoundPart& part : replies[s].parts()) ++holders[{part.step(), part.manifest()}];
    for (const std::string& reason : replies[s].refused()) found.refused.push_back(absl::StrCat("server ", s, ": ", reason));
    any |= replies[s].parts_size() > 0 || replies[s].refused_size() > 0;
    absl::StrAppend(&held, ", server ", s, " ", replies[s].parts_size());
  }
  if (!any) return std::nullopt;
  for (auto it = holders.rbegin(); it != holders.rend(); ++it) {
    const std::string name = StepDirectoryName(it->first.first);
    if (it->second == replies.size() + 1) {
      found.name = name;
      return found;
    }
    found.refused.push_back(absl::StrCat(name, ": ", it->second, " of ", replies.size() + 1, " processes have it"));
  }
  return absl::DataLossError(absl::StrCat("--resume: no checkpoint is complete on every host (good parts: ", held, ")",
                                          found.refused.empty() ? "" : ": ", absl::StrJoin(found.refused, "; ")));
}

absl::Status Checkpointing::CheckLoadedDigest(const v1::CheckpointManifest& manifest) {
  v1::ControlRequest request;
  request.mutable_digest();
  ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->Control(request));
  uint64_t values = 0;
  for (const v1::ControlReply& reply : replies) values += reply.values();
  if (values == manifest.values_digest()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("--resume: the servers hold values=", DigestHex(values), " after reading ",
                                          StepDirectoryName(manifest.step()), ", its manifest says values=",
                                          DigestHex(manifest.values_digest())));
}

absl::StatusOr<std::optional<ResumePoint>> Checkpointing::Resume() {
  ASSIGN_OR_RETURN(const std::optional<Found> found, per_host_ ? FindOnAllHosts() : FindShared());
  if (!found.has_value()) return std::nullopt;
  for (const std::string& reason : found->refused) LOG(WARNING) << "checkpoint refused: " << reason;
  const std::string path = absl::StrCat(dir_, "/", found->name);
  ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(path));
  RETURN_IF_ERROR(CheckResumable(path, manifest, config_, plan_));
  RETURN_IF_ERROR(LoadIntoServers(client_, path, manifest));
  if (per_host_) RETURN_IF_ERROR(CheckLoadedDigest(manifest));
  ResumePoint point{.step = manifest.step()};
  point.trainer_steps.assign(manifest.data().trainer_steps().begin(), manifest.data().trainer_steps().end());
  ASSIGN_OR_RETURN(point.statistics, ReadStatistics(path, manifest));
  ASSIGN_OR_RETURN(point.residuals, ReadExtra(path, manifest, kResidualsFile));
  if (manifest.has_loss_scale()) point.loss_scale = manifest.loss_scale();
  LOG(INFO) << "resumed from " << path;
  return point;
}

absl::Status Checkpointing::StartAfresh() {
  ASSIGN_OR_RETURN(const std::string aside, per_host_ ? SetEarlierPartsAside(dir_) : SetEarlierCheckpointsAside(dir_));
  if (!aside.empty()) {
    LOG(WARNING) << "checkpoints of an earlier run moved to " << aside << "; --resume would have gone on from them";
  }
  if (!per_host_) return absl::OkStatus();
  v1::ControlRequest request;
  request.mutable_set_aside();
  return client_->Control(request).status();
}

absl::StatusOr<v1::CheckpointManifest> Checkpointing::WriteShards(const std::string& name, int64_t version,
                                                                  const TrainerState& trainers) {
  v1::ControlRequest request;
  request.mutable_save()->set_name(name);
  request.mutable_save()->set_per_host(per_host_);
  if (plan_.sync()) request.mutable_save()->set_step(version);
  ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->Control(request));
  v1::CheckpointManifest manifest;
  for (const v1::ControlReply& reply : replies) {
    if (!manifest.add_shards()->ParseFromString(reply.shard())) {
      return absl::InternalError("a server's description of its shard cannot be read");
    }
  }
  // In async servers save at moments of their own. A trainer goes on where the last of them stands: the others know what they
  // have of its steps and drop the repeats. Where servers need each other for norms they cannot drop one: it goes on where the
  // first stands.
  std::vector<int64_t> steps(static_cast<size_t>(plan_.trainers()), -1);
  for (const v1::ControlReply& reply : replies) {
    if (reply.trainer_steps_size() != plan_.trainers()) return absl::InternalError("a server saved without its trainers' steps");
    for (size_t t = 0; t < steps.size(); ++t) {
      const int64_t here = reply.trainer_steps(static_cast<int>(t));
      steps[t] = steps[t] < 0 ? here : client_->ExchangesNorms() ? std::max(steps[t], here) : std::min(steps[t], here);
    }
  }
  manifest.mutable_data()->mutable_trainer_steps()->Assign(steps.begin(), steps.end());
  manifest.mutable_data()->set_trainers(plan_.trainers());
  const std::string directory = absl::StrCat(dir_, "/", name);
  RETURN_IF_ERROR(WriteExtra(directory, kStatisticsFile, trainers.statistics, &manifest));
  RETURN_IF_ERROR(WriteExtra(directory, kResidualsFile, trainers.residuals, &manifest));
  return manifest;
}

absl::Status Checkpointing::PublishOnAllHosts(const std::string& temporary, v1::CheckpointManifest manifest) {
  manifest.set_per_host(true);
  SealManifest(&manifest);
  const v1::CheckpointConfig& keep = config_.checkpoint();
  v1::ControlRequest request;
  request.mutable_publish()->set_name(temporary);
  request.mutable_publish()->set_manifest(manifest.SerializeAsString());
  request.mutable_publish()->set_keep_last(keep.keep_last());
  request.mutable_publish()->set_keep_best(keep.keep_best());
  RETURN_IF_ERROR(client_->Control(request).status());
  RETURN_IF_ERROR(PublishPart(dir_, temporary, manifest));
  return PruneParts(dir_, keep.keep_last(), keep.keep_best());
}

absl::StatusOr<std::string> Checkpointing::Save(int64_t step, int64_t version, const TrainerState& trainers,
                                                const std::optional<MetricResult>& eval) {
  ASSIGN_OR_RETURN(const std::string temporary, BeginCheckpoint(dir_, step));
  absl::StatusOr<v1::CheckpointManifest> manifest = WriteShards(temporary, version, trainers);
  if (!manifest.ok()) {
    AbandonCheckpoint(dir_, temporary);
    return manifest.status();
  }
  manifest->set_job(config_.name());
  manifest->set_step(step);
  manifest->set_seed(plan_.seed());
  manifest->set_lanes(plan_.lanes());
  manifest->set_scheme_version(plan_.scheme_version());
  if (trainers.loss_scale.has_value()) *manifest->mutable_loss_scale() = *trainers.loss_scale;
  google::protobuf::TextFormat::PrintToString(config_, manifest->mutable_job_text());
  if (eval.has_value()) {
    manifest->set_eval_loss(eval->loss);
    if (eval->kind == v1::LossDesc::BINARY && !std::isnan(eval->auc)) manifest->set_eval_auc(eval->auc);
  }
  if (per_host_) {
    RETURN_IF_ERROR(PublishOnAllHosts(temporary, *std::move(manifest)));
    return absl::StrCat(dir_, "/", StepDirectoryName(step));
  }
  ASSIGN_OR_RETURN(const std::string path, PublishCheckpoint(dir_, temporary, *std::move(manifest)));
  RETURN_IF_ERROR(PruneCheckpoints(dir_, config_.checkpoint().keep_last(), config_.checkpoint().keep_best()));
  return path;
}

}  // namespace weir
