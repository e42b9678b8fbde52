// Parts of steps that trainers have pushed and that have not taken effect. Not thread-safe; ServerCore locks around it.
#ifndef WEIR_PSERVER_CONSISTENCY_STEP_BOOK_H_
#define WEIR_PSERVER_CONSISTENCY_STEP_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/counters.h"
#include "proto/parameter_server.pb.h"
#include "pserver/consistency/on_repeat.h"
#include "pserver/params/server_params.h"

namespace weir {

// Step that a trainer is pushing: its parts that are here, and what they have brought. Invariant: received is the
// number of set elements of `parts`, which has at most part_count elements once that is known.
//
// A merged step is that of its sender and of the trainers that it has `merged`: the sender's has the parts and the
// gradients of all; each of the others has no part of its own, and is complete when the sender's is.
struct BookedStep {
  int64_t step = -1;        // -1: none begun
  std::vector<bool> parts;  // those that are here
  int received = 0;         // number of parts that are here
  int part_count = -1;      // -1: unknown until the last part is here
  int64_t samples = 0;
  int64_t first_samples = 0;  // PushRequest.first_samples
  v1::Verdict verdict = v1::APPLY;
  std::vector<Gradient> gradients;  // not yet handed to an update
  size_t bytes = 0;                 // taken by the gradients
  std::vector<int> merged;          // PushRequest.merged of its parts: trainers, ascending
  int sender = -1;                  // trainer whose parts hold the gradients of this one; -1: itself
  absl::Time completed;             // time at which its own last part came
  bool Complete() const { return part_count >= 0 && received == part_count; }
  bool IsMerged() const { return sender >= 0 || !merged.empty(); }
  // True if the trainer itself has to send parts.
  bool IsDue() const { return !Complete() && sender < 0; }
  // True if the step has fewer than half of the samples of the trainer's step 0.
  bool TooSmall() const { return 2 * samples < first_samples; }
};

class StepBook {
 public:
  // `room`: for each trainer the bytes that its gradients may take until its step takes effect. `repeated` counts parts
  // that come again.
  StepBook(std::vector<size_t> room, Counter* repeated, OnRepeat on_repeat = nullptr);

  int trainers() const { return static_cast<int>(steps_.size()); }
  const BookedStep& of(int trainer) const { return steps_[static_cast<size_t>(trainer)]; }
  bool AllComplete(int64_t step) const;

  // Returns InvalidArgument if the step or the part is out of range. `what` names the part in all messages.
  static absl::Status CheckRange(const v1::PushRequest& request, const std::string& what);
  // Returns OK if the part holds the gradients of the right trainers: those of the parts before it, if there are any,
  // else trainers that nothing has come of, neither from themselves nor from another trainer. InvalidArgument: other
  // trainers than in the parts before it; FailedPrecondition: gradients of one have come, or the caller's own.
  absl::Status CheckMerged(int trainer, const v1::PushRequest& request, const std::string& what) const;
  // Returns InvalidArgument if the step is known to have fewer parts.
  absl::Status CheckPart(int trainer, const v1::PushRequest& request, const std::string& what) const;
  bool Has(int trainer, int part) const;
  // Record a part that has come again: one of a step that is over; one that Has knows.
  void RepeatOver() { repeated_->Add(); }
  void Repeat(int trainer, const std::vector<Gradient>& gradients);
  // Returns OK if the part may be booked with `bytes` bytes of gradients. ResourceExhausted: the step would take more
  // than the room of its trainers. InvalidArgument: what the last part says of the step of one of them cannot be.
  absl::Status CheckBooking(int trainer, const v1::PushRequest& request, size_t bytes, const std::string& what) const;
  // Books a part. `bytes`: PendingBytes of the gradients that are kept. Requires: CheckRange, CheckMerged, CheckPart
  // and CheckBooking have returned OK, and Has false; the trainer's booked step is this one, or none.
  void Book(int trainer, const v1::PushRequest& request, std::vector<Gradient> gradients, size_t bytes, absl::Time now);

  // Numbers gradients in order of arrival.
  void NumberArrivals(std::vector<Gradient>* gradients);
  // Take the gradients of a trainer, or those of tables, out of the book. The parts that were booked are still known.
  std::vector<Gradient> TakeGradients(int trainer);
  std::vector<Gradient> TakeTableGradients(int trainer);
  // Forgets the step of a trainer; a merged step is forgotten whole. Requires: it has taken effect, or is given up.
  void Clear(int trainer);

 private:
  BookedStep& At(int trainer) { return steps_[static_cast<size_t>(trainer)]; }
  // Books the steps of the trainers that a part of `sender` has merged.
  void BookMerged(int sender, const v1::PushRequest& request);

  const std::vector<size_t> room_;
  Counter* const repeated_;
  const OnRepeat on_repeat_;
  std::vector<BookedStep> steps_;
  int64_t arrivals_ = 0;
};

// Returns the bytes that gradients take until their step takes effect. `message`: size of the push that has brought
// them, which they keep in memory.
size_t PendingBytes(size_t message, const std::vector<Gradient>& gradients);

// Returns the bytes that the pushes of a trainer with `nodes` lane nodes may take (docs/wire.md, "Limits").
// `row_bytes`: ServerOptions::pending_row_bytes.
size_t PendingRoom(const v1::Plan& plan, const ServerParams& params, size_t nodes, size_t row_bytes);

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_STEP_BOOK_H_
