// A server's side of checkpoints: its shard written and read, its host's part published, found and set aside.
//
// Does what a ControlRequest says; when that may be done is the caller's business (pserver/server_core.cc): in sync at a step
// border, and one request at a time.
#ifndef WEIR_PSERVER_SERVER_CHECKPOINTS_H_
#define WEIR_PSERVER_SERVER_CHECKPOINTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_server.pb.h"
#include "pserver/server_params.h"

namespace weir {

class ServerCheckpoints {
 public:
  // `dir` absolute, "" when the job keeps no checkpoints. `params` is borrowed.
  ServerCheckpoints(std::string dir, std::string job_name, int server_id, int servers, ServerParams* params)
      : dir_(std::move(dir)), job_name_(std::move(job_name)), server_id_(server_id), servers_(servers), params_(params) {}

  // Where the job stands after a load. trainer_steps: async; of this server's own shard when as many servers wrote the checkpoint
  // as there are now, else what the manifest says for all.
  struct Loaded {
    int64_t step = 0;
    std::vector<int64_t> trainer_steps;
  };

  // FailedPrecondition for each of them when the job has no directory.
  // `trainer_steps`: of each trainer, those that have taken effect here; kept beside the values that they led to.
  absl::Status Save(const v1::SaveShard& save, const std::vector<int64_t>& trainer_steps, v1::ControlReply* reply);
  absl::Status Publish(const v1::PublishPart& publish);
  absl::Status Find(v1::ControlReply* reply);
  absl::Status SetAside();
  absl::StatusOr<Loaded> Load(const v1::LoadCheckpoint& load);

 private:
  absl::Status CheckDirectory() const;
  // Of a checkpoint written per host, this server needs its own shard and no other: that of the same server of as many.
  absl::Status CheckMine(const std::string& path, const v1::CheckpointManifest& manifest) const;

  // What is at `path` is what the caller means. FailedPrecondition names both directories.
  absl::Status CheckSame(const v1::LoadCheckpoint& load, const std::string& path,
                         const absl::StatusOr<v1::CheckpointManifest>& read) const;

  const std::string dir_;
  const std::string job_name_;
  const int server_id_;
  const int servers_;
  ServerParams* const params_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_CHECKPOINTS_H_
