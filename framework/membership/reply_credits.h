// Limit on the bytes of answers that one session may have on their way. Without it the server would have to keep every
// answer that a trainer asks for and does not read. Thread-safe.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_REPLY_CREDITS_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_REPLY_CREDITS_H_

#include <atomic>
#include <cstddef>
#include <memory>

namespace weir {

class ReplyCredits : public std::enable_shared_from_this<ReplyCredits> {
 public:
  explicit ReplyCredits(size_t limit) : limit_(limit) {}

  // Takes `bytes` of the limit, which are given back when the last copy of the result is destroyed; the sender keeps a
  // copy as long as the answer's memory. Returns null if the bytes on their way would exceed the limit. One answer may
  // always go out, whatever its size.
  std::shared_ptr<const void> Take(size_t bytes);
  size_t outstanding() const { return outstanding_.load(std::memory_order_relaxed); }

 private:
  const size_t limit_;
  // Orders no other memory, so relaxed access is enough.
  std::atomic<size_t> outstanding_{0};
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_REPLY_CREDITS_H_
