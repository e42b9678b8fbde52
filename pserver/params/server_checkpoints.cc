#include "pserver/params/server_checkpoints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/file.h"
#include "framework/checkpoint/host_part.h"
#include "framework/checkpoint/shard.h"
#include "framework/checkpoint/start.h"
#include "glog/logging.h"
#include "proto/start.pb.h"

namespace weir {

namespace {

// Returns the table step to go on from: that of shard `own` if the manifest has it, else the largest of all shards, so
// that no row carries the stamp of a future step. `own` is -1 if the number of servers has changed.
int64_t TableSteps(const v1::CheckpointManifest& manifest, int own) {
  if (own >= 0 && manifest.shards(own).has_table_steps()) return manifest.shards(own).table_steps();
  int64_t most = -1;
  for (const v1::CheckpointShard& shard : manifest.shards()) {
    if (shard.has_table_steps()) most = std::max(most, shard.table_steps());
  }
  return most >= 0 ? most : manifest.step();
}

}  // namespace

absl::Status ServerCheckpoints::CheckDirectory() const {
  if (!dir_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("server ", server_id_, ": the job has no checkpoint directory"));
}

absl::Status ServerCheckpoints::Save(const v1::SaveShard& save, const std::vector<int64_t>& trainer_steps,
                                     std::optional<int64_t> table_steps, v1::ControlReply* reply) {
  RETURN_IF_ERROR(CheckDirectory());
  // Any other name could be that of a published checkpoint.
  if (!IsTemporaryName(save.name())) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", save.name(), "' is no name of a checkpoint that is being written"));
  }
  if (save.per_host()) {
    if (owner_ != nullptr) RETURN_IF_ERROR(owner_->Check());
    RETURN_IF_ERROR(BeginPart(dir_, save.name()));
  }
  const std::string directory = absl::StrCat(dir_, "/", save.name());
  RETURN_IF_ERROR(CreateDirectories(directory));
  ASSIGN_OR_RETURN(v1::CheckpointShard shard, params_->Save(absl::StrCat(directory, "/", ShardFileName(server_id_))));
  shard.mutable_trainer_steps()->Assign(trainer_steps.begin(), trainer_steps.end());
  if (table_steps.has_value()) shard.set_table_steps(*table_steps);
  *reply->mutable_trainer_steps() = shard.trainer_steps();
  reply->set_shard(shard.SerializeAsString());
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::Own(const v1::OwnDirectory& own, v1::ControlReply* reply) {
  RETURN_IF_ERROR(CheckDirectory());
  if (own.run().empty()) return absl::InvalidArgumentError("the directory is to be marked for a run without a name");
  if (owner_ != nullptr && run_ != own.run()) {
    return absl::FailedPreconditionError(
        absl::StrCat("server ", server_id_, " belongs to another run of the job than the caller"));
  }
  if (owner_ == nullptr) {
    OwnerOptions options = mark_;
    options.run = run_ = own.run();
    // The chief or another server of this host may have marked the directory for this run already.
    options.publishes = false;
    owner_ = std::make_unique<DirectoryOwner>(std::move(options));
  }
  std::string holder;
  ASSIGN_OR_RETURN(const bool taken, owner_->Take(&holder));
  if (!taken) reply->add_refused(holder);
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::Publish(const v1::PublishPart& publish) {
  RETURN_IF_ERROR(CheckDirectory());
  v1::CheckpointManifest manifest;
  if (!manifest.ParseFromString(publish.manifest())) return absl::InvalidArgumentError("no CheckpointManifest");
  return PublishPart(dir_, publish.name(), manifest);
}

absl::Status ServerCheckpoints::Prune(const v1::PruneParts& prune) {
  RETURN_IF_ERROR(CheckDirectory());
  return PruneParts(dir_, prune.step(), prune.manifest(), prune.keep_last(), prune.keep_best());
}

absl::Status ServerCheckpoints::Find(v1::ControlReply* reply) {
  RETURN_IF_ERROR(CheckDirectory());
  ASSIGN_OR_RETURN(const HostParts found, FindParts(dir_, mark_.job, ShardFileName(server_id_)));
  for (const HostPart& part : found.parts) {
    v1::FoundPart* each = reply->add_parts();
    each->set_step(part.step);
    each->set_manifest(part.manifest);
  }
  for (const std::string& reason : found.refused) reply->add_refused(reason);
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::SetAside(const v1::SetPartsAside& request) {
  RETURN_IF_ERROR(CheckDirectory());
  ASSIGN_OR_RETURN(const std::string aside, SetEarlierPartsAside(dir_, request.above()));
  if (aside.empty()) return absl::OkStatus();
  LOG(WARNING) << "server " << server_id_ << ": checkpoints "
               << (request.above() < 0 ? std::string("of an earlier run")
                                       : absl::StrCat("above step ", request.above()))
               << " moved to " << aside;
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::CheckMine(const std::string& path, const v1::CheckpointManifest& manifest) const {
  const std::vector<std::string> missing = MissingShards(path, manifest);
  if (missing.empty()) return absl::OkStatus();
  const std::string own = ShardFileName(server_id_);
  const bool mine_is_here = std::find(missing.begin(), missing.end(), own) == missing.end();
  if (manifest.shards_size() == servers_ && mine_is_here) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint ", path, " was written by ", manifest.shards_size(), " servers with a directory per host, and ",
      absl::StrJoin(missing, ", "), " lie on other hosts; server ", server_id_, " of ", servers_,
      manifest.shards_size() == servers_ ? " finds its own shard only on the host that wrote it"
                                         : " needs rows of all of them",
      ": copy the shards of all hosts into this directory"));
}

absl::Status ServerCheckpoints::CheckSame(const v1::LoadCheckpoint& load, const std::string& path,
                                          const absl::StatusOr<v1::CheckpointManifest>& read) const {
  if (!load.has_manifest()) return read.status();
  const bool none = !read.ok() && !PathExists(path);
  if (!read.ok() && !none) return read.status();
  if (!none && ManifestIdentity(*read) == load.manifest()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the checkpoint is ", load.directory(), "/", load.name(), ", and server ", server_id_, ", which reads its own ",
      "checkpoint.dir, ", none ? "has none at " : "has another one at ", path,
      ": start the servers with --set checkpoint.dir=", load.directory(), " (launch does so for --role=predict)"));
}

absl::Status ServerCheckpoints::Start(const v1::StartRun& start) {
  v1::StartPlan plan;
  if (!plan.ParseFromString(start.plan())) return absl::InvalidArgumentError("no StartPlan");
  ASSIGN_OR_RETURN(const std::vector<StartCheckpoint> sources,
                   FindStartCheckpoints(start_from_, plan, absl::StrCat("server ", server_id_)));
  return params_->Start(sources, plan);
}

absl::StatusOr<ServerCheckpoints::Loaded> ServerCheckpoints::Load(const v1::LoadCheckpoint& load) {
  RETURN_IF_ERROR(CheckDirectory());
  RETURN_IF_ERROR(CheckFileName(load.name()));
  const std::string path = absl::StrCat(dir_, "/", load.name());
  const absl::StatusOr<v1::CheckpointManifest> read = ReadManifest(path);
  RETURN_IF_ERROR(CheckSame(load, path, read));
  const v1::CheckpointManifest& manifest = *read;
  RETURN_IF_ERROR(CheckMine(path, manifest));
  RETURN_IF_ERROR(params_->Load(path, manifest));
  Loaded loaded{.step = manifest.step(),
                .table_steps = TableSteps(manifest, manifest.shards_size() == servers_ ? server_id_ : -1)};
  for (const int source : params_->SourcesOf(manifest)) {
    const auto& steps = manifest.shards(source).trainer_steps();
    if (steps.size() != manifest.data().trainer_steps_size()) continue;  // written in sync mode
    if (loaded.trainer_steps.empty()) loaded.trainer_steps.assign(steps.begin(), steps.end());
    for (int t = 0; t < steps.size(); ++t) {
      int64_t& least = loaded.trainer_steps[static_cast<size_t>(t)];
      least = std::min(least, steps[t]);
    }
  }
  if (loaded.trainer_steps.empty()) {
    loaded.trainer_steps.assign(manifest.data().trainer_steps().begin(), manifest.data().trainer_steps().end());
  }
  return loaded;
}

}  // namespace weir
