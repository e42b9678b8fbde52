// Delay compensation: keeps the values that each trainer last read of a block, so that its gradient can be corrected
// for later changes.
//
// The arithmetic is in the program (ops/delay_compensate.cc); this class holds the values it needs. One object belongs
// to one dense block; not thread-safe, used under the block's lock. A trainer's copy is made at its first read, so
// memory is up to trainers times the block.
#ifndef WEIR_PSERVER_PARAMS_DELAY_COMPENSATION_H_
#define WEIR_PSERVER_PARAMS_DELAY_COMPENSATION_H_

#include <cstdint>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weir {

class ReadValues {
 public:
  explicit ReadValues(int trainers) : by_trainer_(static_cast<size_t>(trainers)) {}

  // Records that the trainer reads elements [begin, begin + count) of `now`. Requires: the block's lock, under which
  // the elements are copied to the trainer, too.
  void Read(int trainer, const Tensor& now, int64_t begin, int64_t count);
  // Returns the values that the trainer last read; `now` if it has read nothing, so that nothing has changed for it.
  // Shares the memory, which the trainer's next Read, or an update of `now`, changes: use it under the block's lock.
  Tensor Of(int trainer, const Tensor& now) const;

 private:
  std::vector<Tensor> by_trainer_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_DELAY_COMPENSATION_H_
