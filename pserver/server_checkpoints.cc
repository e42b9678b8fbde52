#include "pserver/server_checkpoints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/file.h"
#include "framework/checkpoint/host_part.h"
#include "framework/checkpoint/shard.h"
#include "glog/logging.h"

namespace weir {

absl::Status ServerCheckpoints::CheckDirectory() const {
  if (!dir_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("server ", server_id_, ": the job has no checkpoint directory"));
}

absl::Status ServerCheckpoints::Save(const v1::SaveShard& save, const std::vector<int64_t>& trainer_steps,
                                     v1::ControlReply* reply) {
  RETURN_IF_ERROR(CheckDirectory());
  RETURN_IF_ERROR(CheckFileName(save.name()));
  if (save.per_host()) RETURN_IF_ERROR(BeginPart(dir_, save.name()));
  const std::string directory = absl::StrCat(dir_, "/", save.name());
  RETURN_IF_ERROR(CreateDirectories(directory));
  ASSIGN_OR_RETURN(v1::CheckpointShard shard, params_->Save(absl::StrCat(directory, "/", ShardFileName(server_id_))));
  shard.mutable_trainer_steps()->Assign(trainer_steps.begin(), trainer_steps.end());
  *reply->mutable_trainer_steps() = shard.trainer_steps();
  reply->set_shard(shard.SerializeAsString());
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::Publish(const v1::PublishPart& publish) {
  RETURN_IF_ERROR(CheckDirectory());
  v1::CheckpointManifest manifest;
  if (!manifest.ParseFromString(publish.manifest())) return absl::InvalidArgumentError("no CheckpointManifest");
  RETURN_IF_ERROR(PublishPart(dir_, publish.name(), manifest));
  return PruneParts(dir_, publish.keep_last(), publish.keep_best());
}

absl::Status ServerCheckpoints::Find(v1::ControlReply* reply) {
  RETURN_IF_ERROR(CheckDirectory());
  ASSIGN_OR_RETURN(const HostParts found, FindParts(dir_, job_name_, ShardFileName(server_id_)));
  for (const HostPart& part : found.parts) {
    v1::FoundPart* each = reply->add_parts();
    each->set_step(part.step);
    each->set_manifest(part.manifest);
  }
  for (const std::string& reason : found.refused) reply->add_refused(reason);
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::SetAside() {
  RETURN_IF_ERROR(CheckDirectory());
  ASSIGN_OR_RETURN(const std::string aside, SetEarlierPartsAside(dir_));
  if (!aside.empty()) LOG(WARNING) << "server " << server_id_ << ": checkpoints of an earlier run moved to " << aside;
  return absl::OkStatus();
}

absl::Status ServerCheckpoints::CheckMine(const std::string& path, const v1::CheckpointManifest& manifest) const {
  if (!manifest.per_host()) return absl::OkStatus();
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
  if (!none && StableHash(ManifestText(*read)) == load.manifest()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the checkpoint is ", load.directory(), "/", load.name(), ", and server ", server_id_, ", which reads its own ",
      "checkpoint.dir, ", none ? "has none at " : "has another one at ", path,
      ": start the servers with --set checkpoint.dir=", load.directory(), " (launch does so for --role=predict)"));
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
  const bool own = manifest.shards_size() == servers_ && manifest.shards(server_id_).trainer_steps_size() > 0;
  const auto& steps = own ? manifest.shards(server_id_).trainer_steps() : manifest.data().trainer_steps();
  return Loaded{.step = manifest.step(), .trainer_steps = {steps.begin(), steps.end()}};
}

}  // namespace weir
