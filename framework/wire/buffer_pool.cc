#include "framework/wire/buffer_pool.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace weir {

namespace {

// Sizes come in quarter steps of powers of two, so that a buffer is at most a quarter larger than what is asked for.
size_t ClassSize(size_t size) {
  size_t power = 4096;
  while (power * 2 <= size) power *= 2;
  const size_t quarter = power / 4;
  const size_t rounded = (size + quarter - 1) / quarter * quarter;
  return rounded < 4096 ? 4096 : rounded;
}

char* Allocate(size_t size) { return static_cast<char*>(::operator new(size, std::align_val_t(kAlignment))); }
void Free(char* data) { ::operator delete(data, std::align_val_t(kAlignment)); }

}  // namespace

struct BufferPool::Shelf {
  struct Unused {
    char* data;
    size_t size;
  };
  explicit Shelf(size_t max) : max_bytes(max) {}
  ~Shelf() {
    for (const Unused& each : unused) Free(each.data);
  }

  char* Take(size_t size) {
    MutexLock lock(&mu);
    // Newest first: it is the one still in the cache.
    for (size_t i = unused.size(); i-- > 0;) {
      if (unused[i].size != size) continue;
      char* const data = unused[i].data;
      unused.erase(unused.begin() + static_cast<ptrdiff_t>(i));
      bytes -= size;
      return data;
    }
    return nullptr;
  }

  void Return(char* data, size_t size) {
    std::vector<char*> dropped;
    {
      MutexLock lock(&mu);
      if (size > max_bytes) {
        dropped.push_back(data);
      } else {
        unused.push_back({data, size});
        bytes += size;
        while (bytes > max_bytes) {
          bytes -= unused.front().size;
          dropped.push_back(unused.front().data);
          unused.erase(unused.begin());
        }
      }
    }
    for (char* each : dropped) Free(each);
  }

  const size_t max_bytes;
  Mutex mu;
  // Invariant: `bytes` is the sum of the sizes of `unused`, at most max_bytes.
  std::vector<Unused> unused ABSL_GUARDED_BY(mu);
  size_t bytes ABSL_GUARDED_BY(mu) = 0;
};

BufferPool::BufferPool(size_t max_bytes) : shelf_(std::make_shared<Shelf>(max_bytes)) {}
BufferPool::~BufferPool() = default;

WireBuffer BufferPool::Get(size_t size) {
  const size_t rounded = ClassSize(size);
  char* data = shelf_->Take(rounded);
  if (data == nullptr) data = Allocate(rounded);
  std::weak_ptr<Shelf> home = shelf_;
  return {data, size, std::shared_ptr<void>(data, [home, rounded](void* memory) {
            if (std::shared_ptr<Shelf> shelf = home.lock()) {
              shelf->Return(static_cast<char*>(memory), rounded);
            } else {
              Free(static_cast<char*>(memory));
            }
          })};
}

}  // namespace weir
