// Delay compensation: what each trainer last read of a block, so that its gradient can be corrected for what has
// changed since.
//
// The arithmetic stands in the program (ops/delay_compensate.cc); here are the values that it needs. One of these
// belongs to one dense block; not thread-safe, used under the block's lock. A trainer's copy is made when it first
// reads: memory is up to trainers times the block.
#ifndef WEIR_PSERVER_SERVER_DELAY_COMPENSATION_H_
#define WEIR_PSERVER_SERVER_DELAY_COMPENSATION_H_

#include <cstdint>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weir {

class ReadValues {
 public:
  explicit ReadValues(int trainers) : by_trainer_(static_cast<size_t>(trainers)) {}

  // The trainer reads elements [begin, begin + count) of `now`.
  void Read(int trainer, const Tensor& now, int64_t begin, int64_t count);
  // What it last read, sharing memory; of one that has not read anything, `now`: nothing has changed for it.
  Tensor Of(int trainer, const Tensor& now) const;

 private:
  std::vector<Tensor> by_trainer_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_DELAY_COMPENSATION_H_
