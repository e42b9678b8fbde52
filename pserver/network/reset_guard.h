// Closes connections that open calls and reset them without end (HTTP/2 "rapid reset").
//
// gRPC 1.51 keeps a call that its caller has reset, about 20 KiB, until the connection's current write has ended. If a
// peer does not read, or sends faster than its calls are taken, that moment never comes: limits on streams do not see
// such calls, and the process grows until it is killed. The guard counts the calls of each connection through channelz
// and closes a connection that exceeds the limits below. gRPC frees the calls of a closed connection more slowly than
// an attacker that reconnects makes new ones; meanwhile the guard makes new connections wait, by a filter on the
// listening socket.
//
// The guard does not bound the memory: calls that gRPC has read before a close are still opened (256 KiB hold 8,000
// where HPACK makes a call 33 bytes long), and the number of connections has no limit. Peak memory in MB of an idle
// server of 33 MB on two busy cores, attacked for 16 seconds by connections that do not read and reconnect:
//
//   connections                          1      4      16
//   headers as literals                290    580   1,060
//   headers from HPACK's table         290    480   1,690
//   literals, without the guard             5,300 (in 8 seconds)
//
// The memory goes back to the system when the calls are freed. Nobody can connect while new connections wait; the
// kernels of callers try again after 1, 3 and 7 seconds.
//
// An idle process costs it nothing: the guard looks when somebody connects, and when the process has used processor
// time, which each call takes. So a look follows the same number of calls however slowly or fast they come.
//
// The guard also keeps descriptors for files: connections that say nothing cost a caller nothing, and without a
// descriptor a process cannot write a checkpoint. While the
// process has few left (KeptDescriptors), new connections wait, and the oldest ones that have got no answer are
// closed. The guard does not rest while fewer than 512 are free: a process can use these up by files, which take hardly
// any processor time.
#ifndef WEIR_PSERVER_NETWORK_RESET_GUARD_H_
#define WEIR_PSERVER_NETWORK_RESET_GUARD_H_

#include <dirent.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "framework/base/mutex.h"

namespace weir {

class ProcessorAlarm;

// Maximum number of open calls of one connection. Trainers have tens; one that pulls 4 GiB of rows from one server in
// one step, in calls of 1 MiB, has this many.
inline constexpr int64_t kMostOpenCalls = 4096;
// Maximum number of calls of one connection that ended without an answer, minus the answered ones. A call that its
// caller gives up at its deadline is one of these; a trainer that waits for a frozen server gives up tens every
// `deadlines.rpc_s`.
inline constexpr int64_t kMostResets = 4096;

// Numbers of calls of one connection since it was made.
struct CallCounts {
  std::string peer;       // "10.0.0.1:51504", "[fe80::1]:51504"; empty if it is not a TCP connection
  int64_t started = 0;    // all
  int64_t answered = 0;   // with OK or an error
  int64_t abandoned = 0;  // ended without an answer
  int64_t sent = 0;       // messages to the peer: answers without an error, and batches of a stream of calls
};

// Parses the JSON of grpc_channelz_get_socket. Returns nullopt if the text is something else.
std::optional<CallCounts> ParseSocket(std::string_view json);

// Returns true if a connection with these counts is to be closed.
bool IsBeyondLimits(const CallCounts& counts);

// Returns the number of free descriptors below which new connections wait, of a process that may have `limit` and has
// `used`. `expected`: those that the connections of its own job need. The number is larger than kKeptDescriptors
// (framework/base/exhausted.h) as far as the job can spare them, since hundreds of connections are accepted before the
// guard has counted, and those that wait in the system's queue besides.
int64_t KeptDescriptors(int64_t limit, int64_t used, int64_t expected);

class ResetGuard {
 public:
  // Guards the connections of gRPC to `port` of this process. `expected` as in KeptDescriptors. `close_others` closes
  // connections of other kinds that have got no answer; it is called when few descriptors are left. Connections through
  // Unix-domain sockets are left alone, because only this user can make them. Returns null, with a warning in the log,
  // if the process cannot list its descriptors (no /proc).
  static std::unique_ptr<ResetGuard> Start(int port, int64_t expected, std::function<void()> close_others);
  // Stops the thread. The guarded server may already be destroyed.
  ~ResetGuard();
  ResetGuard(const ResetGuard&) = delete;
  ResetGuard& operator=(const ResetGuard&) = delete;

 private:
  // Connections by channelz socket number.
  using Connections = std::map<int64_t, CallCounts>;
  // Connections by CallCounts.peer.
  using Sockets = std::map<std::string, int64_t>;

  ResetGuard(int port, int64_t expected, std::function<void()> close_others, DIR* descriptors, int held);
  void Run();
  // Waits for that long or until the guard stops; returns false when it stops.
  bool Rest(absl::Duration how_long);
  // Waits until somebody connects, or the process has used kUse of processor time since `since`; not while connections
  // are being closed, or kept waiting, or descriptors may run out. Returns true if somebody has connected.
  bool AwaitUse(ProcessorAlarm* alarm, absl::Duration since);
  // Tells the destructor whom to wake.
  void SetAlarm(ProcessorAlarm* alarm);
  // Makes every new connection to port_ ring. Sets rests_.
  void RingOnConnections(const ProcessorAlarm& alarm);
  // Counts the calls of every connection if enough calls have come since the last count.
  void Look();
  // Makes new connections wait while gRPC frees the calls of closed ones, for at most kLongestPause after the last
  // close.
  void PauseOrResume();
  int64_t CountDescriptors();
  // Counts the descriptors of the process if they may be many. Closes connections if few are left.
  void LookAtDescriptors();
  // Closes connections; `warn` is called for each.
  void Close(const Connections& beyond, const std::function<void(const CallCounts&)>& warn);
  // Closes the connection of descriptor `fd` if it is one of these and returns its socket number; else returns 0.
  int64_t CloseIfAmong(int fd, const Sockets& beyond);
  // Calls a function with a copy of each socket that listens on port_.
  void ForEachListener(const std::function<void(int fd)>& act);
  // Limits the connections that the system takes before gRPC does, which no filter keeps out any more.
  void ShortenQueue();
  // Lets new connections in, or makes them wait in the kernels of their callers. Does nothing where the system has no
  // such filter.
  void SetAccepting(bool accepting);
  // Returns true if `fd` is a socket that listens on port_.
  bool IsListener(int fd) const;
  // Returns "10.0.0.1:51504" if `fd` is a connection to port_, else "".
  std::string PeerOf(int fd) const;
  // Writes a line, unless there has been one just now.
  void Warn(const std::string& line);

  const int port_;
  const std::function<void()> close_others_;
  // /proc/self/fd, and a descriptor that is made a copy of each descriptor examined. Both are opened at the start,
  // because an attacker may leave the process no free descriptor. These fields and those down to mu_ are used only by
  // the guard's thread.
  DIR* const descriptors_;
  const int held_;
  const int64_t kept_;  // KeptDescriptors
  // Calls of all servers of the process that were not answered with OK, when the connections were last examined.
  int64_t looked_at_ = 0;
  // Numbers of sockets that have been closed and that gRPC still lists.
  std::set<int64_t> closed_;
  // True while new connections wait; resume_at_ is when the wait ends at the latest.
  bool paused_ = false;
  // More than half of the descriptors that connections may use are in use; few are left; fewer than
  // kFreeToRest are free.
  bool many_descriptors_ = false, few_left_ = false, may_run_out_ = true;
  // The guard may rest: an alarm tells of processor time and of connections.
  bool rests_ = false;
  absl::Time resume_at_ = absl::InfinitePast();
  absl::Time next_warning_ = absl::InfinitePast();
  int64_t not_told_ = 0;

  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  ProcessorAlarm* alarm_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the thread while it runs
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_RESET_GUARD_H_
