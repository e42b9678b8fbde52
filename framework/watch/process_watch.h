// Lets others watch a trainer or server, as its flags ask: with --metrics_port it has a port of its own with
// /metrics, for Prometheus, and /status.json (proto/watch.proto), for the job's page. Linking this target defines the
// flags --metrics_port, --metrics_address, --tensorboard and --tensorboard_histograms. For main files.
#ifndef WEIR_FRAMEWORK_WATCH_PROCESS_WATCH_H_
#define WEIR_FRAMEWORK_WATCH_PROCESS_WATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/counters.h"
#include "framework/watch/watch_server.h"
#include "proto/watch.pb.h"

namespace weir {

// Directory of --tensorboard, "" for none, and the steps between histograms, 0 for none.
struct EventFlags {
  std::string directory;
  int64_t histogram_steps = 0;
};
// InvalidArgument if --tensorboard_histograms is negative, or given without --tensorboard.
absl::StatusOr<EventFlags> ReadEventFlags();

class ProcessWatch {
 public:
  struct Options {
    // "trainer" or "pserver", with its number.
    std::string role;
    int id = 0;
    std::string job;
    std::string fingerprint;  // of the job's plan
    std::string build;        // "weir 0.1.0"
    // Entries besides those of Counters::Process(), from any thread; may be empty.
    std::function<std::vector<Counters::Entry>()> entries;
    // Adds what the process knows to a status that has the role, the number, memory and processor time. From any
    // thread, for as long as this object lives.
    std::function<void(v1::ProcessStatus*)> status;
  };
  // Listens if --metrics_port is given, and prints "metrics <url>/metrics" to standard output; else returns null.
  // Errors as WatchServer::Start.
  static absl::StatusOr<std::unique_ptr<ProcessWatch>> Start(Options options);

 private:
  explicit ProcessWatch(Options options) : o_(std::move(options)) {}
  std::string Metrics() const;
  absl::StatusOr<std::string> Status() const;
  // Returns the entries of the process and those of the options, sorted by name.
  std::vector<Counters::Entry> Entries() const;

  const Options o_;
  std::unique_ptr<WatchServer> server_;  // destroyed first
};

// Resident memory in bytes and processor time in seconds of this process.
struct ProcessUse {
  double rss_bytes = 0;
  double cpu_seconds = 0;
};
ProcessUse UseOfThisProcess();

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_PROCESS_WATCH_H_
