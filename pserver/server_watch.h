// Watches one server for /metrics, the job's page and TensorBoard, as the flags of framework/watch/process_watch.h ask.
// For main files.
#ifndef WEIR_PSERVER_SERVER_WATCH_H_
#define WEIR_PSERVER_SERVER_WATCH_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/watch/event_log.h"
#include "framework/watch/process_watch.h"
#include "proto/watch.pb.h"
#include "pserver/server/server_core.h"

namespace weir {

// Returns the counters of server `server`, and gauges of its report. From any thread.
std::vector<Counters::Entry> ServerEntries(ServerCore& core, int server);
// Adds to a status the waits at the server, its tables, and the trainers that it knows. From any thread.
void ReportServer(ServerCore& core, v1::ProcessStatus* status);

// Adds rows, memory and waits of a server to an event file, every ten seconds and at the end, on a thread of its own.
class ServerEvents {
 public:
  // Starts writing events of server `server`. Returns null without --tensorboard. `core` is borrowed and must outlive
  // the result. Errors as EventLog::Create.
  static absl::StatusOr<std::unique_ptr<ServerEvents>> Start(ServerCore* core, int server);
  ~ServerEvents();
  ServerEvents(const ServerEvents&) = delete;
  ServerEvents& operator=(const ServerEvents&) = delete;

 private:
  explicit ServerEvents(ServerCore* core) : core_(*core) {}
  void Run();
  void Add();

  ServerCore& core_;
  std::unique_ptr<EventLog> events_;
  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// The watch of a process that is a server and nothing else.
class ServerWatch {
 public:
  // `core` is borrowed and must outlive the watch. Errors as ProcessWatch::Start and EventLog::Create.
  static absl::StatusOr<std::unique_ptr<ServerWatch>> Start(ServerCore* core, int server, const std::string& job,
                                                            const std::string& plan_text);

 private:
  ServerWatch() = default;

  std::unique_ptr<ServerEvents> events_;  // null: no event file
  std::unique_ptr<ProcessWatch> watch_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_WATCH_H_
