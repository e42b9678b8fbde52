#include "trainer/loop/step_timer.h"

#include <time.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace weir {

namespace {

absl::Duration ProcessorTime() {
  timespec now = {};
  CHECK_EQ(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
  return absl::DurationFromTimespec(now);
}

}  // namespace

StepTimer::StepTimer(int trainer, const v1::Deadlines& deadlines, Client* client, Clock* clock)
    : trainer_(trainer),
      client_(client),
      clock_(clock),
      servers_(Counters::Process().Get(absl::StrCat("trainer.", trainer, ".wait.servers"), "microseconds")),
      slow_(deadlines.slow_step_factor(), absl::Seconds(deadlines.slow_warning_s())) {}

void StepTimer::Begin() {
  (void)client_->member().waits().TakeLong();  // those of the border
  now_ = {};
  begun_ = clock_->Now();
  servers_before_ = ServersSoFar();
  processor_before_ = ProcessorTime();
}

absl::Duration StepTimer::End(int64_t steps) {
  now_.step = steps;
  now_.end = clock_->Now();
  now_.whole = now_.end - begun_;
  now_.servers = ServersSoFar() - servers_before_;
  now_.processor = ProcessorTime() - processor_before_;
  const auto longest = client_->member().waits().TakeLong();
  now_.longest_wait = longest.time;
  now_.longest_wait_for = longest.on;
  now_.late_trainer = longest.late_trainer;
  now_.late = longest.late;
  if (const std::string line = slow_.Explain(now_); !line.empty())
    LOG(WARNING) << "trainer " << trainer_ << ": " << line;
  return now_.whole;
}

}  // namespace weir
