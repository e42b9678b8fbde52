// Reads pushes: the frame, the checksum, the gradients. Thread-safe; works without the server's lock.
#ifndef WEIR_PSERVER_SERVER_PUSH_READER_H_
#define WEIR_PSERVER_SERVER_PUSH_READER_H_

#include <vector>

#include "absl/status/status.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/params/server_params.h"

namespace weir {

class PushReader {
 public:
  // Borrows both. `lanes`: of the job. `checksums`: verify those of payloads.
  PushReader(ServerParams* params, BufferPool* buffers, int lanes, int trainers, bool checksums);

  // Returns the lane nodes that a trainer owns.
  const std::vector<LaneRange>& nodes(int trainer) const { return nodes_[static_cast<size_t>(trainer)]; }

  // Parses the payload of a push. DataLoss: the checksum does not match; InvalidArgument: the trainers in `merged` are
  // not other ones of the job, ascending; other errors as ParseGradients. Requires: the caller has joined.
  absl::Status Read(const v1::PushRequest& request, const Slices& payload, std::vector<Gradient>* gradients) const;

 private:
  absl::Status CheckMerged(const v1::PushRequest& request) const;
  // Returns the largest lane nodes that the caller and the trainers merged with it own together. Requires: CheckMerged.
  std::vector<LaneRange> MergedNodes(const v1::PushRequest& request) const;

  ServerParams* const params_;
  BufferPool* const buffers_;
  const bool checksums_;
  const int job_lanes_;
  std::vector<std::vector<LaneRange>> nodes_;  // by trainer
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_PUSH_READER_H_
