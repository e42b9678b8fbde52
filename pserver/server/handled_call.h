// Profile of one request in a server: from its arrival to its answer, with its waits.
#ifndef WEIR_PSERVER_SERVER_HANDLED_CALL_H_
#define WEIR_PSERVER_SERVER_HANDLED_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "framework/profile/profiler.h"
#include "pserver/protocol/transport.h"

namespace weir {

class HandledCall;
// Record of a call. Null unless the profiler was started.
using HandledCallPtr = std::shared_ptr<HandledCall>;

// Belongs to the request and is handed over with it; used by one thread at a time. A call that ends without Describe is
// not recorded. Requires: one EndWait or End for a BeginWait; End last, and once.
class HandledCall {
 public:
  // Starts the record of a request that has come, for the call in ProfiledCallScope.
  static HandledCallPtr Begin(Method method, size_t bytes);

  // The functions below do nothing if `call` is null.
  // Sets the trainer of the request and, unless the call carried one, its step. `name` replaces the method's name.
  static void Describe(const HandledCallPtr& call, int trainer, int64_t step, ProfileName name);
  // Records that the request waits from now on. `what`: the process that it waits for, or "the update".
  static void BeginWait(const HandledCallPtr& call, ProfileName name, std::string_view what);
  static void EndWait(const HandledCallPtr& call);
  // Records that the answer goes out; ends a wait as well. bytes: size of the answer, 0 when it is an error.
  static void End(const HandledCallPtr& call, size_t bytes);

  // Returns true if `call` is not null and its step is recorded.
  static bool Wanted(const HandledCallPtr& call) { return call != nullptr && Profiler::Wants(call->event_.step); }
  // Returns the step, -1 if the call is not recorded.
  static int64_t StepOf(const HandledCallPtr& call) { return Wanted(call) ? call->event_.step : -1; }

 private:
  ProfileEvent event_, wait_;
  bool waits_ = false;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_HANDLED_CALL_H_
