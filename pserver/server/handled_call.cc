#include "pserver/server/handled_call.h"

#include "absl/strings/str_cat.h"

namespace weir {

HandledCallPtr HandledCall::Begin(Method method, size_t bytes) {
  if (!Profiler::Started()) return nullptr;
  const ProfiledCall call = ProfiledCallScope::current();
  auto handled = std::make_shared<HandledCall>();
  ProfileEvent& event = handled->event_;
  event.kind = ProfileKind::kHandler;
  event.name = ProfileName(MethodName(method));
  event.begin_ns = Profiler::NowNs();
  event.step = call.step;
  event.call = call.id != 0 ? call.id : Profiler::Process().NewCall();
  event.bytes_in = static_cast<int64_t>(bytes);
  return handled;
}

void HandledCall::Describe(const HandledCallPtr& call, int trainer, int64_t step, ProfileName name) {
  if (call == nullptr) return;
  call->event_.peer = trainer;
  call->event_.name = name;
  if (call->event_.step < 0) call->event_.step = step;
  if (Wanted(call)) call->event_.track = Profiler::Process().Track(absl::StrCat("calls of trainer ", trainer));
}

void HandledCall::BeginWait(const HandledCallPtr& call, ProfileName name, std::string_view what) {
  if (!Wanted(call)) return;
  call->wait_ = call->event_;
  call->wait_.kind = ProfileKind::kWait;
  call->wait_.name = name;
  call->wait_.detail = ProfileName(what);
  call->wait_.bytes_in = -1;
  call->wait_.begin_ns = Profiler::NowNs();
  call->waits_ = true;
}

void HandledCall::EndWait(const HandledCallPtr& call) {
  if (call == nullptr || !call->waits_) return;
  call->waits_ = false;
  call->wait_.end_ns = Profiler::NowNs();
  Profiler::Process().Record(call->wait_);
}

void HandledCall::End(const HandledCallPtr& call, size_t bytes) {
  if (!Wanted(call)) return;
  EndWait(call);
  // A call without a trainer has no track to be drawn in.
  if (call->event_.track == 0) return;
  call->event_.end_ns = Profiler::NowNs();
  call->event_.bytes_out = static_cast<int64_t>(bytes);
  Profiler::Process().Record(call->event_);
}

}  // namespace weir
