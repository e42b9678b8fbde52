#include "pserver/member/join_replies.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/checkpoint/directory.h"

namespace weir {

JoinReplies::JoinReplies(const CallSettings* settings, std::string checkpoint_dir)
    : settings_(*settings),
      checkpoint_dir_(std::move(checkpoint_dir)),
      norm_rounds_(static_cast<size_t>(settings->servers()), 0) {}

absl::Status JoinReplies::CheckProbe(int server, const v1::JoinReply& reply) const {
  if (checkpoint_dir_.empty() || reply.checkpoint_probe().empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> token = ReadProbe(checkpoint_dir_, reply.checkpoint_probe());
  if (token.ok() && *token == reply.checkpoint_token()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint directory ", checkpoint_dir_, " of ", settings_.Self(), " is not the one of ",
                   settings_.transport->Describe(server), " (", reply.process(),
                   "): the file that the server has written there is not seen here. Share the directory, or set "
                   "checkpoint.per_host: true"));
}

absl::Status JoinReplies::Take(int server, const v1::JoinReply& reply) {
  absl::Status probe = CheckProbe(server, reply);
  MutexLock lock(&mu_);
  norm_rounds_[static_cast<size_t>(server)] = reply.norm_rounds();
  if (server == 0) run_ = reply.checkpoint_token();
  if (reply.has_next_step()) {
    const int64_t seen = takes_over_.value_or(reply.next_step());
    takes_over_ = reply.norm_rounds() > 0 ? std::max(seen, reply.next_step()) : std::min(seen, reply.next_step());
  }
  return probe;
}

std::string JoinReplies::RunId() const {
  MutexLock lock(&mu_);
  return run_.empty() ? "" : absl::StrCat(absl::Hex(StableHash(run_), absl::kZeroPad16));
}

std::optional<int64_t> JoinReplies::TakesOver() const {
  MutexLock lock(&mu_);
  return takes_over_;
}

std::vector<int> JoinReplies::NormRounds() const {
  MutexLock lock(&mu_);
  return norm_rounds_;
}

}  // namespace weir
