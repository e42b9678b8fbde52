#include "trainer/session/workers.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/device/device_executor.h"
#include "framework/graph/training_mode.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

const ProfileName kWorkers("workers");

void LogDeviceCopies(const v1::ProgramDesc& main, const std::vector<std::string>& cpu_ops) {
  std::vector<std::string> copies;
  for (const DeviceCopy& copy : DeviceCopies(main, 0, cpu_ops)) {
    copies.push_back(
        absl::StrCat(copy.variable, copy.to_host ? " to the host for " : " to the device for ", copy.for_op));
  }
  if (copies.empty()) return;
  LOG(INFO) << "with train.cpu_ops a step copies " << absl::StrJoin(copies, ", ");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Workers>> Workers::Create(const Options& o) {
  std::unique_ptr<Workers> workers(new Workers());
  const v1::JobConfig& config = o.job->config;
  ASSIGN_OR_RETURN(workers->channels_, ChannelStack::Create({.client = o.trainer.client,
                                                             .pool = o.pool,
                                                             .config = &config,
                                                             .programs = o.programs,
                                                             .trainer_id = o.trainer.id,
                                                             .replica = o.trainer.replica,
                                                             .first_step = o.first_step}));
  const std::vector<std::string> cpu_ops(config.train().cpu_ops().begin(), config.train().cpu_ops().end());
  if (o.device != nullptr && !cpu_ops.empty()) LogDeviceCopies(o.programs->main, cpu_ops);
  std::vector<std::string> layers;
  for (const v1::Layer& layer : config.model().layer()) layers.push_back(layer.name());
  const int count = ModeOf(o.programs->main).workers();
  for (int worker = 0; worker < count; ++worker) {
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                     Session::Create({.main = o.programs->main,
                                      .startup = o.programs->startup,
                                      .trainer_id = o.trainer.id,
                                      .device = o.device,
                                      .cpu_ops = cpu_ops,
                                      .precision = PrecisionOf(config.train()),
                                      .columns = o.columns,
                                      .judged = o.judged,
                                      .items = o.items,
                                      .layers = layers,
                                      .slow_warning = absl::Seconds(config.deadlines().slow_warning_s()),
                                      .progress_deadline = absl::Seconds(config.deadlines().progress_deadline_s()),
                                      .channel = workers->channels_->ForSteps(worker),
                                      .pool = o.pool,
                                      .ahead = workers->channels_->ForRowsAhead(),
                                      .worker = worker}));
    RETURN_IF_ERROR(session->Start(o.first_step));
    workers->sessions_.push_back(std::move(session));
  }
  return workers;
}

void Workers::SetLossScale(float scale) {
  for (const auto& session : sessions_) session->SetLossScale(scale);
}

absl::StatusOr<std::vector<StepResult>> Workers::Train(int64_t step, int batch,
                                                       std::vector<std::vector<LaneBatch>>* batches) {
  std::vector<StepResult> results(sessions_.size());
  std::optional<ProfileSpan> span;
  if (sessions_.size() > 1) span.emplace(step, ProfileKind::kThreads, kWorkers);
  const absl::Status status = channels_->RunWorkers([&](int worker) -> absl::Status {
    const size_t w = static_cast<size_t>(worker);
    const ProfiledStep profiled(step);
    ASSIGN_OR_RETURN(results[w], sessions_[w]->Train(step, batch, &(*batches)[w]));
    return absl::OkStatus();
  });
  if (status.ok()) return results;
  // Exchanges under way read gradients in the memory of the sessions, which the caller may destroy next.
  channels_->EndExchanges(status);
  return status;
}

}  // namespace weir
