#include "pserver/protocol/call_hints.h"

#include <utility>

#include "glog/logging.h"

namespace weir {
namespace {

thread_local CallsTogether* together = nullptr;
thread_local bool answers_may_wait = false;

}  // namespace

CallsTogether::CallsTogether() {
  CHECK(together == nullptr) << "calls are together already";
  together = this;
}

CallsTogether::~CallsTogether() {
  together = nullptr;
  for (const auto& [place, send] : sends_) send();
}

CallsTogether* CallsTogether::current() { return together; }

void CallsTogether::AtEnd(const void* place, std::function<void()> send) { sends_.emplace(place, std::move(send)); }

AnswersMayWait::AnswersMayWait(bool may_wait) : before_(std::exchange(answers_may_wait, may_wait)) {}

AnswersMayWait::~AnswersMayWait() { answers_may_wait = before_; }

bool AnswersMayWait::current() { return answers_may_wait; }

}  // namespace weir
