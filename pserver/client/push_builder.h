// Puts the gradients of one step into parts for one server. Thread-safe.
#ifndef WEIR_PSERVER_CLIENT_PUSH_BUILDER_H_
#define WEIR_PSERVER_CLIENT_PUSH_BUILDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/frame.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"

namespace weir {

// What one call of Add brings: tensors that are written straight into the part.
struct PushTensor {
  v1::PushItem item;  // without offset
  size_t bytes = 0;   // in the payload
  // Fills `bytes` bytes at a multiple of 64.
  std::function<void(char*)> write;
};

class PushBuilder {
 public:
  // `send` takes each finished part, numbered; it may be called from any thread that calls Add.
  using Send = std::function<void(v1::PushRequest header, Slices payload)>;
  PushBuilder(BufferPool* pool, bool checksums, Send send)
      : pool_(pool), checksums_(checksums), send_(std::move(send)) {}

  // A new step: parts start at 0 again.
  void Begin();
  // Large tensors leave at once in a part of their own; small ones travel together. The tensors of one call stay in one
  // part if they fit in a message.
  void Add(std::vector<PushTensor> tensors);
  // Sends the last part, with whatever waits. `header` brings samples, verdict and so on.
  void Finish(v1::PushRequest header);

 private:
  // Small tensors of a part.
  struct Part {
    WireBuffer buffer;
    size_t used = 0;
    std::vector<v1::PushItem> items;
  };
  void SendPart(v1::PushRequest header, std::vector<v1::PushItem> items, const WireBuffer& buffer, size_t used,
                bool last);

  BufferPool* const pool_;
  const bool checksums_;
  const Send send_;
  Mutex mu_;
  Part small_ ABSL_GUARDED_BY(mu_);
  int next_part_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_PUSH_BUILDER_H_
