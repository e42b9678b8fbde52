#include "pserver/server/server_core_impl.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/wire/checksum.h"
#include "glog/logging.h"

namespace weir {

void ServerCoreImpl::Fail(const absl::Status& status, Actions* actions) {
  if (failure_.ok()) {
    failure_ = status;
    failed_at_ = options_.clock->Now();
    LOG(ERROR) << Self() << ": the job has failed: " << status.message();
  }
  const auto abort = [&](int trainer, const ReplyCallback& reply) {
    mu_.AssertHeld();
    actions->push_back([reply, status = Aborted(trainer)] { reply(status); });
  };
  for (const WaitingPull& pull : pulls_) abort(pull.trainer, pull.reply);
  pulls_.clear();
  for (const WaitingExchange& call : exchanges_) abort(call.trainer, call.reply);
  exchanges_.clear();
  for (const WaitingNorms& call : norm_calls_) abort(call.trainer, call.reply);
  norm_calls_.clear();
  for (const auto& call : controls_) {
    for (const ReplyCallback& reply : call->replies) abort(call->trainer, reply);
  }
  controls_.clear();
  for (int t = 0; t < static_cast<int>(trainers_.size()); ++t) {
    Trainer& trainer = trainers_[static_cast<size_t>(t)];
    if (trainer.applying) continue;  // answered when its step has taken effect
    for (const ReplyCallback& reply : trainer.applied_waiters) abort(t, reply);
    trainer.applied_waiters.clear();
  }
}

void ServerCoreImpl::FailApply(int trainer, int64_t step, const absl::Status& status, Actions* actions) {
  Fail(
      absl::Status(status.code(), absl::StrCat(Self(), ": trainer ", trainer, ", step ", step, ": ", status.message())),
      actions);
}

void ServerCoreImpl::ExpireLeases(absl::Time now, Actions* actions) {
  // This process itself was asleep: signs of life may lie unread.
  const bool overslept = now - last_look_ > lease_ / 2;
  last_look_ = now;
  if (overslept) {
    for (Trainer& trainer : trainers_) trainer.lease_until = std::max(trainer.lease_until, now + lease_ / 2);
  }
  for (int t = 0; t < trainer_count_; ++t) {
    Trainer& trainer = trainers_[static_cast<size_t>(t)];
    if (trainer.state != Trainer::kJoined || now <= trainer.lease_until) continue;
    const int64_t step = std::max(trainer.step, trainer.pending.step);
    const std::string text =
        absl::StrCat(Name(t), " is dead: no sign of life for ", SecondsText(now - trainer.lease_until + lease_),
                     step < 0 ? ", before its first step" : absl::StrCat(", at step ", step));
    // Its unfinished step is dropped. One that is taking effect goes through.
    if (!trainer.applying) trainer.pending = PendingStep();
    if (sync_ && !AllJoined()) {
      // Nothing has begun: the place is free again.
      LOG(WARNING) << Self() << ": " << text << "; its id is free";
      trainer = Trainer();
      connecting_since_ = now;
      continue;
    }
    trainer.state = Trainer::kDead;
    if (gate_ != nullptr) gate_->Leave(t);
    if (sync_) {
      Fail(absl::UnavailableError(text), actions);
    } else {
      LOG(WARNING) << Self() << ": " << text << "; its unfinished step is dropped, the others go on";
      for (const ReplyCallback& reply : trainer.applied_waiters) {
        if (trainer.applying) break;
        actions->push_back([reply, text] { reply(absl::FailedPreconditionError(text)); });
      }
      if (!trainer.applying) trainer.applied_waiters.clear();
      for (auto call = norm_calls_.begin(); call != norm_calls_.end();) {
        if (call->trainer == t)
          actions->push_back([reply = call->reply, text] { reply(absl::FailedPreconditionError(text)); });
        call = call->trainer == t ? norm_calls_.erase(call) : std::next(call);
      }
      for (auto call = controls_.begin(); call != controls_.end();) {
        if ((*call)->trainer != t) {
          ++call;
          continue;
        }
        for (const ReplyCallback& reply : (*call)->replies) {
          actions->push_back([reply, text] { reply(absl::FailedPreconditionError(text)); });
        }
        call = controls_.erase(call);
      }
      PassDuties();
      AnswerExchanges(now, actions);
      if (std::all_of(trainers_.begin(), trainers_.end(), [](const Trainer& t) { return t.state == Trainer::kDead; })) {
        Fail(absl::UnavailableError(absl::StrCat("every trainer is dead; the last: ", text, Unsaved())), actions);
      }
      FailIfUnsaved(text, actions);
    }
  }
}

std::string ServerCoreImpl::Unsaved() const {
  if (options_.checkpoint_dir.empty() || effective_ == saved_) return "";
  const int64_t lost = effective_ - written_;
  return absl::StrCat("; ",
                      lost == 0   ? std::string("the last checkpoint may not have been published")
                      : lost == 1 ? std::string("1 step that has taken effect since the last save is lost")
                                  : absl::StrCat(lost, " steps that have taken effect since the last save are lost"),
                      ": run again with --resume");
}

void ServerCoreImpl::FailIfUnsaved(const std::string& last_death, Actions* actions) {
  const std::string unsaved = Unsaved();
  if (sync_ || !failure_.ok() || unsaved.empty()) return;
  std::vector<std::string> dead;
  for (int t = 0; t < trainer_count_; ++t) {
    const Trainer::State state = trainers_[static_cast<size_t>(t)].state;
    if (state != Trainer::kDead && state != Trainer::kDone) return;
    if (state == Trainer::kDead) dead.push_back(Name(t));
  }
  if (dead.empty()) return;
  Fail(absl::UnavailableError(
           absl::StrCat(last_death.empty() ? absl::StrCat(absl::StrJoin(dead, ", "), " died") : last_death,
                        ", the others are done and no trainer is left to save", unsaved)),
       actions);
}

std::string ServerCoreImpl::WaitingFor(const v1::PullRequest& request) const {
  std::vector<std::string> names;
  if (PullReady(request)) {
    const int id = request.caller().trainer();
    const std::shared_ptr<ReplyCredits>& credits = trainers_[static_cast<size_t>(id)].credits;
    return absl::StrCat(Name(id), " itself, which has ", credits == nullptr ? 0 : credits->outstanding(),
                        " bytes of answers to read");
  }
  if (sync_ && NormStep(0).norms.Waiting()) {
    return absl::StrCat(Name(0), ", which brings the norms of step ", version_.version);
  }
  std::vector<int> held_by;
  if (gate_ != nullptr) held_by = gate_->HeldBy(request.caller().trainer(), request.version());
  for (int t = 0; t < trainer_count_ && names.size() < 5; ++t) {
    const Trainer& trainer = trainers_[static_cast<size_t>(t)];
    if (gate_ != nullptr) {
      if (std::find(held_by.begin(), held_by.end(), t) == held_by.end()) continue;
      names.push_back(absl::StrCat(Name(t), trainer.applied_step < 0
                                                ? ", which has finished no step"
                                                : absl::StrCat(", which has finished step ", trainer.applied_step)));
      continue;
    }
    if (sync_ && trainer.pending.Complete()) continue;
    if (!sync_ && trainer.state != Trainer::kAbsent) continue;
    std::string name = Name(t);
    if (trainer.state != Trainer::kAbsent) {
      absl::StrAppend(&name, " at step ", std::max<int64_t>(0, std::max(trainer.step, trainer.pending.step)));
      if (!trainer.waiting_for.empty())
        absl::StrAppend(&name, ", which waits for ", trainer.waiting_for.substr(0, 200));
    }
    names.push_back(std::move(name));
  }
  return absl::StrJoin(names, "; ");
}

std::string ServerCoreImpl::WhoKeepsWaiting(const v1::PullRequest& request) const {
  if (PullReady(request)) return absl::StrCat("trainer ", request.caller().trainer());
  if (control_ != nullptr || !controls_.empty()) return "a checkpoint or digest";
  if (sync_ && NormStep(0).norms.Waiting()) return "norms from trainer 0";
  std::vector<int> who;
  if (gate_ != nullptr) who = gate_->HeldBy(request.caller().trainer(), request.version());
  for (int t = 0; gate_ == nullptr && t < trainer_count_; ++t) {
    const Trainer& trainer = trainers_[static_cast<size_t>(t)];
    if (sync_ ? !trainer.pending.Complete() : trainer.state == Trainer::kAbsent) who.push_back(t);
  }
  if (who.empty()) return "the update";
  return absl::StrCat(who.size() == 1 ? "trainer " : "trainers ", absl::StrJoin(who, ", "));
}

void ServerCoreImpl::WatchConnecting(absl::Time now, Actions* actions) {
  std::vector<int> missing;
  for (int t = 0; t < trainer_count_; ++t) {
    if (trainers_[static_cast<size_t>(t)].state == Trainer::kAbsent) missing.push_back(t);
  }
  if (missing.empty()) return;
  const std::string who = absl::StrCat(missing.size() == 1 ? "trainer " : "trainers ", absl::StrJoin(missing, ", "));
  const absl::Duration waited = now - connecting_since_;
  if (waited > connect_deadline_) {
    return Fail(absl::DeadlineExceededError(absl::StrCat(who, missing.size() == 1 ? " has" : " have", " not joined ",
                                                         Self(), " within ", SecondsText(connect_deadline_))),
                actions);
  }
  if (now - connect_warning_ >= slow_warning_) {
    connect_warning_ = now;
    LOG(WARNING) << Self() << ": waits for " << who << " to join, " << SecondsText(waited)
                 << " since the last sign of anyone";
  }
}

void ServerCoreImpl::WatchProgress(absl::Time now, Actions* actions) {
  // While a checkpoint is written or read everyone waits for this server.
  if (!AllJoined() || control_ != nullptr || !controls_.empty()) return;
  for (int t = 0; t < trainer_count_; ++t) {
    Trainer& trainer = trainers_[static_cast<size_t>(t)];
    // Who has given its part of the step waits for others and is not waited for.
    const bool waits = trainer.pending.Complete() && !trainer.pending.norms.Waiting();
    if (trainer.state != Trainer::kJoined || waits) continue;
    // Nor is who may not begin its step: it is the others that are slow. A pull ahead of the step in hand says nothing
    // of that one.
    const auto holds = [t, next = trainer.applied_step + 1](const WaitingPull& pull) {
      return pull.trainer == t && pull.request.version() <= next;
    };
    if (gate_ != nullptr && std::any_of(pulls_.begin(), pulls_.end(), holds)) continue;
    const absl::Duration idle = now - std::max(trainer.progress, sync_ ? version_since_ : trainer.progress);
    if (idle < slow_warning_) continue;
    const std::string text = absl::StrCat(
        Name(t), " is slow: at step ", std::max<int64_t>(0, std::max(trainer.step, trainer.pending.step)),
        ", nothing new from it for ", SecondsText(idle),
        trainer.waiting_for.empty() ? "" : absl::StrCat("; it waits for ", trainer.waiting_for.substr(0, 200)));
    trainer.slow = true;
    // One that waits for somebody else is not the culprit; if all wait for each other it still ends.
    const absl::Duration limit = trainer.waiting_for.empty() ? progress_deadline_ : 2 * progress_deadline_;
    if (idle > limit) return Fail(absl::DeadlineExceededError(text), actions);
    if (now - trainer.last_warning >= slow_warning_) {
      trainer.last_warning = now;
      LOG(WARNING) << Self() << ": " << text;
    }
  }
}

void ServerCoreImpl::Tick() {
  Actions actions;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    if (failure_.ok()) ExpireLeases(now, &actions);
    if (failure_.ok()) WatchConnecting(now, &actions);
    if (failure_.ok()) WatchProgress(now, &actions);
    info = version_;
    // Somebody who was waited for may have died, or be done; answers may have been read.
    TakeReadyPulls(&ready);
    for (auto pull = pulls_.begin(); pull != pulls_.end();) {
      if (now < pull->deadline) {
        ++pull;
        continue;
      }
      v1::PullReply header;
      header.set_ready(false);
      header.set_version(version_.version);
      header.set_waiting_for(WaitingFor(pull->request));
      header.set_checksum(Checksum({}));
      actions.push_back([reply = pull->reply, text = header.SerializeAsString()] { reply(EncodeFrame(text, {})); });
      pull = pulls_.erase(pull);
    }
    AnswerExchanges(now, &actions);
    AnswerNorms(now, &actions);
    board_.Expire(
        now, 2 * lease_ + 2 * OfSeconds(options_.deadlines.rpc_s()),
        [this](int t) {
          mu_.AssertHeld();
          return Excused(t);
        },
        chief_);
    streams_.Expire(now, 2 * lease_ + 2 * OfSeconds(options_.deadlines.rpc_s()));
  }
  RunAll(&actions);
  ServeAll(std::move(ready), info);
  Advance();
}

void ServerCoreImpl::RequestStop() {
  MutexLock lock(&mu_);
  stop_requested_ = true;
}

bool ServerCoreImpl::Finished() {
  MutexLock lock(&mu_);
  // Asked to stop, it waits for nobody who has not come yet.
  const bool stopping = stop_requested_;
  const auto gone = [stopping](const Trainer& t) {
    return t.state == Trainer::kDone || t.state == Trainer::kDead || (stopping && t.state == Trainer::kAbsent);
  };
  if (failure_.ok()) return std::all_of(trainers_.begin(), trainers_.end(), gone);
  const absl::Time now = options_.clock->Now();
  // Nobody is declared dead any more: the trainer whose death has ended the job may have had some of its lease left.
  const auto silent = [now](const Trainer& t) { return t.state == Trainer::kJoined && now > t.lease_until; };
  const bool all_told =
      std::all_of(trainers_.begin(), trainers_.end(), [&](const Trainer& t) { return t.told || gone(t) || silent(t); });
  return all_told || now - failed_at_ > 2 * lease_;
}

absl::Status ServerCoreImpl::JobStatus() {
  MutexLock lock(&mu_);
  return failure_;
}

int64_t ServerCoreImpl::Version() {
  MutexLock lock(&mu_);
  return version_.version;
}

}  // namespace weir
