#include "pserver/member/waits.h"

#include <utility>

#include "framework/wire/frame.h"

namespace weir {

void Waits::Expect(AnswerSlot* slot) {
  MutexLock lock(&mu_);
  slot->expected_ = true;
}

void Waits::Deliver(AnswerSlot* slot, absl::StatusOr<Slices> answer) {
  MutexLock lock(&mu_);
  slot->expected_ = false;
  slot->filled_ = true;
  slot->answer_ = std::move(answer);
  WakeLocked();
}

Waits::Taken Waits::Take(AnswerSlot* slot, absl::StatusOr<Slices>* answer) {
  MutexLock lock(&mu_);
  if (slot->expected_) return Taken::kPending;
  if (!slot->filled_) return Taken::kNothing;
  slot->filled_ = false;
  *answer = std::move(slot->answer_);
  slot->answer_ = absl::UnknownError("");
  return Taken::kAnswer;
}

std::optional<size_t> Waits::AnswerSize(const AnswerSlot& slot) const {
  MutexLock lock(&mu_);
  if (slot.expected_ || !slot.filled_) return std::nullopt;
  return slot.answer_.ok() ? TotalSize(*slot.answer_) : 0;
}

void Waits::WakeLocked() {
  ++wakes_;
  changed_.SignalAll();
}

void Waits::Wake() {
  MutexLock lock(&mu_);
  WakeLocked();
}

int64_t Waits::wakes() const {
  MutexLock lock(&mu_);
  return wakes_;
}

void Waits::AwaitWake(int64_t seen, absl::Duration most) {
  MutexLock lock(&mu_);
  if (wakes_ == seen) changed_.WaitWithTimeout(&mu_, most);
}

void Waits::SetOn(Thread thread, std::string on) {
  MutexLock lock(&mu_);
  waiting_[thread].on = std::move(on);
}

void Waits::SetHolder(Thread thread, std::string on, std::string held_by) {
  MutexLock lock(&mu_);
  waiting_[thread] = {std::move(on), std::move(held_by)};
}

void Waits::End(Thread thread) {
  MutexLock lock(&mu_);
  waiting_[thread].on.clear();
  waiting_[thread].held_by.clear();
}

std::string Waits::held_by(Thread thread) const {
  MutexLock lock(&mu_);
  return waiting_[thread].held_by;
}

std::string Waits::on() const {
  MutexLock lock(&mu_);
  return waiting_[ahead_needed_ ? kAhead : kProgram].on;
}

void Waits::NoteLong(std::string on, absl::Duration time) {
  MutexLock lock(&mu_);
  if (time <= long_.time) return;
  long_.time = time;
  long_.on = std::move(on);
}

void Waits::NoteLate(int trainer, absl::Duration late) {
  MutexLock lock(&mu_);
  if (late <= long_.late) return;
  long_.late_trainer = trainer;
  long_.late = late;
}

Waits::Long Waits::TakeLong() {
  MutexLock lock(&mu_);
  return std::exchange(long_, {});
}

bool Waits::ahead_needed() const {
  MutexLock lock(&mu_);
  return ahead_needed_;
}

void Waits::NeedAhead(bool needed) {
  MutexLock lock(&mu_);
  ahead_needed_ = needed;
  ahead_used_ = true;
}

bool Waits::awaits_batches() const {
  MutexLock lock(&mu_);
  return ahead_needed_ || !ahead_used_;
}

void Waits::CancelAhead() {
  MutexLock lock(&mu_);
  ahead_cancelled_ = true;
  WakeLocked();
}

bool Waits::ahead_cancelled() const {
  MutexLock lock(&mu_);
  return ahead_cancelled_;
}

}  // namespace weir
