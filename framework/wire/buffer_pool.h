// Recycled memory for payloads, so that a step allocates nothing once the first steps are over. Thread-safe.
#ifndef WEIR_FRAMEWORK_WIRE_BUFFER_POOL_H_
#define WEIR_FRAMEWORK_WIRE_BUFFER_POOL_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/wire/slices.h"

namespace weir {

// Memory aligned to kAlignment; contents are undefined. Copies share it, and when the last one goes it returns to the
// pool it came from, or is freed when that pool is gone.
struct WireBuffer {
  char* data = nullptr;
  size_t size = 0;
  std::shared_ptr<void> owner;

  // The first `bytes` of it, keeping it alive.
  Slice Piece(size_t begin, size_t bytes) const { return {data + begin, bytes, owner}; }
};

class BufferPool {
 public:
  // Keeps at most `max_bytes` of unused memory.
  explicit BufferPool(size_t max_bytes = size_t{256} << 20);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // At least `size` bytes; WireBuffer::size is what was asked for.
  WireBuffer Get(size_t size);

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_BUFFER_POOL_H_
