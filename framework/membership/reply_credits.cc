#include "framework/membership/reply_credits.h"

namespace weir {

std::shared_ptr<const void> ReplyCredits::Take(size_t bytes) {
  size_t before = outstanding_.load(std::memory_order_relaxed);
  do {
    if (before > 0 && (before > limit_ || bytes > limit_ - before)) return nullptr;
  } while (!outstanding_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return std::shared_ptr<const void>(this, [self = shared_from_this(), bytes](const void*) {
    self->outstanding_.fetch_sub(bytes, std::memory_order_relaxed);
  });
}

}  // namespace weir
