// Recycles memory for payloads, so that a step allocates nothing after the first steps. Thread-safe.
#ifndef WEIR_FRAMEWORK_WIRE_BUFFER_POOL_H_
#define WEIR_FRAMEWORK_WIRE_BUFFER_POOL_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/wire/slices.h"

namespace weir {

// Memory aligned to kAlignment; contents are undefined. Copies share it; destroying the last copy returns it to its
// pool, or frees it if the pool has been destroyed.
struct WireBuffer {
  char* data = nullptr;
  size_t size = 0;
  std::shared_ptr<void> owner;

  // Returns bytes [begin, begin + bytes), sharing ownership of the buffer.
  Slice Piece(size_t begin, size_t bytes) const { return {data + begin, bytes, owner}; }
};

class BufferPool {
 public:
  // Keeps at most `max_bytes` of unused memory.
  explicit BufferPool(size_t max_bytes = size_t{256} << 20);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns a buffer of at least `size` bytes; WireBuffer::size is `size`.
  WireBuffer Get(size_t size);

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_BUFFER_POOL_H_
