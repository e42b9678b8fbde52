// A parameter server without its network: handlers, dense blocks, tables, consistency, leases. Thread-safe. No gRPC.
//
// A row of a table comes into being when its first update takes effect; until then it reads as its initial values. So
// what exists at a version is a function of the steps before it, not of who has read ahead.
//
// The gRPC server, the in-process cluster and the tests all run this class. Time comes from a Clock and passes only
// when Tick is called, so that leases and waits can be tested with a fake clock.
#ifndef WEIR_PSERVER_SERVER_SERVER_CORE_H_
#define WEIR_PSERVER_SERVER_SERVER_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "framework/base/thread_pool.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Faults for tests that must see a comparison of digests fail.
struct PlantedFaults {
  // A part that comes again is added again.
  bool count_repeats = false;
  // Dense gradients are added as they came instead of in the lane tree.
  bool add_in_arrival_order = false;
};

struct ServerOptions {
  int server_id = 0;
  // From the transpiler or from files.
  v1::ProgramDesc main;
  v1::ProgramDesc startup;
  // What must be equal in every process of the job (transpiler/transpile.h, PlanText).
  std::string job_name;
  std::string plan_text;
  bool sync = true;
  bool reproducible = true;
  v1::Deadlines deadlines;
  // Absolute; empty: no checkpoints.
  std::string checkpoint_dir;
  // By table: row files that a fresh run begins with, absolute.
  std::map<std::string, std::vector<std::string>> row_files = {};
  // "host:pid", for messages.
  std::string process;
  std::string arithmetic;  // "avx2", "avx512": resolved
  // Borrowed.
  Clock* clock = nullptr;
  ThreadPool* pool = nullptr;
  PlantedFaults planted = {};
  // As Transport::checks_payloads of who brings the requests.
  bool check_payloads = true;
  // Bytes of answers to pulls that one trainer may leave unread, and of its pulls that may wait for that.
  size_t unread_bytes = size_t{256} << 20;
  // Bytes of rows that one trainer's pushes of a step may take here until it takes effect, beside those for each
  // example of a batch (docs/wire.md, "Limits").
  size_t pending_row_bytes = size_t{1} << 30;
  // Bytes of one trainer's contributions to exchanges that server 0 keeps, beside room for posted residuals.
  size_t exchange_bytes = size_t{1} << 30;
};

class ServerCore {
 public:
  // Runs the startup program. InvalidArgument names what the programs lack.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(ServerOptions options);
  virtual ~ServerCore() = default;

  // Answers a request, at once or later from another Handle or Tick; a join or a heart-beat at once, from inside. Bytes
  // that make no sense are an InvalidArgument answer.
  virtual void Handle(Method method, const Slices& request, ReplyCallback reply) = 0;

  // Expires leases, answers pulls whose wait is over, warns of the slow. About every 100 ms.
  virtual void Tick() = 0;

  // Ask for the end at the next common step border (SIGTERM).
  virtual void RequestStop() = 0;
  // Every trainer is done, or the job has failed and everyone has been told whose lease has not run out (or two leases
  // have passed since). After RequestStop it waits for nobody who has not joined.
  virtual bool Finished() = 0;
  // Why the job failed; OK while it has not.
  virtual absl::Status JobStatus() = 0;
  // Steps that have taken effect.
  virtual int64_t Version() = 0;
  // What this server has done, by name: "push.applied" (steps of a trainer that have taken effect here), "push.skipped"
  // (by a verdict), "push.repeated" (parts that came again and were dropped), "staleness.most_steps" (the most that a
  // trainer was ahead of the slowest when it began a step; bounded staleness).
  virtual const Counters& counters() const = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_SERVER_CORE_H_
