#include "pserver/network/grpc_threads.h"

#include <memory>
#include <string>

#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "grpc/grpc.h"
#include "grpcpp/alarm.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "pserver/network/credentials.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_timers.h"

namespace weir {
namespace {

// Callbacks come within milliseconds if gRPC has its threads; the rest is for a busy machine.
constexpr absl::Duration kPatience = absl::Seconds(10);

// Counts callbacks. Shared with them, since they may run after Try has given up.
struct Callbacks {
  Mutex mu;
  CondVar changed;
  int came ABSL_GUARDED_BY(mu) = 0;

  void OneMore() {
    MutexLock lock(&mu);
    ++came;
    changed.SignalAll();
  }
  bool HaveCome(int n) {
    const absl::Time end = Clock::Real()->Now() + kPatience;
    MutexLock lock(&mu);
    while (came < n) {
      const absl::Duration left = end - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return false;
      changed.WaitWithTimeout(&mu, left);
    }
    return true;
  }
};

// gRPC uses it until its callback has run; without the callback it leaks.
struct Call {
  grpc::ClientContext context;
  const grpc::ByteBuffer request = ToByteBuffer({});
  grpc::ByteBuffer reply;
};

// Makes a call that fails at once, whose callback runs on the threads that also run handlers, and sets a timer. Returns
// whether both callbacks have run.
bool Try() {
  const auto callbacks = std::make_shared<Callbacks>();
  auto* call = new Call;
  auto* timer = new grpc::Alarm;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub(
      grpc::CreateChannel("unix:/nowhere/weir", ChannelCredentials()));
  call->context.set_deadline(GrpcDeadline(kPatience));
  stub.UnaryCall(&call->context, "/weir/Nothing", {}, &call->request, &call->reply,
                 [callbacks](const grpc::Status&) { callbacks->OneMore(); });
  timer->Set(GrpcDeadline(absl::Milliseconds(1)), [callbacks](bool) { callbacks->OneMore(); });
  if (!callbacks->HaveCome(2)) return false;
  delete call;
  delete timer;
  return true;
}

}  // namespace

void CheckGrpcThreads() {
  // grpc_shutdown joins a thread that sleeps in poll, up to 10 s, in whichever thread drops the last channel: gRPC
  // stays initialised until the process ends.
  static const bool has_them = (grpc_init(), Try());
  if (!has_them)
    ExitExhausted("cannot start the threads of gRPC (see ulimit -u and -v, and pids.max of the control group)");
}

}  // namespace weir
