#include "framework/watch/process_watch.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/watch/message_json.h"
#include "framework/watch/prometheus_text.h"

ABSL_FLAG(int, metrics_port, -1, "port with /metrics for Prometheus; 0: any that is free; default: none");
ABSL_FLAG(std::string, metrics_address, "127.0.0.1",
          "address that --metrics_port listens at; there is no password: others can read it at any but a local one");
ABSL_FLAG(std::string, tensorboard, "",
          "directory for TensorBoard's event files, one directory in it for each process");
ABSL_FLAG(int64_t, tensorboard_histograms, 0,
          "steps between histograms of dense parameters and gradients in the event file of a trainer; 0: none");

namespace weir {

absl::StatusOr<EventFlags> ReadEventFlags() {
  EventFlags flags{.directory = absl::GetFlag(FLAGS_tensorboard),
                   .histogram_steps = absl::GetFlag(FLAGS_tensorboard_histograms)};
  if (flags.histogram_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensorboard_histograms=", flags.histogram_steps, ": must be a number of steps, or 0"));
  }
  if (flags.histogram_steps > 0 && flags.directory.empty()) {
    return absl::InvalidArgumentError("--tensorboard_histograms goes with --tensorboard=DIR");
  }
  return flags;
}

ProcessUse UseOfThisProcess() {
  ProcessUse use;
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    use.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  if (std::FILE* const file = std::fopen("/proc/self/statm", "re")) {
    double all = 0, resident = 0;
    if (std::fscanf(file, "%lf %lf", &all, &resident) == 2) {
      use.rss_bytes = resident * static_cast<double>(sysconf(_SC_PAGESIZE));
    }
    std::fclose(file);
  }
  return use;
}

absl::StatusOr<std::unique_ptr<ProcessWatch>> ProcessWatch::Start(Options options) {
  const int port = absl::GetFlag(FLAGS_metrics_port);
  if (port < 0) return nullptr;
  std::unique_ptr<ProcessWatch> watch(new ProcessWatch(std::move(options)));
  const ProcessWatch* const self = watch.get();
  absl::StatusOr<std::unique_ptr<WatchServer>> server = WatchServer::Start(
      {{.path = "/metrics",
        .content_type = kPrometheusContentType,
        .content = [self](std::string_view) -> absl::StatusOr<std::string> { return self->Metrics(); }},
       {.path = "/status.json",
        .content_type = "application/json",
        .content = [self](std::string_view) { return self->Status(); }}},
      {.address = absl::GetFlag(FLAGS_metrics_address), .port = port});
  if (!server.ok()) {
    return absl::Status(server.status().code(), absl::StrCat("--metrics_port: ", server.status().message()));
  }
  watch->server_ = *std::move(server);
  std::printf("metrics %s/metrics\n", watch->server_->url().c_str());
  std::fflush(stdout);
  return watch;
}

std::vector<Counters::Entry> ProcessWatch::Entries() const {
  std::vector<Counters::Entry> entries = Counters::Process().Snapshot();
  if (o_.entries) {
    std::vector<Counters::Entry> more = o_.entries();
    entries.insert(entries.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  return entries;
}

std::string ProcessWatch::Metrics() const {
  // "job" is a label that Prometheus itself sets.
  const PrometheusLabels labels = {
      {"job_name", o_.job}, {"role", o_.role == "pserver" ? "server" : o_.role}, {"id", absl::StrCat(o_.id)}};
  return absl::StrCat(PrometheusText(Entries(), labels), PrometheusProcess(labels),
                      PrometheusInfo("build", {{"version", o_.build}}, labels),
                      PrometheusInfo("job", {{"fingerprint", o_.fingerprint}}, labels));
}

absl::StatusOr<std::string> ProcessWatch::Status() const {
  v1::ProcessStatus status;
  status.set_role(o_.role);
  status.set_id(o_.id);
  const ProcessUse use = UseOfThisProcess();
  status.set_rss_bytes(use.rss_bytes);
  status.set_cpu_seconds(use.cpu_seconds);
  if (o_.status) o_.status(&status);
  return MessageAsJson(status);
}

}  // namespace weir
