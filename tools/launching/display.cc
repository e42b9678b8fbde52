#include "tools/launching/display.h"

#include <string.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "tools/hosts/child_process.h"
#include "tools/launching/explain_job.h"

namespace weir {

absl::Status Display::StartPage() {
  const Watching& watching = options_.watching;
  if (watching.page_port < 0) return absl::OkStatus();
  page_state_ = std::make_unique<JobPageState>(watching.job);
  ASSIGN_OR_RETURN(page_, JobPage::Start(
                              page_state_.get(), [&options = options_] { return ExplainJob(options); },
                              watching.page_address, watching.page_port, watching.checkpoints));
  Say(absl::StrCat("the job's page is ", page_->url(), "/"));
  return absl::OkStatus();
}

void Display::ShowHostLine(const std::string& host, std::string_view line) {
  err_.Line(absl::StrCat("[", host, "] ", std::string(line)));
}

size_t Display::AddProcess(bool server, int id, const std::string& host, const Process& process) {
  if (page_state_ == nullptr) return 0;
  const size_t on_page = page_state_->AddProcess(server ? "pserver" : "trainer", id, host.empty() ? "localhost" : host);
  if (const auto* child = dynamic_cast<const ChildProcess*>(&process)) page_state_->SetPid(on_page, child->pid());
  return on_page;
}

void Display::ShowLine(size_t on_page, const std::string& name, bool is_stdout, std::string_view line) {
  if (page_state_ != nullptr) page_state_->TakeLine(on_page, is_stdout, line);
  (is_stdout ? out_ : err_).Line(absl::StrCat("[", name, "] ", std::string(line)));
}

void Display::SetEnd(size_t on_page, const Ending& ending) {
  if (page_state_ != nullptr) page_state_->SetEnd(on_page, ending.lost() ? "lost" : "exited", ending.code());
}

void Display::SetJob(const std::string& state, int exit_code, const std::string& message) {
  if (page_state_ != nullptr) page_state_->SetJob(state, exit_code, message);
}

void Display::AddTo(std::vector<pollfd>* fds) const {
  for (const Console* console : {&out_, &err_}) {
    if (console->pending()) fds->push_back({.fd = console->fd(), .events = POLLOUT, .revents = 0});
  }
}

void Display::Flush() {
  out_.Flush();
  err_.Flush();
}

int Display::Finish(int code) {
  if (page_ != nullptr) page_->AwaitLastLook(absl::Seconds(3));
  page_ = nullptr;
  out_.Drain(options_.deadlines.lease);
  // A reader that is gone wants no more lines, and who has closed the output never wanted any.
  if (out_.error() != 0 && out_.error() != EPIPE && out_.error() != EBADF) {
    Say(absl::StrCat("the standard output cannot be written: ", strerror(out_.error()),
                     "; the log files have what was not shown"));
    if (code == kExitOk) code = kExitFailure;
  }
  err_.Drain(options_.deadlines.lease);
  return code;
}

}  // namespace weir
