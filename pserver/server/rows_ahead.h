// Pulls that trainers of a sync job have made ahead of a step, until that step: what they asked for. Thread-safe.
//
// docs/consistency.md, "Rows ahead of their step".
#ifndef WEIR_PSERVER_SERVER_ROWS_AHEAD_H_
#define WEIR_PSERVER_SERVER_ROWS_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"

namespace weir {

class RowsAhead {
 public:
  struct Pull {
    v1::PullRequest request;
    Slice payload;          // ids
    size_t most_bytes = 0;  // of a correction of all its rows
  };

  // `most_bytes`: for each trainer the bytes that its pulls may take.
  explicit RowsAhead(const std::vector<size_t>& most_bytes);

  // Remembers a pull with ahead_of as PullRequest.ahead_call, and forgets what the trainer has pulled ahead of other
  // steps or in other sessions. One beyond the trainer's bytes is not remembered. Requires: `pull` owns no more memory
  // than its payload and request.
  void Remember(Pull pull);
  // Returns a call that the caller has made ahead of `step`; null if it is not remembered.
  std::shared_ptr<const Pull> Find(const v1::Caller& caller, int64_t step, int64_t call) const;
  // Forgets what the caller has pulled ahead of steps before `step`.
  void Pass(const v1::Caller& caller, int64_t step);

 private:
  struct Trainer {
    size_t most_bytes = 0;
    uint64_t session = 0;
    int64_t step = -1;
    size_t bytes = 0;
    // Calls of this session ahead of `step`. Invariant: `bytes` is the sum of their BytesOf, at most most_bytes.
    std::map<int64_t, std::shared_ptr<const Pull>> calls;
  };

  static size_t BytesOf(const Pull& pull);

  mutable Mutex mu_;
  std::vector<Trainer> trainers_ ABSL_GUARDED_BY(mu_);  // by id
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_ROWS_AHEAD_H_
