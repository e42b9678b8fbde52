// Bytes of answers that one session may have on their way. A trainer that does not read would otherwise have its server
// keep every answer it asks for. Thread-safe.
#ifndef WEIR_PSERVER_SERVER_REPLY_CREDITS_H_
#define WEIR_PSERVER_SERVER_REPLY_CREDITS_H_

#include <atomic>
#include <cstddef>
#include <memory>

namespace weir {

class ReplyCredits : public std::enable_shared_from_this<ReplyCredits> {
 public:
  explicit ReplyCredits(size_t limit) : limit_(limit) {}

  // Takes `bytes`, which come back when the last copy of the result goes: whoever sends them lets it go with the
  // memory. Null when more than the limit would be on the way; one answer may always be, however large.
  std::shared_ptr<const void> Take(size_t bytes);
  size_t outstanding() const { return outstanding_.load(std::memory_order_relaxed); }

 private:
  const size_t limit_;
  // Memory is no part of what it says: no order is needed.
  std::atomic<size_t> outstanding_{0};
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_REPLY_CREDITS_H_
