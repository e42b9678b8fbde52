#include "trainer/checkpointing.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

constexpr char kStatisticsFile[] = "statistics";

}  // namespace

Checkpointing::Checkpointing(std::string dir, const v1::JobConfig& config, const v1::Plan& plan, Client* client)
    : dir_(std::move(dir)), config_(config), plan_(plan), client_(client) {}

absl::Status LoadIntoServers(Client* client, const std::string& name) {
  v1::ControlRequest request;
  request.mutable_load()->set_name(name);
  return client->Control(request).status();
}

absl::StatusOr<std::string> ReadStatistics(const std::string& directory, const v1::CheckpointManifest& manifest) {
  for (const v1::CheckpointFile& file : manifest.extra()) {
    if (file.name() == kStatisticsFile) return ReadWholeFile(absl::StrCat(directory, "/", file.name()));
  }
  return std::string();
}

absl::StatusOr<std::optional<ResumePoint>> Checkpointing::Resume() {
  ASSIGN_OR_RETURN(const std::vector<CheckpointPath> all, ListCheckpoints(dir_));
  if (all.empty()) return std::nullopt;
  absl::StatusOr<NewestCheckpoint> newest = FindNewestComplete(dir_, config_.name());
  if (!newest.ok()) {
    return absl::DataLossError(absl::StrCat("--resume: no checkpoint in ", dir_, " is complete: ",
                                            std::string(newest.status().message())));
  }
  for (const std::string& reason : newest->refused) LOG(WARNING) << "checkpoint refused: " << reason;
  RETURN_IF_ERROR(LoadIntoServers(client_, newest->found.name));
  ResumePoint point{.step = newest->manifest.step()};
  point.trainer_steps.assign(newest->manifest.data().trainer_steps().begin(),
                             newest->manifest.data().trainer_steps().end());
  ASSIGN_OR_RETURN(point.statistics, ReadStatistics(newest->found.path, newest->manifest));
  LOG(INFO) << "resumed from " << newest->found.path;
  return point;
}

absl::Status Checkpointing::StartAfresh() {
  ASSIGN_OR_RETURN(const std::string aside, SetEarlierCheckpointsAside(dir_));
  if (!aside.empty()) {
    LOG(WARNING) << "checkpoints of an earlier run moved to " << aside << "; --resume would have gone on from them";
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::CheckpointManifest> Checkpointing::WriteShards(const std::string& name, int64_t version,
                                                                  const std::string& statistics) {
  v1::ControlRequest request;
  request.mutable_save()->set_name(name);
  if (plan_.sync()) request.mutable_save()->set_step(version);
  ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->Control(request));
  v1::CheckpointManifest manifest;
  for (const v1::ControlReply& reply : replies) {
    if (!manifest.add_shards()->ParseFromString(reply.shard())) {
      return absl::InternalError("a server's description of its shard cannot be read");
    }
  }
  if (!replies.empty()) *manifest.mutable_data()->mutable_trainer_steps() = replies[0].trainer_steps();
  manifest.mutable_data()->set_trainers(plan_.trainers());
  if (!statistics.empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(dir_, "/", name, "/", kStatisticsFile), statistics));
    v1::CheckpointFile* file = manifest.add_extra();
    file->set_name(kStatisticsFile);
    file->set_bytes(static_cast<int64_t>(statistics.size()));
    file->set_checksum(StableHash(statistics));
  }
  return manifest;
}

absl::StatusOr<std::string> Checkpointing::Save(int64_t step, int64_t version, const std::string& statistics,
                                                const std::optional<MetricResult>& eval) {
  ASSIGN_OR_RETURN(const std::string temporary, BeginCheckpoint(dir_, step));
  absl::StatusOr<v1::CheckpointManifest> manifest = WriteShards(temporary, version, statistics);
  if (!manifest.ok()) {
    AbandonCheckpoint(dir_, temporary);
    return manifest.status();
  }
  manifest->set_job(config_.name());
  manifest->set_step(step);
  manifest->set_seed(plan_.seed());
  manifest->set_lanes(plan_.lanes());
  manifest->set_scheme_version(plan_.scheme_version());
  google::protobuf::TextFormat::PrintToString(config_, manifest->mutable_job_text());
  if (eval.has_value()) {
    manifest->set_eval_loss(eval->loss);
    if (eval->kind == v1::LossDesc::BINARY && !std::isnan(eval->auc)) manifest->set_eval_auc(eval->auc);
  }
  ASSIGN_OR_RETURN(const std::string path, PublishCheckpoint(dir_, temporary, *std::move(manifest)));
  RETURN_IF_ERROR(PruneCheckpoints(dir_, config_.checkpoint().keep_last(), config_.checkpoint().keep_best()));
  return path;
}

}  // namespace weir
