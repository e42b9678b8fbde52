#include "framework/membership/exchange_hub.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"

namespace weir {

ExchangeHub::ExchangeHub(Roster* roster, std::vector<size_t> room)
    : roster_(roster), board_(std::move(room)), streams_(roster->size()) {}

std::function<bool(int)> ExchangeHub::Excused() const {
  return [this](int trainer) { return roster_->Excused(trainer); };
}

absl::Status ExchangeHub::HandleStream(const v1::ExchangeRequest& request, Waiting* call) {
  if (request.chunk() < 0)
    return absl::InvalidArgumentError(absl::StrCat("stream ", request.key(), ": chunk ", request.chunk()));
  call->request.set_key(request.key());
  call->request.set_chunk(request.chunk());
  if (request.has_stream_from()) {
    call->request.set_stream_from(request.stream_from());
    return streams_.Take(request, call->trainer);
  }
  const int to = request.stream_to();
  call->request.set_stream_to(to);
  if (!request.has_contribution()) return absl::OkStatus();
  // A writer that lives need not know that the reader does not.
  if (to >= 0 && to < roster_->size() && roster_->Excused(to)) return absl::OkStatus();
  RETURN_IF_ERROR(streams_.Write(request, call->trainer));
  // Answered at once: the chunk that it asks for room for is there.
  call->request.set_chunk(0);
  return absl::OkStatus();
}

absl::Status ExchangeHub::Contribute(const v1::ExchangeRequest& request, int trainer) {
  if (!request.has_edition()) return board_.Put(request, trainer);
  if (request.anyone()) {
    return absl::InvalidArgumentError(
        absl::StrCat("Exchange: anyone's post of ", request.key(), " with a contribution"));
  }
  return board_.Post(request, trainer);
}

absl::Status ExchangeHub::AnswerOrWait(Waiting call, absl::Time now, Actions* actions) {
  if (TryAnswer(call, now, now >= call.deadline, actions)) return absl::OkStatus();
  RETURN_IF_ERROR(roster_->CheckWaiting(call.trainer, "exchanges", calls_.CountOf(call.trainer)));
  calls_.Add(std::move(call));
  return absl::OkStatus();
}

absl::Status ExchangeHub::Handle(const v1::ExchangeRequest& request, absl::Time now, Callback reply, Actions* actions) {
  const int id = request.caller().trainer();
  RETURN_IF_ERROR(ExchangeBoard::CheckKey(request.key()));
  Waiting call{id, {}, WaitUntil(now, request.wait_s()), std::move(reply)};
  if (request.has_stream_to() || request.has_stream_from()) {
    RETURN_IF_ERROR(HandleStream(request, &call));
    RETURN_IF_ERROR(AnswerOrWait(std::move(call), now, actions));
    // Chunks that came or went may be what another waits for.
    Answer(now, actions);
    return absl::OkStatus();
  }
  if (request.has_edition() && request.edition() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("Exchange: edition ", request.edition(), " of ", request.key()));
  }
  if (request.has_contribution()) {
    RETURN_IF_ERROR(Contribute(request, id));
    Answer(now, actions);
    if (request.has_edition()) {
      // Nobody waits for posts.
      v1::ExchangeReply posted;
      posted.set_ready(true);
      posted.set_chief(roster_->chief());
      actions->push_back(
          [reply = std::move(call.reply), posted = std::move(posted)]() mutable { reply(std::move(posted), nullptr); });
      return absl::OkStatus();
    }
  }
  // A trainer that asks for the others is not waited for; its own deadline ends that. A look at posts without waiting
  // is no sign of life of the program: a thread beside it may look for ever.
  if (!request.has_edition() || request.wait_s() > 0) roster_->Progressed(id, now);
  call.request.set_wait_s(request.wait_s());
  call.request.set_key(request.key());
  call.request.set_read_trainer(request.read_trainer());
  call.request.set_chunk(request.chunk());
  if (request.has_edition()) call.request.set_edition(request.edition());
  if (request.anyone()) call.request.set_anyone(true);
  return AnswerOrWait(std::move(call), now, actions);
}

bool ExchangeHub::TryAnswer(const Waiting& call, absl::Time now, bool final, Actions* actions) {
  if (call.request.has_stream_to() || call.request.has_stream_from()) {
    return TryAnswerStream(call, now, final, actions);
  }
  if (call.request.anyone()) return TryAnswerAnyone(call, now, final, actions);
  return TryAnswerBoard(call, now, final, actions);
}

bool ExchangeHub::TryAnswerStream(const Waiting& call, absl::Time now, bool final, Actions* actions) {
  const std::shared_ptr<ReplyCredits>& credits = roster_->place(call.trainer).credits;
  v1::ExchangeReply reply;
  std::shared_ptr<const void> credit;
  bool ready = false;
  if (call.request.has_stream_to()) {
    const int to = call.request.stream_to();
    ready = to < 0 || to >= roster_->size() || roster_->Excused(to) || streams_.HasRoom(call.request, call.trainer);
  } else {
    // Answers that it has asked for before have to leave first.
    if (credits != nullptr) credit = credits->Take(streams_.ReadBytes(call.request, call.trainer));
    const bool gone = roster_->Excused(call.request.stream_from());
    ready = (credits == nullptr || credit != nullptr) && streams_.Read(call.request, call.trainer, gone, &reply);
  }
  if (!ready && !final) return false;
  if (ready) roster_->Progressed(call.trainer, now);
  reply.set_ready(ready);
  actions->push_back([callback = call.reply, reply = std::move(reply), credit = std::move(credit)]() mutable {
    callback(std::move(reply), std::move(credit));
  });
  return true;
}

bool ExchangeHub::TryAnswerAnyone(const Waiting& call, absl::Time now, bool final, Actions* actions) {
  const ExchangeBoard::NewestPost newest = board_.Newest(call.request.key());
  const int chief = roster_->chief();
  v1::ExchangeReply reply;
  reply.set_ready(newest.edition >= call.request.edition() || chief == call.trainer);
  if (!reply.ready() && !final) return false;
  if (newest.trainer >= 0) reply.set_by(newest.trainer);
  if (newest.trainer >= 0) reply.set_edition(newest.edition);
  reply.set_chief(chief);
  if (!reply.ready()) reply.add_missing(chief);
  if (call.request.wait_s() > 0) roster_->Progressed(call.trainer, now);
  actions->push_back(
      [callback = call.reply, reply = std::move(reply)]() mutable { callback(std::move(reply), nullptr); });
  return true;
}

bool ExchangeHub::TryAnswerBoard(const Waiting& call, absl::Time now, bool final, Actions* actions) {
  const bool post = call.request.has_edition();
  std::vector<int> missing;
  if (!post) missing = board_.Missing(call.request.key(), Excused());
  const std::shared_ptr<ReplyCredits>& credits = roster_->place(call.trainer).credits;
  const bool reads = missing.empty() && (post || call.request.read_trainer() >= 0);
  std::shared_ptr<const void> credit;
  if (reads && credits != nullptr) credit = credits->Take(board_.ReadBytes(call.request));
  // Answers that it has asked for before have to leave first.
  const bool ready = missing.empty() && (!reads || credits == nullptr || credit != nullptr);
  if (!ready && !final) return false;
  v1::ExchangeReply reply;
  reply.set_ready(ready);
  reply.set_chief(roster_->chief());
  for (int t : missing) reply.add_missing(t);
  absl::Status status;
  if (ready) {
    roster_->Progressed(call.trainer, now);
    if (reads) status = post ? board_.ReadPost(call.request, &reply) : board_.Read(call.request, call.trainer, &reply);
  }
  actions->push_back([callback = call.reply, status, reply = std::move(reply), credit = std::move(credit)]() mutable {
    if (!status.ok()) return callback(status, nullptr);
    callback(std::move(reply), std::move(credit));
  });
  return true;
}

void ExchangeHub::Answer(absl::Time now, Actions* actions) {
  calls_.RemoveIf([&](const Waiting& call) { return TryAnswer(call, now, now >= call.deadline, actions); });
}

absl::Time ExchangeHub::NextDue() const {
  absl::Time next = absl::InfiniteFuture();
  calls_.ForEach([&](const Waiting& call) {
    const ReplyCredits* const credits = roster_->place(call.trainer).credits.get();
    const bool reads = credits != nullptr && credits->outstanding() > 0;
    next = std::min(next, reads ? absl::InfinitePast() : call.deadline);
  });
  return next;
}

void ExchangeHub::Abort(Actions* actions) {
  for (const Waiting& call : calls_.TakeAll()) {
    actions->push_back([callback = call.reply, status = roster_->Aborted(call.trainer)] { callback(status, nullptr); });
  }
}

void ExchangeHub::Expire(absl::Time now, absl::Duration keep) {
  board_.Expire(now, keep, Excused(), roster_->chief());
  streams_.Expire(now, keep);
}

}  // namespace weir
