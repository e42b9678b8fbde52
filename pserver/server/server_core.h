// Parameter server without its network: handlers, dense blocks, tables, consistency, leases. Thread-safe. No gRPC.
//
// A row of a table comes into being when its first update takes effect; until then it reads as its initial values. So
// the rows that exist at a version are a function of the steps before it, not of reads ahead.
//
// The gRPC server, the in-process cluster and the tests all run this class. Time comes from a Clock and passes only
// when Tick is called, so that leases and waits can be tested with a fake clock.
#ifndef WEIR_PSERVER_SERVER_SERVER_CORE_H_
#define WEIR_PSERVER_SERVER_SERVER_CORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "framework/base/thread_pool.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "pserver/consistency/on_repeat.h"
#include "pserver/protocol/transport.h"

namespace weir {

class DenseSum;

struct ServerOptions {
  int server_id = 0;
  // Made by the transpiler or read from files.
  v1::ProgramDesc main;
  v1::ProgramDesc startup;
  // Settings that must be equal in every process of the job (transpiler/split/transpile.h, PlanText).
  std::string job_name;
  std::string plan_text;
  bool sync = true;
  // Refuse trainers of another arithmetic: the job promises equal bits.
  bool equal_arithmetic = true;
  v1::Deadlines deadlines;
  // Absolute path; empty: no checkpoints.
  std::string checkpoint_dir;
  // Row files that a fresh run begins with, by table; absolute paths.
  std::map<std::string, std::vector<std::string>> row_files = {};
  // Checkpoints that a fresh run takes values from, in the order of the job; absolute paths.
  std::vector<std::string> start_from = {};
  // "host:pid", for messages.
  std::string process;
  std::string arithmetic;  // "avx2", "avx512": resolved
  // Borrowed; must outlive the server.
  Clock* clock = nullptr;
  ThreadPool* pool = nullptr;
  // Called for parts that come again. Null: they are dropped. Tests count them again (tests/testing/count_repeats.h).
  OnRepeat on_repeat = nullptr;
  // Adds the parts of dense gradients. Null: in the order of the lane tree. Borrowed; must outlive the server.
  const DenseSum* dense_sum = nullptr;
  // Called, without a lock, when Tick is due at a time before the one that NextTick has said last. Null: nobody asks
  // NextTick.
  std::function<void(absl::Time at)> on_tick_due = nullptr;
  // Verify payload checksums. Must equal checks_payloads() of the delivering transport.
  bool check_payloads = true;
  // Limit in bytes, per trainer, of answers to pulls that it leaves unread, and of its pulls that wait until it reads.
  size_t unread_bytes = size_t{256} << 20;
  // Limit in bytes, per reader, of an answer, of answers that it leaves unread, and of its pulls that wait. All readers
  // together have what one trainer has.
  size_t reader_bytes = size_t{16} << 20;
  // Limit in bytes of the rows that one trainer's pushes of a step take here until the step takes effect, beside an
  // allowance for each example of a batch (docs/wire.md, "Limits").
  size_t pending_row_bytes = size_t{1} << 30;
  // Limit in bytes of one trainer's contributions to exchanges that server 0 keeps, beside room for posted residuals.
  size_t exchange_bytes = size_t{1} << 30;
};

// State of a server, for pages and metrics.
struct ServerReport {
  struct Trainer {
    std::string name;     // "trainer 1 (host:pid)"
    std::string state;    // "absent", "joined", "done", "dead"
    int64_t step = -1;    // last step begun; -1: none
    absl::Duration idle;  // since its last new action
    std::string waits;    // what it said last that it waits for; "": nothing
  };
  struct Wait {
    int trainer = 0;       // waited for
    std::string what;      // "step 57, for trainer 0"
    absl::Duration since;  // the last new action of that trainer
  };
  struct Table {
    std::string name;
    int64_t width = 0;  // values of a row
    int64_t rows = 0;   // on this server
    int64_t bytes = 0;  // memory of rows and indices
  };
  int64_t version = 0;
  bool stopped = false;           // the job ends before it is complete, because its end was requested
  std::vector<Trainer> trainers;  // by id
  std::vector<Wait> waits;
  std::vector<Table> tables;
};

class ServerCore {
 public:
  // Creates the server and runs the startup program. InvalidArgument names what the programs lack. Unavailable: another
  // process has had the directory of a table with a disk for a lease.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Create(ServerOptions options);
  virtual ~ServerCore() = default;

  // Answers a request, at once or later from another Handle or Tick; a join or a heart-beat is answered before Handle
  // returns. Malformed bytes are answered with InvalidArgument.
  virtual void Handle(Method method, const Slices& request, ReplyCallback reply) = 0;

  // Expires leases, answers pulls whose wait is over, logs slow trainers. Requires: called about every 100 ms, or when
  // NextTick and ServerOptions::on_tick_due say so.
  virtual void Tick() = 0;
  // Returns the time of the next Tick: in 100 ms, or later while nobody asks and no call waits for what only a look
  // finds.
  virtual absl::Time NextTick() = 0;

  // Asks for the end at the next common step border (SIGTERM).
  virtual void RequestStop() = 0;
  // Ends the job with an error of this process, unless it has failed already. For a trainer with a server inside, whose
  // failure is the server's too. Requires: `status` is not OK.
  virtual void ReportFailure(const absl::Status& status) = 0;
  // Returns true when every trainer is done, or when the job has failed and every trainer whose lease has not run out
  // has been told (or two leases have passed since). After RequestStop, trainers that have not joined are not waited
  // for.
  virtual bool Finished() = 0;
  // Returns the error the job failed with; OK while it has not failed.
  virtual absl::Status JobStatus() = 0;
  // Returns the number of steps that are over: those that have taken effect and those that a verdict has skipped.
  virtual int64_t Version() = 0;
  // Counters by name: "push.applied" (steps of a trainer that have taken effect here), "push.skipped" (steps skipped by
  // a verdict), "push.repeated" (parts that came again and were dropped), "staleness.most_steps" (the most steps that a
  // trainer was ahead of the slowest when it began a step; bounded staleness).
  virtual const Counters& counters() const = 0;
  // Returns what the server knows of trainers, waits and tables at this moment. Takes the server's lock for a moment
  // and those of the tables' stripes one after the other: for a call or two a second.
  virtual ServerReport Report() { return {}; }
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_SERVER_CORE_H_
