#include "pserver/channels/channel_stack.h"

#include <map>
#include <string>
#include <utility>

#include "framework/base/status_macros.h"
#include "pserver/channels/make_replica_channel.h"

namespace weir {

absl::StatusOr<std::unique_ptr<ChannelStack>> ChannelStack::Create(const Options& o) {
  const v1::TrainingMode mode = ModeOf(o.programs->main);
  std::unique_ptr<ChannelStack> stack(new ChannelStack());
  stack->steps_ = &o.client->steps();
  if (mode.prefetch_rows()) stack->rows_ahead_ = &o.client->ahead();
  if (mode.prefetch_rows() && o.replica != nullptr) {
    stack->replica_ahead_ = std::make_unique<ReplicaRowsAhead>(o.replica, stack->rows_ahead_);
    stack->rows_ahead_ = stack->replica_ahead_.get();
  }
  std::map<std::string, v1::RowCache> caches;
  for (const v1::Table& table : o.config->table()) {
    if (table.has_cache()) caches[table.name()] = table.cache();
  }
  if (!caches.empty()) {
    RowSource* const rows = mode.prefetch_rows() ? stack->rows_ahead_ : stack->steps_;
    stack->cache_ = std::make_unique<CachedRowSource>(std::move(caches), rows, mode.prefetch_rows());
    if (mode.prefetch_rows()) {
      stack->rows_ahead_ = stack->cache_.get();
    } else {
      stack->cached_steps_ = std::make_unique<ChannelWithRows>(stack->cache_.get(), stack->steps_);
      stack->steps_ = stack->cached_steps_.get();
    }
  }
  // With a replica exchanges among trainers come between, and servers can update meanwhile.
  if (o.replica == nullptr) o.client->steps().SendPushesWithPulls();
  if (o.replica != nullptr) {
    const v1::Train& train = o.config->train();
    ASSIGN_OR_RETURN(stack->all_reduce_,
                     MakeReplicaChannel({.main = &o.programs->main,
                                         .trainer_id = o.trainer_id,
                                         .replica = o.replica,
                                         .servers = stack->steps_,
                                         .equal_every = {o.config->checkpoint().every_steps(), train.eval_every_steps(),
                                                         train.digest_every_steps(), train.max_steps()},
                                         .residuals = [client = o.client](const std::string& name, int64_t count) {
                                           return client->residuals().OfDense(name, count);
                                         }}));
    stack->steps_ = stack->all_reduce_.get();
    o.client->steps().SetNormParty(stack->all_reduce_->norm_party());
  }
  if (mode.workers() > 1) {
    const v1::Deadlines& deadlines = o.config->deadlines();
    stack->group_ = std::make_unique<WorkerGroup>(
        WorkerGroup::Options{.workers = mode.workers(),
                             .slow_warning = absl::Seconds(deadlines.slow_warning_s()),
                             .progress_deadline = absl::Seconds(deadlines.progress_deadline_s()),
                             .excused = [client = o.client] { return client->member().AnyAwaitsFiles(); },
                             .inner = stack->steps_,
                             .pool = o.pool});
  }
  if (mode.has_geo()) {
    ASSIGN_OR_RETURN(stack->copy_, GeoChannel::Create({.main = o.programs->main,
                                                       .startup = o.programs->startup,
                                                       .trainer_id = o.trainer_id,
                                                       .first_step = o.first_step,
                                                       .servers = &o.client->steps(),
                                                       .pool = o.pool}));
    stack->steps_ = stack->copy_.get();
  }
  return stack;
}

ParamChannel* ChannelStack::ForSteps(int worker) { return group_ == nullptr ? steps_ : group_->channel(worker); }

absl::Status ChannelStack::RunWorkers(const std::function<absl::Status(int)>& fn) {
  return group_ == nullptr ? fn(0) : group_->Run(fn);
}

void ChannelStack::EndExchanges(const absl::Status& error) {
  if (all_reduce_ != nullptr) all_reduce_->EndExchanges(error);
}

absl::Status ChannelStack::Finish() { return copy_ == nullptr ? absl::OkStatus() : copy_->Finish(); }

}  // namespace weir
