// Sync: all trainers work in lockstep, and a version is a step.
#ifndef WEIR_PSERVER_CONSISTENCY_SYNC_STEPS_H_
#define WEIR_PSERVER_CONSISTENCY_SYNC_STEPS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pserver/consistency/consistency.h"

namespace weir {

// A step takes effect when all trainers have pushed all of it. Trainer 0 brings its norms.
class SyncSteps : public Consistency {
 public:
  SyncSteps(Options options, StepBook book) : Consistency(std::move(options), std::move(book)) {}

  absl::Status CheckTurn(int trainer, int64_t step, const std::string& what) const override;
  std::optional<Update> Next() override;
  void Hold(Update update, bool gone) override;
  Effect Finish(const Update& update, bool ok, bool stop, bool joined) override;
  NormRounds& norms(int /*trainer*/) override { return norms_; }
  absl::Status CheckBringsNorms(int trainer, const std::string& name) const override;
  bool NormsAreComplete(int rounds) const override { return rounds == options_.norm_rounds; }
  bool OwesNorms(int trainer) const override { return trainer == 0 && norms_.Waiting(); }
  bool PullReady(const v1::PullRequest& request) const override;
  std::vector<Blocker> BlockersOf(const v1::PullRequest& request) const override;
  void OnDeath(int trainer) override;
  int64_t StepsOf(int /*trainer*/) const override { return version_.version; }
  absl::Status CheckControlled(int64_t step) const override;

 protected:
  bool HoldsUpdates(const v1::PullRequest&) const override { return true; }

 private:
  // Returns the facts about the version that the booked step leads to.
  VersionInfo NextVersion() const;

  // Step that takes effect, or waits for norms: gradients of all trainers, by id; null: none.
  std::shared_ptr<const std::vector<TrainerGradients>> gathered_;
  NormRounds norms_;
  VersionInfo next_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_SYNC_STEPS_H_
