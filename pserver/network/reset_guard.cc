#include "pserver/network/reset_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "glog/logging.h"
#include "grpc/grpc.h"
#include "grpc/support/alloc.h"
#include "pserver/network/processor_alarm.h"
#include "pserver/sockets/peer_address.h"

namespace weir {
namespace {

// An attacker on a bench machine of two cores gets 15,000 calls a second in, 300 in this time. The first question, how
// many calls there were, takes 15 microseconds.
constexpr absl::Duration kPeriod = absl::Milliseconds(20);
// Processor time of the process between two looks: half of what one thread has used after kPeriod when calls without
// end keep it busy, so that the guard then looks after each kPeriod.
constexpr absl::Duration kUse = absl::Milliseconds(10);
// Longest time between two looks. Less than kUse of processor time is enough for 150 calls.
constexpr absl::Duration kLongestCalm = absl::Seconds(5);
// Free descriptors with which the guard rests. Whoever opens so many by anything but connections has used kUse before
// they are gone, if each takes 20 microseconds: to find, open and read a file does.
constexpr int64_t kFreeToRest = 512;
// Period while many descriptors are in use: tens of connections are accepted in this time.
constexpr absl::Duration kPeriodWithManyDescriptors = absl::Milliseconds(1);
// Longest wait of new connections after the last close, should gRPC keep a closed one because a handler of its is busy.
// On two busy cores gRPC freed the calls within 3 seconds.
constexpr absl::Duration kLongestPause = absl::Seconds(10);
// A look at the connections takes 5 microseconds each. It takes at most a tenth of one core up to 2,000 connections,
// and more beyond: while an attack keeps all cores busy a look takes long because it waits for one, and a long rest
// would let it grow.
constexpr int kRestPerLook = 9;
constexpr absl::Duration kLongestRest = absl::Milliseconds(100);
// Connections are looked at when so many more calls have not been answered with OK.
constexpr int64_t kCallsPerLook = 256;
// Least time between warnings. An attacker may reconnect many times a second.
constexpr absl::Duration kWarningPeriod = absl::Seconds(10);
// Most sockets that channelz lists at once.
constexpr intptr_t kPage = 500;

std::string Taken(char* text) {
  if (text == nullptr) return "";
  std::string copy = text;
  gpr_free(text);
  return copy;
}

// The text behind `"key":"`, up to the next quotation mark. Channelz writes numbers that way too, leaves out those that
// are 0, and has none of the keys below twice in what is said of one socket or server.
std::optional<std::string_view> Value(std::string_view json, std::string_view key) {
  const std::string begin = absl::StrCat("\"", absl::string_view(key.data(), key.size()), "\":\"");
  const size_t at = json.find(begin);
  if (at == std::string_view::npos) return std::nullopt;
  json.remove_prefix(at + begin.size());
  const size_t end = json.find('"');
  if (end == std::string_view::npos) return std::nullopt;
  return json.substr(0, end);
}

// Returns 0 if the key is missing or no number follows it.
int64_t Number(std::string_view json, std::string_view key) {
  const auto text = Value(json, key);
  int64_t number = 0;
  if (!text || !absl::SimpleAtoi(absl::string_view(text->data(), text->size()), &number)) return 0;
  return std::max<int64_t>(number, 0);
}

// "chttp2 ipv6:%5B::1%5D:51504" -> "[::1]:51504"; empty for one of another kind. Without the zone of an address.
std::string PeerOfName(std::string_view name) {
  absl::string_view rest(name.data(), name.size());
  if (!absl::ConsumePrefix(&rest, "chttp2 ")) return "";
  if (absl::ConsumePrefix(&rest, "ipv4:")) return std::string(rest);
  if (!absl::ConsumePrefix(&rest, "ipv6:")) return "";
  std::string text;
  bool zone = false;
  while (!rest.empty()) {
    if (absl::ConsumePrefix(&rest, "%5B")) {
      text += '[';
    } else if (absl::ConsumePrefix(&rest, "%5D")) {
      text += ']';
      zone = false;
    } else {
      zone = zone || rest.front() == '%';
      if (!zone) text += rest.front();
      rest.remove_prefix(1);
    }
  }
  return text;
}

int PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return -1;
}

// Returns every number that follows the key in pages of channelz. `page` returns the page that begins with a number.
std::vector<int64_t> Numbers(std::string_view key, const std::function<std::string(int64_t)>& page) {
  std::vector<int64_t> numbers;
  int64_t from = 0;
  while (true) {
    const std::string json = page(from);
    const size_t before = numbers.size();
    std::string_view rest = json;
    while (const auto text = Value(rest, key)) {
      int64_t number = 0;
      if (absl::SimpleAtoi(absl::string_view(text->data(), text->size()), &number)) numbers.push_back(number);
      rest.remove_prefix(static_cast<size_t>(text->data() + text->size() - rest.data()));
    }
    if (numbers.size() == before || absl::StrContains(json, "\"end\":true")) return numbers;
    from = numbers.back() + 1;
  }
}

std::vector<int64_t> Servers() {
  return Numbers("serverId", [](int64_t from) { return Taken(grpc_channelz_get_servers(from)); });
}

std::vector<int64_t> SocketsOf(int64_t server) {
  return Numbers("socketId",
                 [server](int64_t from) { return Taken(grpc_channelz_get_server_sockets(server, from, kPage)); });
}

// Calls of one server that were not answered with OK; that is, not yet, with an error, or never.
int64_t CallsWithoutSuccess(int64_t server) {
  const std::string json = Taken(grpc_channelz_get_server(server));
  return Number(json, "callsStarted") - Number(json, "callsSucceeded");
}

// `clock`: of this thread or of the whole process.
absl::Duration ProcessorTime(clockid_t clock) {
  timespec now = {};
  ::clock_gettime(clock, &now);
  return absl::DurationFromTimespec(now);
}

int64_t DescriptorLimit() {
  rlimit limit = {};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= INT64_MAX;
  return known ? static_cast<int64_t>(limit.rlim_cur) : INT64_MAX;
}

}  // namespace

std::optional<CallCounts> ParseSocket(std::string_view json) {
  const auto name = Value(json, "name");
  if (!name) return std::nullopt;
  return CallCounts{.peer = PeerOfName(*name),
                    .started = Number(json, "streamsStarted"),
                    .answered = Number(json, "streamsSucceeded"),
                    .abandoned = Number(json, "streamsFailed"),
                    .sent = Number(json, "messagesSent")};
}

bool IsBeyondLimits(const CallCounts& counts) {
  return counts.started - counts.answered - counts.abandoned > kMostOpenCalls ||
         counts.abandoned - counts.answered > kMostResets;
}

int64_t KeptDescriptors(int64_t limit, int64_t used, int64_t expected) {
  // Readers and files that are opened later.
  const int64_t others = limit / 4;
  return std::clamp<int64_t>(limit - used - expected - others, kKeptDescriptors, 4096);
}

std::unique_ptr<ResetGuard> ResetGuard::Start(int port, int64_t expected, std::function<void()> close_others) {
  DIR* const descriptors = ::opendir("/proc/self/fd");
  const int held = descriptors == nullptr ? -1 : ::fcntl(::dirfd(descriptors), F_DUPFD_CLOEXEC, 0);
  if (held < 0) {
    LOG(WARNING) << "peers that reset calls without end are not cut off: /proc/self/fd: " << std::strerror(errno);
    if (descriptors != nullptr) ::closedir(descriptors);
    return nullptr;
  }
  return std::unique_ptr<ResetGuard>(new ResetGuard(port, expected, std::move(close_others), descriptors, held));
}

ResetGuard::ResetGuard(int port, int64_t expected, std::function<void()> close_others, DIR* descriptors, int held)
    : port_(port),
      close_others_(std::move(close_others)),
      descriptors_(descriptors),
      held_(held),
      kept_(KeptDescriptors(DescriptorLimit(), CountDescriptors(), expected)) {
  ShortenQueue();
  thread_ = StartThread("weir-resets", [this] { Run(); });
}

ResetGuard::~ResetGuard() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
    if (alarm_ != nullptr) alarm_->Ring();
  }
  thread_.join();
  ::close(held_);
  ::closedir(descriptors_);
}

void ResetGuard::Run() {
  Clock* const clock = Clock::Real();
  ProcessorAlarm alarm;
  RingOnConnections(alarm);
  SetAlarm(&alarm);
  absl::Time next_look = clock->Now() + kPeriod;
  absl::Duration rest = kPeriod;
  absl::Duration used = ProcessorTime(CLOCK_PROCESS_CPUTIME_ID);
  bool came = false;
  while (Rest(rest)) {
    // Look once more a period after a connection has come: it may not have been accepted at the first look.
    came = !came && AwaitUse(&alarm, used);
    used = ProcessorTime(CLOCK_PROCESS_CPUTIME_ID);
    // Measure processor time: connections come also while this thread waits for a core.
    const absl::Duration begin = ProcessorTime(CLOCK_THREAD_CPUTIME_ID);
    LookAtDescriptors();
    rest = many_descriptors_ ? std::clamp(kRestPerLook * (ProcessorTime(CLOCK_THREAD_CPUTIME_ID) - begin),
                                          kPeriodWithManyDescriptors, kLongestRest)
                             : kPeriod;
    if (const absl::Time now = clock->Now(); now >= next_look) {
      Look();
      const absl::Time end = clock->Now();
      next_look = end + std::clamp(kRestPerLook * (end - now), kPeriod, kLongestRest);
    }
    PauseOrResume();
  }
  SetAlarm(nullptr);
}

void ResetGuard::SetAlarm(ProcessorAlarm* alarm) {
  MutexLock lock(&mu_);
  alarm_ = alarm;
}

void ResetGuard::RingOnConnections(const ProcessorAlarm& alarm) {
  rests_ = alarm.works();
  ForEachListener([&](int fd) { rests_ = alarm.RingOnConnections(fd) && rests_; });
}

bool ResetGuard::AwaitUse(ProcessorAlarm* alarm, absl::Duration since) {
  // Behind these the next step is due at a time, whatever the process does.
  if (!rests_ || may_run_out_ || many_descriptors_ || few_left_ || paused_ || !closed_.empty()) return false;
  const absl::Duration left = since + kUse - ProcessorTime(CLOCK_PROCESS_CPUTIME_ID);
  return left > absl::ZeroDuration() && alarm->Await(left, kLongestCalm);
}

bool ResetGuard::Rest(absl::Duration how_long) {
  Clock* const clock = Clock::Real();
  const absl::Time end = clock->Now() + how_long;
  MutexLock lock(&mu_);
  while (!stop_) {
    const absl::Duration left = end - clock->Now();
    if (left <= absl::ZeroDuration()) return true;
    changed_.WaitWithTimeout(&mu_, left);
  }
  return false;
}

void ResetGuard::Look() {
  const std::vector<int64_t> servers = Servers();
  int64_t calls = 0;
  for (const int64_t server : servers) calls += CallsWithoutSuccess(server);
  // Calls that were open at the last look have been answered since.
  looked_at_ = std::min(looked_at_, calls);
  if (calls - looked_at_ < kCallsPerLook && closed_.empty()) return;
  looked_at_ = calls;

  // Other servers of this process have connections to other ports, which Close leaves alone.
  Connections beyond;
  std::set<int64_t> listed;
  for (const int64_t server : servers) {
    for (const int64_t socket : SocketsOf(server)) {
      listed.insert(socket);
      const auto counts = ParseSocket(Taken(grpc_channelz_get_socket(socket)));
      if (counts && !counts->peer.empty() && IsBeyondLimits(*counts)) beyond[socket] = *counts;
    }
  }
  std::erase_if(closed_, [&listed](int64_t socket) { return !listed.contains(socket); });
  for (const int64_t socket : closed_) beyond.erase(socket);
  if (!beyond.empty()) {
    Close(beyond, [this](const CallCounts& counts) {
      Warn(absl::StrCat("closed the connection of ", counts.peer, ": of the ", counts.started,
                        " calls that it has opened ", counts.answered, " were answered, ", counts.abandoned,
                        " reset, and the rest is open; a connection may have ", kMostOpenCalls, " open, and ",
                        kMostResets, " more reset than answered"));
    });
    resume_at_ = Clock::Real()->Now() + kLongestPause;
  }
}

int64_t ResetGuard::CountDescriptors() {
  int64_t used = 0;
  ::rewinddir(descriptors_);
  while (::readdir(descriptors_) != nullptr) ++used;
  return used;
}

void ResetGuard::LookAtDescriptors() {
  const int64_t limit = DescriptorLimit();
  // The system gives the lowest free number: while that is low, few are in use.
  const int lowest = ::fcntl(held_, F_DUPFD_CLOEXEC, 0);
  if (lowest >= 0) ::close(lowest);
  may_run_out_ = lowest < 0 || limit - lowest < kFreeToRest;
  const int64_t many = (limit - kept_) / 2;
  if (lowest >= 0 && lowest < many && !many_descriptors_) return;
  const int64_t used = CountDescriptors();
  many_descriptors_ = used > many;
  few_left_ = limit - used < kept_;
  if (!few_left_) return;
  close_others_();
  const std::string state =
      absl::StrCat(used, " of ", limit, " file descriptors are in use (ulimit -n), and new connections wait");
  // The numbers of sockets grow: the oldest are first. More than are missing, so that this is not done for each new
  // one.
  Connections silent;
  for (const int64_t server : Servers()) {
    const std::vector<int64_t> sockets = SocketsOf(server);
    for (const int64_t socket : sockets) {
      if (static_cast<int64_t>(silent.size()) >= kept_) break;
      const auto counts = ParseSocket(Taken(grpc_channelz_get_socket(socket)));
      if (!counts || counts->peer.empty() || closed_.contains(socket)) continue;
      if (counts->answered == 0 && counts->sent == 0) silent[socket] = *counts;
    }
  }
  if (silent.empty()) Warn(state);
  Close(silent, [&state, this](const CallCounts& counts) {
    Warn(absl::StrCat("closed the connection of ", counts.peer, ", which has got no answer: ", state));
  });
}

void ResetGuard::PauseOrResume() {
  const bool pause = few_left_ || (!closed_.empty() && Clock::Real()->Now() < resume_at_);
  if (pause == paused_) return;
  paused_ = pause;
  // Gives the memory of the calls back: it lies in the arenas of several threads, and the next calls may come to
  // others.
  if (!pause) ::malloc_trim(0);
  SetAccepting(!pause);
}

void ResetGuard::Close(const Connections& beyond, const std::function<void(const CallCounts&)>& warn) {
  Sockets sockets;
  for (const auto& [socket, counts] : beyond) sockets[counts.peer] = socket;
  ::rewinddir(descriptors_);
  while (const dirent* entry = ::readdir(descriptors_)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    const int64_t socket = CloseIfAmong(fd, sockets);
    if (socket == 0) continue;
    closed_.insert(socket);
    warn(beyond.at(socket));
  }
}

int64_t ResetGuard::CloseIfAmong(int fd, const Sockets& beyond) {
  if (!beyond.contains(PeerOf(fd))) return 0;
  // gRPC closes descriptors on its own threads, and the number may be another's before it is disconnected. A copy stays
  // what it is while it is looked at.
  if (::dup3(fd, held_, O_CLOEXEC) < 0) return 0;
  const auto found = beyond.find(PeerOf(held_));
  // Drops what has come and was not read, too: after shutdown() gRPC would read that first, up to 200,000 calls.
  sockaddr nowhere = {};
  nowhere.sa_family = AF_UNSPEC;
  const bool closed = found != beyond.end() && ::connect(held_, &nowhere, sizeof(nowhere)) == 0;
  ::dup3(::dirfd(descriptors_), held_, O_CLOEXEC);
  return closed ? found->second : 0;
}

void ResetGuard::ForEachListener(const std::function<void(int fd)>& act) {
  ::rewinddir(descriptors_);
  while (const dirent* entry = ::readdir(descriptors_)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || !IsListener(fd)) continue;
    if (::dup3(fd, held_, O_CLOEXEC) < 0) continue;
    if (IsListener(held_)) act(held_);
    ::dup3(::dirfd(descriptors_), held_, O_CLOEXEC);
  }
}

void ResetGuard::ShortenQueue() {
  // They ask for 4096.
  const int most = static_cast<int>(kept_ / 4);
  ForEachListener([most](int fd) { ::listen(fd, most); });
}

void ResetGuard::SetAccepting(bool accepting) {
  ForEachListener([accepting](int fd) {
    // A filter that drops every packet to the listening socket, above all the first of a connection, which the
    // caller's kernel sends again. Connections that have been accepted have no part in it.
    sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program = {.len = 1, .filter = &drop};
    const int unused = 0;
    if (accepting) {
      ::setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused));
    } else {
      ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
    }
  });
}

bool ResetGuard::IsListener(int fd) const {
  int listens = 0;
  socklen_t length = sizeof(listens);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) return false;
  sockaddr_storage local = {};
  length = sizeof(local);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 && PortOf(local) == port_;
}

std::string ResetGuard::PeerOf(int fd) const {
  sockaddr_storage local = {};
  sockaddr_storage peer = {};
  socklen_t length = sizeof(local);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0 || PortOf(local) != port_) return "";
  length = sizeof(peer);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return "";
  return AddressText(peer);
}

void ResetGuard::Warn(const std::string& line) {
  const absl::Time now = Clock::Real()->Now();
  if (now < next_warning_) {
    ++not_told_;
    return;
  }
  next_warning_ = now + kWarningPeriod;
  LOG(WARNING) << line
               << (not_told_ == 0 ? ""
                                  : absl::StrCat(" (and ", not_told_, " more connections since the last such line)"));
  not_told_ = 0;
}

}  // namespace weir
