#include "pserver/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "framework/base/status_macros.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/parameter_server.pb.h"

namespace weir {
namespace {

constexpr char kVariable[] = "WEIR_FAULT_POINT";

// Carries out a fault point once.
class Fault {
 public:
  explicit Fault(FaultPoint point) : point_(std::move(point)) {
    LOG(WARNING) << kVariable << " is set: this process fails on purpose when it reaches the named point";
  }

  void Reached(FaultMoment moment, int64_t step) {
    if (moment != point_.moment || (moment != FaultMoment::kConnecting && step != point_.step)) return;
    if (done_.exchange(true)) return;
    LOG(WARNING) << "this process has reached its fault point";
    google::FlushLogFiles(google::INFO);
    if (point_.action == FaultAction::kKill) ::kill(::getpid(), SIGKILL);
    if (point_.action == FaultAction::kStop) ::kill(::getpid(), SIGSTOP);
    while (point_.action == FaultAction::kStall) absl::SleepFor(absl::Hours(1));
  }

 private:
  const FaultPoint point_;
  std::atomic<bool> done_{false};
};

// Properties of a request that fault points look at.
struct Glance {
  int64_t step = -1;
  bool push = false, last = false, save = false, join = false;
};

Glance LookAt(Method method, const Slices& request) {
  Glance glance{.push = method == Method::kPush, .join = method == Method::kJoin};
  if (method == Method::kPush) {
    const absl::StatusOr<Frame> frame = DecodeFrame(request);
    v1::PushRequest push;
    if (frame.ok() && push.ParseFromString(frame->header)) {
      glance.step = push.step();
      glance.last = push.has_part_count();
    }
  } else if (method == Method::kControl) {
    v1::ControlRequest control;
    if (control.ParseFromString(Flatten(request)) && control.has_save()) {
      glance.step = control.save().step();
      glance.save = true;
    }
  }
  return glance;
}

class FaultyCore : public ServerCore {
 public:
  FaultyCore(std::unique_ptr<ServerCore> core, FaultPoint point) : core_(std::move(core)), fault_(std::move(point)) {}

  void Handle(Method method, const Slices& request, ReplyCallback reply) override {
    const Glance glance = LookAt(method, request);
    if (glance.join) fault_.Reached(FaultMoment::kConnecting, 0);
    if (glance.push) fault_.Reached(FaultMoment::kFirstPart, glance.step);
    core_->Handle(method, request, [this, glance, reply = std::move(reply)](absl::StatusOr<Slices> answer) {
      if (answer.ok() && glance.push) {
        fault_.Reached(FaultMoment::kBetweenParts, glance.step);
        if (glance.last) fault_.Reached(FaultMoment::kLastPart, glance.step);
      }
      if (answer.ok() && glance.save) fault_.Reached(FaultMoment::kPublishing, glance.step);
      reply(std::move(answer));
    });
  }
  void Tick() override { core_->Tick(); }
  absl::Time NextTick() override { return core_->NextTick(); }
  void RequestStop() override { core_->RequestStop(); }
  void ReportFailure(const absl::Status& status) override { core_->ReportFailure(status); }
  bool Finished() override { return core_->Finished(); }
  absl::Status JobStatus() override { return core_->JobStatus(); }
  int64_t Version() override { return core_->Version(); }
  const Counters& counters() const override { return core_->counters(); }
  ServerReport Report() override { return core_->Report(); }

 private:
  const std::unique_ptr<ServerCore> core_;
  Fault fault_;
};

class FaultyTransport : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> transport, FaultPoint point)
      : fault_(std::move(point)), transport_(std::move(transport)) {}

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    const Glance glance = LookAt(method, request);
    if (glance.join) fault_.Reached(FaultMoment::kConnecting, 0);
    if (glance.push) fault_.Reached(FaultMoment::kFirstPart, glance.step);
    transport_->Call(server, method, std::move(request), timeout,
                     [this, glance, done = std::move(done)](absl::StatusOr<Slices> reply) {
                       if (reply.ok()) Answered(glance);
                       done(std::move(reply));
                     });
  }
  std::string Describe(int server) const override { return transport_->Describe(server); }
  int servers() const override { return transport_->servers(); }
  bool is_own(int server, Method method) const override { return transport_->is_own(server, method); }
  bool shares_memory(int server) const override { return transport_->shares_memory(server); }

 private:
  void Answered(const Glance& glance) {
    if (glance.push) fault_.Reached(FaultMoment::kBetweenParts, glance.step);
    if (glance.push && glance.last) fault_.Reached(FaultMoment::kLastPart, glance.step);
    if (glance.save && ++saved_ % servers() == 0) fault_.Reached(FaultMoment::kPublishing, glance.step);
  }

  Fault fault_;
  std::atomic<int> saved_{0};
  // Destroyed before the fields above, which callbacks of its calls use.
  const std::unique_ptr<Transport> transport_;
};

// Returns the fault point of this process, or none.
absl::StatusOr<std::vector<FaultPoint>> FromEnvironment(std::string_view role, int id) {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return std::vector<FaultPoint>();
  ASSIGN_OR_RETURN(FaultPoint point, ParseFaultPoint(text));
  if (point.role != role || point.id != id) return std::vector<FaultPoint>();
  return std::vector<FaultPoint>{std::move(point)};
}

// Position of `word` in `words`, or -1.
int IndexOf(const std::string& word, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

absl::StatusOr<FaultPoint> ParseFaultPoint(std::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(absl::string_view(text.data(), text.size()), ':');
  const std::vector<std::string> process =
      words.size() < 2 ? std::vector<std::string>() : std::vector<std::string>(absl::StrSplit(words[1], '.'));
  FaultPoint point;
  const int action = words.size() < 3 ? -1 : IndexOf(words[0], {"kill", "stop", "stall"});
  const int moment =
      words.size() < 3
          ? -1
          : IndexOf(words[2], {"connecting", "first_part", "between_parts", "last_part", "publishing", "reader"});
  const bool needs_step = moment > 0;
  const bool no_such_point =
      process.size() == 2 && process[0] == "server" && moment == static_cast<int>(FaultMoment::kReader);
  if (no_such_point || action < 0 || moment < 0 || process.size() != 2 ||
      (process[0] != "server" && process[0] != "trainer") || !absl::SimpleAtoi(process[1], &point.id) ||
      words.size() != (needs_step ? 4 : 3) || (needs_step && !absl::SimpleAtoi(words[3], &point.step))) {
    return absl::InvalidArgumentError(absl::StrCat(
        kVariable, "='", absl::string_view(text.data(), text.size()),
        "': expected <kill|stop|stall>:<server|trainer>.<id>:<connecting|first_part|between_parts|last_part|publishing|"
        "reader>[:<step>], a step for all points but connecting; only a trainer has a reader"));
  }
  point.action = static_cast<FaultAction>(action);
  point.role = process[0];
  point.moment = static_cast<FaultMoment>(moment);
  return point;
}

absl::StatusOr<std::unique_ptr<ServerCore>> WithFaultPoint(std::unique_ptr<ServerCore> core, int server) {
  ASSIGN_OR_RETURN(std::vector<FaultPoint> points, FromEnvironment("server", server));
  if (points.empty()) return core;
  return std::make_unique<FaultyCore>(std::move(core), std::move(points[0]));
}

absl::StatusOr<std::unique_ptr<Transport>> WithFaultPoint(std::unique_ptr<Transport> transport, int trainer) {
  ASSIGN_OR_RETURN(std::vector<FaultPoint> points, FromEnvironment("trainer", trainer));
  if (points.empty()) return transport;
  return std::make_unique<FaultyTransport>(std::move(transport), std::move(points[0]));
}

absl::StatusOr<std::function<void(int stream, int64_t batch)>> ReaderFaultPoint(int trainer) {
  ASSIGN_OR_RETURN(std::vector<FaultPoint> points, FromEnvironment("trainer", trainer));
  if (points.empty() || points[0].moment != FaultMoment::kReader) return std::function<void(int, int64_t)>();
  return [fault = std::make_shared<Fault>(std::move(points[0]))](int, int64_t batch) {
    fault->Reached(FaultMoment::kReader, batch);
  };
}

}  // namespace weir
