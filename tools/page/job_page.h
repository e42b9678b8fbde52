// The page of a running job (launch --page): serves it, and collects what it shows from the output of the processes and
// from their /status.json. Read-only.
#ifndef WEIR_TOOLS_PAGE_JOB_PAGE_H_
#define WEIR_TOOLS_PAGE_JOB_PAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/watch/watch_server.h"
#include "proto/watch.pb.h"
#include "tools/page/findings.h"

namespace weir {

// State of a job as its page shows it. Thread-safe.
class JobPageState {
 public:
  // `job`: name, file, epochs, max_steps.
  explicit JobPageState(v1::JobState::Job job, Clock* clock = Clock::Real());

  // Adds a process and returns its index. A process with the role and id of an earlier one replaces it and counts as
  // restarted. host: "localhost" or a name.
  size_t AddProcess(const std::string& role, int id, const std::string& host);
  // Takes a line of a process: progress, evaluations, checkpoints, the address of its metrics; all lines are kept for
  // the log, the last kLogLines of them.
  void TakeLine(size_t process, bool is_stdout, std::string_view line);
  // Sets the process id, of a process on this machine.
  void SetPid(size_t process, pid_t pid);
  // Records that a process has ended. state: "exited" or "lost".
  void SetEnd(size_t process, const std::string& state, int exit_code);
  // Sets the state of the job: "starting", "running", "stopping", "stopped", "done" or "failed". exit_code counts in
  // the last three.
  void SetJob(const std::string& state, int exit_code, const std::string& message);
  void SetPlan(std::string plan);
  // Takes what a process said of itself in /status.json; server 0 also tells what trainers wait for.
  void TakeStatus(size_t process, const v1::ProcessStatus& status);
  // Records memory and rows as of now, for the curves.
  void Sample();

  // Returns the addresses of running processes that have told theirs, by process: "http://127.0.0.1:9100".
  std::map<size_t, std::string> Addresses() const;
  // Returns the state. since >= 0: without the plan, and of points, evaluations, memory and log lines only those with a
  // seq above `since`.
  v1::JobState State(double since) const;

  static constexpr size_t kLogLines = 2000;
  static constexpr size_t kPoints = 20000;   // 22 hours of a line every four seconds
  static constexpr size_t kSamples = 20000;  // 28 hours of one in five seconds

 private:
  struct ProcessPlace {
    v1::JobState::Process shown;
    std::vector<v1::ProcessStatus::Table> tables;
    // Waits of the process: those that server 0 has heard of, and those that a server in the process knows.
    std::vector<v1::WatchedWait> told, of_server;
  };
  // Makes `shown.waits` of both.
  void ShowWaits(ProcessPlace* place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return ++seq_; }
  double Now() const { return absl::ToDoubleSeconds(clock_->Now() - absl::UnixEpoch()); }
  void TakeProgress(std::string_view line, int trainer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the figures of the job from those of a trainer.
  void TakeFigures(int trainer, const v1::ProcessStatus& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<v1::JobState::Table> Tables() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Clock* const clock_;
  mutable Mutex mu_;
  double seq_ ABSL_GUARDED_BY(mu_) = 0;
  v1::JobState::Job job_ ABSL_GUARDED_BY(mu_);
  std::string plan_ ABSL_GUARDED_BY(mu_);
  std::vector<ProcessPlace> processes_ ABSL_GUARDED_BY(mu_);
  int progress_by_ ABSL_GUARDED_BY(mu_) = -1;  // trainer whose lines count
  std::deque<v1::JobState::Point> points_ ABSL_GUARDED_BY(mu_), evaluations_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::JobState::Memory> memory_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::JobState::Checkpoint> checkpoints_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::JobState::LogLine> log_ ABSL_GUARDED_BY(mu_);
};

// Serves the page of a state, and asks the processes for theirs: each second while a browser asks, else every five.
class JobPage {
 public:
  // Borrows the state. `plan` is run once, on the page's thread. `checkpoints`: directory whose findings are shown
  // (tools/page/findings.h); "": none. Errors as WatchServer::Start.
  static absl::StatusOr<std::unique_ptr<JobPage>> Start(JobPageState* state, std::function<std::string()> plan,
                                                        const std::string& address, int port,
                                                        const std::string& checkpoints = "");
  ~JobPage();

  std::string url() const { return server_->url(); }
  // If a browser shows the page, waits until it has the state once more, at most `most`, so that the page shows how the
  // job has ended.
  void AwaitLastLook(absl::Duration most);

 private:
  JobPage(JobPageState* state, std::function<std::string()> plan, const std::string& checkpoints)
      : state_(state), plan_(std::move(plan)), findings_(checkpoints) {}
  absl::StatusOr<std::string> StateJson(std::string_view query);
  void Watch();

  JobPageState* const state_;
  const std::function<std::string()> plan_;
  Findings findings_;
  std::unique_ptr<WatchServer> server_;
  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time looked_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_TOOLS_PAGE_JOB_PAGE_H_
