#include "trainer/checkpoints/job_checkpoints.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "trainer/checkpoints/places_exchange.h"
#include "trainer/follow/file_course.h"

namespace weir {
namespace {

// Trainer that writes checkpoints in sync.
constexpr int kFirst = 0;
// Posts of the chief: the number of a checkpoint, before it is written; the steps of each trainer in the checkpoint at
// the end, after it is published.
constexpr char kSaving[] = "saving", kSaved[] = "saved";

const ProfileName kCheckpoint("checkpoint");

// All trainers stand at the same border. Trainer 0 writes; the others give it their residuals and places.
class SyncCheckpoints : public JobCheckpoints {
 public:
  explicit SyncCheckpoints(Options options) : JobCheckpoints(std::move(options)) {}

  std::vector<int64_t> StepsDone(const v1::Beginning& beginning) const override {
    return std::vector<int64_t>(static_cast<size_t>(o_.trainer.trainers), beginning.step());
  }
  absl::Status OfferPlaces(int /*lanes*/, const std::string& /*saved*/) override { return absl::OkStatus(); }
  absl::StatusOr<v1::StreamPlaces> FindPlaces(const v1::Beginning& beginning, int by, int lanes,
                                              const std::string& saved) override {
    return beginning.places() ? DealPlaces(o_.trainer, by, lanes, saved) : v1::StreamPlaces();
  }
  // The evaluation of that step may not have been made.
  void BeginAt(int64_t step) override { resumed_step_ = step; }

 protected:
  absl::Status PostState(const BorderState& /*at*/) override { return absl::OkStatus(); }
  absl::Status Take(const BorderState& at) override {
    const ProfileSpan span(at.step - 1, ProfileKind::kBorder, kCheckpoint);
    RETURN_IF_ERROR(CheckReplica(at));
    ResidualExchange& residuals = o_.trainer.client->residuals();
    if (!o_.trainer.IsChief()) {
      if (residuals.Keeps()) RETURN_IF_ERROR(residuals.Gather(at.step, kFirst, {}));
      if (at.places != nullptr) RETURN_IF_ERROR(SendPlaces(o_.trainer, at.step, kFirst, at.places()));
      return o_.trainer.replica == nullptr ? absl::OkStatus() : o_.checkpointing->WriteShareFor(kFirst);
    }
    SavedTrainers trainers = {.state = at.trainers};
    if (residuals.Keeps())
      trainers.residuals = [&](const TakeBytes& take) { return residuals.Gather(at.step, kFirst, take); };
    if (at.places != nullptr) trainers.places = [&] { return GatherPlaces(o_.trainer, at.step, at.places()); };
    if (at.course != nullptr) {
      trainers.follow = [&](const std::vector<int64_t>& /*trainer_steps*/, v1::TrainerState* state) {
        return at.course->SaveAt(std::vector<int64_t>(static_cast<size_t>(o_.trainer.trainers), at.step), state);
      };
    }
    return Write(at.step, at.version, at, std::move(trainers));
  }
  absl::Status TakeLast(const BorderState& at) override { return Save(at); }
  absl::Status AwaitWritten() override { return o_.trainer.client->board().Exchange("end.saved", "").status(); }
};

// Each trainer stands at a border of its own. It posts its residuals and places, and the chief takes those of the last
// posts.
class AsyncCheckpoints : public JobCheckpoints {
 public:
  explicit AsyncCheckpoints(Options options) : JobCheckpoints(std::move(options)) {}

  std::vector<int64_t> StepsDone(const v1::Beginning& beginning) const override {
    const size_t trainers = static_cast<size_t>(o_.trainer.trainers);
    const std::vector<int64_t> steps(beginning.trainer_steps().begin(), beginning.trainer_steps().end());
    if (steps.size() == trainers) return steps;
    // With another number of trainers no lane's progress is known: begin where all of them had been at least.
    const int64_t step = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
    if (beginning.resumed()) {
      LOG(WARNING) << "the checkpoint is of " << steps.size() << " trainers, the job has " << trainers
                   << ": reading goes on at step " << step << ", some examples are seen twice";
    }
    return std::vector<int64_t>(trainers, step);
  }
  absl::Status OfferPlaces(int lanes, const std::string& saved) override {
    return PostDealtPlaces(o_.trainer, lanes, saved);
  }
  absl::StatusOr<v1::StreamPlaces> FindPlaces(const v1::Beginning& beginning, int by, int /*lanes*/,
                                              const std::string& /*saved*/) override {
    return PostedPlaces(o_.trainer, beginning.places() ? by : -1);
  }
  void BeginAt(int64_t step) override { number_ = step; }

 protected:
  absl::Status PostState(const BorderState& at) override {
    if (posted_step_ == at.step) return absl::OkStatus();
    posted_step_ = at.step;
    // The chief's are for who takes its place.
    if (at.places != nullptr) RETURN_IF_ERROR(PostPlaces(o_.trainer, at.step, OwnPlaces(at)));
    if (o_.trainer.IsChief()) return absl::OkStatus();
    ResidualExchange& residuals = o_.trainer.client->residuals();
    return residuals.Keeps() ? residuals.Post(at.step) : absl::OkStatus();
  }
  absl::Status Take(const BorderState& at) override {
    return o_.trainer.IsChief() ? TakeAsChief(at).status() : absl::OkStatus();
  }
  absl::Status TakeLast(const BorderState& at) override {
    // A checkpoint of this step may lack steps that others have done since.
    saved_step_ = -1;
    Board& board = o_.trainer.client->board();
    for (int64_t edition = 0;;) {
      ASSIGN_OR_RETURN(const PostedWord word, board.AwaitWord(kSaved, edition));
      edition = word.edition + 1;
      const std::vector<std::string> held = absl::StrSplit(word.text, ',');
      int64_t own = -1;
      if (word.by >= 0 && (held.size() != static_cast<size_t>(o_.trainer.trainers) ||
                           !absl::SimpleAtoi(held[static_cast<size_t>(o_.trainer.id)], &own))) {
        return absl::InternalError("what the chief says of the last checkpoint cannot be read");
      }
      if (own >= at.step) return absl::OkStatus();
      if (!word.chief) continue;
      ASSIGN_OR_RETURN(const bool written, TakeAsChief(at));
      if (!written) continue;
      saved_step_ = at.step;
      return board.Post(kSaved, absl::StrJoin(o_.checkpointing->saved_trainer_steps(), ","), edition);
    }
  }
  // TakeLast has waited for that.
  absl::Status AwaitWritten() override { return absl::OkStatus(); }

 private:
  // Writes the checkpoint. Returns false if this trainer has written nothing: another one has become the chief.
  absl::StatusOr<bool> TakeAsChief(const BorderState& at) {
    const ProfileSpan span(at.step - 1, ProfileKind::kBorder, kCheckpoint);
    RETURN_IF_ERROR(CheckReplica(at));
    ASSIGN_OR_RETURN(const bool claimed, ClaimNumber(at.step));
    if (!claimed) return false;
    SavedTrainers trainers = {.state = at.trainers};
    ResidualExchange& residuals = o_.trainer.client->residuals();
    if (residuals.Keeps()) trainers.residuals = [&](const TakeBytes& take) { return residuals.Take(at.step, take); };
    if (at.places != nullptr) trainers.places = [&] { return TakePlaces(o_.trainer, OwnPlaces(at)); };
    if (at.course != nullptr) {
      trainers.follow = [&](const std::vector<int64_t>& trainer_steps, v1::TrainerState* state) {
        return at.course->SaveAt(trainer_steps, state);
      };
    }
    // Servers are at versions of their own.
    RETURN_IF_ERROR(Write(number_, /*version=*/-1, at, std::move(trainers)));
    return true;
  }
  // Announces the number of the checkpoint that the chief is about to write, as number_. Returns false if another
  // trainer has become the chief.
  absl::StatusOr<bool> ClaimNumber(int64_t step) {
    ASSIGN_OR_RETURN(const PostedWord last, o_.trainer.client->board().NewestWord(kSaving));
    if (!last.chief) return false;
    // A dead chief may still be publishing under the newest number. Only a number of this trainer's own may be used
    // again, to replace a checkpoint of the same step.
    const int64_t newest = std::max(last.edition, number_);
    number_ = step > newest || (step == newest && newest == number_) ? step : newest + 1;
    RETURN_IF_ERROR(o_.trainer.client->board().Post(kSaving, "", number_));
    return true;
  }
  // Returns the places of this trainer's streams, also those of the border before: servers may not have all of this
  // trainer's steps yet, and a resume uses the newest places that they have come to.
  v1::StreamPlaces OwnPlaces(const BorderState& at) {
    v1::StreamPlaces places = at.places();
    if (places_step_ != at.step) {
      v1::StreamPlaces kept = places;
      kept.clear_absent();
      places_step_ = at.step;
      places_[0] = std::exchange(places_[1], kept.SerializeAsString());
    }
    places.MergeFromString(places_[0]);
    return places;
  }

  int64_t number_ = 0;  // of the last checkpoint that this trainer wrote or was resumed from
  int64_t posted_step_ = -1;
  // The places of the last two borders at which they were asked for, as v1::StreamPlaces, the newer ones last.
  int64_t places_step_ = -1;
  std::string places_[2];
};

}  // namespace

std::unique_ptr<JobCheckpoints> JobCheckpoints::Create(Options options) {
  if (options.trainer.sync) return std::make_unique<SyncCheckpoints>(std::move(options));
  return std::make_unique<AsyncCheckpoints>(std::move(options));
}

absl::Status JobCheckpoints::CheckReplica(const BorderState& at) const {
  if (o_.trainer.replica == nullptr) return absl::OkStatus();
  return o_.trainer.replica->CheckEqual(absl::StrCat("at the checkpoint of step ", at.step));
}

absl::Status JobCheckpoints::Write(int64_t number, int64_t version, const BorderState& at, SavedTrainers trainers) {
  if (at.statistics != nullptr) trainers.statistics = at.statistics->Serialize();
  ASSIGN_OR_RETURN(const std::string path, o_.checkpointing->Save(number, version, trainers, at.eval));
  o_.say(absl::StrCat("checkpoint step=", number, " path=", path));
  return absl::OkStatus();
}

absl::Status JobCheckpoints::Save(const BorderState& at) {
  if (!keeps() || saved_step_ == at.step) return absl::OkStatus();
  RETURN_IF_ERROR(Post(at));
  RETURN_IF_ERROR(Take(at));
  saved_step_ = at.step;
  return absl::OkStatus();
}

absl::Status JobCheckpoints::SaveLast(const BorderState& at) { return keeps() ? TakeLast(at) : absl::OkStatus(); }

void JobCheckpoints::RecordEvaluation(int64_t step, const MetricResult& eval, const EarlyStop* early_stop) {
  if (!keeps() || !o_.trainer.IsChief()) return;
  if (step != (saved_step_ < 0 ? resumed_step_ : saved_step_)) return;
  const absl::Status recorded = o_.checkpointing->RecordEvaluation(eval, early_stop);
  if (recorded.ok()) return;
  LOG(WARNING) << "the checkpoint of step " << step << " is saved, without its evaluation: " << recorded.message();
}

}  // namespace weir
