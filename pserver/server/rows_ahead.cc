#include "pserver/server/rows_ahead.h"

#include <utility>

namespace weir {

RowsAhead::RowsAhead(const std::vector<size_t>& most_bytes) {
  MutexLock lock(&mu_);
  for (const size_t bytes : most_bytes) trainers_.push_back({.most_bytes = bytes});
}

size_t RowsAhead::BytesOf(const Pull& pull) { return pull.payload.size + pull.request.SpaceUsedLong(); }

void RowsAhead::Remember(Pull pull) {
  const v1::Caller& caller = pull.request.caller();
  const int64_t call = pull.request.ahead_call();
  MutexLock lock(&mu_);
  Trainer& trainer = trainers_[static_cast<size_t>(caller.trainer())];
  if (trainer.session != caller.session() || trainer.step != pull.request.ahead_of()) {
    // A pull that comes late, of a step or session before, takes the place of newer ones: those are pulled again.
    trainer.session = caller.session();
    trainer.step = pull.request.ahead_of();
    trainer.bytes = 0;
    trainer.calls.clear();
  }
  if (const auto repeated = trainer.calls.find(call); repeated != trainer.calls.end()) {
    trainer.bytes -= BytesOf(*repeated->second);
    trainer.calls.erase(repeated);
  }
  const size_t bytes = BytesOf(pull);
  if (bytes > trainer.most_bytes - trainer.bytes) return;
  trainer.bytes += bytes;
  trainer.calls[call] = std::make_shared<const Pull>(std::move(pull));
}

void RowsAhead::Pass(const v1::Caller& caller, int64_t step) {
  MutexLock lock(&mu_);
  Trainer& trainer = trainers_[static_cast<size_t>(caller.trainer())];
  if (trainer.step >= step || trainer.calls.empty()) return;
  trainer.bytes = 0;
  trainer.calls.clear();
}

std::shared_ptr<const RowsAhead::Pull> RowsAhead::Find(const v1::Caller& caller, int64_t step, int64_t call) const {
  MutexLock lock(&mu_);
  const Trainer& trainer = trainers_[static_cast<size_t>(caller.trainer())];
  if (trainer.session != caller.session() || trainer.step != step) return nullptr;
  const auto found = trainer.calls.find(call);
  return found == trainer.calls.end() ? nullptr : found->second;
}

}  // namespace weir
