#include "ops/scratch.h"

#include "framework/tensor/tensor.h"

namespace weir {

float* Scratch(int64_t n) {
  static thread_local Tensor buffer;
  buffer.Resize(v1::FLOAT32, {n});
  return buffer.data<float>();
}

}  // namespace weir
