#include "pserver/server/server_core_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "glog/logging.h"
#include "pserver/server/push_parser.h"

namespace weir {

namespace {

// Parts of one step of one trainer: more is a mistake of the caller, not a large model.
constexpr int kMaxParts = 1 << 20;
// Of one trainer in one step; sums of them stay far from the end of int64.
constexpr int64_t kMaxSamples = int64_t{1} << 40;

// Beside the values, of a block in a node: its name and its place.
constexpr size_t kItemBytes = size_t{1} << 10;
// Of rows, for each example of a step: some hundred ids in tables of width 64.
constexpr size_t kRowBytesPerExample = size_t{64} << 10;

// That gradients take until their step takes effect. `message`: of the push that brought them, all of which they keep.
size_t PendingBytes(size_t message, const std::vector<Gradient>& gradients) {
  if (gradients.empty()) return 0;
  size_t bytes = message + gradients.size() * sizeof(Gradient);
  for (const Gradient& gradient : gradients) bytes += gradient.decoded_bytes + gradient.order.size() * sizeof(uint32_t);
  return bytes;
}

const ProfileName kPush("Push"), kReadPush("read pushes"), kUpdateWait("its update"), kEndOfStep("end of step, tables");

}  // namespace

size_t ServerCoreImpl::PendingRoom(int trainer) const {
  const v1::Plan& plan = options_.main.plan();
  const size_t nodes = nodes_[static_cast<size_t>(trainer)].size();
  const v1::WireFormat format = plan.wire().push();
  size_t room = kMaxMessageBytes;
  bool rows = params_->tables() > 0;
  for (int b = 0; b < params_->blocks(); ++b) {
    const ServerParams::BlockInfo& block = params_->block(b);
    rows |= block.sparse_width > 0;
    const size_t count = block.sparse_width > 0 ? 0 : static_cast<size_t>(block.count);
    const size_t decoded = format == v1::WIRE_FLOAT32 ? 0 : count * sizeof(float);
    room += nodes * (EncodedBytes(format, count, kDenseGroup) + decoded + kItemBytes);
  }
  const size_t examples = static_cast<size_t>(std::max<int64_t>(0, plan.batch_size()));
  if (rows) room += options_.pending_row_bytes + examples * kRowBytesPerExample;
  return room;
}

absl::StatusOr<v1::PushReply> ServerCoreImpl::BookPart(const v1::PushRequest& request, std::vector<Gradient> gradients,
                                                       size_t message, std::vector<Gradient>* eager, bool* eager_first,
                                                       bool* wait, Actions* actions) {
  const absl::Time now = options_.clock->Now();
  ExpireLeases(now, actions);
  RETURN_IF_ERROR(CheckCaller(request.caller(), now));
  const int id = request.caller().trainer();
  if (!failure_.ok()) return Aborted(id);
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  PendingStep& pending = trainer.pending;
  v1::PushReply reply;
  reply.set_version(version_.version);
  const auto duplicate = [&] {
    parts_repeated_->Add();
    reply.set_duplicate(true);
    return reply;
  };
  const std::string part_name = absl::StrCat(Name(id), ", step ", request.step(), ", part ", request.part());
  if (request.step() < 0 || request.step() > kMaxStep || request.part() < 0 || request.part() >= kMaxParts) {
    return absl::InvalidArgumentError(
        absl::StrCat(part_name, ": steps run from 0 to ", kMaxStep, ", parts run from 0 to ", kMaxParts - 1));
  }

  if (request.step() < (sync_ ? version_.version : trainer.applied_step + 1)) return duplicate();
  if (trainer.state == Trainer::kDone)
    return absl::FailedPreconditionError(absl::StrCat(part_name, ": it has said that it is done"));
  if (sync_) {
    if (request.step() > version_.version) {
      return absl::FailedPreconditionError(absl::StrCat(part_name, ": ", Self(), " is at step ", version_.version));
    }
    for (int t = 0; t < trainer_count_; ++t) {
      if (trainers_[static_cast<size_t>(t)].state != Trainer::kDone) continue;
      const absl::Status status = absl::FailedPreconditionError(
          absl::StrCat(Name(t), " has ended before step ", request.step(), ", which ", Name(id), " pushes"));
      Fail(status, actions);
      return status;
    }
  } else if (pending.step >= 0 && request.step() != pending.step) {
    return absl::FailedPreconditionError(absl::StrCat(part_name, ": step ", pending.step, " is not finished"));
  }

  const size_t part = static_cast<size_t>(request.part());
  if (pending.part_count >= 0 && request.part() >= pending.part_count) {
    return absl::InvalidArgumentError(absl::StrCat(part_name, ": the step has ", pending.part_count, " parts"));
  }
  if (part < pending.parts.size() && pending.parts[part]) {
    // The answer to a repeat of a step in the middle of taking effect means what the first answer will.
    *wait = AppliesBeforeAnswer(pending);
    if (options_.planted.count_repeats) AddAgain(gradients, &pending);
    return duplicate();
  }
  const bool applies_now = eager_ && request.samples() > 0 && !request.has_part_count() && control_ == nullptr &&
                           controls_.empty() && !gradients.empty();
  const size_t bytes = applies_now ? 0 : PendingBytes(message, gradients);
  const size_t room = pending_room_[static_cast<size_t>(id)];
  if (pending.bytes + bytes > room) {
    return absl::ResourceExhaustedError(
        absl::StrCat(part_name, ": its pushes of the step would take ", pending.bytes + bytes,
                     " bytes until it takes effect; at most ", room,
                     " may, by the plan and --pending_rows_mb of the server (docs/wire.md, \"Limits\"): make the batch "
                     "smaller, or raise that"));
  }
  for (Gradient& gradient : gradients) gradient.arrival = arrivals_++;
  if (request.has_part_count()) {
    if (request.part_count() != request.part() + 1 ||
        static_cast<size_t>(request.part_count()) < pending.parts.size()) {
      return absl::InvalidArgumentError(absl::StrCat(part_name, ": says it is the last of ", request.part_count(),
                                                     " parts, after ", pending.parts.size(), " were numbered"));
    }
    if (request.samples() < 0 || request.samples() > kMaxSamples) {
      return absl::InvalidArgumentError(
          absl::StrCat(part_name, ": ", request.samples(), " samples; at most ", kMaxSamples));
    }
    if (request.first_samples() < 0 || request.first_samples() > kMaxSamples) {
      return absl::InvalidArgumentError(
          absl::StrCat(part_name, ": ", request.first_samples(), " samples in step 0; at most ", kMaxSamples));
    }
    if (eager_ && request.verdict() == v1::SKIP) {
      return absl::InvalidArgumentError(
          absl::StrCat(part_name, ": verdict SKIP, but parts have taken effect (async_apply EAGER)"));
    }
    pending.part_count = request.part_count();
    pending.samples = request.samples();
    pending.first_samples = request.first_samples();
    pending.verdict = request.verdict();
  }
  if (request.stop_requested()) stop_requested_ = true;
  pending.step = request.step();
  pushed_ = true;
  if (pending.parts.size() <= part) pending.parts.resize(part + 1, false);
  pending.parts[part] = true;
  ++pending.received;
  pending.bytes += bytes;
  trainer.step = std::max(trainer.step, request.step());
  trainer.progress = now;
  trainer.slow = false;
  if (applies_now) {
    *eager = std::move(gradients);
    *eager_first = !pending.begun;
    pending.begun = true;
    ++applies_;
  } else {
    std::move(gradients.begin(), gradients.end(), std::back_inserter(pending.gradients));
  }
  *wait = AppliesBeforeAnswer(pending);
  return reply;
}

void ServerCoreImpl::AddAgain(const std::vector<Gradient>& gradients, PendingStep* pending) {
  for (Gradient& booked : pending->gradients) {
    for (const Gradient& again : gradients) {
      if (booked.of_table != again.of_table || booked.target != again.target || !(booked.node == again.node) ||
          booked.begin != again.begin || booked.count != again.count) {
        continue;
      }
      const size_t n = static_cast<size_t>(booked.count) * static_cast<size_t>(std::max(1, booked.width));
      // What keeps the ids alive stays with the new values.
      auto doubled = std::make_shared<std::pair<std::vector<float>, std::shared_ptr<const void>>>();
      doubled->second = booked.keep;
      for (size_t i = 0; i < n; ++i) doubled->first.push_back(booked.values[i] + again.values[i]);
      booked.values = doubled->first.data();
      booked.keep = doubled;
    }
  }
}

void ServerCoreImpl::HandlePush(const Slices& bytes, const ReplyCallback& reply, const HandledCallPtr& handled) {
  absl::StatusOr<RawFrame> frame = OpenFrame(bytes);
  if (!frame.ok()) return reply(frame.status());
  const absl::Status known = Admit(frame->header, "PushRequest");
  if (!known.ok()) return reply(known);
  v1::PushRequest request;
  if (!request.ParseFromString(Flatten(frame->header)))
    return reply(absl::InvalidArgumentError("Push: the header is no PushRequest"));
  const int id = request.caller().trainer();
  if (id < 0 || id >= trainer_count_) {
    return reply(absl::InvalidArgumentError(
        absl::StrCat("trainer id ", id, "; the job has trainers 0 to ", trainer_count_ - 1)));
  }
  HandledCall::Describe(handled, id, request.step(), kPush);
  std::vector<Gradient> gradients;
  {
    ProfileSpan span(request.step(), ProfileKind::kServe, kReadPush);
    if (ProfileEvent* const event = span.event()) event->peer = id;
    uint64_t checksum = 0;
    const Slice payload = options_.check_payloads ? Contiguous(frame->payload, &buffers_, &checksum)
                                                  : Contiguous(frame->payload, &buffers_);
    if (options_.check_payloads && request.checksum() != checksum) {
      return reply(absl::DataLossError(absl::StrCat("Push: trainer ", id, ", step ", request.step(), ", part ",
                                                    request.part(), ": the payload's checksum does not match")));
    }
    const absl::Status parsed = ParseGradients(request, payload, nodes_[static_cast<size_t>(id)], *params_, &gradients);
    if (!parsed.ok()) return reply(parsed);
  }

  Actions actions;
  std::vector<Gradient> eager;
  bool eager_first = false, wait = false;
  int64_t table_step = 0;
  absl::StatusOr<v1::PushReply> answer;
  {
    MutexLock lock(&mu_);
    table_step = table_steps_;
    answer = BookPart(request, std::move(gradients), TotalSize(bytes), &eager, &eager_first, &wait, &actions);
    if (answer.ok() && wait) {
      HandledCall::BeginWait(handled, kUpdateWait, "the update");
      WaitAsNewest(reply, kMaxWaitingCalls, &trainers_[static_cast<size_t>(id)].applied_waiters, &actions);
    }
  }
  RunAll(&actions);
  if (answer.ok() && !eager.empty()) {
    TrainerGradients own{.trainer = id, .samples = request.samples(), .gradients = std::move(eager)};
    const absl::Status applied =
        params_->Apply(request.step(), absl::MakeConstSpan(&own, 1),
                       eager_first ? ServerParams::StepPart::kFirst : ServerParams::StepPart::kLater, {}, table_step);
    MutexLock lock(&mu_);
    --applies_;
    if (!applied.ok()) {
      answer = applied;
      FailApply(id, request.step(), applied, &actions);
    }
  }
  RunAll(&actions);
  if (!answer.ok()) {
    reply(answer.status());
  } else if (!wait) {
    reply(EncodeFrame(answer->SerializeAsString(), {}));
  }
  Advance();
}

bool ServerCoreImpl::AllComplete() const {
  // The analysis of locks does not know that the lambda runs under the one held here.
  const int64_t version = version_.version;
  return std::all_of(trainers_.begin(), trainers_.end(),
                     [version](const Trainer& t) { return t.pending.step == version && t.pending.Complete(); });
}

void ServerCoreImpl::Advance() {
  while (true) {
    std::shared_ptr<ControlCall> control;
    int async_trainer = -1;
    int tables_trainer = -1;
    {
      MutexLock lock(&mu_);
      if (!failure_.ok() || control_ != nullptr) return;
      if (!controls_.empty()) {
        if (applies_ > 0) return;  // whoever ends the last of them comes here again
        control = control_ = controls_.front();
        controls_.pop_front();
      } else if (sync_) {
        for (int t = 0; async_tables_ && t < trainer_count_ && tables_trainer < 0; ++t) {
          PendingStep& pending = trainers_[static_cast<size_t>(t)].pending;
          if (!pending.Complete() || pending.tables_taken) continue;
          pending.tables_taken = true;
          tables_trainer = t;
        }
        if (tables_trainer < 0 && (applies_ > 0 || !AllComplete() || NormStep(0).norms.Waiting())) return;
        ++applies_;
      } else {
        for (int t = 0; t < trainer_count_ && async_trainer < 0; ++t) {
          const Trainer& trainer = trainers_[static_cast<size_t>(t)];
          const bool ready = trainer.pending.Complete() && !trainer.pending.norms.Waiting();
          if (ready && !trainer.applying && trainer.state != Trainer::kDead) async_trainer = t;
        }
        if (async_trainer < 0) return;
        trainers_[static_cast<size_t>(async_trainer)].applying = true;
        ++applies_;
      }
    }
    if (control != nullptr) {
      RunControl(std::move(control));
    } else if (tables_trainer >= 0) {
      ApplyTables(tables_trainer);
    } else if (sync_) {
      ApplySync();
    } else {
      ApplyAsync(async_trainer);
    }
  }
}

void ServerCoreImpl::HoldForNorms(int id, NormRounds norms, Actions* actions) {
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  trainer.applying = false;
  trainer.progress = options_.clock->Now();
  if (trainer.state == Trainer::kDead) {
    // It brings nothing more.
    trainer.pending = PendingStep();
  } else {
    trainer.pending.norms = std::move(norms);
  }
  AnswerNorms(trainer.progress, actions);
}

absl::StatusOr<bool> ServerCoreImpl::MakeNorms(int64_t step, const std::vector<TrainerGradients>& gathered,
                                               NormRounds* norms) {
  while (!norms->Complete()) {
    // In sync nothing comes between two rounds of a step.
    ASSIGN_OR_RETURN(NormSums sums,
                     params_->SumsOfRound(step, gathered, norms->round(), norms->norms(), /*keep=*/sync_));
    if (exchanges_norms_) {
      norms->Offer(std::move(sums));
      return false;
    }
    RETURN_IF_ERROR(norms->OfferAlone(sums));
  }
  return true;
}

absl::Status ServerCoreImpl::EndTableStep(int64_t step, int64_t table_step) {
  const ProfileSpan span(step, ProfileKind::kUpdate, kEndOfStep);
  RETURN_IF_ERROR(params_->EndStep(table_step));
  params_->CountRows(&counters_);
  return absl::OkStatus();
}

int64_t ServerCoreImpl::BeginTableStep() {
  MutexLock lock(&mu_);
  under_way_.insert(table_steps_);
  return table_steps_++;
}

absl::Status ServerCoreImpl::EndTableSteps(int64_t step, int64_t table_step) {
  int64_t border = 0, end = 0;
  {
    MutexLock lock(&mu_);
    under_way_.erase(table_step);
    border = borders_;
    end = borders_ = under_way_.empty() ? table_steps_ : *under_way_.begin();
  }
  for (; border < end; ++border) RETURN_IF_ERROR(EndTableStep(step, border));
  return absl::OkStatus();
}

void ServerCoreImpl::ApplySync() {
  std::shared_ptr<std::vector<TrainerGradients>> steps;
  NormRounds norms;
  VersionInfo next;
  // With async_tables the step's rates are there before its rows are.
  const ServerParams::StepPart part = async_tables_ ? ServerParams::StepPart::kLater : ServerParams::StepPart::kWhole;
  {
    MutexLock lock(&mu_);
    PendingStep& first = trainers_[0].pending;
    if (first.gathered == nullptr) {
      first.norms = NormRounds(params_->norm_rounds());
      first.gathered = std::make_shared<std::vector<TrainerGradients>>();
      for (int t = 0; t < trainer_count_; ++t) {
        PendingStep& pending = trainers_[static_cast<size_t>(t)].pending;
        // Booking stays: parts that come again are still known.
        first.gathered->push_back({t, pending.samples, std::move(pending.gradients)});
      }
    }
    for (const Trainer& trainer : trainers_) {
      next.samples += trainer.pending.samples;
      next.first_samples += trainer.pending.first_samples;
      next.skipped |= trainer.pending.verdict == v1::SKIP;
    }
    steps = first.gathered;
    norms = first.norms;
    next.version = version_.version + 1;
    // What streams have left when others have ended is too little for a step at the full learning rate.
    next.ended = next.samples == 0 || 2 * next.samples < next.first_samples;
  }
  absl::Status status;
  if (!next.ended && !next.skipped) {
    const absl::StatusOr<bool> complete = MakeNorms(next.version - 1, *steps, &norms);
    if (complete.ok() && !*complete) {
      Actions waiting;
      {
        MutexLock lock(&mu_);
        applies_ = 0;
        trainers_[0].pending.norms = std::move(norms);
        // From now on everyone waits for it.
        trainers_[0].progress = options_.clock->Now();
        AnswerNorms(trainers_[0].progress, &waiting);
      }
      return RunAll(&waiting);
    }
    status = complete.ok() ? params_->Apply(next.version - 1, *steps, part, norms.norms()) : complete.status();
    if (status.ok() && async_tables_) status = params_->PrepareRates(next.version);
    if (status.ok()) status = EndTableStep(next.version - 1, next.version - 1);
  }
  steps = nullptr;

  Actions actions;
  std::vector<WaitingPull> ready;
  {
    MutexLock lock(&mu_);
    applies_ = 0;
    // The step that ends a run is none.
    if (!next.ended) (next.skipped ? pushes_skipped_ : pushes_applied_)->Add(trainer_count_);
    if (!status.ok()) {
      Fail(absl::Status(status.code(), absl::StrCat(Self(), ": step ", next.version - 1, ": ", status.message())),
           &actions);
    } else {
      // From here on the answer of this version is fixed, also if someone asks for the end a moment later.
      next.stop = stop_requested_ && options_.server_id == 0;
      version_ = next;
      version_since_ = options_.clock->Now();
      for (Trainer& trainer : trainers_) {
        trainer.pending = PendingStep();
        trainer.slow = false;
      }
      TakeReadyPulls(&ready);
      AnswerNorms(version_since_, &actions);
    }
  }
  RunAll(&actions);
  ServeAll(std::move(ready), next);
}

void ServerCoreImpl::ApplyTables(int id) {
  TrainerGradients own{.trainer = id};
  int64_t step = 0;
  {
    MutexLock lock(&mu_);
    PendingStep& pending = trainers_[static_cast<size_t>(id)].pending;
    std::vector<Gradient>& all = pending.gradients;
    const auto of_tables = std::stable_partition(all.begin(), all.end(), [](const Gradient& g) { return !g.of_table; });
    own.samples = pending.verdict == v1::APPLY && !pending.TooSmall() ? pending.samples : 0;
    own.gradients.assign(std::make_move_iterator(of_tables), std::make_move_iterator(all.end()));
    all.erase(of_tables, all.end());
    step = pending.step;
  }
  absl::Status status;
  if (own.samples > 0 && !own.gradients.empty()) {
    status = params_->Apply(step, absl::MakeConstSpan(&own, 1), ServerParams::StepPart::kLater);
  }

  Actions actions;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    --applies_;
    if (!status.ok()) {
      Fail(absl::Status(status.code(), absl::StrCat(Self(), ": trainer ", id, ", step ", step, ": ", status.message())),
           &actions);
    }
    // Dense blocks that somebody asked for meanwhile: of this version, which rows do not change.
    info = version_;
    TakeReadyPulls(&ready);
  }
  RunAll(&actions);
  ServeAll(std::move(ready), info);
}

void ServerCoreImpl::ApplyAsync(int id) {
  std::shared_ptr<std::vector<TrainerGradients>> own;
  NormRounds norms;
  int64_t step = 0;
  bool apply = false;
  ServerParams::StepPart part = ServerParams::StepPart::kWhole;
  {
    MutexLock lock(&mu_);
    PendingStep& pending = trainers_[static_cast<size_t>(id)].pending;
    if (pending.gathered == nullptr) {
      pending.norms = NormRounds(params_->norm_rounds());
      pending.gathered = std::make_shared<std::vector<TrainerGradients>>();
      pending.gathered->push_back({id, pending.samples, std::move(pending.gradients)});
    }
    own = pending.gathered;
    norms = pending.norms;
    step = pending.step;
    apply = pending.samples > 0 && pending.verdict == v1::APPLY;
    if (pending.begun) part = ServerParams::StepPart::kLater;
  }
  const int64_t samples = own->front().samples;
  Actions actions;
  absl::Status status;
  if (apply) {
    const absl::StatusOr<bool> complete = MakeNorms(step, *own, &norms);
    if (complete.ok() && !*complete) {
      {
        MutexLock lock(&mu_);
        --applies_;
        HoldForNorms(id, std::move(norms), &actions);
      }
      return RunAll(&actions);
    }
    status = complete.status();
    if (status.ok()) {
      const int64_t table_step = BeginTableStep();
      status = params_->Apply(step, *own, part, norms.norms(), table_step);
      if (status.ok()) status = EndTableSteps(step, table_step);
    }
  }
  own = nullptr;

  std::vector<ReplyCallback> waiters;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    --applies_;
    // A step that took effect in part cannot be taken back, and its trainer may not live to say so.
    if (!status.ok()) FailApply(id, step, status, &actions);
    Trainer& trainer = trainers_[static_cast<size_t>(id)];
    // It may have died meanwhile, but nobody takes its place before this step has taken effect.
    trainer.applying = false;
    waiters = std::move(trainer.applied_waiters);
    trainer.applied_waiters.clear();
    if (gate_ != nullptr && samples == 0) {
      // Its streams have ended, or it stops: nobody waits for it. The step is none that it has done.
      gate_->Leave(id);
    } else {
      trainer.applied_step = step;
      if (gate_ != nullptr) {
        // Samples after a push without: it was not the last.
        if (trainer.state == Trainer::kJoined) gate_->Join(id);
        gate_->Finished(id, step);
      }
    }
    trainer.pending = PendingStep();
    if (samples > 0) (apply ? pushes_applied_ : pushes_skipped_)->Add();
    if (apply) ++effective_;
    ++version_.version;
    version_.samples = samples;
    version_.skipped = !apply && samples > 0;
    info = version_;
    TakeReadyPulls(&ready);
    AnswerNorms(options_.clock->Now(), &actions);
  }
  RunAll(&actions);
  for (const ReplyCallback& waiter : waiters) {
    if (status.ok()) {
      v1::PushReply reply;
      reply.set_version(info.version);
      waiter(EncodeFrame(reply.SerializeAsString(), {}));
    } else {
      waiter(
          absl::Status(status.code(), absl::StrCat(Self(), ": trainer ", id, ", step ", step, ": ", status.message())));
    }
  }
  ServeAll(std::move(ready), info);
}

}  // namespace weir
