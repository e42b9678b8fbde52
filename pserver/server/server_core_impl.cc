#include "pserver/server/server_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/norms_with_tables.h"
#include "framework/graph/training_mode.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "pserver/consistency/make_consistency.h"
#include "pserver/protocol/handshake.h"
#include "pserver/protocol/norm_cuts.h"
#include "pserver/server/server_core_impl.h"

namespace weir {
namespace {

// Time between ticks while calls come: a small part of every deadline.
constexpr absl::Duration kTick = absl::Milliseconds(100);
// Longest time between ticks, for what is forgotten after some leases.
constexpr absl::Duration kLongestTick = absl::Seconds(1);

}  // namespace

ServerCoreImpl::ServerCoreImpl(ServerOptions options)
    : options_(std::move(options)),
      self_(absl::StrCat("server ", options_.server_id, " (", options_.process, ")")),
      joins_(&options_, self_),
      wire_("server", options_.server_id) {
  CHECK(options_.clock != nullptr && options_.pool != nullptr);
}

size_t ServerCoreImpl::ExchangeRoom(int trainer) const {
  const v1::Plan& plan = options_.main.plan();
  // Residuals of a node: of all dense elements, and of rows of each table, whose ids take a byte or two more than in
  // memory.
  size_t residuals = 0;
  if (plan.wire().push() != v1::WIRE_FLOAT32) {
    for (const v1::PlacedBlock& block : plan.blocks()) {
      residuals +=
          block.sparse_gradient() ? kResidualBytes / 8 * 9 : static_cast<size_t>(block.element_count()) * sizeof(float);
    }
  }
  for (const v1::PlacedTable& table : plan.tables())
    residuals += table.wire().push() != v1::WIRE_FLOAT32 ? kResidualBytes / 8 * 9 : 0;
  // Twice: the posted residuals, and those that replace them.
  return options_.exchange_bytes + 2 * pushes_->nodes(trainer).size() * residuals;
}

void ServerCoreImpl::InitMembers(absl::Time now) {
  const v1::Plan& plan = options_.main.plan();
  roster_ = std::make_unique<Roster>(
      Roster::Options{.job = options_.job_name,
                      .self = self_,
                      .trainers = plan.trainers(),
                      .on_death = mode_->facts().needs_all_trainers ? Roster::OnDeath::kFail : Roster::OnDeath::kGoOn,
                      .announces_chief = options_.server_id == 0,
                      .lease = OfSeconds(options_.deadlines.lease_s()),
                      .slow_warning = OfSeconds(options_.deadlines.slow_warning_s()),
                      .progress_deadline = OfSeconds(options_.deadlines.progress_deadline_s()),
                      .connect_deadline = OfSeconds(options_.deadlines.connect_deadline_s()),
                      .unread_bytes = options_.unread_bytes,
                      .reader_bytes = options_.reader_bytes},
      now);
  std::vector<size_t> exchange_room;
  exchange_room.reserve(static_cast<size_t>(plan.trainers()));
  for (int t = 0; t < plan.trainers(); ++t) exchange_room.push_back(ExchangeRoom(t));
  exchanges_ = std::make_unique<ExchangeHub>(roster_.get(), std::move(exchange_room));
}

void ServerCoreImpl::InitDesks() {
  pulls_ = std::make_unique<PullDesk>(PullDesk::Options{.self = self_,
                                                        .unread_bytes = options_.unread_bytes,
                                                        .reader_bytes = options_.reader_bytes,
                                                        .counts = mode_.get(),
                                                        .rules = mode_.get(),
                                                        .roster = roster_.get(),
                                                        .controls = &controls_,
                                                        .answers = answers_.get()});
  steps_ =
      std::make_unique<StepDesk>(StepDesk::Options{.self = self_,
                                                   .needs_all_trainers = mode_->facts().needs_all_trainers,
                                                   .norm_rounds = mode_->exchanges_norms() ? params_->norm_rounds() : 0,
                                                   .counts = mode_.get(),
                                                   .pushes = mode_.get(),
                                                   .norms = mode_.get(),
                                                   .book = &mode_->book(),
                                                   .roster = roster_.get(),
                                                   .pulls = pulls_.get()});
}

std::vector<size_t> ServerCoreImpl::PendingRooms() const {
  const v1::Plan& plan = options_.main.plan();
  std::vector<size_t> rooms;
  rooms.reserve(static_cast<size_t>(plan.trainers()));
  for (int t = 0; t < plan.trainers(); ++t) {
    rooms.push_back(PendingRoom(plan, *params_, pushes_->nodes(t).size(), options_.pending_row_bytes));
  }
  return rooms;
}

absl::Status ServerCoreImpl::Init() {
  ASSIGN_OR_RETURN(params_,
                   ServerParams::Create(options_.main, options_.startup, options_.server_id, options_.pool,
                                        options_.dense_sum, options_.clock, OfSeconds(options_.deadlines.lease_s())));
  params_->CountIn(&counters_);
  const v1::Plan& plan = options_.main.plan();
  if (const int64_t bytes = params_->read_values_bytes(); bytes > 0) {
    LOG(INFO) << self_ << ": delay compensation keeps what each trainer has read, up to " << bytes << " bytes";
    counters_.Get("delay_compensation.most_bytes", "bytes")->Add(bytes);
  }
  if (plan.trainers() < 1) return absl::InvalidArgumentError("the plan has no trainers");
  // With one server its own sums are all there is, unless trainers hold parts.
  const bool exchanges_norms =
      params_->norm_rounds() > 0 && (plan.servers() > 1 || !NormsWithTables(options_.main).empty());
  pushes_ =
      std::make_unique<PushReader>(params_.get(), &buffers_, plan.lanes(), plan.trainers(), options_.check_payloads);
  StepBook book(PendingRooms(), counters_.Get("push.repeated", "messages"), options_.on_repeat);
  ASSIGN_OR_RETURN(std::unique_ptr<Consistency> mode,
                   MakeConsistency(options_.sync, options_.main,
                                   {.self = self_,
                                    .norm_rounds = params_->norm_rounds(),
                                    .average_by_trainers = params_->average_by_trainers(),
                                    .exchanges_norms = exchanges_norms,
                                    .counters = &counters_},
                                   std::move(book)));
  if (mode->facts().counts_transactions) params_->SetTransactionsPerStep(plan.trainers());
  if (mode->facts().rows_come_first) RETURN_IF_ERROR(params_->PrepareRates(/*step=*/0));
  answers_ = std::make_unique<PullAnswers>(PullAnswers::Options{.server_id = options_.server_id,
                                                                .params = params_.get(),
                                                                .pool = options_.pool,
                                                                .buffers = &buffers_,
                                                                .checksums = options_.check_payloads,
                                                                .ahead = mode->facts().answers_ahead,
                                                                .reader_bytes = options_.reader_bytes,
                                                                .ahead_room = PendingRooms()});
  runner_ = std::make_unique<UpdateRunner>(params_.get(), &counters_, exchanges_norms);
  actions_ = std::make_unique<ControlActions>(
      ControlActions::Options{.self = self_,
                              .params = params_.get(),
                              .row_files = options_.row_files,
                              .checkpoints = {.dir = options_.checkpoint_dir,
                                              .job = options_.job_name,
                                              .lease = OfSeconds(options_.deadlines.lease_s()),
                                              .beat = OfSeconds(options_.deadlines.heartbeat_s())},
                              .start_from = options_.start_from,
                              .server_id = options_.server_id,
                              .servers = plan.servers()});
  RETURN_IF_ERROR(actions_->WriteProbe());
  MutexLock lock(&mu_);
  mode_ = std::move(mode);
  InitMembers(options_.clock->Now());
  InitDesks();
  return absl::OkStatus();
}

ServerCoreImpl::~ServerCoreImpl() {
  if (roster_ == nullptr) return;  // Init has failed
  Actions actions;
  {
    MutexLock lock(&mu_);
    roster_->Close();
    AbortCalls(&actions);
  }
  RunAll(&actions);
}

void ServerCoreImpl::Handle(Method method, const Slices& request, ReplyCallback answer) {
  wire_.Request(method, TotalSize(request));
  const HandledCallPtr handled = HandledCall::Begin(method, TotalSize(request));
  // Copied: an answer may be given when this is gone.
  const ReplyCallback reply = [wire = wire_, method, handled, begun = Profiler::NowNs(),
                               answer = std::move(answer)](absl::StatusOr<Slices> bytes) {
    if (bytes.ok()) wire.Answer(method, TotalSize(*bytes));
    wire.Took(method, Profiler::NowNs() - begun);
    HandledCall::End(handled, bytes.ok() ? TotalSize(*bytes) : 0);
    answer(std::move(bytes));
  };
  if (method != Method::kHeartbeat) asked_.store(true, std::memory_order_relaxed);
  Dispatch(method, request, reply, handled);
  CheckNextTick();
}

void ServerCoreImpl::Dispatch(Method method, const Slices& request, const ReplyCallback& reply,
                              const HandledCallPtr& handled) {
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
    case Method::kDeliver:
      break;  // of another service
  }
  reply(absl::UnimplementedError(absl::StrCat("method ", static_cast<int>(method))));
}

void ServerCoreImpl::Tick() {
  Actions actions;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    members_changed_ = false;
    if (roster_->failure().ok()) ExpireLeases(now, &actions);
    if (roster_->failure().ok()) {
      const absl::Status connected = roster_->WatchConnecting(now);
      if (!connected.ok()) Fail(connected, &actions);
    }
    if (roster_->failure().ok()) WatchProgress(now, &actions);
    info = mode_->version();
    // A trainer that was waited for may have died, or be done; answers may have been read.
    ready = pulls_->TakeReadyPulls(now);
    pulls_->AnswerExpired(now, &actions);
    exchanges_->Answer(now, &actions);
    steps_->AnswerNorms(now, &actions);
    exchanges_->Expire(now, 2 * OfSeconds(options_.deadlines.lease_s()) + 2 * OfSeconds(options_.deadlines.rpc_s()));
  }
  RunAll(&actions);
  ServeAll(std::move(ready), info);
  Advance();
}

absl::Time ServerCoreImpl::TickDue(absl::Time now) const {
  if (!roster_->failure().ok() || roster_->stop_requested() || roster_->Finished(now) || members_changed_) {
    return now + kTick;
  }
  const absl::Time longest = now + std::min(kLongestTick, OfSeconds(options_.deadlines.lease_s()) / 4);
  const absl::Time due =
      std::min({roster_->NextDue(now), exchanges_->NextDue(), pulls_->NextDue(), steps_->NextDue(), longest});
  return std::max(due, now + kTick);
}

absl::Time ServerCoreImpl::NextTick() {
  MutexLock lock(&mu_);
  const absl::Time now = options_.clock->Now();
  // While calls come, none of them has to look whether it makes the next tick earlier.
  const bool asked = asked_.exchange(false, std::memory_order_relaxed);
  next_tick_ = asked ? now + kTick : TickDue(now);
  rests_ = next_tick_ > now + kTick;
  return next_tick_;
}

void ServerCoreImpl::CheckNextTick() {
  if (!rests_ || options_.on_tick_due == nullptr) return;
  absl::Time due;
  {
    MutexLock lock(&mu_);
    due = TickDue(options_.clock->Now());
    if (!rests_ || due >= next_tick_) return;
    next_tick_ = due;
    rests_ = due > options_.clock->Now() + kTick;
  }
  options_.on_tick_due(due);
}

void ServerCoreImpl::RequestStop() {
  {
    MutexLock lock(&mu_);
    roster_->RequestStop();
  }
  CheckNextTick();
}

void ServerCoreImpl::ReportFailure(const absl::Status& status) {
  CHECK(!status.ok());
  Actions actions;
  {
    MutexLock lock(&mu_);
    Fail(status, &actions);
  }
  RunAll(&actions);
  CheckNextTick();
}

bool ServerCoreImpl::Finished() {
  MutexLock lock(&mu_);
  return roster_->Finished(options_.clock->Now());
}

absl::Status ServerCoreImpl::JobStatus() {
  MutexLock lock(&mu_);
  return roster_->failure();
}

int64_t ServerCoreImpl::Version() {
  MutexLock lock(&mu_);
  return mode_->version().version;
}

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Create(ServerOptions options) {
  auto core = std::make_unique<ServerCoreImpl>(std::move(options));
  RETURN_IF_ERROR(core->Init());
  return std::unique_ptr<ServerCore>(std::move(core));
}

}  // namespace weir
