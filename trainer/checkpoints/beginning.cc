#include "trainer/checkpoints/beginning.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "proto/trainer.pb.h"
#include "trainer/checkpoints/places_exchange.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

constexpr char kBeginning[] = "beginning";

// Has the servers load a checkpoint or row files, as the chief.
absl::StatusOr<Beginning> Decide(const BeginOptions& o) {
  Beginning beginning;
  if (o.checkpoints != nullptr && o.resume_run) {
    ASSIGN_OR_RETURN(const bool of_this_run, o.checkpoints->HasOfThisRun());
    if (!of_this_run) LOG(INFO) << "--resume_run: no checkpoint of this run yet, starts at step 0";
    if (!of_this_run) RETURN_IF_ERROR(o.checkpoints->StartAfresh());
    if (of_this_run) {
      ASSIGN_OR_RETURN(const std::optional<ResumePoint> point, o.checkpoints->Resume());
      beginning.resumed = point.has_value();
      if (point.has_value()) beginning.point = *point;
    }
  } else if (o.checkpoints != nullptr && o.resume) {
    ASSIGN_OR_RETURN(const std::optional<ResumePoint> point, o.checkpoints->Resume());
    beginning.resumed = point.has_value();
    if (point.has_value()) {
      beginning.point = *point;
    } else {
      LOG(WARNING) << "--resume: no checkpoint in " << o.job->config.checkpoint().dir() << ", starts at step 0";
    }
  } else if (o.checkpoints != nullptr) {
    RETURN_IF_ERROR(o.checkpoints->StartAfresh());
  }
  if (!beginning.resumed && !RowFiles(*o.job).empty()) {
    v1::ControlRequest load;
    load.mutable_load_rows();
    RETURN_IF_ERROR(o.trainer.client->member().Control(load, /*until_stop=*/true).status());
  }
  return beginning;
}

// Returns the number of steps of each trainer in the state that the job begins with.
std::vector<int64_t> StepsDone(const Beginning& beginning, const ThisTrainer& trainer) {
  const size_t trainers = static_cast<size_t>(trainer.trainers);
  if (trainer.sync || !beginning.resumed) return std::vector<int64_t>(trainers, beginning.point.step);
  const std::vector<int64_t>& steps = beginning.point.trainer_steps;
  if (steps.size() == trainers) return steps;
  // With another number of trainers no lane's progress is known: begin where all of them had been at least.
  const int64_t step = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
  LOG(WARNING) << "the checkpoint is of " << steps.size() << " trainers, the job has " << trainer.trainers
               << ": reading goes on at step " << step << ", some examples are seen twice";
  return std::vector<int64_t>(trainers, step);
}

// Restores this trainer's residuals. Trainer `from` reads them from `file`, its own; "": the checkpoint has none.
absl::Status RestoreResiduals(Client* client, int from, const std::string& file, int64_t step) {
  const auto read = [file](const TakeBytes& take) {
    return file.empty() ? absl::OkStatus() : ReadInPieces(file, take);
  };
  return client->residuals().Deal(from, read, step);
}

}  // namespace

std::string Beginning::Serialize() const {
  v1::Beginning message;
  message.set_resumed(resumed);
  message.set_step(point.step);
  message.mutable_trainer_steps()->Add(point.trainer_steps.begin(), point.trainer_steps.end());
  message.set_statistics(point.statistics);
  if (point.loss_scale.has_value()) *message.mutable_loss_scale() = *point.loss_scale;
  if (point.early_stop.has_value()) *message.mutable_early_stop() = *point.early_stop;
  message.set_first_step_examples(point.first_step_examples);
  message.set_stream_scheme(point.stream_scheme);
  if (point.not_evaluated) message.set_not_evaluated(true);
  if (point.has_places) message.set_places(true);
  if (point.follow.streams_size() > 0) *message.mutable_follow() = point.follow;
  if (resumed) {
    message.set_checkpoint(point.name);
    message.set_manifest(point.manifest);
  }
  return message.SerializeAsString();
}

absl::StatusOr<Beginning> Beginning::Parse(std::string_view bytes) {
  v1::Beginning message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::InternalError("what the chief says of the beginning cannot be read");
  Beginning beginning;
  beginning.resumed = message.resumed();
  beginning.point.step = std::max<int64_t>(0, message.step());
  beginning.point.trainer_steps.assign(message.trainer_steps().begin(), message.trainer_steps().end());
  beginning.point.statistics = message.statistics();
  if (message.has_loss_scale()) beginning.point.loss_scale = message.loss_scale();
  if (message.has_early_stop()) beginning.point.early_stop = message.early_stop();
  beginning.point.first_step_examples = message.first_step_examples();
  beginning.point.stream_scheme = message.stream_scheme();
  beginning.point.has_places = message.places();
  beginning.point.follow = message.follow();
  beginning.point.not_evaluated = message.not_evaluated();
  beginning.point.name = message.checkpoint();
  beginning.point.manifest = message.manifest();
  return beginning;
}

absl::StatusOr<Begun> Begin(const BeginOptions& o) {
  Client* const client = o.trainer.client;
  const std::optional<int64_t> takes_over = client->member().TakesOver();
  // The beginning is decided once while the servers live, by the chief of that moment; if that one dies before it has
  // posted, by the next chief.
  ASSIGN_OR_RETURN(PostedWord word, client->board().AwaitWord(kBeginning, 0));
  std::string residuals, places;
  if (word.by < 0) {
    ASSIGN_OR_RETURN(Beginning mine, Decide(o));
    word.by = o.trainer.id;
    word.text = mine.Serialize();
    if (mine.point.has_places && !o.trainer.sync)
      RETURN_IF_ERROR(PostDealtPlaces(o.trainer, o.job->config.train().lanes(), mine.point.places));
    RETURN_IF_ERROR(client->board().Post(kBeginning, word.text, 0));
    residuals = std::move(mine.point.residuals);
    places = std::move(mine.point.places);
  }
  Begun begun;
  ASSIGN_OR_RETURN(begun.beginning, Beginning::Parse(word.text));
  RETURN_IF_ERROR(client->board().Exchange(kBeginning, "", /*kept=*/true).status());
  begun.first_steps = StepsDone(begun.beginning, o.trainer);
  begun.step = begun.first_steps[static_cast<size_t>(o.trainer.id)];
  if (o.trainer.replica != nullptr) {
    if (begun.beginning.resumed) {
      // A process without the chief's directory is refused when it joins.
      if (o.checkpoints == nullptr) return absl::InternalError("the chief has resumed a job without checkpoint.dir");
      RETURN_IF_ERROR(o.checkpoints->LoadReplica(begun.beginning.point, word.by));
    }
    RETURN_IF_ERROR(o.trainer.replica->Gather());
    RETURN_IF_ERROR(o.trainer.replica->CheckEqual("before the first step"));
  }
  // A process that takes a place over restores none: residuals of the checkpoint do not fit pushes made since.
  if (begun.beginning.resumed && client->residuals().Keeps() && !takes_over.has_value())
    RETURN_IF_ERROR(RestoreResiduals(client, word.by, residuals, begun.step));
  const bool dealt = begun.beginning.point.has_places;
  if (!o.trainer.sync) {
    begun.places = PostedPlaces(o.trainer, dealt ? word.by : -1);
  } else if (dealt) {
    ASSIGN_OR_RETURN(begun.places, DealPlaces(o.trainer, word.by, o.job->config.train().lanes(), places));
  }
  begun.takes_over = takes_over.has_value();
  if (takes_over.has_value()) {
    // A dead trainer that had done nothing begins where all do.
    begun.step = std::max(begun.step, *takes_over);
    LOG(INFO) << "trainer " << o.trainer.id << " takes the place of a dead one and goes on at step " << begun.step;
  }
  return begun;
}

}  // namespace weir
