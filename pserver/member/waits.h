// Waits of one trainer for answers of its servers: the answers that have come, and the causes of the waits.
// Thread-safe.
//
// Two threads may wait at a time for what the program needs: the one that runs it, and one that works ahead of it
// (Client::ahead). Others may wait beside them (Client::board_beside); servers are not told of these waits.
#ifndef WEIR_PSERVER_MEMBER_WAITS_H_
#define WEIR_PSERVER_MEMBER_WAITS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/wire/slices.h"

namespace weir {

// Place for the answer to one request, filled and emptied through Waits alone, which guards its contents.
class AnswerSlot {
 private:
  friend class Waits;
  bool expected_ = false;
  bool filled_ = false;
  absl::StatusOr<Slices> answer_ = absl::UnknownError("");
};

class Waits {
 public:
  enum Thread { kProgram, kAhead, kBeside };

  // Records that the request of this slot is about to be sent. Requires: the last answer has been taken.
  void Expect(AnswerSlot* slot);
  // Fills the slot and wakes all waits.
  void Deliver(AnswerSlot* slot, absl::StatusOr<Slices> answer);
  enum class Taken { kPending, kNothing, kAnswer };
  // Moves an answer out of the slot. kPending: it is still to come; kNothing: none is expected.
  Taken Take(AnswerSlot* slot, absl::StatusOr<Slices>* answer);

  // Returns the bytes of the answer that is to be taken out of the slot, 0 for an error; none if no answer is there.
  std::optional<size_t> AnswerSize(const AnswerSlot& slot) const;

  // Wakes all waits.
  void Wake();
  // Number of wake-ups so far. Requires: read before looking at what a wait depends on; a wake-up in between is lost
  // otherwise.
  int64_t wakes() const;
  // Waits for a wake-up after the first `seen` ones, for `most` of real time.
  void AwaitWake(int64_t seen, absl::Duration most);

  // Record what a thread waits for, until End. SetHolder also records why a server lets it wait.
  void SetOn(Thread thread, std::string on);
  void SetHolder(Thread thread, std::string on, std::string held_by);
  void End(Thread thread);
  std::string held_by(Thread thread) const;
  // Returns what servers are told that this trainer waits for: the program's wait, or the one ahead of it while the
  // program needs that one.
  std::string on() const;

  // Long waits of the program since the last TakeLong.
  struct Long {
    absl::Duration time;    // of the longest wait for answers
    std::string on;         // what it was for, and of which server
    int late_trainer = -1;  // PullReply.late_trainer, or -1, with the largest late_s
    absl::Duration late;
  };
  void NoteLong(std::string on, absl::Duration time);
  void NoteLate(int trainer, absl::Duration late);
  Long TakeLong();

  void NeedAhead(bool needed);
  bool ahead_needed() const;
  // Returns true if the program waits for batches that a thread reads ahead of it, or has never spoken of such a
  // thread.
  bool awaits_batches() const;
  // Wakes all waits; those of the thread ahead end.
  void CancelAhead();
  bool ahead_cancelled() const;

 private:
  struct Waiting {
    std::string on;
    std::string held_by;  // the last cause a server gave in this wait
  };
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  int64_t wakes_ ABSL_GUARDED_BY(mu_) = 0;
  std::array<Waiting, 3> waiting_ ABSL_GUARDED_BY(mu_);  // by Thread
  Long long_ ABSL_GUARDED_BY(mu_);
  bool ahead_needed_ ABSL_GUARDED_BY(mu_) = false;
  bool ahead_used_ ABSL_GUARDED_BY(mu_) = false;  // NeedAhead has been called
  bool ahead_cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_WAITS_H_
