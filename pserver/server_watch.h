// Watches one server for /metrics, the job's page and TensorBoard, as the flags of framework/watch/process_watch.h ask.
// For main files.
#ifndef WEIR_PSERVER_SERVER_WATCH_H_
#define WEIR_PSERVER_SERVER_WATCH_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/watch/event_log.h"
#include "framework/watch/process_watch.h"
#include "pserver/server/server_core.h"

namespace weir {

class ServerWatch {
 public:
  // `core` is borrowed and must outlive the watch. Errors as ProcessWatch::Start and EventLog::Create.
  static absl::StatusOr<std::unique_ptr<ServerWatch>> Start(ServerCore* core, int server, const std::string& job,
                                                            const std::string& plan_text);
  ~ServerWatch();
  ServerWatch(const ServerWatch&) = delete;
  ServerWatch& operator=(const ServerWatch&) = delete;

 private:
  ServerWatch(ServerCore* core, int server) : core_(*core), server_(server) {}
  // Returns the counters of the server, and gauges of the report.
  std::vector<Counters::Entry> Entries() const;
  void Report(v1::ProcessStatus* status) const;
  // Adds rows, memory and waits to the event file, every ten seconds and at the end.
  void WriteEvents();
  void AddEvents();

  ServerCore& core_;
  const int server_;
  std::unique_ptr<EventLog> events_;  // null: no event file
  std::unique_ptr<ProcessWatch> watch_;
  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_WATCH_H_
