#include "tools/page/job_page.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/utf8.h"
#include "framework/watch/http_get.h"
#include "framework/watch/message_json.h"
#include "glog/logging.h"
#include "tools/page/page_html.h"

namespace weir {
namespace {

// Limit for a process to answer; it is asked again a second later.
constexpr absl::Duration kStatusLimit = absl::Seconds(1);
constexpr size_t kLongestLine = 4000;  // of the log, in bytes

// Returns the numbers of a line "step=120 loss=0.4612 auc=0.7712 (...)", by name.
std::map<std::string, double> NumbersOf(std::string_view line) {
  std::map<std::string, double> numbers;
  const std::string text(line.substr(0, line.find(" (")));
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const size_t equals = word.find('=');
    double value = 0;
    if (equals == absl::string_view::npos || !absl::SimpleAtod(word.substr(equals + 1), &value)) continue;
    if (std::isfinite(value)) numbers[std::string(word.substr(0, equals))] = value;
  }
  return numbers;
}

// Moves what every point has out of `numbers`; the rest are figures of the job.
v1::JobState::Point PointOf(std::map<std::string, double> numbers) {
  v1::JobState::Point point;
  const auto take = [&](const char* name, auto set) {
    const auto at = numbers.find(name);
    if (at == numbers.end()) return;
    set(at->second);
    numbers.erase(at);
  };
  take("step", [&](double v) { point.set_step(v); });
  take("examples", [&](double v) { point.set_examples(v); });
  take("loss", [&](double v) { point.set_loss(v); });
  take("auc", [&](double v) { point.set_auc(v); });
  take("examples_per_s", [&](double v) { point.set_examples_per_s(v); });
  numbers.erase("auc_error");  // of the computation, not of the model
  point.mutable_more()->insert(numbers.begin(), numbers.end());
  return point;
}

// Severity of a line of the log: "W1127 16:14:11.481540 ..." or "W20261127 ...".
std::string SeverityOf(std::string_view line) {
  if (line.size() < 6 || std::string_view("IWEF").find(line[0]) == std::string_view::npos) return "";
  const bool digits = std::all_of(line.begin() + 1, line.begin() + 5,
                                  [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return digits ? std::string(1, line[0]) : "";
}

// Returns the numbers of the servers of what a trainer waits for: of "server 0 at 10.0.0.1:6170, server 1 (ps-1:4711):
// version 31" "0" and "1".
std::vector<std::string> ServersIn(const std::string& waits) {
  std::vector<std::string> servers;
  const size_t end = waits.rfind(": ");
  if (end == std::string::npos) return servers;
  constexpr std::string_view kName = "server ";
  for (size_t at = waits.find(kName); at < end; at = waits.find(kName, at)) {
    at += kName.size();
    const size_t digits = std::min(waits.find_first_not_of("0123456789", at), waits.size());
    if (digits > at) servers.push_back(waits.substr(at, digits - at));
  }
  return servers;
}

template <typename T>
void Limit(std::deque<T>* queue, size_t most) {
  while (queue->size() > most) queue->pop_front();
}

}  // namespace

JobPageState::JobPageState(v1::JobState::Job job, Clock* clock) : clock_(clock), job_(std::move(job)) {
  MutexLock lock(&mu_);
  job_.set_started(Now());
  job_.set_state("starting");
}

size_t JobPageState::AddProcess(const std::string& role, int id, const std::string& host) {
  MutexLock lock(&mu_);
  const auto before = std::find_if(processes_.begin(), processes_.end(), [&](const ProcessPlace& each) {
    return each.shown.role() == role && each.shown.id() == id;
  });
  ProcessPlace place;
  if (before != processes_.end()) place.shown.set_restarts(before->shown.restarts() + 1);
  place.shown.set_name(absl::StrCat(role, " ", id));
  place.shown.set_role(role);
  place.shown.set_id(id);
  place.shown.set_host(host);
  place.shown.set_state("running");
  if (before != processes_.end()) {
    *before = std::move(place);
    return static_cast<size_t>(before - processes_.begin());
  }
  processes_.push_back(std::move(place));
  return processes_.size() - 1;
}

void JobPageState::SetPid(size_t process, pid_t pid) {
  MutexLock lock(&mu_);
  processes_[process].shown.set_pid(pid);
}

void JobPageState::SetEnd(size_t process, const std::string& state, int exit_code) {
  MutexLock lock(&mu_);
  ProcessPlace& place = processes_[process];
  place.shown.set_state(state);
  place.shown.set_exit_code(exit_code);
  place.told.clear();
  place.of_server.clear();
  ShowWaits(&place);
}

void JobPageState::SetJob(const std::string& state, int exit_code, const std::string& message) {
  MutexLock lock(&mu_);
  job_.set_state(state);
  if (state == "done" || state == "stopped" || state == "failed") job_.set_exit_code(exit_code);
  job_.set_message(ToUtf8(message));
}

void JobPageState::SetPlan(std::string plan) {
  MutexLock lock(&mu_);
  plan_ = ToUtf8(plan);
}

void JobPageState::TakeProgress(std::string_view line, int trainer) {
  const bool evaluation = line.starts_with("eval step=");
  if (line.starts_with("checkpoint step=")) {
    const std::map<std::string, double> numbers = NumbersOf(line);
    v1::JobState::Checkpoint checkpoint;
    if (const auto step = numbers.find("step"); step != numbers.end()) checkpoint.set_step(step->second);
    checkpoint.set_t(Now());
    checkpoint.set_complete(true);
    checkpoints_.push_back(std::move(checkpoint));
    return;
  }
  if (!evaluation && !line.starts_with("step=")) return;
  // In async every trainer has lines; those of the lowest one count, as in the last line of launch.
  if (!evaluation && progress_by_ >= 0 && trainer > progress_by_) return;
  std::map<std::string, double> numbers = NumbersOf(line);
  if (!evaluation) {
    progress_by_ = trainer;
    if (const auto left = numbers.find("left_s"); left != numbers.end()) {
      const double elapsed = Now() - job_.started();
      if (elapsed + left->second > 0) job_.set_fraction(elapsed / (elapsed + left->second));
      numbers.erase(left);
    }
  }
  v1::JobState::Point point = PointOf(std::move(numbers));
  point.set_seq(Next());
  point.set_t(Now());
  if (!evaluation) {
    job_.set_step(point.step());
    job_.set_examples(point.examples());
    job_.set_examples_per_s(point.examples_per_s());
    job_.set_loss(point.loss());
    if (point.has_auc()) job_.set_auc(point.auc());
    points_.push_back(std::move(point));
    Limit(&points_, kPoints);
  } else {
    for (v1::JobState::Checkpoint& checkpoint : checkpoints_) {
      if (checkpoint.step() != point.step()) continue;
      (*checkpoint.mutable_figures())["loss"] = point.loss();
      if (point.has_auc()) (*checkpoint.mutable_figures())["auc"] = point.auc();
    }
    evaluations_.push_back(std::move(point));
    Limit(&evaluations_, kPoints);
  }
}

void JobPageState::TakeLine(size_t process, bool is_stdout, std::string_view line) {
  MutexLock lock(&mu_);
  v1::JobState::Process& shown = processes_[process].shown;
  if (is_stdout) {
    if (line.starts_with("metrics http://")) {
      shown.set_metrics(std::string(line.substr(line.find(' ') + 1)));
    } else if (line.starts_with("ready server=")) {
      const size_t endpoint = line.find("endpoint=");
      if (endpoint != std::string_view::npos) shown.set_address(std::string(line.substr(endpoint + 9)));
    } else if (shown.role() == "trainer") {
      TakeProgress(line, shown.id());
    }
  }
  v1::JobState::LogLine& kept = log_.emplace_back();
  kept.set_seq(Next());
  kept.set_t(Now());
  kept.set_process(shown.name());
  kept.set_severity(SeverityOf(line));
  kept.set_text(ToUtf8(line.substr(0, kLongestLine)));
  Limit(&log_, kLogLines);
}

void JobPageState::TakeFigures(int trainer, const v1::ProcessStatus& status) {
  const auto take = [&](const char* name, void (v1::JobState::Job::*set)(double)) {
    if (const auto figure = status.figure().find(name); figure != status.figure().end()) (job_.*set)(figure->second);
  };
  if (trainer == progress_by_) take("fraction", &v1::JobState::Job::set_fraction);
  // Of the chief only.
  take("restarts", &v1::JobState::Job::set_restarts);
  take("lost_seconds", &v1::JobState::Job::set_lost_seconds);
  take("repeated_steps", &v1::JobState::Job::set_repeated_steps);
  take("goodput", &v1::JobState::Job::set_goodput);
}

void JobPageState::TakeStatus(size_t process, const v1::ProcessStatus& status) {
  MutexLock lock(&mu_);
  ProcessPlace& place = processes_[process];
  v1::JobState::Process& shown = place.shown;
  if (status.has_rss_bytes()) shown.set_rss_bytes(status.rss_bytes());
  if (status.has_cpu_seconds()) shown.set_cpu_seconds(status.cpu_seconds());
  if (status.has_step()) shown.set_step(status.step());
  place.of_server.assign(status.waits().begin(), status.waits().end());
  ShowWaits(&place);
  *shown.mutable_time() = status.time();
  place.tables.assign(status.table().begin(), status.table().end());
  if (shown.role() == "trainer") TakeFigures(shown.id(), status);
  // Server 0, which trainer 0 may have in it, knows what the trainers wait for, by their heart-beats.
  if (shown.id() != 0) return;
  const bool in_trainer = shown.role() != "pserver";
  for (int t = 0; t < status.trainer_size(); ++t) {
    const v1::ProcessStatus::Trainer& told = status.trainer(t);
    const auto other = std::find_if(processes_.begin(), processes_.end(), [t](const ProcessPlace& each) {
      return each.shown.role() == "trainer" && each.shown.id() == t;
    });
    if (other == processes_.end() || other->shown.state() != "running") continue;
    other->told.clear();
    std::vector<std::string> servers = ServersIn(told.waits());
    v1::WatchedWait wait;
    wait.set_seconds(told.idle_seconds());
    if (servers.empty() && !told.waits().empty()) {
      wait.set_for_(told.waits());
      other->told.push_back(wait);
    }
    for (const std::string& server : servers) {
      wait.set_for_(absl::StrCat(in_trainer ? "trainer " : "pserver ", server));
      wait.set_what(told.waits().substr(told.waits().rfind(": ") + 2));
      other->told.push_back(wait);
    }
    ShowWaits(&*other);
  }
}

void JobPageState::ShowWaits(ProcessPlace* place) {
  v1::JobState::Process& shown = place->shown;
  shown.clear_waits();
  for (const std::vector<v1::WatchedWait>* waits : {&place->told, &place->of_server}) {
    // A trainer with a server in it waits there for others, not for itself.
    for (const v1::WatchedWait& wait : *waits) {
      if (wait.for_() != shown.name()) *shown.add_waits() = wait;
    }
  }
}

std::vector<v1::JobState::Table> JobPageState::Tables() const {
  std::map<std::string, v1::JobState::Table> tables;
  for (const ProcessPlace& place : processes_) {
    for (const v1::ProcessStatus::Table& part : place.tables) {
      v1::JobState::Table& table = tables[part.name()];
      table.set_name(part.name());
      table.set_width(part.width());
      table.set_rows(table.rows() + part.rows());
      table.set_bytes(table.bytes() + part.bytes());
      v1::JobState::Table::Part& server = *table.add_servers();
      server.set_id(place.shown.id());
      server.set_rows(part.rows());
      server.set_bytes(part.bytes());
    }
  }
  std::vector<v1::JobState::Table> list;
  for (auto& [name, table] : tables) list.push_back(std::move(table));
  return list;
}

void JobPageState::Sample() {
  MutexLock lock(&mu_);
  v1::JobState::Memory sample;
  for (const ProcessPlace& place : processes_) {
    if (place.shown.state() == "running" && place.shown.has_rss_bytes())
      (*sample.mutable_rss())[place.shown.name()] = place.shown.rss_bytes();
  }
  for (const v1::JobState::Table& table : Tables()) (*sample.mutable_rows())[table.name()] = table.rows();
  if (sample.rss().empty()) return;
  sample.set_seq(Next());
  sample.set_t(Now());
  memory_.push_back(std::move(sample));
  Limit(&memory_, kSamples);
}

std::map<size_t, std::string> JobPageState::Addresses() const {
  MutexLock lock(&mu_);
  std::map<size_t, std::string> addresses;
  for (size_t i = 0; i < processes_.size(); ++i) {
    const v1::JobState::Process& shown = processes_[i].shown;
    if (shown.state() != "running" || shown.metrics().empty()) continue;
    std::string url = shown.metrics().substr(0, shown.metrics().rfind("/metrics"));
    const bool here = shown.host() == "localhost";
    // Another machine's own address for itself leads nowhere from here.
    if (!here && (absl::StrContains(url, "//127.") || absl::StrContains(url, "//[::1]"))) continue;
    const std::string host = here ? "127.0.0.1" : shown.host();
    addresses[i] = absl::StrReplaceAll(url, {{"//0.0.0.0:", "//" + host + ":"}, {"//[::]:", "//" + host + ":"}});
  }
  return addresses;
}

v1::JobState JobPageState::State(double since) const {
  MutexLock lock(&mu_);
  v1::JobState state;
  state.set_seq(seq_);
  state.set_now(Now());
  *state.mutable_job() = job_;
  for (const ProcessPlace& place : processes_) *state.add_processes() = place.shown;
  const auto add = [since](const auto& from, auto* to) {
    const auto first =
        std::partition_point(from.begin(), from.end(), [since](const auto& each) { return each.seq() <= since; });
    for (auto each = first; each != from.end(); ++each) *to->Add() = *each;
  };
  add(points_, state.mutable_points());
  add(evaluations_, state.mutable_evaluations());
  add(memory_, state.mutable_memory());
  add(log_, state.mutable_log());
  for (const v1::JobState::Table& table : Tables()) *state.add_tables() = table;
  for (const v1::JobState::Checkpoint& checkpoint : checkpoints_) *state.add_checkpoints() = checkpoint;
  if (since < 0) state.set_plan(plan_);
  return state;
}

absl::StatusOr<std::unique_ptr<JobPage>> JobPage::Start(JobPageState* state, std::function<std::string()> plan,
                                                        const std::string& address, int port,
                                                        const std::string& checkpoints) {
  std::unique_ptr<JobPage> page(new JobPage(state, std::move(plan), checkpoints));
  JobPage* const self = page.get();
  absl::StatusOr<std::unique_ptr<WatchServer>> server = WatchServer::Start(
      {{.path = "/",
        .content_type = "text/html; charset=utf-8",
        .content = [](std::string_view) -> absl::StatusOr<std::string> { return std::string(PageHtml()); }},
       {.path = "/state.json",
        .content_type = "application/json",
        .content = [self](std::string_view query) { return self->StateJson(query); }}},
      {.address = address, .port = port});
  if (!server.ok()) return absl::Status(server.status().code(), absl::StrCat("--page: ", server.status().message()));
  page->server_ = *std::move(server);
  page->thread_ = StartThread("weir-page", [self] { self->Watch(); });
  return page;
}

JobPage::~JobPage() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  // Its threads use mu_, which is destroyed before server_.
  if (server_ != nullptr) server_->Stop();
}

void JobPage::AwaitLastLook(absl::Duration most) {
  const absl::Time now = Clock::Real()->Now();
  MutexLock lock(&mu_);
  if (now - looked_at_ > absl::Seconds(5)) return;
  while (looked_at_ < now && Clock::Real()->Now() < now + most) {
    changed_.WaitWithTimeout(&mu_, now + most - Clock::Real()->Now());
  }
}

absl::StatusOr<std::string> JobPage::StateJson(std::string_view query) {
  double since = -1;
  // Findings that a browser has are not sent again: "?since=12&findings=1".
  const size_t known = query.find("&findings=");
  const std::string_view known_version = known == std::string_view::npos ? "" : query.substr(known + 10);
  query = query.substr(0, known);
  if (query.starts_with("since=") && !absl::SimpleAtod(std::string(query.substr(6)), &since)) {
    return absl::InvalidArgumentError("since must be a number");
  }
  {
    MutexLock lock(&mu_);
    looked_at_ = Clock::Real()->Now();
    changed_.SignalAll();
  }
  ASSIGN_OR_RETURN(std::string json, MessageAsJson(state_->State(since)));
  const std::string version = absl::StrCat(findings_.version()), fields = findings_.Fields();
  if (fields.empty() || known_version == version) return json;
  // The state is an object that has fields.
  json.erase(json.rfind('}'));
  return absl::StrCat(json, ",\"findings\":", version, ",", fields, "}");
}

void JobPage::Watch() {
  // A process that ends while it is asked must not end this one.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  state_->SetPlan(plan_());
  absl::Time sampled = absl::InfinitePast();
  while (true) {
    absl::Time looked_at;
    {
      MutexLock lock(&mu_);
      const absl::Time until = Clock::Real()->Now() + absl::Seconds(1);
      while (!stop_ && Clock::Real()->Now() < until) changed_.WaitWithTimeout(&mu_, until - Clock::Real()->Now());
      if (stop_) return;
      looked_at = looked_at_;
    }
    findings_.Look();
    const absl::Time now = Clock::Real()->Now();
    if (now - looked_at > absl::Seconds(5) && now - sampled < absl::Seconds(5)) continue;
    for (const auto& [process, url] : state_->Addresses()) {
      const absl::StatusOr<std::string> json = HttpGet(url, "/status.json", kStatusLimit);
      v1::ProcessStatus status;
      if (json.ok() && MessageFromJson(*json, &status).ok()) state_->TakeStatus(process, status);
    }
    state_->Sample();
    sampled = now;
  }
}

}  // namespace weir
