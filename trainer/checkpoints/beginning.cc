#include "trainer/checkpoints/beginning.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/start.h"
#include "glog/logging.h"
#include "transpiler/job/job.h"
#include "transpiler/job/start_paths.h"

namespace weir {
namespace {

constexpr char kBeginning[] = "beginning";

// Has the replica of this trainer, or its share of one, take values from the checkpoints of its own job's start_from.
absl::Status StartReplica(const BeginOptions& o, const v1::StartPlan& plan) {
  ASSIGN_OR_RETURN(const std::vector<StartCheckpoint> sources,
                   FindStartCheckpoints(StartPaths(*o.job), plan, absl::StrCat("trainer ", o.trainer.id)));
  return o.trainer.replica->Start(sources, plan);
}

// Has the servers take values from the checkpoints of start_from, as the chief, and the replica if each trainer has all
// of it.
absl::Status DecideStart(const BeginOptions& o, v1::Beginning* beginning) {
  ASSIGN_OR_RETURN(Start planned, o.plan_start == nullptr ? PlanStart(*o.job) : o.plan_start(*o.job));
  const std::string account = StartText(planned);
  for (const absl::string_view line : absl::StrSplit(account, '\n', absl::SkipEmpty())) {
    LOG(INFO) << "start_from: " << line;
  }
  for (const Start::Statistics& source : planned.statistics) {
    ASSIGN_OR_RETURN(const v1::CheckpointManifest manifest, ReadManifest(source.checkpoint));
    ASSIGN_OR_RETURN(std::string statistics, ReadStatistics(source.checkpoint, manifest));
    v1::InheritedStatistics* const inherited = beginning->add_inherited();
    inherited->set_statistics(std::move(statistics));
    inherited->set_data(source.data.SerializeAsString());
  }
  v1::ControlRequest request;
  request.mutable_start()->set_plan(planned.plan.SerializeAsString());
  RETURN_IF_ERROR(o.trainer.client->member().Control(request, /*until_stop=*/true).status());
  // Those that hold shares read them when the job begins.
  if (o.trainer.replica != nullptr && !o.trainer.replica->sharded()) {
    RETURN_IF_ERROR(StartReplica(o, planned.plan));
  }
  *beginning->mutable_start() = std::move(planned.plan);
  *beginning->mutable_trainers()->mutable_lineage() = std::move(planned.lineage);
  return absl::OkStatus();
}

// Brings what `chief` has started from into the replicas of all trainers, which call it at the same time.
absl::Status SpreadStart(const BeginOptions& o, const v1::StartPlan& plan, int chief) {
  return o.trainer.replica->sharded() ? StartReplica(o, plan) : o.trainer.replica->Broadcast(chief);
}

// Has the servers load a checkpoint or row files, as the chief.
absl::StatusOr<ResumePoint> Decide(const BeginOptions& o) {
  ResumePoint point;
  Checkpointing* const kept = o.checkpoints->checkpointing();
  bool sets_aside = false;
  if (kept != nullptr && o.resume_run) {
    ASSIGN_OR_RETURN(const bool of_this_run, kept->HasOfThisRun());
    if (!of_this_run) LOG(INFO) << "--resume_run: no checkpoint of this run yet, starts at step 0";
    sets_aside = !of_this_run;
    if (of_this_run) {
      ASSIGN_OR_RETURN(point, kept->Resume());
    }
  } else if (kept != nullptr && o.resume) {
    ASSIGN_OR_RETURN(point, kept->Resume());
    if (!point.beginning.resumed()) {
      LOG(WARNING) << "--resume: no checkpoint in " << o.job->config.checkpoint().dir() << ", starts at step 0";
    }
  } else {
    sets_aside = kept != nullptr;
  }
  if (!point.beginning.resumed() && o.job->config.start_from_size() > 0) {
    RETURN_IF_ERROR(DecideStart(o, &point.beginning));
  }
  // A start that fails leaves the checkpoints of earlier runs where they are.
  if (sets_aside) RETURN_IF_ERROR(kept->StartAfresh());
  if (!point.beginning.resumed() && !RowFiles(*o.job).empty()) {
    v1::ControlRequest load;
    load.mutable_load_rows();
    RETURN_IF_ERROR(o.trainer.client->member().Control(load, /*until_stop=*/true).status());
  }
  return point;
}

// Restores this trainer's residuals. Trainer `from` reads them from `file`, its own; "": the checkpoint has none.
absl::Status RestoreResiduals(Client* client, int from, const std::string& file, int64_t step) {
  const auto read = [file](const TakeBytes& take) {
    return file.empty() ? absl::OkStatus() : ReadInPieces(file, take);
  };
  return client->residuals().Deal(from, read, step);
}

}  // namespace

absl::StatusOr<Begun> Begin(const BeginOptions& o) {
  Client* const client = o.trainer.client;
  const int lanes = o.job->config.train().lanes();
  const std::optional<int64_t> takes_over = client->member().TakesOver();
  // The beginning is decided once while the servers live, by the chief of that moment; if that one dies before it has
  // posted, by the next chief.
  ASSIGN_OR_RETURN(PostedWord word, client->board().AwaitWord(kBeginning, 0));
  ResumePoint mine;
  if (word.by < 0) {
    ASSIGN_OR_RETURN(mine, Decide(o));
    word.by = o.trainer.id;
    word.text = mine.beginning.SerializeAsString();
    if (mine.beginning.places()) RETURN_IF_ERROR(o.checkpoints->OfferPlaces(lanes, mine.places));
    RETURN_IF_ERROR(client->board().Post(kBeginning, word.text, 0));
  }
  Begun begun;
  v1::Beginning& beginning = begun.beginning;
  if (!beginning.ParseFromString(word.text) || beginning.step() < 0)
    return absl::InternalError("what the chief says of the beginning cannot be read");
  RETURN_IF_ERROR(client->board().Exchange(kBeginning, "", /*kept=*/true).status());
  o.checkpoints->BeginAt(beginning.step());
  begun.first_steps = o.checkpoints->StepsDone(beginning);
  begun.step = begun.first_steps[static_cast<size_t>(o.trainer.id)];
  if (o.trainer.replica != nullptr) {
    if (beginning.resumed()) {
      // A process without the chief's directory is refused when it joins.
      if (!o.checkpoints->keeps()) return absl::InternalError("the chief has resumed a job without checkpoint.dir");
      RETURN_IF_ERROR(o.checkpoints->checkpointing()->LoadReplica(beginning, word.by));
    } else if (beginning.has_start()) {
      RETURN_IF_ERROR(SpreadStart(o, beginning.start(), word.by));
    }
    RETURN_IF_ERROR(o.trainer.replica->Gather());
    RETURN_IF_ERROR(o.trainer.replica->CheckEqual("before the first step"));
  }
  // A process that takes a place over restores none: residuals of the checkpoint do not fit pushes made since.
  if (beginning.resumed() && client->residuals().Keeps() && !takes_over.has_value())
    RETURN_IF_ERROR(RestoreResiduals(client, word.by, mine.residuals, begun.step));
  ASSIGN_OR_RETURN(begun.places, o.checkpoints->FindPlaces(beginning, word.by, lanes, mine.places));
  begun.takes_over = takes_over.has_value();
  if (takes_over.has_value()) {
    // A dead trainer that had done nothing begins where all do.
    begun.step = std::max(begun.step, *takes_over);
    LOG(INFO) << "trainer " << o.trainer.id << " takes the place of a dead one and goes on at step " << begun.step;
  }
  return begun;
}

}  // namespace weir
