// One server of a job, as the programs pserver and trainer run it: its core with the job's settings, the network front,
// and the thread that lets time pass in it. Linking this target defines the flags of a server. For main files.
#ifndef WEIR_PSERVER_JOB_SERVER_H_
#define WEIR_PSERVER_JOB_SERVER_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "pserver/network/grpc_server.h"
#include "pserver/server/server_core.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Returns the options of a server of the job that runs `programs` (transpiler/split/process_programs.h). Tables with
// `disk` lie where the job says. `pool` is borrowed and must outlive the server. InvalidArgument if a flag is out of
// its range.
absl::StatusOr<ServerOptions> JobServerOptions(const Job& job, int server, Programs programs, ThreadPool* pool);

class JobServer {
 public:
  // Time for last answers to be sent when the job is over.
  static constexpr absl::Duration kGrace = absl::Seconds(2);

  // Creates the core, with the fault point that the environment plants in it (pserver/fault_point.h), and listens at
  // `endpoint`: the server is ready when Start returns. `network`: the job's cluster. Errors are those of
  // ServerCore::Create and GrpcServer::Start; ResourceExhausted if the process may not open enough connections.
  static absl::StatusOr<std::unique_ptr<JobServer>> Start(ServerOptions options, const std::string& endpoint,
                                                          const v1::Cluster& network);
  ~JobServer();
  JobServer(const JobServer&) = delete;
  JobServer& operator=(const JobServer&) = delete;

  ServerCore* core() { return core_.get(); }
  // Returns the address with the port in use.
  const std::string& endpoint() const { return network_->endpoint(); }

  // Returns when ServerCore::Finished is true: every trainer is done, or has been told that the job has failed. The
  // core's deadlines bound the time. Requires: one thread calls it.
  void AwaitFinished();
  // Gives answers on their way kGrace to leave, and stops listening. Requires: AwaitFinished.
  void Shutdown();

 private:
  // Sleep of the thread of ticks, by the real clock. Shared with the core, which may call Shorten while the server is
  // destroyed.
  class Sleep {
   public:
    // Sleeps until `until`, or until an earlier time for which Shorten is called, before or meanwhile. Returns false
    // once stopped.
    bool Until(absl::Time until);
    void Shorten(absl::Time until);
    void Stop();

   private:
    Mutex mu_;
    CondVar changed_;
    absl::Time shortened_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
    bool stop_ ABSL_GUARDED_BY(mu_) = false;
  };

  JobServer(std::shared_ptr<Sleep> sleep, std::unique_ptr<ServerCore> core)
      : sleep_(std::move(sleep)), core_(std::move(core)) {}
  // Ticks until the core is finished, or until the destructor.
  void Tick();

  const std::shared_ptr<Sleep> sleep_;
  const std::unique_ptr<ServerCore> core_;
  std::unique_ptr<GrpcServer> network_;  // constant after Start
  std::thread ticks_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_JOB_SERVER_H_
