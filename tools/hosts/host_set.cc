#include "tools/hosts/host_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"

namespace weir {

absl::Status HostSet::Connect(HostSetOptions options, const OnHostLine& on_line) {
  const absl::Duration silence = std::max(kLeastSilence, 2 * options.lease);
  beat_ = silence / 4;  // RemoteHost::Beat
  for (size_t i = 0; i < options.names.size(); ++i) {
    const std::string& name = options.names[i];
    Entry entry;
    if (name.empty()) {
      entry.machine = ThisMachine();
      if (options.ports[i] > 0) {
        ASSIGN_OR_RETURN(entry.ports, ReservedPorts::Draw(options.ports[i]));
      }
    } else {
      ASSIGN_OR_RETURN(entry.remote,
                       RemoteHost::Connect(
                           {.host = name,
                            .ssh = options.ssh,
                            .agent = options.agent,
                            .setup = {.directory = options.directory, .silence = silence, .ports = options.ports[i]}},
                           [on_line, name](std::string_view line) { on_line(name, line); }));
      next_beat_ = Clock::Real()->Now() + beat_;
    }
    entries_.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

std::vector<std::string> HostSet::Missing() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (entry.remote == nullptr || entry.remote->ready() || !entry.remote->failure().ok()) continue;
    names.push_back(entry.remote->name());
  }
  return names;
}

std::vector<std::string> HostSet::Unreached() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (entry.remote == nullptr || entry.remote->interrupted()) continue;
    if (!entry.remote->ready() || !entry.remote->failure().ok()) names.push_back(entry.remote->name());
  }
  return names;
}

bool HostSet::Interrupted() const {
  bool any = false;
  for (const Entry& entry : entries_) {
    if (entry.remote == nullptr || entry.remote->failure().ok()) continue;
    if (!entry.remote->interrupted()) return false;
    any = true;
  }
  return any;
}

absl::Status HostSet::failure() const {
  for (const Entry& entry : entries_) {
    if (entry.remote != nullptr) RETURN_IF_ERROR(entry.remote->failure());
  }
  return absl::OkStatus();
}

void HostSet::Abandon(const absl::Status& why) {
  for (const Entry& entry : entries_) {
    if (entry.remote != nullptr) entry.remote->Abandon(why);
  }
}

const Machine& HostSet::machine(size_t host) const {
  const Entry& entry = entries_[host];
  return entry.remote == nullptr ? entry.machine : entry.remote->machine();
}

const std::vector<int>& HostSet::ports(size_t host) const {
  const Entry& entry = entries_[host];
  return entry.remote == nullptr ? entry.ports.ports() : entry.remote->ports();
}

absl::StatusOr<Process*> HostSet::Start(size_t host, ChildOptions options, ChildProcess::OnLine on_line) {
  if (RemoteHost* const remote = entries_[host].remote.get(); remote != nullptr) {
    return remote->Start(options.name, options.log_file,
                         {.cpus = std::move(options.cpus),
                          .command = std::move(options.command),
                          .environment = std::move(options.environment)},
                         std::move(on_line));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child, ChildProcess::Start(std::move(options), std::move(on_line)));
  children_.push_back(std::move(child));
  return children_.back().get();
}

void HostSet::ForEachChild(const std::function<void(ChildProcess&)>& f) const {
  for (const std::unique_ptr<ChildProcess>& child : children_) f(*child);
  for (const Entry& entry : entries_) {
    if (entry.remote != nullptr) f(*entry.remote->connection());
  }
}

void HostSet::AddTo(std::vector<pollfd>* fds) const {
  ForEachChild([&](ChildProcess& child) {
    for (const bool is_stdout : {true, false}) {
      if (child.output(is_stdout) >= 0) fds->push_back({.fd = child.output(is_stdout), .events = POLLIN, .revents = 0});
    }
    if (child.waiting_input() >= 0) fds->push_back({.fd = child.waiting_input(), .events = POLLOUT, .revents = 0});
  });
}

void HostSet::Work() {
  ForEachChild([](ChildProcess& child) {
    child.ReadOutput();
    child.FlushInput();
  });
  if (Clock::Real()->Now() < next_beat_) return;
  next_beat_ = Clock::Real()->Now() + beat_;
  for (const Entry& entry : entries_) {
    if (entry.remote != nullptr) entry.remote->Beat();
  }
}

void HostSet::SetStopped(pid_t pid, bool stopped) {
  ForEachChild([&](ChildProcess& child) {
    if (child.pid() == pid) child.SetStopped(stopped);
  });
}

bool HostSet::Reap(pid_t pid) {
  bool known = false;
  ForEachChild([&](ChildProcess& child) {
    if (child.pid() != pid || child.ending().has_value()) return;
    child.Reap();
    known = true;
  });
  for (const Entry& entry : entries_) {
    if (entry.remote != nullptr && known && entry.remote->connection()->pid() == pid) entry.remote->OnConnectionEnd();
  }
  return known;
}

void HostSet::Close() {
  for (const Entry& entry : entries_) {
    if (entry.remote != nullptr) entry.remote->Close();
  }
}

bool HostSet::connected() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.remote != nullptr && !entry.remote->connection()->ending().has_value();
  });
}

}  // namespace weir
