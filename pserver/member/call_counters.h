// Counters of the calls of one trainer. Thread-safe.
#ifndef WEIR_PSERVER_MEMBER_CALL_COUNTERS_H_
#define WEIR_PSERVER_MEMBER_CALL_COUNTERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "pserver/protocol/wire_counters.h"

namespace weir {

class CallCounters {
 public:
  explicit CallCounters(int trainer) : wire_("trainer", trainer) {}

  // Counts one try of a call.
  void Request(Method method, size_t bytes) {
    messages_.fetch_add(1, std::memory_order_relaxed);
    bytes_sent_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    wire_.Request(method, bytes);
  }
  // Counts an answer that is not an error.
  void Answer(Method method, size_t bytes) {
    bytes_received_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    wire_.Answer(method, bytes);
  }
  void Took(Method method, int64_t nanoseconds) { wire_.Took(method, nanoseconds); }
  // Counts a try that is repeated.
  void Retry() { retries_.fetch_add(1, std::memory_order_relaxed); }

  // Sums since the start: messages() counts tries; bytes are those of all tries, and of answers that are not errors.
  int64_t messages() const { return messages_; }
  int64_t bytes_sent() const { return bytes_sent_; }
  int64_t bytes_received() const { return bytes_received_; }
  int64_t retries() const { return retries_; }

 private:
  const WireCounters wire_;
  // Atomic: sums that nothing else depends on.
  std::atomic<int64_t> messages_{0}, bytes_sent_{0}, bytes_received_{0}, retries_{0};
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_CALL_COUNTERS_H_
