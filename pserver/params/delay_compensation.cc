#include "pserver/params/delay_compensation.h"

#include <cstring>

namespace weir {

void ReadValues::Read(int trainer, const Tensor& now, int64_t begin, int64_t count) {
  Tensor& own = by_trainer_[static_cast<size_t>(trainer)];
  // Elements it never reads count as unchanged since it began.
  if (!own.initialized()) own.CopyFrom(now);
  std::memcpy(own.data<float>() + begin, now.data<float>() + begin, static_cast<size_t>(count) * sizeof(float));
}

Tensor ReadValues::Of(int trainer, const Tensor& now) const {
  const Tensor& own = by_trainer_[static_cast<size_t>(trainer)];
  return own.initialized() ? own : now;
}

}  // namespace weir
