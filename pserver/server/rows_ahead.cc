#include "pserver/server/rows_ahead.h"

#include <utility>

namespace weir {

RowsAhead::RowsAhead(const std::vector<size_t>& most_bytes) {
  MutexLock lock(&mu_);
  for (const size_t bytes : most_bytes) trainers_.push_back({.most_bytes = bytes});
}

void RowsAhead::Remember(const v1::PullRequest& request, const Slice& payload) {
  const v1::Caller& caller = request.caller();
  const auto pull = std::make_shared<const Pull>(Pull{request, payload});
  const size_t bytes = payload.size + pull->request.SpaceUsedLong();
  MutexLock lock(&mu_);
  Trainer& trainer = trainers_[static_cast<size_t>(caller.trainer())];
  if (trainer.session != caller.session() || trainer.step != request.ahead_of()) {
    // A pull that comes late, of a step or session before, takes the place of newer ones: those are pulled again.
    trainer.session = caller.session();
    trainer.step = request.ahead_of();
    trainer.bytes = 0;
    trainer.calls.clear();
  }
  std::shared_ptr<const Pull>& place = trainer.calls[request.ahead_call()];
  if (place == nullptr) trainer.bytes += bytes;
  if (trainer.bytes > trainer.most_bytes) {
    trainer.bytes -= bytes;
    trainer.calls.erase(request.ahead_call());
    return;
  }
  place = pull;
}

std::shared_ptr<const RowsAhead::Pull> RowsAhead::Find(const v1::Caller& caller, int64_t step, int64_t call) const {
  MutexLock lock(&mu_);
  const Trainer& trainer = trainers_[static_cast<size_t>(caller.trainer())];
  if (trainer.session != caller.session() || trainer.step != step) return nullptr;
  const auto found = trainer.calls.find(call);
  return found == trainer.calls.end() ? nullptr : found->second;
}

}  // namespace weir
