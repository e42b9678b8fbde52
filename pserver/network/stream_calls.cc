#include "pserver/network/stream_calls.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/protocol/call_hints.h"
#include "pserver/sockets/stream_records.h"

namespace weir {
namespace {

absl::Status ErrorOf(const Slices& payload) {
  v1::Status error;
  if (!error.ParseFromString(Flatten(payload)) || error.code() == 0) {
    error.set_code(static_cast<int>(absl::StatusCode::kUnknown));
  }
  return StatusOf(error, kMostReceivedText);
}

// The error of the calls that are open when the stream ends. Most reasons say nothing of a call: it can be made again.
absl::Status ErrorOfCalls(const absl::Status& why) {
  if (why.ok()) return absl::UnavailableError("the stream has ended");
  if (absl::IsUnimplemented(why)) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has no streams of calls: run the same version of Weir on all hosts: ", why.message()));
  }
  return absl::IsFailedPrecondition(why) ? why : absl::UnavailableError(why.message());
}

}  // namespace

StreamCalls::StreamCalls(CallDeadlines* deadlines, std::function<bool(Slices batch)> write)
    : deadlines_(deadlines), writer_(std::move(write)) {}

bool StreamCalls::Call(Method method, const Slices& request, absl::Duration timeout, Done done) {
  const ProfiledCall profiled = ProfiledCallScope::current();
  Record record{.head = {.kind = RecordHead::kRequest,
                         .method = static_cast<uint32_t>(method),
                         .answer_may_wait = AnswersMayWait::current(),
                         .profiled_id = profiled.id,
                         .step = profiled.step},
                .payload = request};
  {
    MutexLock lock(&mu_);
    if (ended_ || (closes_when_idle_ && calls_.empty())) return false;
    const uint64_t call = record.head.call = ++last_call_;
    calls_[call] = {.done = std::move(done),
                    .deadline = deadlines_->Add(Clock::Real()->Now() + timeout,
                                                [weak = weak_from_this(), call] { Expire(weak, call); })};
  }
  // If the writer has been closed meanwhile, the end of the stream has ended the call.
  CallsTogether* const together = CallsTogether::current();
  writer_.Keep(std::move(record), /*joins_next=*/together != nullptr);
  if (together == nullptr) {
    writer_.Write();
  } else {
    together->AtEnd(this, [self = shared_from_this()] { self->writer_.Write(); });
  }
  return true;
}

void StreamCalls::Expire(const std::weak_ptr<StreamCalls>& weak, uint64_t call) {
  const std::shared_ptr<StreamCalls> calls = weak.lock();
  if (calls == nullptr) return;
  // The other end may take no bytes any more: what it would get late is given up, too.
  calls->writer_.Drop(call);
  calls->Answer(call, absl::DeadlineExceededError("no answer in time"), /*from_server=*/false);
}

void StreamCalls::Answer(uint64_t call, absl::StatusOr<Slices> reply, bool from_server) {
  Pending pending;
  bool closes = false;
  {
    MutexLock lock(&mu_);
    const auto found = calls_.find(call);
    if (found == calls_.end()) return;  // given up
    pending = std::move(found->second);
    calls_.erase(found);
    closes = closes_when_idle_ && calls_.empty();
  }
  deadlines_->Remove(pending.deadline);
  pending.done(std::move(reply), from_server);
  if (closes) Close();
}

void StreamCalls::CloseWhenIdle() {
  {
    MutexLock lock(&mu_);
    closes_when_idle_ = true;
    if (!calls_.empty()) return;
  }
  Close();
}

absl::Status StreamCalls::HandOut(const Slices& batch, const std::function<void()>& read_on, absl::Status* ended) {
  ASSIGN_OR_RETURN(const std::vector<Record> records, ReadRecords(batch));
  // Another thread may read what comes next while this one hands out.
  read_on();
  for (const Record& record : records) {
    if (record.head.kind == RecordHead::kReply) {
      Answer(record.head.call, record.payload, /*from_server=*/true);
    } else if (record.head.kind == RecordHead::kError && record.head.call != 0) {
      Answer(record.head.call, ErrorOf(record.payload), /*from_server=*/true);
    } else if (record.head.kind == RecordHead::kError && ended != nullptr) {
      *ended = ErrorOf(record.payload);
    }
  }
  return absl::OkStatus();
}

bool StreamCalls::Stop() {
  {
    MutexLock lock(&mu_);
    if (std::exchange(ended_, true)) return false;
    ended_flag_ = true;
  }
  writer_.Close();
  return true;
}

void StreamCalls::EndCalls(const absl::Status& why, bool from_server) {
  std::map<uint64_t, Pending> calls;
  {
    MutexLock lock(&mu_);
    calls.swap(calls_);
  }
  for (auto& [number, call] : calls) {
    deadlines_->Remove(call.deadline);
    call.done(ErrorOfCalls(why), from_server);
  }
}

}  // namespace weir
