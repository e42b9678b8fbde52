// A request on its way through a server, as the profiler shows it: from its arrival to its answer, with what it waits
// for.
#ifndef WEIR_PSERVER_SERVER_HANDLED_CALL_H_
#define WEIR_PSERVER_SERVER_HANDLED_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "framework/runtime/profiler.h"
#include "pserver/protocol/transport.h"

namespace weir {

class HandledCall;
// Null when nothing is recorded.
using HandledCallPtr = std::shared_ptr<HandledCall>;

// Whoever has the request has this too: one thread at a time, handed over with it.
class HandledCall {
 public:
  // A request has come, of the call that ProfiledCallScope tells of.
  static HandledCallPtr Begin(Method method, size_t bytes);

  // The functions below do nothing without a call.
  // Whose it is, and of which step, unless the caller has said that beside it. `name`: instead of the method's.
  static void Describe(const HandledCallPtr& call, int trainer, int64_t step, ProfileName name);
  // It waits from now on; `what`: for whom.
  static void BeginWait(const HandledCallPtr& call, ProfileName name, std::string_view what);
  static void EndWait(const HandledCallPtr& call);
  // The answer goes out; ends a wait as well. bytes: of the answer, 0 when it is an error.
  static void End(const HandledCallPtr& call, size_t bytes);

  static bool Wanted(const HandledCallPtr& call) { return call != nullptr && Profiler::Wants(call->event_.step); }
  // -1: not recorded.
  static int64_t StepOf(const HandledCallPtr& call) { return Wanted(call) ? call->event_.step : -1; }

 private:
  ProfileEvent event_, wait_;
  bool waits_ = false;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_HANDLED_CALL_H_
