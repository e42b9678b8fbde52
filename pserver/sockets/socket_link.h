// A connection of plain sockets, TCP or Unix-domain, that carries batches of records (stream_records.h) both ways.
//
// Each end begins with a greeting of kGreetingBytes; numbers are little-endian:
//
//   offset  bytes
//   0       8      "WEIRTENS"
//   8       4      version of the connection, kSocketVersion
//   12      4      0
//   16      8      run: what the processes of one run share; 0
//   24      8      epoch of the job's membership; 0
//   32      32     proof that the process belongs to the job; 0
//
// Batches follow, each behind the number of its bytes (8 bytes). The end that connects does not wait for the other's
// greeting. The other end sends it first of all, so the first says whether anybody there speaks this protocol.
#ifndef WEIR_PSERVER_SOCKETS_SOCKET_LINK_H_
#define WEIR_PSERVER_SOCKETS_SOCKET_LINK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/wire/slices.h"
#include "pserver/sockets/socket_events.h"
#include "pserver/sockets/socket_input.h"

namespace weir {

// Sets the options of a socket at either end. TCP: no delay of small messages, and an end when the other machine has
// vanished. Unix-domain: room for more bytes that the other end has not read, as far as net.core.wmem_max allows.
void SetLinkOptions(int socket, bool tcp);

// Thread-safe. Ends when the other end closes it, after what is no batch, and after Close.
class SocketLink : public SocketWatcher, public std::enable_shared_from_this<SocketLink> {
 public:
  // Called without a lock, on threads of SocketEvents.
  struct Callbacks {
    // A batch has come. To call `read_on` once, before anything that takes long: several batches may be handled at once
    // from then on. An error instead ends the connection.
    std::function<absl::Status(Slices batch, const std::function<void()>& read_on)> batch;
    // A write that Write has begun has ended.
    std::function<void()> written;
    // The last call: no other runs any more. Unavailable: the network, or the other end has closed the connection;
    // InvalidArgument: it has sent what is no batch; FailedPrecondition: it speaks another version.
    std::function<void(const absl::Status& why)> ended;
  };

  // Takes over a socket that does not block, connected or about to be.
  explicit SocketLink(int fd);
  ~SocketLink() override;
  SocketLink(const SocketLink&) = delete;
  SocketLink& operator=(const SocketLink&) = delete;

  // To be called once. What other calls send before is dropped.
  void Start(Callbacks callbacks);
  // Sends a batch. True: it has been handed to the system; false: `written` will tell, or `ended`. Requires: the batch
  // before it has been.
  bool Write(Slices batch);
  // Sends what Write has begun and `last`, and says that nothing more follows. The other end then closes the
  // connection.
  void Finish(Slices last);
  // `ended` follows soon.
  void Close();
  // The greeting of the other end has come.
  bool greeted() const;

  void OnEvents(uint32_t events) override;

 private:
  // Watches for what is wanted.
  void Arm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets another thread read what comes next.
  void ReadOn();
  // A batch lies in input_ that no other thread has begun to handle since ReadOn: this one reads on.
  bool TakeInput();
  // A call of another thread begins to use the socket. False: the link is not connected. Else Leave is to follow soon.
  bool Enter();
  void Leave();
  // Appends a batch to out_. The caller sends it if the result is true, and nobody else does.
  bool Queue(Slices batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reads what there is, and ends the connection with it. Requires: no other thread reads.
  void Read();
  // Closes the socket when the last thread of SocketEvents has done with it.
  void EndEvents();
  // Sends what there is. Returns true when nothing is left. Requires: no other thread sends.
  bool Send();
  // Keeps the first reason, unless this one says more than that the network has failed.
  void Fail(absl::Status why);

  const int fd_;
  Callbacks callbacks_;
  // Bytes that have come; used by the thread that reads.
  std::unique_ptr<SocketInput> input_;
  // Slices that are being sent, from an offset in slice at_; used by the thread that sends.
  Slices sending_;
  size_t sent_ = 0, at_ = 0;

  mutable Mutex mu_;
  uint64_t number_ ABSL_GUARDED_BY(mu_) = 0;  // 0: not started
  // No thread reads, and the next bytes are waited for; they lie in input_ already.
  bool wants_in_ ABSL_GUARDED_BY(mu_) = false, has_input_ ABSL_GUARDED_BY(mu_) = false;
  // Somebody sends: a thread, or the one that will when the socket has room.
  bool sends_ ABSL_GUARDED_BY(mu_) = false, wants_out_ ABSL_GUARDED_BY(mu_) = false;
  // Slices that are sent next, and whether a batch of Write is in them or is being sent.
  Slices out_ ABSL_GUARDED_BY(mu_);
  bool has_batch_ ABSL_GUARDED_BY(mu_) = false, finishes_ ABSL_GUARDED_BY(mu_) = false;
  // Calls of other threads; calls of OnEvents.
  int calls_ ABSL_GUARDED_BY(mu_) = 0, events_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar no_calls_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false, greeted_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status why_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_SOCKET_LINK_H_
