// Replies of the servers that let a trainer in, beyond its sessions: the run, the step to begin with, the rounds of
// norms. Thread-safe.
#ifndef WEIR_PSERVER_MEMBER_JOIN_REPLIES_H_
#define WEIR_PSERVER_MEMBER_JOIN_REPLIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/call_settings.h"

namespace weir {

class JoinReplies {
 public:
  // `settings` is borrowed. `checkpoint_dir`: directory that the servers must share with this trainer, "" for none.
  JoinReplies(const CallSettings* settings, std::string checkpoint_dir);

  // Takes the reply of one server. FailedPrecondition: its checkpoint directory is not this trainer's.
  absl::Status Take(int server, const v1::JoinReply& reply);

  // Member::RunId and Member::TakesOver.
  std::string RunId() const;
  std::optional<int64_t> TakesOver() const;
  // Returns the number of rounds in which each server needs the norms of others, by server.
  std::vector<int> NormRounds() const;

 private:
  absl::Status CheckProbe(int server, const v1::JoinReply& reply) const;

  const CallSettings& settings_;
  const std::string checkpoint_dir_;
  mutable Mutex mu_;
  std::string run_ ABSL_GUARDED_BY(mu_);  // server 0's token
  std::optional<int64_t> takes_over_ ABSL_GUARDED_BY(mu_);
  std::vector<int> norm_rounds_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_JOIN_REPLIES_H_
