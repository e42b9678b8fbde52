// Control calls of trainers, which a server runs one at a time between updates. Not thread-safe; ServerCore locks
// around it. Invariant: at most one call runs.
#ifndef WEIR_PSERVER_SERVER_CONTROL_QUEUE_H_
#define WEIR_PSERVER_SERVER_CONTROL_QUEUE_H_

#include <cstdint>
#include <list>
#include <map>
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
  // Adds a call. A repeat of a call that waits, runs or is the trainer's last answered one joins that one instead of
  // starting anew: a save may take longer than a caller waits for one answer. `who` and `where` name the trainer and
  // this server. FailedPrecondition: the session has made a later call (its request_id grows), so this one was delayed
  // on its way and nobody waits for it. ResourceExhausted: too many calls of the trainer wait.
  absl::Status Add(v1::ControlRequest request, const ReplyCallback& reply, const std::string& who,
                   const std::string& where, Actions* actions);

  bool running() const { return running_ != nullptr; }
  bool waiting() const { return !waiting_.empty(); }
  bool idle() const { return !running() && !waiting(); }
  // Returns true if a call that runs or waits sets values: nobody may read them half set.
  bool sets_values() const;

  // Starts the first waiting call. Requires: waiting() and !running(); the caller runs the call and ends it with
  // Finish.
  std::shared_ptr<ControlCall> Start();
  // Ends the running call; keeps its result for repeats. Returns the callbacks that get the result. Requires:
  // running().
  std::vector<ReplyCallback> Finish(const absl::StatusOr<v1::ControlReply>& result);
  // Removes the waiting calls, of one trainer or all (trainer < 0).
  std::list<std::shared_ptr<ControlCall>> TakeWaiting(int trainer = -1);

 private:
  // Describes the newest session in which a trainer has made calls.
  struct Made {
    uint64_t session = 0;
    uint64_t newest_id = 0;                                       // greatest request_id of its calls
    std::shared_ptr<ControlCall> last;                            // answered last; its action is cleared. Null: none
    absl::StatusOr<v1::ControlReply> reply = v1::ControlReply();  // of `last`
  };

  std::list<std::shared_ptr<ControlCall>> waiting_;
  std::shared_ptr<ControlCall> running_;
  std::map<int, Made> made_;  // by trainer
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_CONTROL_QUEUE_H_
