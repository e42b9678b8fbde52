#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "pserver/rendezvous/gathering.h"
#include "pserver/rendezvous/meeting_frame.h"
#include "pserver/rendezvous/tcp_meeting.h"
#include "pserver/rendezvous/tcp_sockets.h"
#include "pserver/rendezvous/waiting.h"

namespace weir {
namespace {

// Limit of one attempt to connect, and of the first answer: trainer 0 answers a greeting at once.
constexpr absl::Duration kConnectTime = absl::Seconds(2);
constexpr absl::Duration kAnswerTime = absl::Seconds(3);
// Pause between two rounds over all ports.
constexpr absl::Duration kShortestPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

class Visitor {
 public:
  Visitor(const RendezvousOptions& options, const v1::RendezvousGreeting& own, const Cancellation& cancellation)
      : options_(options),
        greeting_(EncodeMeetingFrame(own)),
        cancellation_(cancellation),
        waiting_(options.slow_warning, options.connect_deadline) {}

  absl::StatusOr<v1::RendezvousAnswer> Run() {
    absl::Duration pause = kShortestPause;
    while (true) {
      RETURN_IF_ERROR(Check());
      ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Addresses());
      for (const SocketAddress& address : addresses) {
        ASSIGN_OR_RETURN(std::optional<v1::RendezvousAnswer> answer, Visit(address));
        if (answer.has_value()) return *std::move(answer);
      }
      (void)cancellation_.WaitFor(std::min(pause, waiting_.Next()));
      pause = std::min(2 * pause, kLongestPause);
    }
  }

 private:
  absl::Status Check() {
    return waiting_.Check([this] { return WaitsFor(); }, cancellation_);
  }

  std::string WaitsFor() const {
    const std::string place = absl::StrCat("at ", options_.method.ToString());
    if (!missing_.empty()) return absl::StrCat(place, " for ", missing_);
    return absl::StrCat(place, " for trainer 0, which answers there when it has started",
                        options_.method.address.IsLoopback() ? ", if it runs on this machine" : "",
                        reason_.empty() ? "" : "; last attempt: ", reason_);
  }

  // Returns all addresses at which trainer 0 may listen; none if the name of the host is not known for now.
  absl::StatusOr<std::vector<SocketAddress>> Addresses() {
    std::vector<SocketAddress> all;
    for (int i = 0; i < options_.method.ports; ++i) {
      bool again = false;
      Endpoint at = options_.method.address;
      at.port += i;
      absl::StatusOr<std::vector<SocketAddress>> some = Resolve(at.host, at.port, kResolveDeadline, &again);
      if (again) {
        reason_ = std::string(some.status().message());
        return all;
      }
      if (!some.ok())
        return absl::UnavailableError(absl::StrCat(options_.method.source, ": ", some.status().message()));
      all.insert(all.end(), some->begin(), some->end());
    }
    return all;
  }

  // Greets whoever listens at the address. Returns the last answer; nothing if there is none and other addresses, or
  // this one later, may have it.
  absl::StatusOr<std::optional<v1::RendezvousAnswer>> Visit(const SocketAddress& address) {
    missing_.clear();
    const absl::Duration left = std::max(waiting_.Next(), absl::Milliseconds(10));
    absl::StatusOr<Socket> socket = ConnectTo(address, std::min(kConnectTime, left), cancellation_);
    if (!socket.ok()) {
      if (absl::IsCancelled(socket.status())) return Check();
      reason_ = std::string(socket.status().message());
      return std::optional<v1::RendezvousAnswer>();
    }
    // The greeting fits into the empty buffer of the socket.
    const ssize_t sent = ::send(socket->fd(), greeting_.data(), greeting_.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(greeting_.size())) {
      reason_ = absl::StrCat(address.ToString(), ": ", std::strerror(errno));
      return std::optional<v1::RendezvousAnswer>();
    }
    return Listen(*socket, address.ToString());
  }

  // Waits for answers as long as the connection lives.
  absl::StatusOr<std::optional<v1::RendezvousAnswer>> Listen(const Socket& socket, const std::string& where) {
    MeetingFrames frames(kLargestAnswer);
    const absl::Time first_by = Clock::Real()->Now() + kAnswerTime;
    bool answered = false;
    while (true) {
      RETURN_IF_ERROR(Check());
      absl::Duration wait = waiting_.Next();
      if (!answered) wait = std::min(wait, first_by - Clock::Real()->Now());
      pollfd events[] = {{.fd = socket.fd(), .events = POLLIN, .revents = 0},
                         {.fd = cancellation_.fd(), .events = POLLIN, .revents = 0}};
      ::poll(events, 2, PollTimeout(wait));
      if (events[0].revents == 0 && !answered && Clock::Real()->Now() >= first_by) {
        return Nothing(absl::StrCat("a program that is no Weir trainer has ", where, " and says nothing"));
      }
      if (events[0].revents == 0) continue;
      char bytes[16384];
      const ssize_t got = ::recv(socket.fd(), bytes, sizeof bytes, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0)
        return Nothing(absl::StrCat(where, answered ? ": trainer 0 has gone" : ": the connection was closed"));
      frames.Append(std::string_view(bytes, static_cast<size_t>(got)));
      while (true) {
        const absl::StatusOr<std::optional<std::string>> text = frames.Next();
        v1::RendezvousAnswer answer;
        if (text.ok() && !text->has_value()) break;
        if (!text.ok() || !answer.ParseFromString(**text)) {
          return Nothing(absl::StrCat("a program that is no Weir trainer has ", where));
        }
        answered = true;
        ASSIGN_OR_RETURN(const bool more, Understand(answer));
        if (answer.state() == v1::RendezvousAnswer::COMPLETE) return std::optional(answer);
        if (!more) return std::optional<v1::RendezvousAnswer>();
      }
    }
  }

  std::optional<v1::RendezvousAnswer> Nothing(std::string why) {
    missing_.clear();
    reason_ = std::move(why);
    return std::nullopt;
  }

  // Returns whether more answers will come; an error if the answer ends this process.
  absl::StatusOr<bool> Understand(const v1::RendezvousAnswer& answer) {
    missing_.clear();
    switch (answer.state()) {
      case v1::RendezvousAnswer::WAITING:
        missing_ = Printable(answer.missing());
        return true;
      case v1::RendezvousAnswer::COMPLETE:
        return false;
      case v1::RendezvousAnswer::REFUSED:
      case v1::RendezvousAnswer::FAILED:
        return Error(answer);
      case v1::RendezvousAnswer::OTHER_RUN:
        // Behind the agent's port the next one may be ours; elsewhere nobody else will come.
        if (options_.method.ports == 1) return Error(answer);
        [[fallthrough]];
      case v1::RendezvousAnswer::OVER:
        reason_ = Printable(answer.error().message());
        return false;
    }
    return false;
  }

  absl::Status Error(const v1::RendezvousAnswer& answer) const {
    return ErrorIn(answer, absl::StrCat("at ", options_.method.ToString()));
  }

  const RendezvousOptions& options_;
  const std::string greeting_;
  const Cancellation& cancellation_;
  Waiting waiting_;
  // Processes that are missing, as trainer 0 said last; "" if it does not answer.
  std::string missing_;
  // Reason for which the last attempt failed.
  std::string reason_;
};

}  // namespace

absl::StatusOr<v1::RendezvousAnswer> AttendTcpMeeting(const RendezvousOptions& options,
                                                      const v1::RendezvousGreeting& own,
                                                      const Cancellation& cancellation) {
  return Visitor(options, own, cancellation).Run();
}

}  // namespace weir
