// A whole cluster in one process: servers, and clients that reach them through a FaultyTransport. The handlers are
// those of the real servers. With a fake clock nothing moves until Advance; with the real one a thread ticks.
#ifndef WEIR_TESTS_TESTING_IN_PROCESS_CLUSTER_H_
#define WEIR_TESTS_TESTING_IN_PROCESS_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/clock.h"
#include "framework/base/thread_pool.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "pserver/client/client.h"
#include "pserver/inside/in_process.h"
#include "tests/testing/faulty_transport.h"

namespace weir {

struct ClusterOptions {
  v1::Plan plan;
  // Return the programs of server i.
  std::function<v1::ProgramDesc(int)> main, startup;
  std::string plan_text;
  std::string job_name = "job";
  v1::Deadlines deadlines;
  FaultOptions faults;
  std::string checkpoint_dir;
  bool fake_clock = false;
  bool receives_beside_sends = false;  // ClientOptions
  // Worker threads of the one pool; 0 runs everything on the callers' threads.
  int threads = 2;
  OnRepeat on_repeat;
  const DenseSum* dense_sum = nullptr;
};

class InProcessCluster {
 public:
  // Creates running servers, and clients that have not joined.
  static absl::StatusOr<std::unique_ptr<InProcessCluster>> Create(ClusterOptions options);
  ~InProcessCluster();

  int trainers() const { return static_cast<int>(clients_.size()); }
  Client& client(int trainer) { return *clients_[static_cast<size_t>(trainer)]; }
  FaultyTransport& transport(int trainer) { return *transports_[static_cast<size_t>(trainer)]; }
  InProcessServers& servers() { return *servers_; }
  Clock* clock() { return clock_; }
  ThreadPool* pool() { return &pool_; }
  const FaultCounters& faults() const { return counters_; }

  // Fake clock only: lets time pass in steps of 100 ms, with ticks of the servers and heart-beats of the clients that
  // are alive.
  void Advance(absl::Duration d);
  // Kills a client: Advance sends no heart-beats for it, and nothing leaves it.
  void KillTrainer(int trainer);

  // Runs fn(trainer) on one thread per trainer. Returns the error of the lowest trainer that failed, after all have
  // ended.
  absl::Status RunTrainers(const std::function<absl::Status(int)>& fn);

  // Sum of the servers' digests, requested by trainer 0.
  struct Digest {
    uint64_t values = 0, state = 0;
    bool operator==(const Digest&) const = default;
  };
  absl::StatusOr<Digest> GetDigest();

  // Makes another client with this trainer id, as another process.
  absl::StatusOr<std::unique_ptr<Client>> MakeClient(int trainer, const std::string& process);
  const ClusterOptions& options() const { return options_; }

 private:
  explicit InProcessCluster(ClusterOptions options);
  ClientOptions MakeClientOptions(int trainer, const std::string& process);

  ClusterOptions options_;
  FakeClock fake_;
  Clock* const clock_;
  ThreadPool pool_;
  FaultCounters counters_;
  std::unique_ptr<InProcessServers> servers_;
  std::vector<std::unique_ptr<FaultyTransport>> transports_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<bool> dead_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_IN_PROCESS_CLUSTER_H_
