// Packs the gradients of one step into parts for one server. Thread-safe.
#ifndef WEIR_PSERVER_CLIENT_PUSH_BUILDER_H_
#define WEIR_PSERVER_CLIENT_PUSH_BUILDER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/frame.h"
#include "framework/wire/push_plan.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"

namespace weir {

// A tensor of one Add call; `write` puts it straight into the part.
struct PushTensor {
  v1::PushItem item;  // without offset
  size_t bytes = 0;   // in the payload
  // Writes `bytes` bytes to a destination aligned to 64, and sets fields of the item that depend on the values.
  std::function<void(char*, v1::PushItem*)> write;
};

class PushBuilder {
 public:
  // `send` receives each finished part, numbered. Called from any thread that calls Add.
  using Send = std::function<void(v1::PushRequest header, Slices payload)>;
  PushBuilder(BufferPool* pool, bool checksums, Send send)
      : pool_(pool), checksums_(checksums), send_(std::move(send)) {}

  // Begins a new step: part numbers start at 0 again. Requires: no Add is under way.
  void Begin();
  // Sends large tensors at once in a part of their own; collects small ones in a common part. The tensors of one call
  // share a part. Requires: Begin; together they fit in one message.
  void Add(std::vector<PushTensor> tensors);
  // Returns the bytes collected for the last part so far.
  size_t pending();
  // Sends the last part with the small tensors collected so far. `header` has samples, verdict and the other fields of
  // a last part. Requires: every Add of the step has returned; called once per step.
  void Finish(v1::PushRequest header);

 private:
  struct Part {
    WireBuffer buffer;
    PushPart packed;
  };
  // Writes a tensor into a part that has room for it.
  static void Put(PushTensor tensor, Part* part);
  void SendPart(v1::PushRequest header, Part part, bool last);

  BufferPool* const pool_;
  const bool checksums_;
  const Send send_;
  Mutex mu_;
  Part small_ ABSL_GUARDED_BY(mu_);  // small tensors collected so far
  int next_part_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_PUSH_BUILDER_H_
