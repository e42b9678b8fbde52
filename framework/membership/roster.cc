#include "framework/membership/roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/printable.h"
#include "framework/membership/limits.h"
#include "framework/membership/new_session.h"
#include "glog/logging.h"

namespace weir {

namespace {

std::string SecondsText(absl::Duration d) {
  const int64_t tenths = absl::ToInt64Milliseconds(d) / 100;
  return absl::StrCat(tenths / 10.0, " s");
}

bool Gone(const RosterPlace& place) { return place.state == RosterPlace::kDead || place.state == RosterPlace::kDone; }

}  // namespace

Roster::Roster(Options options, absl::Time now)
    : options_(std::move(options)),
      places_(static_cast<size_t>(options_.trainers)),
      readers_({.lease = options_.lease,
                .unread_bytes = options_.reader_bytes,
                .unread_bytes_of_all = options_.unread_bytes}),
      connecting_since_(now),
      connect_warning_(now) {}

std::string Roster::Name(int trainer) const {
  const std::string& process = place(trainer).process;
  return absl::StrCat("trainer ", trainer, process.empty() ? " (not joined)" : absl::StrCat(" (", process, ")"));
}

std::string Roster::NameOf(const v1::Caller& caller) const {
  return caller.trainer() == kReader ? readers_.Name(caller.session()) : Name(caller.trainer());
}

bool Roster::Any(RosterPlace::State state) const {
  return std::any_of(places_.begin(), places_.end(), [state](const RosterPlace& m) { return m.state == state; });
}

bool Roster::All(RosterPlace::State state) const {
  return std::all_of(places_.begin(), places_.end(), [state](const RosterPlace& m) { return m.state == state; });
}

bool Roster::Excused(int trainer) const { return options_.on_death == OnDeath::kGoOn && Gone(place(trainer)); }

void Roster::PassDuties() {
  if (options_.on_death == OnDeath::kFail || !Gone(place(chief_))) return;
  for (int t = 0; t < size(); ++t) {
    if (place(t).state != RosterPlace::kJoined) continue;
    if (options_.announces_chief) {
      LOG(INFO) << options_.self << ": " << Name(t) << " is the chief from now on, instead of " << Name(chief_);
    }
    chief_ = t;
    return;
  }
}

absl::Status Roster::CheckId(int trainer, std::string_view of) const {
  if (trainer >= 0 && trainer < size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("trainer id ", trainer, absl::string_view(of.data(), of.size()),
                                                 "; the job has trainers 0 to ", size() - 1));
}

absl::Status Roster::CheckClaim(int trainer, const std::string& process, uint64_t incarnation, absl::Time now) {
  absl::Status known = CheckId(trainer, absl::StrCat(" of ", process));
  if (!known.ok() || !failure_.ok()) return known;
  RosterPlace& holder = At(trainer);
  if (holder.process == process && holder.incarnation == incarnation) {
    if (holder.state == RosterPlace::kDead) {
      return absl::FailedPreconditionError(absl::StrCat(Name(trainer), " was declared dead and cannot go on"));
    }
    return absl::OkStatus();  // a repeat
  }
  if (holder.state == RosterPlace::kJoined) {
    if (holder.claimant != incarnation) {
      holder.claimant = incarnation;
      holder.claimed = now;
    }
    const std::string text =
        absl::StrCat("trainer id ", trainer, " is held by ", holder.process, " and claimed by ", process,
                     "; the lease of the first runs ", SecondsText(holder.lease_until - now), " more");
    // One that still holds it a lease later is alive.
    return now - holder.claimed > options_.lease ? absl::FailedPreconditionError(text) : absl::UnavailableError(text);
  }
  if (holder.state == RosterPlace::kDone) {
    return absl::FailedPreconditionError(
        absl::StrCat("trainer id ", trainer, " of ", holder.process, " has finished; ", process, " comes too late"));
  }
  return absl::OkStatus();
}

bool Roster::Join(int trainer, const std::string& process, uint64_t incarnation, absl::Time now) {
  RosterPlace& place = At(trainer);
  const bool again = place.state == RosterPlace::kDead;
  std::shared_ptr<const RosterPlace> replaced;
  if (again) {
    // One dead process is remembered, not a chain of them.
    place.replaced = nullptr;
    replaced = std::make_shared<RosterPlace>(std::move(place));
  }
  place = RosterPlace();
  place.state = RosterPlace::kJoined;
  place.replaced = std::move(replaced);
  place.process = Printable(process, kMaxText);
  place.incarnation = incarnation;
  place.session = NewSession();
  place.credits = std::make_shared<ReplyCredits>(options_.unread_bytes);
  place.progress = place.excused = place.last_warning = now;
  connecting_since_ = now;
  PassDuties();
  LOG(INFO) << options_.self << ": " << Name(trainer) << (again ? " takes the place of a dead one" : " has joined");
  return again;
}

void Roster::Renew(int trainer, absl::Time now) { At(trainer).lease_until = now + options_.lease; }

absl::Status Roster::CheckCaller(const v1::Caller& caller, absl::Time now) {
  const bool reader = caller.trainer() == kReader;
  if (caller.job_id() != options_.job && !(reader && caller.job_id().empty())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the caller comes with job ", Printable(caller.job_id(), kMaxText), ", which is not the one that is run here"));
  }
  if (reader) {
    if (readers_.Renew(caller.session(), now)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(options_.self, " has no such reader: it has not joined, or has ",
                                                      "been silent for ", SecondsText(options_.lease), "; join again"));
  }
  absl::Status known = CheckNamed(caller.trainer(), caller.session());
  if (known.ok()) Renew(caller.trainer(), now);
  return known;
}

absl::Status Roster::CheckNamed(int trainer, uint64_t session) const {
  if (absl::Status known = CheckId(trainer, ""); !known.ok()) return known;
  const RosterPlace& holder = place(trainer);
  if (holder.state == RosterPlace::kAbsent && session != 0) {
    return absl::AbortedError(absl::StrCat("trainer ", trainer, " has not joined ", options_.self,
                                           ": the process that it has joined is gone"));
  }
  if (holder.state == RosterPlace::kAbsent) {
    return absl::FailedPreconditionError(absl::StrCat("trainer ", trainer, " has not joined ", options_.self));
  }
  if (holder.session != session) {
    return absl::FailedPreconditionError(absl::StrCat("the lease of trainer ", trainer, " has passed to ",
                                                      holder.process, "; this caller ", kCannotGoOn));
  }
  if (holder.state == RosterPlace::kDead) {
    return absl::FailedPreconditionError(absl::StrCat(Name(trainer), " was declared dead after ",
                                                      SecondsText(options_.lease), " without a sign of life; it ",
                                                      kCannotGoOn));
  }
  return absl::OkStatus();
}

absl::Status Roster::Release(int trainer, absl::Time now) {
  RosterPlace& place = At(trainer);
  if (place.state != RosterPlace::kJoined || place.step >= 0) {
    return absl::FailedPreconditionError(absl::StrCat(Name(trainer), " leaves, but it has begun its work"));
  }
  LOG(INFO) << options_.self << ": " << Name(trainer) << " has left: another server has refused it; its id is free";
  const std::shared_ptr<const RosterPlace> replaced = std::move(place.replaced);
  place = RosterPlace();
  connecting_since_ = now;
  if (replaced == nullptr) return absl::OkStatus();
  place = *replaced;
  PassDuties();
  return absl::OkStatus();
}

bool Roster::Done(int trainer) {
  if (place(trainer).state != RosterPlace::kJoined) return false;
  At(trainer).state = RosterPlace::kDone;
  LOG(INFO) << options_.self << ": " << Name(trainer) << " is done";
  PassDuties();
  return true;
}

void Roster::Progressed(int trainer, absl::Time now) {
  RosterPlace& place = At(trainer);
  place.progress = now;
  place.slow = false;
}

void Roster::Booked(int trainer, int64_t step, absl::Time now) {
  RosterPlace& place = At(trainer);
  place.step = std::max(place.step, step);
  Progressed(trainer, now);
}

void Roster::Heard(int trainer, const v1::HeartbeatRequest& beat, absl::Time now) {
  RosterPlace& place = At(trainer);
  if (beat.step() > place.step) {
    place.step = beat.step();
    place.progress = now;
  }
  place.waiting_for = Printable(beat.waiting_for(), kMaxText);
  place.awaits_files = beat.awaits_files();
  stopped_ |= beat.stopped();
}

bool Roster::AwaitsFiles() const {
  return std::any_of(places_.begin(), places_.end(),
                     [](const RosterPlace& m) { return m.state == RosterPlace::kJoined && m.awaits_files; });
}

void Roster::AllProgressed(absl::Time now, bool caught_up) {
  for (RosterPlace& place : places_) {
    place.progress = now;
    if (caught_up) place.slow = false;
  }
}

void Roster::BeginLook(absl::Time now) {
  const bool overslept = now - last_look_ > options_.lease / 2;
  last_look_ = now;
  if (overslept) {
    for (RosterPlace& place : places_) place.lease_until = std::max(place.lease_until, now + options_.lease / 2);
    readers_.Extend(now + options_.lease / 2);
  }
  readers_.Expire(now);
  Excuse(now);
}

void Roster::Excuse(absl::Time now) {
  if (!AwaitsFiles()) return;
  for (RosterPlace& place : places_) {
    if (place.awaits_files || !place.waiting_for.empty()) place.excused = now;
  }
}

absl::Time Roster::NextDue(absl::Time now) const {
  absl::Time next = readers_.FirstEnd();
  const auto due = [now, &next](absl::Time at) {
    if (at > now) next = std::min(next, at);
  };
  if (Any(RosterPlace::kAbsent)) {
    due(connecting_since_ + options_.connect_deadline);
    due(connect_warning_ + options_.slow_warning);
  }
  for (const RosterPlace& place : places_) {
    if (place.state != RosterPlace::kJoined) continue;
    const absl::Time since = std::max(place.progress, place.excused);
    next = std::min(next, place.lease_until);
    due(since + options_.slow_warning);
    due(since + options_.progress_deadline);
    due(since + 2 * options_.progress_deadline);
    due(place.last_warning + options_.slow_warning);
  }
  return next;
}

absl::Status Roster::CheckChief(int trainer, std::string_view what) const {
  const bool passes_on = options_.on_death == OnDeath::kGoOn;
  if (trainer == chief_ || (passes_on && !options_.announces_chief)) return absl::OkStatus();
  const std::string text = absl::StrCat(options_.self, ": ", absl::string_view(what.data(), what.size()),
                                        " is called by ", Name(chief_), "; this is ", Name(trainer));
  return passes_on ? absl::UnavailableError(text) : absl::FailedPreconditionError(text);
}

std::optional<Roster::Departure> Roster::TakeExpired(absl::Time now) {
  for (int t = 0; t < size(); ++t) {
    RosterPlace& place = At(t);
    if (place.state != RosterPlace::kJoined || now <= place.lease_until) continue;
    Departure departure{.trainer = t};
    departure.text =
        absl::StrCat(Name(t), " is dead: no sign of life for ", SecondsText(now - place.lease_until + options_.lease),
                     place.step < 0 ? ", before its first step" : absl::StrCat(", at step ", place.step));
    if (options_.on_death == OnDeath::kFail && !AllJoined()) {
      // The job has not begun: the id is free again.
      LOG(WARNING) << options_.self << ": " << departure.text << "; its id is free";
      departure.freed = true;
      place = RosterPlace();
      connecting_since_ = now;
      return departure;
    }
    place.state = RosterPlace::kDead;
    departure.ends_job = options_.on_death == OnDeath::kFail;
    if (options_.on_death == OnDeath::kGoOn) {
      LOG(WARNING) << options_.self << ": " << departure.text << "; its unfinished step is dropped, the others go on";
      PassDuties();
    }
    return departure;
  }
  return std::nullopt;
}

absl::Status Roster::WatchConnecting(absl::Time now) {
  std::vector<int> missing;
  for (int t = 0; t < size(); ++t) {
    if (place(t).state == RosterPlace::kAbsent) missing.push_back(t);
  }
  if (missing.empty()) return absl::OkStatus();
  const std::string who = absl::StrCat(missing.size() == 1 ? "trainer " : "trainers ", absl::StrJoin(missing, ", "));
  const absl::Duration waited = now - connecting_since_;
  if (waited > options_.connect_deadline) {
    return absl::DeadlineExceededError(absl::StrCat(who, missing.size() == 1 ? " has" : " have", " not joined ",
                                                    options_.self, " within ", SecondsText(options_.connect_deadline)));
  }
  if (now - connect_warning_ >= options_.slow_warning) {
    connect_warning_ = now;
    LOG(WARNING) << options_.self << ": waits for " << who << " to join, " << SecondsText(waited)
                 << " since the last sign of anyone";
  }
  return absl::OkStatus();
}

absl::Status Roster::WatchProgress(absl::Time now, const std::function<bool(int)>& waits) {
  if (!AllJoined()) return absl::OkStatus();
  Excuse(now);
  for (int t = 0; t < size(); ++t) {
    RosterPlace& place = At(t);
    if (place.state != RosterPlace::kJoined || waits(t)) continue;
    const absl::Duration idle = now - std::max(place.progress, place.excused);
    if (idle < options_.slow_warning) continue;
    const std::string text = absl::StrCat(
        Name(t), " is slow: at step ", std::max<int64_t>(0, place.step), ", nothing new from it for ",
        SecondsText(idle),
        place.waiting_for.empty() ? "" : absl::StrCat("; it waits for ", place.waiting_for.substr(0, 200)));
    place.slow = true;
    // A trainer that waits for others is not the cause: it gets twice the time, which still ends a circle of waits.
    const absl::Duration limit =
        place.waiting_for.empty() ? options_.progress_deadline : 2 * options_.progress_deadline;
    if (idle > limit) return absl::DeadlineExceededError(text);
    if (now - place.last_warning >= options_.slow_warning) {
      place.last_warning = now;
      LOG(WARNING) << options_.self << ": " << text;
    }
  }
  return absl::OkStatus();
}

void Roster::Fail(const absl::Status& status, absl::Time now) {
  if (!failure_.ok()) return;
  failure_ = status;
  failed_at_ = now;
  LOG(ERROR) << options_.self << ": the job has failed: " << status.message();
}

void Roster::Close() {
  if (failure_.ok()) failure_ = absl::UnavailableError(absl::StrCat(options_.self, " is going away"));
}

absl::Status Roster::Aborted(int trainer) {
  if (trainer >= 0 && trainer < size()) Told(trainer);
  return absl::AbortedError(absl::StrCat("the job has failed: ", failure_.message()));
}

bool Roster::Finished(absl::Time now) const {
  const auto gone = [this](const RosterPlace& m) {
    return Gone(m) || (stop_requested_ && m.state == RosterPlace::kAbsent);
  };
  if (failure_.ok()) return std::all_of(places_.begin(), places_.end(), gone);
  // After a failure nothing expires leases in time, so a trainer that has died since may be known only by its lease.
  const auto silent = [now](const RosterPlace& m) { return m.state == RosterPlace::kJoined && now > m.lease_until; };
  const bool all_told =
      std::all_of(places_.begin(), places_.end(), [&](const RosterPlace& m) { return m.told || gone(m) || silent(m); });
  return all_told || now - failed_at_ > 2 * options_.lease;
}

absl::Status Roster::CheckWaiting(int trainer, std::string_view what, size_t waiting) const {
  if (waiting < kMaxWaitingCalls) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(Name(trainer), " has ", waiting, " ",
                                                   absl::string_view(what.data(), what.size()),
                                                   " waiting for their answers, as many as may: wait for some"));
}

}  // namespace weir
