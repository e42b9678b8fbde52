#include "pserver/server_watch.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "pserver/protocol/handshake.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(10);

// Time for which the trainers' pulls have waited for the slowest of them; 0 if none waits.
absl::Duration LongestWait(const ServerReport& report) {
  absl::Duration longest;
  for (const ServerReport::Wait& wait : report.waits) longest = std::max(longest, wait.since);
  return longest;
}

Counters::Entry GaugeEntry(std::string name, std::string unit, double value) {
  return {.name = std::move(name), .unit = std::move(unit), .kind = Counters::Kind::kGauge, .gauge = value};
}

}  // namespace

std::vector<Counters::Entry> ServerEntries(ServerCore& core, int server) {
  std::vector<Counters::Entry> entries = core.counters().Snapshot();
  // The report's numbers of rows and bytes are newer than those that lifecycles count after each step.
  std::erase_if(entries, [](const Counters::Entry& entry) {
    return entry.name.starts_with("table.") && (entry.name.ends_with(".rows") || entry.name.ends_with(".bytes"));
  });
  const ServerReport report = core.Report();
  for (const ServerReport::Table& table : report.tables) {
    entries.push_back(GaugeEntry(absl::StrCat("table.", table.name, ".rows"), "rows", static_cast<double>(table.rows)));
    entries.push_back(
        GaugeEntry(absl::StrCat("table.", table.name, ".bytes"), "bytes", static_cast<double>(table.bytes)));
  }
  const std::string prefix = absl::StrCat("server.", server, ".");
  entries.push_back(GaugeEntry(prefix + "version", "", static_cast<double>(report.version)));
  entries.push_back(
      GaugeEntry(prefix + "longest_wait", "microseconds", absl::ToDoubleMicroseconds(LongestWait(report))));
  const auto joined = std::count_if(report.trainers.begin(), report.trainers.end(),
                                    [](const ServerReport::Trainer& trainer) { return trainer.state == "joined"; });
  entries.push_back(GaugeEntry(prefix + "trainers", "", static_cast<double>(joined)));
  return entries;
}

void ReportServer(ServerCore& core, v1::ProcessStatus* status) {
  const ServerReport report = core.Report();
  for (const ServerReport::Wait& wait : report.waits) {
    v1::WatchedWait& added = *status->add_waits();
    added.set_for_(absl::StrCat("trainer ", wait.trainer));
    added.set_what(wait.what);
    added.set_seconds(absl::ToDoubleSeconds(wait.since));
  }
  for (const ServerReport::Table& table : report.tables) {
    v1::ProcessStatus::Table& added = *status->add_table();
    added.set_name(table.name);
    added.set_width(static_cast<double>(table.width));
    added.set_rows(static_cast<double>(table.rows));
    added.set_bytes(static_cast<double>(table.bytes));
  }
  for (const ServerReport::Trainer& trainer : report.trainers) {
    v1::ProcessStatus::Trainer& added = *status->add_trainer();
    added.set_name(trainer.name);
    added.set_state(trainer.state);
    added.set_step(static_cast<double>(trainer.step));
    added.set_idle_seconds(absl::ToDoubleSeconds(trainer.idle));
    added.set_waits(trainer.waits);
  }
}

absl::StatusOr<std::unique_ptr<ServerEvents>> ServerEvents::Start(ServerCore* core, int server) {
  ASSIGN_OR_RETURN(const EventFlags flags, ReadEventFlags());
  if (flags.directory.empty()) return nullptr;
  std::unique_ptr<ServerEvents> events(new ServerEvents(core));
  ASSIGN_OR_RETURN(events->events_, EventLog::Create(absl::StrCat(flags.directory, "/pserver.", server)));
  events->thread_ = StartThread("weir-rows", [self = events.get()] { self->Run(); });
  return events;
}

ServerEvents::~ServerEvents() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void ServerEvents::Add() {
  const ServerReport report = core_.Report();
  EventFile* const file = events_->file();
  for (const ServerReport::Table& table : report.tables) {
    file->Scalar(absl::StrCat("rows/", table.name), report.version, static_cast<double>(table.rows));
    file->Scalar(absl::StrCat("table_bytes/", table.name), report.version, static_cast<double>(table.bytes));
  }
  file->Scalar("wait/longest_s", report.version, absl::ToDoubleSeconds(LongestWait(report)));
  file->Scalar("process/rss_bytes", report.version, UseOfThisProcess().rss_bytes);
}

void ServerEvents::Run() {
  while (true) {
    {
      const absl::Time until = Clock::Real()->Now() + kInterval;
      MutexLock lock(&mu_);
      while (!stop_ && Clock::Real()->Now() < until) changed_.WaitWithTimeout(&mu_, until - Clock::Real()->Now());
      if (stop_) break;
    }
    Add();
  }
  Add();
}

absl::StatusOr<std::unique_ptr<ServerWatch>> ServerWatch::Start(ServerCore* core, int server, const std::string& job,
                                                                const std::string& plan_text) {
  std::unique_ptr<ServerWatch> watch(new ServerWatch());
  ASSIGN_OR_RETURN(watch->events_, ServerEvents::Start(core, server));
  ASSIGN_OR_RETURN(
      watch->watch_,
      ProcessWatch::Start({.role = "pserver",
                           .id = server,
                           .job = job,
                           .fingerprint = absl::StrCat(absl::Hex(PlanFingerprint(plan_text), absl::kZeroPad16)),
                           .build = std::string(kBuild),
                           .entries = [core, server] { return ServerEntries(*core, server); },
                           .status =
                               [core](v1::ProcessStatus* status) {
                                 status->set_step(static_cast<double>(core->Report().version));
                                 ReportServer(*core, status);
                               }}));
  return watch;
}

}  // namespace weir
