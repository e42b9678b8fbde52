#include "tools/hosts/remote_host.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// A line of a process, every byte of which may need four.
constexpr size_t kLongestMessage = (size_t{64} << 10) * 4 + 100;

// Part of the silence after which an agent that answers no beat is given up, if there are four beats in a silence.
constexpr double kUnanswered = 0.7;

// Exit codes of a shell whose program is not there, or cannot be run.
constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

// Status as waitpid gives it for a process that ended with `code`.
Ending Exited(int code) { return Ending(code << 8); }

absl::Status WithCode(int exit_code, const std::string& text) {
  if (exit_code == kExitPeerLost) return absl::UnavailableError(text);
  if (exit_code == kExitBadInput) return absl::InvalidArgumentError(text);
  return absl::InternalError(text);
}

}  // namespace

void RemoteProcess::Signal(int signal) {
  if (ending().has_value()) return;
  send_(EncodeMessage({"signal", absl::StrCat(index_), absl::StrCat(signal)}));
}

void RemoteProcess::Line(bool is_stdout, std::string_view line) {
  Keep(line);
  on_line_(is_stdout, line);
}

void RemoteProcess::End(Ending ending) { SetEnding(std::move(ending)); }

absl::StatusOr<std::unique_ptr<RemoteHost>> RemoteHost::Connect(RemoteHostOptions options, OnLine on_line) {
  std::unique_ptr<RemoteHost> host(new RemoteHost(std::move(options), std::move(on_line)));
  const RemoteHostOptions& o = host->options_;
  ASSIGN_OR_RETURN(host->connection_, ChildProcess::Start({.name = absl::StrCat("ssh ", o.host),
                                                           .command = SshCommand(o.ssh, o.host, o.agent),
                                                           .longest_line = kLongestMessage,
                                                           .input = true},
                                                          [host = host.get()](bool is_stdout, std::string_view line) {
                                                            host->OnLineOfSsh(is_stdout, line);
                                                          }));
  return host;
}

void RemoteHost::OnLineOfSsh(bool is_stdout, std::string_view line) {
  if (!is_stdout || (!greeted_ && !line.starts_with("hello\t"))) return on_line_(line);
  if (const absl::Status status = OnMessage(line); !status.ok()) {
    Abandon(absl::Status(status.code(), absl::StrCat("host ", name(), ": ", std::string(status.message()))));
  }
}

absl::Status RemoteHost::OnMessage(std::string_view line) {
  ASSIGN_OR_RETURN(const std::vector<std::string> fields, DecodeMessage(line));
  unanswered_since_ = absl::InfiniteFuture();
  const std::string& verb = fields[0];
  if (verb == "beat") return absl::OkStatus();
  if (verb == "hello" && !greeted_) return OnHello(fields);
  if (verb == "ready" && !ready_) return OnReady(fields);
  if (verb == "refused" && fields.size() == 3) {
    ASSIGN_OR_RETURN(const int code, NumberIn(fields, 1));
    return WithCode(code, fields[2]);
  }
  return OnProcess(fields);
}

absl::Status RemoteHost::OnHello(const std::vector<std::string>& fields) {
  greeted_ = true;
  ASSIGN_OR_RETURN(const AgentHello hello, ParseHello(fields));
  if (hello.version != kAgentVersion) {
    return absl::FailedPreconditionError(absl::StrCat(options_.agent[0], " speaks version ", hello.version,
                                                      " of the messages among launches, this one ", kAgentVersion,
                                                      "; install the same version on all hosts"));
  }
  machine_ = hello.machine;
  connection_->Write(EncodeSetup(options_.setup));
  return absl::OkStatus();
}

absl::Status RemoteHost::OnReady(const std::vector<std::string>& fields) {
  for (size_t i = 1; i < fields.size(); ++i) {
    ASSIGN_OR_RETURN(const int port, NumberIn(fields, i));
    ports_.push_back(port);
  }
  if (static_cast<int>(ports_.size()) != options_.setup.ports) {
    return absl::InternalError(absl::StrCat("drew ", ports_.size(), " ports instead of ", options_.setup.ports));
  }
  ready_ = true;
  return absl::OkStatus();
}

absl::Status RemoteHost::OnProcess(const std::vector<std::string>& fields) {
  ASSIGN_OR_RETURN(const int index, NumberIn(fields, 1));
  const auto found = processes_.find(index);
  if (found == processes_.end() || fields.size() < 3) {
    return absl::InternalError(absl::StrCat("a message '", fields[0], "' about process ", index, ", which is none"));
  }
  RemoteProcess* const process = found->second.get();
  if (fields[0] == "out" || fields[0] == "err") {
    process->Line(fields[0] == "out", fields[2]);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const int number, NumberIn(fields, 2));
  if (fields[0] == "end") {
    process->End(Ending(number));
    return absl::OkStatus();
  }
  if (fields[0] == "stopped") {
    process->SetStopped(number != 0);
    return absl::OkStatus();
  }
  if (fields[0] != "failed" || fields.size() != 4) {
    return absl::InternalError(absl::StrCat("an unknown message '", fields[0], "'"));
  }
  process->Line(/*is_stdout=*/false, fields[3]);
  process->End(Exited(number));
  return absl::OkStatus();
}

absl::StatusOr<Process*> RemoteHost::Start(const std::string& name, const std::string& log_file, AgentStart start,
                                           ChildProcess::OnLine on_line) {
  start.index = static_cast<int>(processes_.size());
  auto process = std::make_unique<RemoteProcess>(
      absl::StrCat(name, " on ", options_.host), log_file, start.index,
      [this](const std::string& message) { connection_->Write(message); }, std::move(on_line));
  RETURN_IF_ERROR(process->Open());
  RemoteProcess* const result = process.get();
  processes_[start.index] = std::move(process);
  connection_->Write(EncodeStart(start));
  return result;
}

void RemoteHost::Beat() {
  if (!ready_ || closed_ || !failure_.ok()) return;
  const absl::Time now = Clock::Real()->Now();
  // An interval passes before the first beat that is not answered, so that a lost agent is missed within the silence.
  if (now >= unanswered_since_ + kUnanswered * options_.setup.silence) {
    return Abandon(absl::DeadlineExceededError(
        absl::StrCat("host ", name(), ": its agent has said nothing for ",
                     absl::FormatDuration(absl::Trunc(now - unanswered_since_, absl::Seconds(1))),
                     ": it is stopped, or the network between the hosts is cut")));
  }
  unanswered_since_ = std::min(unanswered_since_, now);
  connection_->Write(EncodeMessage({"beat"}));
}

void RemoteHost::OnConnectionEnd() {
  const Ending& ending = *connection_->ending();
  const std::string lost = failure_.ok()
                               ? absl::StrCat("the connection to ", name(), " is lost (ssh: ", ending.ToString(), ")")
                               : std::string(failure_.message());
  interrupted_ = failure_.ok() && !closed_ && WIFSIGNALED(ending.wait_status());
  std::string last;
  if (!connection_->last_lines().empty() && !greeted_) last = ": " + connection_->last_lines().back();
  if (!greeted_ && (ending.code() == kNotFound || ending.code() == kNotExecutable)) {
    Fail(absl::NotFoundError(absl::StrCat("host ", name(), ": ", options_.agent[0],
                                          " cannot be run there; every host needs the programs at the same place",
                                          last)));
  }
  if (!closed_ && failure_.ok()) {
    Fail(absl::UnavailableError(absl::StrCat("host ", name(), ": ",
                                             greeted_ ? "the connection is lost (" : "no connection (",
                                             "ssh: ", ending.ToString(), ")", last)));
  }
  for (const auto& [index, process] : processes_) {
    if (process->ending().has_value()) continue;
    process->End(Ending::Lost(lost));
  }
}

void RemoteHost::Abandon(absl::Status why) {
  Fail(std::move(why));
  connection_->Signal(SIGKILL);
}

void RemoteHost::Close() {
  closed_ = true;
  connection_->CloseInput();
  // One that has not answered would not notice.
  if (!ready_) connection_->Signal(SIGKILL);
}

void RemoteHost::Fail(absl::Status why) {
  if (failure_.ok()) failure_ = std::move(why);
}

}  // namespace weir
