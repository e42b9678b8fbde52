#include "pserver/server/join_checks.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/printable.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/membership/limits.h"
#include "glog/logging.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

// Lines about refused joins that the log has within a window: strangers may come a thousand times a second.
constexpr int kMostRefusals = 16;
constexpr absl::Duration kRefusalWindow = absl::Seconds(10);

}  // namespace

JoinChecks::JoinChecks(const ServerOptions* options, std::string self)
    : options_(*options),
      self_(std::move(self)),
      plan_(options_.main.plan().SerializeAsString()),
      plan_fingerprint_(StableHash(options_.plan_text)) {}

void JoinChecks::LogRefusal(const std::string& who, const std::string& why) {
  MutexLock lock(&mu_);
  const absl::Time now = options_.clock->Now();
  if (now >= refusals_since_ + kRefusalWindow) {
    if (refusals_ > kMostRefusals) {
      LOG(WARNING) << self_ << " has refused " << refusals_ - kMostRefusals << " more joins since the last such line";
    }
    refusals_since_ = now;
    refusals_ = 0;
  }
  if (++refusals_ <= kMostRefusals) LOG(WARNING) << self_ << " refuses " << who << ": " << why;
}

absl::Status JoinChecks::CheckSameJob(const v1::JoinRequest& request, const std::string& who) {
  const std::string job = Printable(request.caller().job_id(), kMaxText), build(kBuild);
  std::string why;
  // A reader need not name a job, and takes any build.
  const bool reader = request.reader();
  if (request.caller().job_id() != options_.job_name && !(reader && job.empty())) {
    why = absl::StrCat("it is of job ", job, ", this server of job ", options_.job_name);
  } else if (request.wire_version() != kWireVersion) {
    why = absl::StrCat("it speaks wire version ", request.wire_version(), ", this server ", kWireVersion);
  } else if (!reader && request.build() != build) {
    why = absl::StrCat("it is of build ", request.build(), ", this server of build ", build);
  }
  if (why.empty()) return absl::OkStatus();
  LogRefusal(who, why);
  return absl::FailedPreconditionError(absl::StrCat(
      who, " comes with job ", job.empty() ? "(none)" : job, reader ? "" : absl::StrCat(", build ", request.build()),
      " and wire version ", request.wire_version(), "; this server has another one of them, and its log says which: ",
      "use one job and one build for all processes, and an address of their own for each job"));
}

absl::Status JoinChecks::Check(const v1::JoinRequest& request) {
  const bool reader = request.reader();
  const std::string who = reader ? absl::StrCat("reader (", request.process(), ")")
                                 : absl::StrCat("trainer ", request.caller().trainer(), " (", request.process(), ")");
  if (reader && request.caller().trainer() != kReader) {
    return absl::InvalidArgumentError(
        absl::StrCat(who, " comes as trainer ", request.caller().trainer(), "; a reader is no trainer, but ", kReader));
  }
  RETURN_IF_ERROR(CheckSameJob(request, who));
  if ((!reader || request.has_server_index()) && request.server_index() != options_.server_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("this is ", self_, ", ", who, " expects server ", request.server_index(),
                     " at this address; is the order of endpoints the same everywhere?"));
  }
  if ((!reader || request.has_plan_fingerprint()) && request.plan_fingerprint() != plan_fingerprint_) {
    return absl::FailedPreconditionError(absl::StrCat("the job of ", who, " is not that of ", self_, ": ",
                                                      FirstPlanDifference(options_.plan_text, request.plan_text())));
  }
  if (reader || request.arithmetic() == options_.arithmetic || options_.arithmetic.empty()) return absl::OkStatus();
  const std::string text =
      absl::StrCat(self_, " computes with ", options_.arithmetic, ", ", who, " with ", request.arithmetic(),
                   "; set train.arithmetic to what both have, or distribute.reproducible: false");
  if (options_.equal_arithmetic) return absl::FailedPreconditionError(text);
  LOG(WARNING) << text;
  return absl::OkStatus();
}

}  // namespace weir
