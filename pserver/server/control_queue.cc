#include "pserver/server/control_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pserver/consistency/replies.h"

namespace weir {

namespace {

// Control calls of one trainer that wait for their turn: one of our clients has one at a time, and one that it gave up.
constexpr int kMaxControls = 8;
// Repeats of one call: as many as one of our clients makes until its deadline, with the default ones, twice over.
constexpr size_t kMaxControlRepeats = 128;

bool Repeats(const v1::ControlRequest& request, const ControlCall* call) {
  return call != nullptr && request.has_request_id() && call->request.request_id() == request.request_id() &&
         call->trainer == request.caller().trainer() && call->session == request.caller().session();
}

}  // namespace

absl::Status ControlQueue::Add(v1::ControlRequest request, const ReplyCallback& reply, const std::string& who,
                               const std::string& where, Actions* actions) {
  const int id = request.caller().trainer();
  const uint64_t session = request.caller().session();
  Made& made = made_[id];
  // Sessions are admitted before: another one is newer.
  if (made.session != session) made = {.session = session};
  if (Repeats(request, made.last.get())) {
    actions->push_back([reply, result = made.reply] { Answer(reply, result); });
    return absl::OkStatus();
  }
  const auto waiting =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& call) { return Repeats(request, call.get()); });
  ControlCall* const first = waiting != waiting_.end()          ? waiting->get()
                             : Repeats(request, running_.get()) ? running_.get()
                                                                : nullptr;
  if (first != nullptr) {
    WaitAsNewest(reply, kMaxControlRepeats, &first->replies, actions);
    return absl::OkStatus();
  }
  if (request.has_request_id() && request.request_id() < made.newest_id) {
    return absl::FailedPreconditionError(absl::StrCat("control call ", request.request_id(), " of ", who, " reaches ",
                                                      where, " after its call ", made.newest_id,
                                                      ": it was delayed on its way, and is not done any more"));
  }
  const auto count =
      std::count_if(waiting_.begin(), waiting_.end(), [id](const auto& call) { return call->trainer == id; });
  if (count >= kMaxControls) {
    return absl::ResourceExhaustedError(absl::StrCat(who, " has ", count, " control calls waiting at ", where,
                                                     ", as many as may: wait for their answers"));
  }
  made.newest_id = std::max<uint64_t>(made.newest_id, request.request_id());
  waiting_.push_back(std::make_shared<ControlCall>(ControlCall{id, session, std::move(request), {reply}}));
  return absl::OkStatus();
}

bool ControlQueue::sets_values() const {
  const auto sets = [](const std::shared_ptr<ControlCall>& call) {
    return call->request.has_load() || call->request.has_load_rows() || call->request.has_start();
  };
  return (running_ != nullptr && sets(running_)) || std::any_of(waiting_.begin(), waiting_.end(), sets);
}

std::shared_ptr<ControlCall> ControlQueue::Start() {
  running_ = std::move(waiting_.front());
  waiting_.pop_front();
  return running_;
}

std::vector<ReplyCallback> ControlQueue::Finish(const absl::StatusOr<v1::ControlReply>& result) {
  const std::shared_ptr<ControlCall> ended = std::exchange(running_, nullptr);
  // A repeat is known by its id; the action may hold a manifest.
  ended->request.clear_action();
  Made& made = made_[ended->trainer];
  if (made.session == ended->session) {
    made.last = ended;
    made.reply = result;
  }
  return std::move(ended->replies);
}

std::list<std::shared_ptr<ControlCall>> ControlQueue::TakeWaiting(int trainer) {
  std::list<std::shared_ptr<ControlCall>> taken;
  for (auto call = waiting_.begin(); call != waiting_.end();) {
    const auto next = std::next(call);
    if (trainer < 0 || (*call)->trainer == trainer) taken.splice(taken.end(), waiting_, call);
    call = next;
  }
  return taken;
}

}  // namespace weir
