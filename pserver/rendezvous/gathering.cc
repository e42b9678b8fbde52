#include "pserver/rendezvous/gathering.h"

#include <algorithm>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "pserver/cluster/endpoint.h"
#include "pserver/cluster/init_method.h"

namespace weir {
namespace {

// Longest text of a greeting that is repeated in a message.
constexpr size_t kLongestText = 200;
// Ids of one kind that a message lists.
constexpr size_t kMostListed = 10;

std::string Shown(const std::string& text) { return absl::CEscape(text.substr(0, kLongestText)); }

std::string Quoted(const std::string& text) { return text.empty() ? "none" : absl::StrCat("'", Shown(text), "'"); }

template <typename... Parts>
absl::Status Refused(const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(parts...));
}

// Appends "trainers 1, 2 and 3".
void AppendList(const std::string& what, const std::vector<int>& ids, std::string* text) {
  if (ids.empty()) return;
  absl::StrAppend(text, text->empty() ? "" : ", ", what, ids.size() == 1 ? " " : "s ");
  const size_t listed = std::min(ids.size(), kMostListed);
  for (size_t i = 0; i < listed; ++i) {
    const bool last = i + 1 == ids.size();
    absl::StrAppend(text, i == 0 ? "" : last ? " and " : ", ", ids[i]);
  }
  if (listed < ids.size()) absl::StrAppend(text, " and ", ids.size() - listed, " more");
}

}  // namespace

std::string NameOf(const v1::RendezvousGreeting& greeting) {
  return absl::StrCat(greeting.server() ? "server " : "trainer ", greeting.id(), " (", Shown(greeting.process()), ")");
}

std::string ListOf(const std::vector<int>& trainers, const std::vector<int>& servers) {
  std::string text;
  AppendList("trainer", trainers, &text);
  AppendList("server", servers, &text);
  return text;
}

v1::RendezvousAnswer AnswerOf(v1::RendezvousAnswer::State state, const absl::Status& error) {
  v1::RendezvousAnswer answer;
  answer.set_state(state);
  *answer.mutable_error() = StatusMessage(error);
  return answer;
}

absl::Status ErrorIn(const v1::RendezvousAnswer& answer, const std::string& place) {
  const bool failed = answer.state() == v1::RendezvousAnswer::FAILED;
  v1::Status error = answer.error();
  error.set_message(
      absl::StrCat(failed ? "trainer 0 has ended the meeting " : "refused ", place, ": ", error.message()));
  return StatusOf(error, SIZE_MAX);
}

Gathering::Gathering(v1::RendezvousGreeting own) : own_(std::move(own)) { there_[{own_.server(), own_.id()}] = own_; }

absl::Status Gathering::CheckRun(const v1::RendezvousGreeting& greeting) const {
  if (greeting.version() != own_.version()) {
    return Refused(NameOf(greeting), " is of a build that meets by version ", greeting.version(), ", ", NameOf(own_),
                   " of one that meets by version ", own_.version(), "; use one build for all");
  }
  if (greeting.job_name() != own_.job_name()) {
    return Refused(NameOf(greeting), " is of job ", Quoted(greeting.job_name()), ", ", NameOf(own_), " of job ",
                   Quoted(own_.job_name()), "; give each job a meeting point of its own");
  }
  const bool any_run = greeting.run_id() == kAnyRun || own_.run_id() == kAnyRun ||
                       (greeting.server() && (greeting.run_id().empty() || own_.run_id().empty()));
  if (any_run || greeting.run_id() == own_.run_id()) return absl::OkStatus();
  return Refused(NameOf(greeting), " is of run ", Quoted(greeting.run_id()), ", ", NameOf(own_), " of run ",
                 Quoted(own_.run_id()),
                 "; give each run a meeting point of its own, or all its processes one --run_id");
}

absl::Status Gathering::ToldOf(const absl::Status& refusal, const v1::RendezvousGreeting& greeting) const {
  if (greeting.job_name() == own_.job_name()) return refusal;
  return Refused(NameOf(greeting), " is of job ", Quoted(greeting.job_name()),
                 ", and another job meets here, which the log of its trainer 0 names; give each job a meeting point of "
                 "its own");
}

absl::Status Gathering::CheckNumbers(const v1::RendezvousGreeting& greeting) const {
  if (greeting.trainers() != own_.trainers()) {
    return Refused(NameOf(greeting), " says that there are ", greeting.trainers(), " trainers, ", NameOf(own_),
                   " that there are ", own_.trainers(), "; give all processes the same number");
  }
  if (greeting.servers() != own_.servers()) {
    return Refused(NameOf(greeting), " says that there are ", greeting.servers(), " servers, ", NameOf(own_),
                   " that there are ", own_.servers(), "; give all processes the same number");
  }
  const int number = greeting.server() ? own_.servers() : own_.trainers();
  if (greeting.id() >= 0 && greeting.id() < number) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(greeting), " comes, but there are ", number, ": 0 to ", number - 1));
}

absl::Status Gathering::CheckEndpoint(const v1::RendezvousGreeting& greeting) const {
  if (!Serves(greeting.server())) return absl::OkStatus();
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(greeting.endpoint());
  if (endpoint.ok() && endpoint->port != 0 && !endpoint->IsWildcard()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(greeting), " gives ", Quoted(greeting.endpoint()),
                                                 " as its address, where nobody can connect"));
}

absl::Status Gathering::Add(const v1::RendezvousGreeting& greeting) {
  RETURN_IF_ERROR(CheckNumbers(greeting));
  RETURN_IF_ERROR(CheckEndpoint(greeting));
  const Key key = {greeting.server(), greeting.id()};
  const auto [place, taken] = there_.try_emplace(key, greeting);
  if (!taken && place->second.incarnation() != greeting.incarnation()) {
    return Refused(NameOf(greeting), " comes, but ", NameOf(place->second),
                   " is there already; start each id once, and end an earlier run first");
  }
  place->second = greeting;
  return absl::OkStatus();
}

void Gathering::Remove(const v1::RendezvousGreeting& greeting) {
  const auto found = there_.find({greeting.server(), greeting.id()});
  if (found != there_.end() && found->second.incarnation() == greeting.incarnation()) there_.erase(found);
}

std::pair<int, int> Gathering::Counts() const {
  return {static_cast<int>(there_.size()), own_.trainers() + own_.servers()};
}

bool Gathering::complete() const {
  const auto [there, all] = Counts();
  return there == all;
}

std::string Gathering::Missing() const {
  std::vector<int> trainers, servers;
  for (int t = 0; t < own_.trainers(); ++t) {
    if (!there_.contains({false, t})) trainers.push_back(t);
  }
  for (int s = 0; s < own_.servers(); ++s) {
    if (!there_.contains({true, s})) servers.push_back(s);
  }
  return ListOf(trainers, servers);
}

absl::StatusOr<v1::RendezvousAnswer> Gathering::Answer() const {
  v1::RendezvousAnswer answer;
  answer.set_state(v1::RendezvousAnswer::COMPLETE);
  answer.set_run_id(own_.run_id());
  std::map<std::string, const v1::RendezvousGreeting*> addresses;
  const v1::RendezvousGreeting* loopback = nullptr;
  const v1::RendezvousGreeting* reachable = nullptr;
  for (const auto& [key, greeting] : there_) {
    if (!Serves(key.first)) continue;
    const auto [first, is_new] = addresses.try_emplace(greeting.endpoint(), &greeting);
    if (!is_new) {
      return Refused(NameOf(*first->second), " and ", NameOf(greeting), " both give the address ", greeting.endpoint(),
                     "; give each an address of its own, or let the system choose the port");
    }
    ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(greeting.endpoint()));
    (endpoint.IsLoopback() ? loopback : reachable) = &greeting;
    *(key.first ? answer.add_server() : answer.add_trainer()) = greeting.endpoint();
  }
  if (loopback == nullptr || reachable == nullptr) return answer;
  return Refused(NameOf(*loopback), " is at ", loopback->endpoint(), ", an address of its own machine alone, and ",
                 NameOf(*reachable), " at ", reachable->endpoint(),
                 "; name a meeting point by an address that all machines reach (a host name may stand for 127.0.0.1 or "
                 "127.0.1.1 on its own machine), or give an --endpoint");
}

}  // namespace weir
