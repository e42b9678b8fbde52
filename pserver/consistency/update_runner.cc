#include "pserver/consistency/update_runner.h"

#include <utility>

#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"

namespace weir {

namespace {

const ProfileName kEndOfStep("end of step, tables");

}  // namespace

absl::StatusOr<bool> UpdateRunner::MakeNorms(Update* update) {
  while (!update->norms.Complete()) {
    // In sync nothing comes between two rounds of a step.
    const bool keep = update->kind == Update::Kind::kStep;
    ASSIGN_OR_RETURN(NormSums sums, params_->SumsOfRound(update->step, *update->gradients, update->norms.round(),
                                                         update->norms.norms(), keep));
    if (exchanges_norms_) {
      update->norms.Offer(std::move(sums));
      return false;
    }
    RETURN_IF_ERROR(update->norms.OfferAlone(sums));
  }
  return true;
}

absl::Status UpdateRunner::EndTableStep(int64_t step, int64_t table_step) {
  const ProfileSpan span(step, ProfileKind::kUpdate, kEndOfStep);
  RETURN_IF_ERROR(params_->EndStep(table_step));
  params_->CountRows(counters_);
  return absl::OkStatus();
}

absl::Status UpdateRunner::RunStep(const Update& update) {
  params_->BeginChanges();
  RETURN_IF_ERROR(params_->Apply(update.step, *update.gradients, update.part, update.norms.norms()));
  // The rows of the next step may come before the rest of it.
  if (update.part == ServerParams::StepPart::kLater) RETURN_IF_ERROR(params_->PrepareRates(update.step + 1));
  return EndTableStep(update.step, update.step);
}

absl::Status UpdateRunner::RunTransaction(const Update& update) {
  const int64_t transaction = table_steps_.Begin();
  RETURN_IF_ERROR(params_->Apply(update.step, *update.gradients, update.part, update.norms.norms(), transaction));
  const TableSteps::Borders borders = table_steps_.End(transaction);
  for (int64_t border = borders.begin; border < borders.end; ++border) {
    RETURN_IF_ERROR(EndTableStep(update.step, border));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> UpdateRunner::Run(Update* update) {
  if (!update->effective) {
    // A version that differs in nothing from the one before.
    if (update->kind == Update::Kind::kStep) params_->BeginChanges();
    return true;
  }
  ASSIGN_OR_RETURN(const bool complete, MakeNorms(update));
  if (!complete) return false;
  absl::Status status;
  switch (update->kind) {
    case Update::Kind::kStep:
      status = RunStep(*update);
      break;
    case Update::Kind::kTransaction:
      status = RunTransaction(*update);
      break;
    case Update::Kind::kTables:
      status = params_->Apply(update->step, *update->gradients, update->part);
      break;
    case Update::Kind::kPart:
      status = params_->Apply(update->step, *update->gradients, update->part, {}, update->table_step);
      break;
  }
  if (!status.ok()) return status;
  return true;
}

}  // namespace weir
