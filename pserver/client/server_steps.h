// Steps of a trainer's program at its servers: pulls and pushes, in the order that the job's consistency asks for.
#ifndef WEIR_PSERVER_CLIENT_SERVER_STEPS_H_
#define WEIR_PSERVER_CLIENT_SERVER_STEPS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "framework/wire/buffer_pool.h"
#include "pserver/client/ahead_rows.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/block_puller.h"
#include "pserver/client/norm_exchange.h"
#include "pserver/client/pull_calls.h"
#include "pserver/client/pusher.h"
#include "pserver/client/row_puller.h"
#include "pserver/member/member.h"
#include "pserver/protocol/norm_party.h"

namespace weir {

// Threads as ParamChannel.
class ServerSteps : public ParamChannel {
 public:
  struct Options {
    // Borrowed.
    const BlockPlacement* placement = nullptr;
    Member* member = nullptr;
    BufferPool* buffers = nullptr;
    ThreadPool* pool = nullptr;
    // ClientOptions.
    bool bounded_staleness = false;
    bool receives_beside_sends = false;
  };
  // Makes those of the plan's consistency.
  static std::unique_ptr<ServerSteps> Create(const Options& options);

  // Sets the step that this trainer continues from after a resume. Requires: called before the first BeginStep.
  void SetFirstStep(int64_t step);
  // Sets the number of examples of this trainer in step 0 of the job, by which servers judge the last steps
  // (PushRequest.first_samples). Without it no step counts as too small. Requires: called before FinishSends.
  void SetFirstSamples(int64_t samples) { pusher_.SetFirstSamples(samples); }
  // Sync: the step of the next FinishSends takes no effect, and the run ends before it, whatever the others push.
  void EndWithNextSends() { ends_ = true; }
  // Lets FinishSends keep the last parts of pushes, where FinishReceives waits for them anyway, and FinishReceives
  // sends them together with its pulls: one message to each server in place of two. Requires: nothing between the two
  // waits for what the others do with these pushes, and a step begins after the call.
  void SendPushesWithPulls() { with_pulls_ = true; }
  // Sets who holds parts of norms beside the servers; null: nobody. Borrowed until the last FinishSends. Called by all
  // trainers, though only the one that brings norms asks it.
  void SetNormParty(NormParty* party) { norm_party_ = party; }
  // Returns true if servers need each other's sums for norms in every step. Requires: Member::Join.
  bool ExchangesNorms() const;

  AheadRows& ahead() { return ahead_; }
  Pusher& pusher() { return pusher_; }
  const Pusher& pusher() const { return pusher_; }
  // Returns the number of rows pulled so far. Thread-safe.
  int64_t rows_pulled() const { return rows_.rows() + ahead_.rows(); }

  absl::Status BeginStep(int64_t step, bool read_only) override;
  void SetStepSamples(int64_t samples) override { pusher_.SetStepSamples(samples); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override { return rows_.PullRows(tables); }
  void UseRowsAhead() override { rows_.orders().SwapTables(&ahead_.orders()); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override {
    return pusher_.SendDense(block, lanes);
  }
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    return pusher_.SendRows(block, width, lanes);
  }
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override { return blocks_.Receive(block, out); }
  absl::Status FinishReceives(StepOutcome* outcome) override;

 protected:
  // Facts of a consistency at the trainer's end.
  struct Rules {
    bool in_turn = false;      // a step begins only when the servers say so
    bool one_version = false;  // a step reads one version of the parameters, and rows may be pulled ahead of it
    bool parts_apply = false;  // a part of a push takes effect on arrival
  };
  ServerSteps(const Options& options, const Rules& rules);

  // Returns true if this trainer brings the norms of a step that it has pushed.
  virtual bool BringsNorms(int64_t samples, v1::Verdict verdict) const = 0;
  // Returns what FinishReceives waits for, for messages.
  virtual std::string Awaited(int64_t version) const = 0;
  // Returns the verdict to push with a step's last part.
  virtual v1::Verdict VerdictOf(v1::Verdict own) const { return own; }
  // Returns the outcome of this trainer's step from what the servers say of their version.
  virtual StepOutcome OutcomeFrom(const StepOutcome& of_version) const { return of_version; }
  // Returns true if blocks of the new version may be asked for before pushes are acknowledged.
  virtual bool MayReceiveBesideSends() const { return false; }

  const Pusher::Sent& sent() const { return pusher_.sent(); }

  Member& member_;
  bool ends_ = false;  // EndWithNextSends has been called

 private:
  bool ReceivesBesideSends() const;

  const bool receives_beside_sends_;
  const bool in_turn_;
  bool with_pulls_ = false;
  PullCalls pulls_;
  RowPuller rows_;                    // used by the thread that runs the program
  std::atomic<int64_t> received_{0};  // version that the program has received; atomic: ahead_ reads it
  AheadRows ahead_;                   // used by the thread that pulls ahead, except in UseRowsAhead
  BlockPuller blocks_;
  Pusher pusher_;
  NormExchange norms_;
  NormParty* norm_party_ = nullptr;
  int64_t version_wanted_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_SERVER_STEPS_H_
