#include "pserver/server/server_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/training_mode.h"
#include "glog/logging.h"
#include "pserver/server/server_core_impl.h"

namespace weir {

absl::Status ServerCoreImpl::Init() {
  CHECK(options_.clock != nullptr && options_.pool != nullptr);
  ASSIGN_OR_RETURN(params_, ServerParams::Create(options_.main, options_.startup, options_.server_id, options_.pool,
                                                 options_.dense_sum, options_.clock));
  params_->CountIn(&counters_);
  const v1::Plan& plan = options_.main.plan();
  if (const int64_t bytes = params_->read_values_bytes(); bytes > 0) {
    LOG(INFO) << Self() << ": delay compensation keeps what each trainer has read, up to " << bytes << " bytes";
    counters_.Get("delay_compensation.most_bytes", "bytes")->Add(bytes);
  }
  checkpoints_ = std::make_unique<ServerCheckpoints>(OwnerOptions{.dir = options_.checkpoint_dir,
                                                                  .job = options_.job_name,
                                                                  .lease = lease_,
                                                                  .beat = OfSeconds(options_.deadlines.heartbeat_s())},
                                                     options_.server_id, plan.servers(), params_.get());
  sync_ = options_.sync;
  if (plan.has_sync() && plan.sync() != sync_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program is ", plan.sync() ? "sync" : "async", ", the job is ", sync_ ? "sync" : "async"));
  }
  if (!sync_ && params_->average_by_trainers()) {
    return absl::InvalidArgumentError(
        "average BY_TRAINERS needs sync: in async no step has gradients of several trainers");
  }
  eager_ = !sync_ && plan.async_eager();
  if (eager_ && params_->norm_rounds() > 0) {
    return absl::InvalidArgumentError(
        "async_apply EAGER applies parts on arrival; norms of whole parameters need all of a step");
  }
  exchanges_norms_ = params_->norm_rounds() > 0 && plan.servers() > 1;
  const TrainingMode mode = ModeOf(options_.main);
  async_tables_ = sync_ && mode.async_tables;
  if (async_tables_) RETURN_IF_ERROR(params_->PrepareRates(/*step=*/0));
  trainer_count_ = plan.trainers();
  if (trainer_count_ < 1) return absl::InvalidArgumentError("the plan has no trainers");
  for (int t = 0; t < trainer_count_; ++t)
    nodes_.push_back(AlignedNodes(LanesOfTrainer(plan.lanes(), trainer_count_, t)));
  for (int t = 0; t < trainer_count_; ++t) pending_room_.push_back(PendingRoom(t));
  if (!options_.checkpoint_dir.empty()) {
    ASSIGN_OR_RETURN(probe_, WriteProbe(options_.checkpoint_dir));
  }
  MutexLock lock(&mu_);
  trainers_.resize(static_cast<size_t>(trainer_count_));
  if (!sync_ && mode.staleness >= 0) gate_ = std::make_unique<StalenessGate>(trainer_count_, mode.staleness);
  std::vector<size_t> exchange_room;
  for (int t = 0; t < trainer_count_; ++t) exchange_room.push_back(ExchangeRoom(t));
  board_ = ExchangeBoard(std::move(exchange_room));
  streams_ = ExchangeStreams(trainer_count_);
  connecting_since_ = connect_warning_ = version_since_ = options_.clock->Now();
  return absl::OkStatus();
}

ServerCoreImpl::~ServerCoreImpl() {
  if (!probe_.name.empty()) RemoveProbe(options_.checkpoint_dir, probe_.name);
  Actions actions;
  {
    MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = absl::UnavailableError(absl::StrCat(Self(), " is going away"));
    Fail(failure_, &actions);
  }
  RunAll(&actions);
}

void ServerCoreImpl::Handle(Method method, const Slices& request, ReplyCallback answer) {
  wire_.Request(method, TotalSize(request));
  const HandledCallPtr handled = HandledCall::Begin(method, TotalSize(request));
  // Copied: an answer may be given when this is gone.
  const ReplyCallback reply = [wire = wire_, method, handled,
                               answer = std::move(answer)](absl::StatusOr<Slices> bytes) {
    if (bytes.ok()) wire.Answer(method, TotalSize(*bytes));
    HandledCall::End(handled, bytes.ok() ? TotalSize(*bytes) : 0);
    answer(std::move(bytes));
  };
  switch (method) {
    case Method::kJoin:
      return HandleJoin(request, reply);
    case Method::kHeartbeat:
      return HandleHeartbeat(request, reply);
    case Method::kPush:
      return HandlePush(request, reply, handled);
    case Method::kPull:
      return HandlePull(request, reply, handled);
    case Method::kExchange:
      return HandleExchange(request, reply);
    case Method::kControl:
      return HandleControl(request, reply);
    case Method::kNorms:
      return HandleNorms(request, reply, handled);
  }
  reply(absl::UnimplementedError(absl::StrCat("method ", static_cast<int>(method))));
}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Create(ServerOptions options) {
  auto core = std::make_unique<ServerCoreImpl>(std::move(options));
  RETURN_IF_ERROR(core->Init());
  return std::unique_ptr<ServerCore>(std::move(core));
}

}  // namespace weir
