// Memory that a kernel needs only while it runs. Kernels run on several lanes at once, so it belongs to the thread.
#ifndef WEIR_OPS_SCRATCH_H_
#define WEIR_OPS_SCRATCH_H_

#include <cstdint>

namespace weir {

// At least n floats, aligned to 64 bytes, contents undefined; good until the next call on this thread.
float* Scratch(int64_t n);

}  // namespace weir

#endif  // WEIR_OPS_SCRATCH_H_
