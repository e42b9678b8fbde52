#include "tools/launching/launcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profile_run.h"

namespace weir {
namespace {

// Port in the line with which a server says that it listens, "ready server=0 endpoint=127.0.0.1:6170"; 0 if it is
// another line.
int ReadyPort(std::string_view line) {
  int port = 0;
  const size_t colon = line.rfind(':');
  if (!line.starts_with("ready server=") || colon == std::string_view::npos) return 0;
  return absl::SimpleAtoi(std::string(line.substr(colon + 1)), &port) && port > 0 ? port : 0;
}

}  // namespace

absl::Status Launcher::ConnectHosts() {
  const Placement& placement = options_.placement;
  HostSetOptions hosts{
      .ssh = options_.ssh, .agent = {options_.programs.launch, "--agent"}, .lease = options_.deadlines.lease};
  for (const PlacedHost& host : placement.hosts) {
    hosts.names.push_back(host.remote ? host.name : "");
    // Trainers that serve have to know each other's ports before they listen.
    hosts.ports.push_back(placement.trainers_serve() && !placement.meet_at_master ? host.trainers : 0);
  }
  if (placement.master_port == 0) ++hosts.ports[0];
  std::error_code error;
  hosts.directory = std::filesystem::current_path(error).string();
  return hosts_.Connect(std::move(hosts),
                        [this](const std::string& host, std::string_view line) { display_.ShowHostLine(host, line); });
}

absl::StatusOr<std::vector<std::string>> Launcher::MissingHosts() const {
  std::vector<std::string> names = hosts_.Missing();
  // A restart may go on without all hosts that fail, and without no other: it waits for the word of each.
  if (options_.restarts.place_without == nullptr || names.empty()) RETURN_IF_ERROR(hosts_.failure());
  for (std::string& name : names) name.insert(0, "host ");
  return names;
}

absl::Status Launcher::DivideHosts() {
  for (size_t i = 0; i < options_.placement.hosts.size(); ++i) {
    ASSIGN_OR_RETURN(HostShares shares, ShareHost(options_, i, hosts_.machine(i)));
    shares_.push_back(std::move(shares));
  }
  for (const std::string& line : Describe(options_, shares_)) display_.Say(line);
  return absl::OkStatus();
}

absl::Status Launcher::StartProcess(bool server, int id, size_t host, ChildCommand child, std::vector<int> cpus) {
  // Removes that of an earlier run. Anything else that has the name stays, and the process says that it cannot write
  // there.
  if (!options_.profile.empty()) (void)::unlink(ProfileFile(options_, server, id).c_str());
  const std::string name = ProcessName(server, id);
  ASSIGN_OR_RETURN(Process* const process,
                   hosts_.Start(host,
                                {.name = name,
                                 .command = std::move(child.command),
                                 .environment = std::move(child.environment),
                                 .log_file = JoinPath(options_.log_dir, name + ".log"),
                                 .cpus = std::move(cpus),
                                 .stdin_fd = options_.job_fd},
                                [this, member = members_.size()](bool is_stdout, std::string_view line) {
                                  OnLine(members_[member], is_stdout, line);
                                }));
  const PlacedHost& place = options_.placement.hosts[host];
  members_.push_back({.server = server,
                      .id = id,
                      .process = process,
                      .on_page = display_.AddProcess(server, id, place.remote ? place.name : "", *process)});
  return absl::OkStatus();
}

void Launcher::OnLine(Member& member, bool is_stdout, std::string_view line) {
  last_line_at_ = Clock::Real()->Now();
  display_.ShowLine(member.on_page, ProcessName(member.server, member.id), is_stdout, line);
  if (!is_stdout) return;
  if (member.server) {
    if (const int port = member.endpoint.empty() ? ReadyPort(line) : 0; port > 0) {
      member.endpoint = absl::StrCat(options_.placement.servers[static_cast<size_t>(member.id)].address, ":", port);
    }
    return;
  }
  if (int64_t step = 0; line.starts_with("checkpoint step=")) {
    const std::string_view number = line.substr(line.find('=') + 1);
    if (absl::SimpleAtoi(std::string(number.substr(0, number.find(' '))), &step)) saved_step_ = step;
  }
  const bool ends = line.starts_with("done ") || line.starts_with("predicted ");
  // Trainer 0 may have died on the way (--keep_going), so the lowest trainer that reports counts.
  if (ends && (done_line_.empty() || member.id <= done_by_)) {
    done_line_ = line;
    done_by_ = member.id;
  }
}

absl::Status Launcher::StartServers() {
  RETURN_IF_ERROR(DivideHosts());
  std::vector<size_t> started(shares_.size());
  for (size_t i = 0; i < options_.placement.servers.size(); ++i) {
    const int host = options_.placement.servers[i].host;
    if (host < 0) continue;
    const size_t at = static_cast<size_t>(host);
    const CoreShare& share = shares_[at].servers[started[at]++];
    const int id = static_cast<int>(i);
    RETURN_IF_ERROR(StartProcess(/*server=*/true, id, at, ServerCommand(options_, id, share.threads), share.cpus));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Launcher::MissingServers() const {
  std::vector<std::string> missing;
  for (const Member& member : members_) {
    if (EndedWell(member)) {
      return absl::UnavailableError(
          absl::StrCat(member.process->name(), " ended before ",
                       member.endpoint.empty() ? "it was ready" : "the trainers were started"));
    }
    if (member.endpoint.empty()) missing.push_back(member.process->name());
  }
  return missing;
}

absl::Status Launcher::StartTrainers() {
  const Placement& placement = options_.placement;
  Meeting meeting{.endpoints = ServerEndpoints(placement),
                  .master_addr = placement.master_addr,
                  .master_port = placement.master_port > 0 ? placement.master_port : hosts_.ports(0).back()};
  for (const Member& server : members_) meeting.endpoints[static_cast<size_t>(server.id)] = server.endpoint;
  if (placement.trainers_serve() && !placement.meet_at_master) {
    for (size_t host = 0; host < placement.hosts.size(); ++host) {
      for (int i = 0; i < placement.hosts[host].trainers; ++i) {
        meeting.endpoints.push_back(
            absl::StrCat(placement.hosts[host].address, ":", hosts_.ports(host)[static_cast<size_t>(i)]));
      }
    }
  }
  for (size_t host = 0; host < placement.hosts.size(); ++host) {
    for (int i = 0; i < placement.hosts[host].trainers; ++i) {
      const CoreShare& share = shares_[host].trainers[static_cast<size_t>(i)];
      ChildCommand command = TrainerCommand(
          options_, meeting, {.host = host, .local_rank = i, .threads = share.threads, .gpus = shares_[host].gpus});
      RETURN_IF_ERROR(StartProcess(/*server=*/false, placement.hosts[host].first_trainer + i, host, std::move(command),
                                   share.cpus));
    }
  }
  return absl::OkStatus();
}

void Launcher::SignalAll(int signal) {
  for (Member& member : members_) {
    member.process->Signal(signal);
    // A process that is stopped (SIGSTOP) hears no other signal.
    if (signal != SIGKILL) member.process->Signal(SIGCONT);
  }
}

int Launcher::Alive(bool servers) const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.alive() && member.server == servers;
  }));
}

bool Launcher::EndedWell(const Member& member) const {
  return member.ended_with(kExitOk) || member.ended_with(options_.stop_code);
}

bool Launcher::JobStopped() const {
  return options_.stop_code != kExitOk && std::any_of(members_.begin(), members_.end(), [this](const Member& member) {
           return member.ended_with(options_.stop_code);
         });
}

std::string Launcher::AliveNames() const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (member.alive()) names.push_back(member.process->name());
  }
  return absl::StrJoin(names, ", ");
}

std::string Launcher::EndedServers() const {
  std::vector<std::string> names;
  for (const Member& member : members_) {
    if (!member.server || member.alive()) continue;
    names.push_back(absl::StrCat(member.process->name(), " (", member.process->ending()->ToString(), ")"));
  }
  return absl::StrJoin(names, ", ");
}

void Launcher::MergeProfile() {
  if (options_.profile.empty() || members_.empty()) return;
  std::vector<ProfilePart> parts;
  for (const Member& member : members_) {
    parts.push_back({ProfileName(member.server, member.id), ProfileFile(options_, member.server, member.id)});
  }
  const absl::StatusOr<std::string> table = MergeProfiles(parts, options_.profile);
  if (!table.ok()) return display_.Say(absl::StrCat("no profile: ", table.status().message()));
  for (const absl::string_view line : absl::StrSplit(absl::StripTrailingAsciiWhitespace(*table), '\n')) {
    display_.ShowResult(std::string(line));
  }
  for (const ProfilePart& part : parts) {
    if (::unlink(part.file.c_str()) != 0 && errno != ENOENT) {
      display_.Say(absl::StrCat("cannot remove ", part.file, ": ", std::strerror(errno)));
    }
  }
}

}  // namespace weir
