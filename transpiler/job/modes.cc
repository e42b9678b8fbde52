#include "transpiler/job/modes.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "framework/graph/training_mode.h"
#include "transpiler/job/corner.h"

namespace weir {
namespace {

template <typename Mode>
void FillUpdates(const OwnUpdates& updates, Mode* mode) {
  mode->mutable_blocks()->Add(updates.blocks.begin(), updates.blocks.end());
  if (updates.lr_block >= 0) mode->set_lr_block(updates.lr_block);
}

void FillGeo(const v1::Distribute& distribute, const OwnUpdates& updates, v1::TrainingMode* mode) {
  mode->mutable_geo()->set_every_steps(distribute.geo().every_steps());
  FillUpdates(updates, mode->mutable_geo());
}

void FillStaleness(const v1::Distribute& distribute, const OwnUpdates& /*updates*/, v1::TrainingMode* mode) {
  mode->set_staleness(distribute.bounded_staleness().steps());
}

void FillAsyncTables(const v1::Distribute& /*distribute*/, const OwnUpdates& /*updates*/, v1::TrainingMode* mode) {
  mode->set_async_tables(true);
}

void FillAllReduce(const v1::Distribute& distribute, const OwnUpdates& updates, v1::TrainingMode* training) {
  v1::AllReduceMode* const mode = training->mutable_all_reduce();
  FillUpdates(updates, mode);
  if (ShardsUpdates(distribute)) mode->set_sharded(true);
  if (!distribute.reproducible()) mode->set_any_order(true);
  if (UsesAdasum(distribute)) mode->set_adasum(true);
  if (distribute.has_local_sgd()) mode->set_local_steps(distribute.local_sgd().every_steps());
  if (!Compresses(distribute)) return;
  const bool half = distribute.all_reduce().compression() == v1::AllReduce::FLOAT16;
  mode->set_compression(half ? v1::FLOAT16 : v1::BFLOAT16);
}

std::string InsideNote(const v1::JobConfig& /*config*/) {
  return "distribute.servers is 0: server i runs inside trainer i, and the numbers count only what passes between "
         "different trainers";
}

std::string HalfAsyncNote(const v1::JobConfig& config) {
  return absl::StrCat("distribute.half_async: each of ", config.train().workers(),
                      " threads of a trainer has a batch of its own and fetches its rows; the numbers are those of one "
                      "thread");
}

std::string AheadNote(const v1::JobConfig& config) {
  return absl::StrCat(
      "distribute.prefetch_rows: rows of the next batch are fetched while this one computes and pushes; ",
      config.distribute().sync() ? "those that are fetched twice, since this one changes them, are not in the numbers; "
                                 : "they may miss the trainer's own push; ",
      "a trainer has room for two batches' rows");
}

std::string GeoNote(const v1::JobConfig& config) {
  return absl::StrCat("distribute.geo: differences pass every ", config.distribute().geo().every_steps(),
                      " steps; the numbers are those of a step of plain async");
}

std::string LocalSgdNote(const v1::JobConfig& /*config*/) {
  return "distribute.local_sgd: the bytes of an average are divided by every_steps; averages that checkpoints, "
         "evaluations and digests force are not counted";
}

std::string AsyncTablesNote(const v1::JobConfig& /*config*/) {
  return "distribute.async_tables: rows are pushed and updated without waiting; their bytes are those of sync";
}

const auto kModes = std::to_array<JobMode>({
    {.setting = "servers", .chosen = [](const v1::Distribute& d) { return d.servers() == 0; }, .note = InsideNote},
    {.setting = "async_apply",
     .chosen = [](const v1::Distribute& d) { return !d.sync() && d.async_apply() == v1::Distribute::EAGER; },
     .against_norms = "EAGER applies parts on arrival"},
    {.setting = "half_async",
     .chosen = [](const v1::Distribute& d) { return d.has_half_async(); },
     .note = HalfAsyncNote,
     .against_prediction = "threads of a trainer send by themselves"},
    {.setting = "prefetch_rows",
     .chosen = [](const v1::Distribute& d) { return d.prefetch_rows(); },
     .note = AheadNote},
    {.setting = "geo",
     .chosen = [](const v1::Distribute& d) { return d.has_geo(); },
     .note = GeoNote,
     .against_norms = "trainers update their own copies",
     .against_prediction = "exchanges pass beside the steps",
     .in_trainer = FillGeo},
    {.setting = "bounded_staleness",
     .chosen = [](const v1::Distribute& d) { return d.has_bounded_staleness(); },
     .in_trainer = FillStaleness,
     .in_startup = FillStaleness,
     .in_server = FillStaleness},
    {.setting = "dense", .chosen = AllReduces, .in_trainer = FillAllReduce},
    {.setting = "local_sgd",
     .chosen = [](const v1::Distribute& d) { return d.has_local_sgd(); },
     .note = LocalSgdNote,
     .against_prediction = "averages come every few steps"},
    {.setting = "async_tables",
     .chosen = [](const v1::Distribute& d) { return d.async_tables(); },
     .note = AsyncTablesNote,
     .against_norms = "tables do not wait for the step",
     .against_prediction = "rows are pushed and updated without waiting",
     .in_server = FillAsyncTables},
});

constexpr StepFacts kSync = {.name = "sync",
                             .norms_from = "trainer 0",
                             .servers_serve_all = true,
                             .pulls_name_version = true,
                             .messages_name_first = true,
                             .every_server_is_awaited = true};
constexpr StepFacts kAsync = {.name = "async",
                              .norms_from = "each trainer",
                              .servers_serve_all = false,
                              .pulls_name_version = false,
                              .messages_name_first = false,
                              .every_server_is_awaited = false};

}  // namespace

std::vector<const JobMode*> ModesOf(const v1::Distribute& distribute) {
  std::vector<const JobMode*> modes;
  for (const JobMode& mode : kModes) {
    if (mode.chosen(distribute)) modes.push_back(&mode);
  }
  return modes;
}

void WriteModes(const v1::Distribute& distribute, JobMode::Write JobMode::*where, const OwnUpdates& updates,
                v1::ProgramDesc* program) {
  for (const JobMode* mode : ModesOf(distribute)) {
    if (mode->*where != nullptr) (mode->*where)(distribute, updates, MutableMode(program));
  }
}

const StepFacts& StepFactsOf(bool sync) { return sync ? kSync : kAsync; }

int TrainerAround(const v1::Plan& plan, int server) { return plan.servers_in_trainers() ? server : -1; }

const char* WhyTrainersAreFixed(const v1::JobConfig& config) {
  if (config.checkpoint().per_host()) return "checkpoint.per_host leaves shards on every host";
  return config.train().lanes() == 0 ? "with train.lanes: 0 a resume needs the same number of trainers" : nullptr;
}

}  // namespace weir
