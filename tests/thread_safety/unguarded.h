#ifndef WEIR_TESTS_THREAD_SAFETY_UNGUARDED_H_
#define WEIR_TESTS_THREAD_SAFETY_UNGUARDED_H_

#include "absl/base/thread_annotations.h"
#include "framework/base/mutex.h"

namespace weir {

// Contains a locking error on purpose: the lock analysis must report it.
class Unguarded {
 public:
  int Read() const;

 private:
  mutable Mutex mu_;
  int value_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_TESTS_THREAD_SAFETY_UNGUARDED_H_
