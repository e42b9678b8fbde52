// One example in one run of bytes: what shuffling moves around. Ids that fit in 32 bits take four bytes.
#ifndef WEIR_TRAINER_DATA_RECORD_H_
#define WEIR_TRAINER_DATA_RECORD_H_

#include <cstdint>
#include <memory>

#include "trainer/data/example.h"

namespace weir {

class Record {
 public:
  Record() = default;
  explicit Record(const Example& example);

  // A function of the example alone: the capacity of a shuffle buffer counts it.
  int64_t bytes() const { return bytes_; }
  // `example` has the sizes of the parser that made the record's example.
  void CopyTo(Example* example) const;

 private:
  std::unique_ptr<char[]> data_;
  uint32_t bytes_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_RECORD_H_
