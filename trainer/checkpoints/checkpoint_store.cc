#include "trainer/checkpoints/checkpoint_store.h"

#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/host_part.h"
#include "glog/logging.h"

namespace weir {
namespace {

class SharedStore : public CheckpointStore {
 public:
  SharedStore(std::string dir, const v1::JobConfig& config, Client* client)
      : CheckpointStore(std::move(dir), config, client) {}

  absl::StatusOr<std::optional<Found>> Find() override {
    ASSIGN_OR_RETURN(const std::vector<CheckpointPath> all, ListCheckpoints(dir_));
    if (all.empty()) return std::nullopt;
    absl::StatusOr<NewestCheckpoint> newest = FindNewestComplete(dir_, config_.name());
    if (!newest.ok()) {
      const absl::StatusOr<NewestCheckpoint> of_any = FindNewestComplete(dir_, "");
      if (of_any.ok()) return OtherJob(of_any->manifest.job());
      return absl::DataLossError(
          absl::StrCat("--resume: no checkpoint in ", dir_, " is complete: ", std::string(newest.status().message())));
    }
    return Found{.name = newest->found.name, .refused = std::move(newest->refused)};
  }
  // Servers that read one directory cannot have read another checkpoint.
  absl::Status CheckLoaded(const v1::CheckpointManifest& /*manifest*/) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> OwnOthers(const v1::ControlRequest& /*own*/) override { return std::string(); }
  void Describe(v1::SaveShard* request, v1::CheckpointManifest* /*manifest*/) const override {
    request->set_per_host(false);
  }
  absl::Status Publish(const std::string& temporary, const v1::CheckpointManifest& sealed) override {
    return PublishSealed(dir_, temporary, sealed, MissingFiles::kRefuse).status();
  }
  absl::Status Replace(const std::string& /*temporary*/, const v1::CheckpointManifest& manifest) override {
    return ReplaceManifest(absl::StrCat(dir_, "/", StepDirectoryName(manifest.step())), manifest);
  }
  bool MayReplaceResumed() const override { return true; }

 protected:
  absl::StatusOr<std::string> SetOwnAside(int64_t above) override { return SetEarlierCheckpointsAside(dir_, above); }
  absl::Status SetOthersAside(int64_t /*above*/) override { return absl::OkStatus(); }
  absl::Status PruneAll(const v1::CheckpointManifest& sealed) override {
    const v1::CheckpointConfig& keep = config_.checkpoint();
    return SetAsideAndPrune(dir_, sealed.step(), keep.keep_last(), keep.keep_best());
  }
};

// Every server publishes in its own directory, and so does the chief.
class HostStores : public CheckpointStore {
 public:
  HostStores(std::string dir, const v1::JobConfig& config, Client* client)
      : CheckpointStore(std::move(dir), config, client) {}

  absl::StatusOr<std::optional<Found>> Find() override {
    v1::ControlRequest request;
    request.mutable_find();
    ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->member().Control(request));
    ASSIGN_OR_RETURN(const HostParts own, FindParts(dir_, config_.name(), ""));
    Found found{.refused = own.refused};
    std::map<std::pair<int64_t, uint64_t>, size_t> holders;  // by step and manifest of a checkpoint
    for (const HostPart& part : own.parts) ++holders[{part.step, part.manifest}];
    bool any = !own.parts.empty() || !own.refused.empty();
    std::string held = absl::StrCat("the chief ", own.parts.size());
    for (size_t s = 0; s < replies.size(); ++s) {
      for (const v1::FoundPart& part : replies[s].parts()) ++holders[{part.step(), part.manifest()}];
      for (const std::string& reason : replies[s].refused())
        found.refused.push_back(absl::StrCat("server ", s, ": ", Printable(reason)));
      any |= replies[s].parts_size() > 0 || replies[s].refused_size() > 0;
      absl::StrAppend(&held, ", server ", s, " ", replies[s].parts_size());
    }
    if (!any) return std::nullopt;
    if (own.parts.empty() && !own.other_job.empty()) return OtherJob(own.other_job);
    for (auto it = holders.rbegin(); it != holders.rend(); ++it) {
      const std::string name = StepDirectoryName(it->first.first);
      if (it->second == replies.size() + 1) {
        found.name = name;
        return found;
      }
      found.refused.push_back(absl::StrCat(name, ": ", it->second, " of ", replies.size() + 1, " processes have it"));
    }
    return absl::DataLossError(absl::StrCat("--resume: no checkpoint is complete on every host (good parts: ", held,
                                            ")", found.refused.empty() ? "" : ": ",
                                            absl::StrJoin(found.refused, "; ")));
  }
  // Rows that no server has read would otherwise go unnoticed.
  absl::Status CheckLoaded(const v1::CheckpointManifest& manifest) override {
    v1::ControlRequest request;
    request.mutable_digest();
    ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->member().Control(request));
    uint64_t values = 0;
    for (const v1::ControlReply& reply : replies) values += reply.values();
    if (values == manifest.values_digest()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("--resume: the servers hold values=", DigestHex(values), " after reading ",
                                            StepDirectoryName(manifest.step()),
                                            ", its manifest says values=", DigestHex(manifest.values_digest())));
  }
  absl::StatusOr<std::string> OwnOthers(const v1::ControlRequest& own) override {
    ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, client_->member().Control(own));
    for (size_t s = 0; s < replies.size(); ++s) {
      if (replies[s].refused_size() > 0) return absl::StrCat("server ", s, ": ", Printable(replies[s].refused(0)));
    }
    return std::string();
  }
  void Describe(v1::SaveShard* request, v1::CheckpointManifest* manifest) const override {
    request->set_per_host(true);
    manifest->set_per_host(true);
  }
  absl::Status Publish(const std::string& temporary, const v1::CheckpointManifest& sealed) override {
    v1::ControlRequest request;
    request.mutable_publish()->set_name(temporary);
    request.mutable_publish()->set_manifest(sealed.SerializeAsString());
    RETURN_IF_ERROR(client_->member().Control(request).status());
    return PublishPart(dir_, temporary, sealed);
  }
  absl::Status Replace(const std::string& temporary, const v1::CheckpointManifest& manifest) override {
    return Publish(temporary, manifest);
  }
  // The directory of one host is not enough.
  bool MayReplaceResumed() const override { return false; }

 protected:
  absl::StatusOr<std::string> SetOwnAside(int64_t above) override { return SetEarlierPartsAside(dir_, above); }
  absl::Status SetOthersAside(int64_t above) override {
    v1::ControlRequest request;
    request.mutable_set_aside()->set_above(above);
    return client_->member().Control(request).status();
  }
  absl::Status PruneAll(const v1::CheckpointManifest& sealed) override {
    // Until every process has published, an older checkpoint may be the newest that all have.
    const v1::CheckpointConfig& keep = config_.checkpoint();
    const uint64_t manifest = ManifestIdentity(sealed);
    absl::Status pruned = PruneParts(dir_, sealed.step(), manifest, keep.keep_last(), keep.keep_best());
    v1::ControlRequest request;
    request.mutable_prune()->set_step(sealed.step());
    request.mutable_prune()->set_manifest(manifest);
    request.mutable_prune()->set_keep_last(keep.keep_last());
    request.mutable_prune()->set_keep_best(keep.keep_best());
    pruned.Update(client_->member().Control(request).status());
    return pruned;
  }
};

}  // namespace

std::unique_ptr<CheckpointStore> CheckpointStore::Create(std::string dir, const v1::JobConfig& config, Client* client) {
  if (config.checkpoint().per_host()) return std::make_unique<HostStores>(std::move(dir), config, client);
  return std::make_unique<SharedStore>(std::move(dir), config, client);
}

absl::Status CheckpointStore::OtherJob(const std::string& job) const {
  return absl::FailedPreconditionError(
      absl::StrCat("--resume: the checkpoints in ", dir_, " are of job '", job, "', and this is job '", config_.name(),
                   "': give the job the name that it had (name: \"", job,
                   "\"), set checkpoint.dir to the directory of ", "this job, or start a fresh run without --resume"));
}

absl::Status CheckpointStore::SetAside(int64_t above) {
  ASSIGN_OR_RETURN(const std::string aside, SetOwnAside(above));
  if (!aside.empty() && above < 0) {
    LOG(WARNING) << "checkpoints of an earlier run moved to " << aside << "; --resume would have gone on from them";
  } else if (!aside.empty()) {
    LOG(WARNING) << "checkpoints above step " << above << ", where this run goes on, moved to " << aside;
  }
  return SetOthersAside(above);
}

void CheckpointStore::Prune(const v1::CheckpointManifest& sealed) {
  if (const absl::Status pruned = PruneAll(sealed); !pruned.ok()) {
    LOG(WARNING) << "some old checkpoints could not be removed: " << pruned.message();
  }
}

}  // namespace weir
