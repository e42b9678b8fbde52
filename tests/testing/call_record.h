// Record of the bytes that trainers and servers exchange in a run: hashes of every request and reply, in an order that
// does not depend on timing. Two runs of one job give equal records on every machine, so a record kept in the tree
// shows that a change of the code leaves the wire as it is.
#ifndef WEIR_TESTS_TESTING_CALL_RECORD_H_
#define WEIR_TESTS_TESTING_CALL_RECORD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Thread-safe. Transports and the callbacks of their calls keep it alive.
//
// A message is recorded as the bytes of its header without the fields that differ between runs (kCleared in the .cc
// names them, with the reason for each), and the bytes of its payload. Headers and frames must have the bytes that the
// protobuf library writes for them, so that equal records mean equal bytes. Heart-beats depend on time: only those that
// end a trainer's part in the job are recorded. A call that is repeated, because the server was not ready or was not
// reached, is recorded once, at the place of its first request.
class CallRecord : public std::enable_shared_from_this<CallRecord> {
 public:
  struct Options {
    int servers = 1;
    int trainers = 1;
    // With prefetch_rows: number of steps of the run. The pushes of a step are then held back until the rows of the
    // next step have come; otherwise the values of these rows would depend on timing. 0: nothing is held back.
    int64_t prefetched_steps = 0;
    // Sorts the calls between two steps by content: several threads of a trainer make them in any order.
    bool any_order_in_step = false;
  };
  explicit CallRecord(Options options) : options_(options) {}

  // Returns a transport of one trainer that records and passes calls on. `inner` is borrowed. Every transport continues
  // the record.
  std::unique_ptr<Transport> Between(int trainer, Transport* inner);

  // Returns a line for each trainer, server and method: calls, bytes and hashes of all requests and of all replies.
  // Calls that were not answered are left out. Call after the run.
  std::string Summary() const;
  // Returns a line for each call, with its place in its line of the summary, hashes, and headers as text.
  std::string Calls() const;
  // Returns what is wrong with the form of messages, one per line; "" if nothing is.
  std::string Malformed() const;

 private:
  class Recorder;
  // One side of a call.
  struct Message {
    uint64_t bytes = 0;
    uint64_t hash = 0;
    std::string text;
  };
  struct Entry {
    int64_t step = 0;  // steps pushed by the trainer before
    Message request, reply;
    bool answered = false;
  };
  // Trainer, server, and name of the method, with " ahead" for calls of the thread that prefetches rows.
  using Key = std::tuple<int, int, std::string>;

  void Call(int trainer, Transport* inner, int server, Method method, Slices request, absl::Duration timeout,
            ReplyCallback done);
  // Returns the calls of one line in recorded order.
  std::vector<const Entry*> Ordered(const std::deque<Entry>& entries) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HoldPush(int trainer, int64_t step);

  const Options options_;
  mutable Mutex mu_;
  CondVar changed_;
  std::map<Key, std::deque<Entry>> entries_ ABSL_GUARDED_BY(mu_);  // in order of the first requests
  // Calls without an answer so far, by line and bytes of the request.
  std::map<std::pair<Key, std::string>, Entry*> open_ ABSL_GUARDED_BY(mu_);
  std::map<int, int64_t> steps_ ABSL_GUARDED_BY(mu_);       // pushed, by trainer
  std::map<int, int64_t> rows_ahead_ ABSL_GUARDED_BY(mu_);  // answered prefetches of all servers, by trainer
  std::string malformed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_CALL_RECORD_H_
