// Control calls of trainers, which a server runs one at a time between updates. Not thread-safe; ServerCore locks
// around it.
#ifndef WEIR_PSERVER_SERVER_CONTROL_QUEUE_H_
#define WEIR_PSERVER_SERVER_CONTROL_QUEUE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/membership/waiting_calls.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/transport.h"

namespace weir {

struct ControlCall {
  int trainer;
  uint64_t session;
  v1::ControlRequest request;
  std::vector<ReplyCallback> replies;  // of the call and its repeats
};

class ControlQueue {
 public:
  // Adds a call. A repeat of a call that waits, runs or has been answered last joins that one instead of starting anew:
  // a save may take longer than a caller waits for one answer. ResourceExhausted: too many calls of the trainer wait;
  // `who` and `where` name the trainer and this server.
  absl::Status Add(v1::ControlRequest request, const ReplyCallback& reply, const std::string& who,
                   const std::string& where, Actions* actions);

  bool running() const { return running_ != nullptr; }
  bool waiting() const { return !waiting_.empty(); }
  bool idle() const { return !running() && !waiting(); }
  // Returns true if a call that runs or waits sets values: nobody may read them half set.
  bool sets_values() const;

  // Starts the first waiting call. Nothing may be running.
  std::shared_ptr<ControlCall> Start();
  // Ends the running call; keeps its result for repeats. Returns the callbacks that get the result.
  std::vector<ReplyCallback> Finish(const absl::StatusOr<v1::ControlReply>& result);
  // Removes the waiting calls, of one trainer or all (trainer < 0).
  std::list<std::shared_ptr<ControlCall>> TakeWaiting(int trainer = -1);

 private:
  std::list<std::shared_ptr<ControlCall>> waiting_;
  std::shared_ptr<ControlCall> running_;
  std::shared_ptr<ControlCall> last_;  // answered last; its action is cleared
  absl::StatusOr<v1::ControlReply> last_reply_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_CONTROL_QUEUE_H_
