// Async: the step of each trainer is a transaction of its own, and a version counts transactions.
#ifndef WEIR_PSERVER_CONSISTENCY_ASYNC_STEPS_H_
#define WEIR_PSERVER_CONSISTENCY_ASYNC_STEPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pserver/consistency/consistency.h"

namespace weir {

// A trainer's step takes effect when all its parts and its norms have come. A pull gets the values as they are.
class AsyncSteps : public Consistency {
 public:
  AsyncSteps(Options options, StepBook book);

  absl::Status CheckTurn(int trainer, int64_t step, const std::string& what) const override;
  bool AnswersAfterUpdate(int trainer) const override;
  void AwaitUpdate(int trainer, const ReplyCallback& reply, Actions* actions) override;
  std::vector<ReplyCallback> TakeWaiters(int trainer) override;
  std::optional<Update> Next() override;
  void Hold(Update update, bool gone) override;
  Effect Finish(const Update& update, bool ok, bool stop, bool joined) override;
  bool Applies(int trainer) const override { return At(trainer).applies; }
  NormRounds& norms(int trainer) override { return At(trainer).norms; }
  bool OwesNorms(int trainer) const override { return At(trainer).norms.Waiting(); }
  bool PullReady(const v1::PullRequest& request) const override;
  void OnJoin(int trainer) override;
  void OnDeath(int trainer) override;
  int64_t StepsOf(int trainer) const override { return At(trainer).applied_step + 1; }

 protected:
  void RestoreSteps(int trainer, int64_t steps) override { At(trainer).applied_step = steps - 1; }
  // Forgets the unfinished step of a trainer.
  virtual void Drop(int trainer);
  // Part of the step's update that is left when all of the step is here.
  virtual ServerParams::StepPart LastPart(int /*trainer*/) const { return ServerParams::StepPart::kWhole; }
  // Records that a step of the trainer has ended, with an effect or without. `joined`: the trainer is still in the job.
  virtual void StepOver(int trainer, int64_t step, int64_t samples, bool joined);
  int64_t applied_step(int trainer) const { return At(trainer).applied_step; }
  void set_applied_step(int trainer, int64_t step) { At(trainer).applied_step = step; }

 private:
  struct Transaction {
    int64_t applied_step = -1;  // newest step that is over; kept when another process takes the place
    bool applies = false;       // the booked step is taking effect
    std::vector<ReplyCallback> waiters;
    // Step that takes effect, or waits for norms; null: none.
    std::shared_ptr<const std::vector<TrainerGradients>> gathered;
    NormRounds norms;
  };
  Transaction& At(int trainer) { return transactions_[static_cast<size_t>(trainer)]; }
  const Transaction& At(int trainer) const { return transactions_[static_cast<size_t>(trainer)]; }

  std::vector<Transaction> transactions_;  // by trainer
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_ASYNC_STEPS_H_
