// Temporary memory of a kernel. Kernels run on several lanes at once, so it is owned by the thread.
#ifndef WEIR_OPS_SCRATCH_H_
#define WEIR_OPS_SCRATCH_H_

#include <cstdint>

namespace weir {

// Returns at least n floats, aligned to 64 bytes, contents undefined; valid until the next call on this thread.
float* Scratch(int64_t n);

}  // namespace weir

#endif  // WEIR_OPS_SCRATCH_H_
