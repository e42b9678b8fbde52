#include "pserver/network/stream_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_message.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "pserver/network/grpc_bytes.h"

namespace weir {
namespace {

Slices ErrorPayload(const absl::Status& error) {
  const absl::Status cut(error.code(), SentText(error));
  return {Slice::Own(StatusMessage(cut).SerializeAsString())};
}

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

bool IsPush(const Record& record) { return record.head.method == static_cast<uint32_t>(Method::kPush); }

// Gradients are kept until their step is complete, and all of a batch with them: copies one that is the lesser part of
// it.
void KeepAlone(size_t batch_bytes, Record* record) {
  if (2 * record->bytes() < batch_bytes) record->payload = {Slice::Own(Flatten(record->payload))};
}

}  // namespace

Record EndRecord(const absl::Status& why) {
  return {.head = {.kind = RecordHead::kError}, .payload = ErrorPayload(why)};
}

StreamSession::StreamSession(std::shared_ptr<StreamSessions> sessions, std::function<bool(Slices batch)> write)
    : sessions_(std::move(sessions)), writer_(std::move(write)) {}

bool StreamSession::Begin(End end) {
  {
    MutexLock lock(&mu_);
    end_ = std::move(end);
  }
  if (sessions_->Add(shared_from_this())) return true;
  EndWith(ShuttingDown());
  return false;
}

absl::Status StreamSession::Handle(const Slices& batch, const std::function<void()>& read_on) {
  const size_t bytes = TotalSize(batch);
  absl::StatusOr<std::vector<Record>> records = ReadRecords(batch);
  if (!records.ok()) {
    EndWith(records.status());
    return records.status();
  }
  for (const Record& record : *records) {
    if (record.head.kind == RecordHead::kRequest && !BeginCall(record.head)) {
      const absl::Status many = absl::ResourceExhaustedError(
          absl::StrCat("the client has more than ", kMostStreamCalls, " calls open, or answers unread"));
      EndWith(many);
      return many;
    }
  }
  const std::shared_ptr<StreamSession> self = shared_from_this();
  read_on();
  // The last push of a step may run its update here, and the pull behind it waits for that: it is booked first, to be
  // answered with all others.
  for (const bool pushes : {false, true}) {
    for (Record& record : *records) {
      if (record.head.kind != RecordHead::kRequest || IsPush(record) != pushes) continue;
      if (pushes) KeepAlone(bytes, &record);
      self->HandleRecord(record);
    }
  }
  return absl::OkStatus();
}

bool StreamSession::BeginCall(const RecordHead& request) {
  const size_t unread = writer_.waiting();
  MutexLock lock(&mu_);
  if (open_ + may_wait_ + unread >= kMostStreamCalls) return false;
  ++(request.answer_may_wait ? may_wait_ : open_);
  return true;
}

void StreamSession::HandleRecord(const Record& record) {
  const Method method = static_cast<Method>(record.head.method);
  if (method != Method::kPush && method != Method::kPull && method != Method::kNorms && method != Method::kDeliver) {
    return Answer(record.head, absl::UnimplementedError(
                                   absl::StrCat("method ", record.head.method, " is not served through a stream")));
  }
  if (!sessions_->BeginCall()) return Answer(record.head, ShuttingDown());
  const ProfiledCallScope scope({.id = record.head.profiled_id, .step = record.head.step});
  sessions_->handler_(method, record.payload,
                      [self = shared_from_this(), head = record.head](const absl::StatusOr<Slices>& reply) {
                        self->Answer(head, reply);
                        self->sessions_->EndCall();
                      });
}

void StreamSession::Answer(const RecordHead& request, const absl::StatusOr<Slices>& reply) {
  Record record{.head = {.kind = reply.ok() ? RecordHead::kReply : RecordHead::kError, .call = request.call},
                .payload = reply.ok() ? *reply : ErrorPayload(reply.status())};
  if (reply.ok()) proven_ = true;
  bool waits = false;
  {
    MutexLock lock(&mu_);
    --(request.answer_may_wait ? may_wait_ : open_);
    // The caller may have to act on an error before there can be another answer.
    waits = request.answer_may_wait && reply.ok() && open_ > 0;
    // Under the lock: the answer that it waits for comes after it.
    writer_.Keep(std::move(record), waits);
  }
  if (!waits) writer_.Write();
}

void StreamSession::EndWith(const absl::Status& why) {
  End end;
  {
    MutexLock lock(&mu_);
    end = std::exchange(end_, nullptr);
  }
  if (end == nullptr) return;
  // No write may be started when the stream is finished.
  writer_.Close();
  end(why);
}

bool StreamSession::ended() {
  MutexLock lock(&mu_);
  return end_ == nullptr;
}

void StreamSession::Gone() {
  // Waits for a write that is being started.
  writer_.Close();
  sessions_->Remove(shared_from_this());
  MutexLock lock(&mu_);
  end_ = nullptr;
}

bool StreamSessions::Add(std::shared_ptr<StreamSession> session) {
  MutexLock lock(&mu_);
  if (refuses_) return false;
  sessions_.insert(std::move(session));
  return true;
}

void StreamSessions::Remove(const std::shared_ptr<StreamSession>& session) {
  MutexLock lock(&mu_);
  sessions_.erase(session);
  fewer_.SignalAll();
}

bool StreamSessions::BeginCall() {
  MutexLock lock(&mu_);
  if (refuses_) return false;
  ++open_;
  return true;
}

void StreamSessions::EndCall() {
  MutexLock lock(&mu_);
  if (--open_ == 0) fewer_.SignalAll();
}

void StreamSessions::Refuse() {
  MutexLock lock(&mu_);
  refuses_ = true;
}

void StreamSessions::Shutdown(absl::Duration grace) {
  Refuse();
  const absl::Time until = Clock::Real()->Now() + grace;
  std::set<std::shared_ptr<StreamSession>> sessions;
  {
    MutexLock lock(&mu_);
    while (open_ > 0) {
      const absl::Duration left = until - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) break;
      fewer_.WaitWithTimeout(&mu_, left);
    }
    sessions = sessions_;
  }
  for (const std::shared_ptr<StreamSession>& session : sessions) session->writer().AwaitIdle(until);
  for (const std::shared_ptr<StreamSession>& session : sessions) session->EndWith(ShuttingDown());
}

}  // namespace weir
