#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "pserver/rendezvous/gathering.h"
#include "pserver/rendezvous/meeting_frame.h"
#include "pserver/rendezvous/tcp_meeting.h"
#include "pserver/rendezvous/tcp_sockets.h"
#include "pserver/rendezvous/waiting.h"

namespace weir {
namespace {

// A connection that has not greeted by then is closed: it is not one of ours.
constexpr absl::Duration kGreetingTime = absl::Seconds(5);
// Time for answers when the rendezvous is over.
constexpr absl::Duration kLinger = absl::Seconds(5);
// Time between two messages to all that name the missing processes.
constexpr absl::Duration kBetweenNews = absl::Seconds(1);
// Connections beside one for each process of the job: processes that connect again, strangers.
constexpr size_t kSpareConnections = 64;

struct Guest {
  Socket socket;
  std::string from;  // "10.0.0.2:41234"
  absl::Time since;
  MeetingFrames frames{kLargestGreeting};
  // Set once the gathering has taken it.
  std::optional<v1::RendezvousGreeting> greeting = {};
  // Bytes that are still to be sent; the connection is closed after them if `last`.
  std::string out = {};
  bool last = false;
  bool gone = false;
};

class Host {
 public:
  Host(const RendezvousOptions& options, const v1::RendezvousGreeting& own, const Cancellation& cancellation,
       Socket listener, std::string place)
      : options_(options),
        cancellation_(cancellation),
        listener_(std::move(listener)),
        place_(std::move(place)),
        gathering_(own) {}

  absl::StatusOr<v1::RendezvousAnswer> Run() {
    absl::StatusOr<v1::RendezvousAnswer> answer = Gather();
    over_ = true;
    if (answer.ok()) {
      complete_ = *answer;
      Tell(*answer);
    } else {
      Tell(AnswerOf(v1::RendezvousAnswer::FAILED, answer.status()));
    }
    Linger(answer.ok() ? kLinger : absl::Seconds(1));
    return answer;
  }

 private:
  // Waits until all are there, and checks what they say.
  absl::StatusOr<v1::RendezvousAnswer> Gather() {
    Waiting waiting(options_.slow_warning, options_.connect_deadline);
    while (!gathering_.complete()) {
      RETURN_IF_ERROR(waiting.Check([this] { return WaitsFor(); }, cancellation_));
      TellNews();
      Serve(waiting.Next());
    }
    return gathering_.Answer();
  }

  std::string WaitsFor() const {
    const auto [there, all] = gathering_.Counts();
    return absl::StrCat("at ", place_, " for ", gathering_.Missing(), "; ", there, " of ", all, " are there",
                        refused_.empty() ? "" : "; refused: ", refused_);
  }

  // Gives answers on their way time to leave. Those that ask meanwhile hear that it is over.
  void Linger(absl::Duration limit) {
    const absl::Time until = Clock::Real()->Now() + limit;
    while (Clock::Real()->Now() < until && !cancellation_.cancelled() &&
           std::any_of(guests_.begin(), guests_.end(), [](const Guest& guest) { return guest.greeting.has_value(); })) {
      Serve(until - Clock::Real()->Now());
    }
  }

  // Sends the answer to all that are there.
  void Tell(const v1::RendezvousAnswer& answer) {
    for (Guest& guest : guests_) {
      if (guest.greeting.has_value()) Send(answer, &guest);
    }
    Forget();
  }

  // Waits for at most `wait` and does what there is to do.
  void Serve(absl::Duration wait) {
    std::vector<pollfd> events = {{.fd = cancellation_.fd(), .events = POLLIN, .revents = 0},
                                  {.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests_) {
      const short out = guest.out.empty() ? 0 : POLLOUT;
      events.push_back({.fd = guest.socket.fd(), .events = static_cast<short>(POLLIN | out), .revents = 0});
    }
    ::poll(events.data(), events.size(), PollTimeout(std::min(wait, absl::Seconds(1))));
    const absl::Time now = Clock::Real()->Now();
    size_t i = 2;
    for (Guest& guest : guests_) {
      const short happened = events[i++].revents;
      if ((happened & (POLLIN | POLLHUP | POLLERR)) != 0) Receive(&guest);
      if (!guest.gone && !guest.out.empty()) Flush(&guest);
      if (!guest.greeting.has_value() && now - guest.since > kGreetingTime) guest.gone = true;
    }
    Forget();
    if (events[1].revents != 0) Accept(now);
  }

  void Accept(absl::Time now) {
    const size_t most = static_cast<size_t>(options_.trainers + options_.servers) + kSpareConnections;
    while (guests_.size() < most) {
      SocketAddress from;
      from.bytes = sizeof from.address;
      Socket socket(::accept4(listener_.fd(), reinterpret_cast<sockaddr*>(&from.address), &from.bytes,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.fd() < 0) {
        // Without a free descriptor the caller stays in the queue, so wait before the next attempt.
        if (errno == EMFILE || errno == ENFILE) (void)cancellation_.WaitFor(absl::Milliseconds(100));
        return;
      }
      guests_.push_back({.socket = std::move(socket), .from = from.ToString(), .since = now});
    }
    // Strangers must not keep ours out: the oldest of those that have said nothing makes room.
    for (Guest& guest : guests_) {
      if (guest.greeting.has_value()) continue;
      guest.gone = true;
      break;
    }
    Forget();
  }

  void Receive(Guest* guest) {
    char bytes[4096];
    const ssize_t got = ::recv(guest->socket.fd(), bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) {
      guest->gone = true;
      return;
    }
    // A guest says one thing.
    if (guest->greeting.has_value() || guest->last) return;
    guest->frames.Append(std::string_view(bytes, static_cast<size_t>(got)));
    const absl::StatusOr<std::optional<std::string>> text = guest->frames.Next();
    v1::RendezvousGreeting greeting;
    if (text.ok() && !text->has_value()) return;
    if (!text.ok() || !greeting.ParseFromString(**text)) {
      LOG(WARNING) << "rendezvous " << place_ << ": " << guest->from
                   << " is no process of Weir; its connection is closed";
      guest->gone = true;
      return;
    }
    Welcome(greeting, guest);
  }

  void Welcome(const v1::RendezvousGreeting& greeting, Guest* guest) {
    const absl::Status run = gathering_.CheckRun(greeting);
    if (!run.ok()) return TurnAway(v1::RendezvousAnswer::OTHER_RUN, run, gathering_.ToldOf(run, greeting), guest);
    if (over_ && !complete_.has_value()) {
      const absl::Status over = absl::UnavailableError("this rendezvous is over");
      return TurnAway(v1::RendezvousAnswer::OVER, over, over, guest);
    }
    // After the end only those are taken that were there, and have lost their connection.
    if (const absl::Status taken = gathering_.Add(greeting); !taken.ok()) {
      const bool late = complete_.has_value();
      return TurnAway(late ? v1::RendezvousAnswer::OVER : v1::RendezvousAnswer::REFUSED, taken, taken, guest);
    }
    for (Guest& other : guests_) {
      // The process has connected again; the former connection says nothing any more.
      if (other.greeting.has_value() && other.greeting->incarnation() == greeting.incarnation()) {
        other.greeting.reset();
        other.gone = true;
      }
    }
    guest->greeting = greeting;
    if (complete_.has_value()) return Send(*complete_, guest);
    LOG(INFO) << "rendezvous " << place_ << ": " << NameOf(greeting) << " is there"
              << (greeting.endpoint().empty() ? "" : " and serves at ") << Printable(greeting.endpoint());
    Send(News(), guest);
    has_news_ = true;
  }

  v1::RendezvousAnswer News() const {
    v1::RendezvousAnswer answer;
    answer.set_state(v1::RendezvousAnswer::WAITING);
    answer.set_missing(gathering_.Missing());
    return answer;
  }

  // Sends all processes the names of those that are missing, for their warnings, if these have changed.
  void TellNews() {
    const absl::Time now = Clock::Real()->Now();
    if (!has_news_ || now < next_news_) return;
    has_news_ = false;
    next_news_ = now + kBetweenNews;
    Tell(News());
  }

  // Logs why, and tells the guest `told` of it.
  void TurnAway(v1::RendezvousAnswer::State state, const absl::Status& why, const absl::Status& told, Guest* guest) {
    LOG(WARNING) << "rendezvous " << place_ << ": refuses " << guest->from << ": " << why.message();
    refused_ = std::string(why.message());
    guest->last = true;
    Send(AnswerOf(state, told), guest);
  }

  void Send(const v1::RendezvousAnswer& answer, Guest* guest) {
    guest->out += EncodeMeetingFrame(answer);
    Flush(guest);
  }

  static void Flush(Guest* guest) {
    const ssize_t sent = ::send(guest->socket.fd(), guest->out.data(), guest->out.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) guest->gone = true;
      return;
    }
    guest->out.erase(0, static_cast<size_t>(sent));
    // The guest closes when it has read the answer; closing first could take the answer from it.
    if (guest->out.empty() && guest->last) ::shutdown(guest->socket.fd(), SHUT_WR);
  }

  // Drops connections that are gone. A process that leaves before the end is missing again.
  void Forget() {
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      if (!guest->gone) {
        ++guest;
        continue;
      }
      if (guest->greeting.has_value() && !over_) {
        LOG(WARNING) << "rendezvous " << place_ << ": " << NameOf(*guest->greeting)
                     << " has left before all were there";
        gathering_.Remove(*guest->greeting);
        has_news_ = true;
      }
      guest = guests_.erase(guest);
    }
  }

  const RendezvousOptions& options_;
  const Cancellation& cancellation_;
  const Socket listener_;
  const std::string place_;  // "tcp://10.0.0.1:6170"
  Gathering gathering_;
  std::list<Guest> guests_;
  // Last process that was turned away, for warnings.
  std::string refused_;
  // True if other processes are missing than at the last message to all.
  bool has_news_ = false;
  absl::Time next_news_ = absl::InfinitePast();
  bool over_ = false;
  std::optional<v1::RendezvousAnswer> complete_;
};

}  // namespace

absl::StatusOr<v1::RendezvousAnswer> HostTcpMeeting(const RendezvousOptions& options, const v1::RendezvousGreeting& own,
                                                    const Cancellation& cancellation) {
  int port = 0;
  ASSIGN_OR_RETURN(Socket listener, ListenAt(options.method, &port));
  std::string place = absl::StrCat("tcp://", JoinHostPort(options.method.address.host, port));
  return Host(options, own, cancellation, std::move(listener), std::move(place)).Run();
}

}  // namespace weir
