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
#include "trainer/follow/follower.h"

namespace weir {
namespace {

// Trainer that writes checkpoints in sync.
constexpr int kFirst = 0;
// Posts of the chief: the number of a checkpoint, before it is written; the steps of each trainer in the checkpoint at
// the end, after it is published.
constexpr char kSaving[] = "saving", kSaved[] = "saved";

const ProfileName kCheckpoint("checkpoint");

}  // namespace

JobCheckpoints::JobCheckpoints(Options options) : o_(std::move(options)), number_(o_.first_number) {}

v1::StreamPlaces JobCheckpoints::OwnPlaces(const BorderState& at) {
  v1::StreamPlaces places = at.places();
  if (o_.trainer.sync) return places;
  if (places_step_ != at.step) {
    v1::StreamPlaces kept = places;
    kept.clear_absent();
    places_step_ = at.step;
    places_[0] = std::exchange(places_[1], kept.SerializeAsString());
  }
  places.MergeFromString(places_[0]);
  return places;
}

absl::Status JobCheckpoints::Post(const BorderState& at) {
  if (!keeps() || o_.trainer.sync || posted_step_ == at.step) return absl::OkStatus();
  posted_step_ = at.step;
  // The chief's are for who takes its place.
  if (at.places != nullptr) RETURN_IF_ERROR(PostPlaces(o_.trainer, at.step, OwnPlaces(at)));
  if (o_.trainer.IsChief()) return absl::OkStatus();
  return o_.trainer.client->residuals().Keeps() ? o_.trainer.client->residuals().Post(at.step) : absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> JobCheckpoints::ClaimNumber(int64_t step) {
  ASSIGN_OR_RETURN(const PostedWord last, o_.trainer.client->board().NewestWord(kSaving));
  if (!last.chief) return std::nullopt;
  // A dead chief may still be publishing under the newest number. Only a number of this trainer's own may be used
  // again, to replace a checkpoint of the same step.
  const int64_t newest = std::max(last.edition, number_);
  number_ = step > newest || (step == newest && newest == number_) ? step : newest + 1;
  RETURN_IF_ERROR(o_.trainer.client->board().Post(kSaving, "", number_));
  return number_;
}

absl::StatusOr<bool> JobCheckpoints::Write(const BorderState& at) {
  const ProfileSpan span(at.step - 1, ProfileKind::kBorder, kCheckpoint);
  // Each trainer writes a part of the values, so all must have the same.
  if (o_.trainer.replica != nullptr)
    RETURN_IF_ERROR(o_.trainer.replica->CheckEqual(absl::StrCat("at the checkpoint of step ", at.step)));
  Client* const client = o_.trainer.client;
  int64_t number = at.step;
  if (o_.trainer.sync && !o_.trainer.IsChief()) {
    if (client->residuals().Keeps()) RETURN_IF_ERROR(client->residuals().Gather(at.step, kFirst, {}));
    if (at.places != nullptr) RETURN_IF_ERROR(SendPlaces(o_.trainer, at.step, kFirst, OwnPlaces(at)));
    if (o_.trainer.replica != nullptr) RETURN_IF_ERROR(o_.checkpointing->WriteShareFor(kFirst));
    return false;
  }
  if (!o_.trainer.sync) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> claimed, ClaimNumber(at.step));
    if (!claimed.has_value()) return false;
    number = *claimed;
  }
  SavedTrainers trainers = {.state = at.trainers};
  if (client->residuals().Keeps()) {
    trainers.residuals = [client, sync = o_.trainer.sync, step = at.step](const TakeBytes& take) {
      // In async the others are in the middle of their steps: theirs are those of their last posts.
      return sync ? client->residuals().Gather(step, kFirst, take) : client->residuals().Take(step, take);
    };
  }
  if (at.places != nullptr) {
    trainers.places = [&] {
      return o_.trainer.sync ? GatherPlaces(o_.trainer, at.step, OwnPlaces(at)) : TakePlaces(o_.trainer, OwnPlaces(at));
    };
  }
  if (at.statistics != nullptr) trainers.statistics = at.statistics->Serialize();
  if (at.follower != nullptr) {
    trainers.follow = [follower = at.follower](int64_t step, const std::vector<int64_t>& trainer_steps) {
      return follower->StateAt(step, trainer_steps);
    };
  }
  ASSIGN_OR_RETURN(const std::string path, o_.checkpointing->Save(number, at.version, trainers, at.eval));
  o_.progress->Say(absl::StrCat("checkpoint step=", number, " path=", path));
  return true;
}

absl::Status JobCheckpoints::Save(const BorderState& at) {
  if (!keeps() || saved_step_ == at.step) return absl::OkStatus();
  RETURN_IF_ERROR(Post(at));
  if (o_.trainer.sync || o_.trainer.IsChief()) RETURN_IF_ERROR(Write(at).status());
  saved_step_ = at.step;
  return absl::OkStatus();
}

absl::Status JobCheckpoints::SaveLast(const BorderState& at) {
  if (o_.trainer.sync || !keeps()) return Save(at);
  // A checkpoint of this step may lack steps that others have done since.
  saved_step_ = -1;
  Client* const client = o_.trainer.client;
  for (int64_t edition = 0;;) {
    ASSIGN_OR_RETURN(const PostedWord word, client->board().AwaitWord(kSaved, edition));
    edition = word.edition + 1;
    const std::vector<std::string> held = absl::StrSplit(word.text, ',');
    int64_t own = -1;
    if (word.by >= 0 && (held.size() != static_cast<size_t>(o_.trainer.trainers) ||
                         !absl::SimpleAtoi(held[static_cast<size_t>(o_.trainer.id)], &own))) {
      return absl::InternalError("what the chief says of the last checkpoint cannot be read");
    }
    if (own >= at.step) return absl::OkStatus();
    if (!word.chief) continue;
    ASSIGN_OR_RETURN(const bool written, Write(at));
    if (!written) continue;
    saved_step_ = at.step;
    return client->board().Post(kSaved, absl::StrJoin(o_.checkpointing->saved_trainer_steps(), ","), edition);
  }
}

void JobCheckpoints::RecordEvaluation(int64_t step, const MetricResult& eval, const EarlyStop* early_stop) {
  if (!keeps() || !o_.trainer.IsChief()) return;
  const bool resumed = saved_step_ < 0 && o_.trainer.sync && step == o_.first_number;
  if (saved_step_ != step && !resumed) return;
  const absl::Status recorded = o_.checkpointing->RecordEvaluation(eval, early_stop);
  if (recorded.ok()) return;
  LOG(WARNING) << "the checkpoint of step " << step << " is saved, without its evaluation: " << recorded.message();
}

}  // namespace weir
