// Bytes of host memory that the variables of an executor occupy.
//
// Variables are added while a program is prepared. Measure is called by the one thread that writes the variables; no
// two threads measure one variable at the same time. The sum is read between runs.
#ifndef WEIR_FRAMEWORK_RUNTIME_MEMORY_USE_H_
#define WEIR_FRAMEWORK_RUNTIME_MEMORY_USE_H_

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "absl/types/span.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/prepared_block.h"

namespace weir {

// Bytes of memory occupied by variables. The memory of a variable is kept from step to step and grows with its largest
// value, so this is the memory occupied, not the size of the values at one moment. Views of other variables count 0.
struct VariableBytes {
  // Variables of all lanes.
  int64_t lanes = 0;
  // Variables that lanes share: rows of the step, blocks received.
  int64_t step = 0;
  // Variables of the scope; other executors may use them too.
  int64_t persistable = 0;
  int64_t total() const { return lanes + step + persistable; }

  void Add(VariableOwner owner, int64_t bytes);
};

class MemoryUse {
 public:
  // A variable, and the bytes of its largest value so far.
  struct Held {
    const Variable* var = nullptr;
    VariableOwner owner = VariableOwner::kLane;
    // False for a variable that is fed before a run, or left by another program.
    bool written = false;
    int64_t bytes = 0;
  };

  // Adds a variable that an op reads. Each variable is added once; repetition changes nothing.
  void AddRead(const Variable* var, VariableOwner owner) { FindOrAdd(var, owner); }
  // Adds a variable that an op writes; returns its record, which is valid as long as this object.
  Held* AddWritten(const Variable* var, VariableOwner owner);

  // Measures variables that an op has written. `context` is the op's: a view of one of its inputs counts 0.
  static void Measure(absl::Span<Held* const> written, const KernelContext& context);
  // Measures the variables that no op writes.
  void MeasureFed();

  VariableBytes bytes() const;

 private:
  Held* FindOrAdd(const Variable* var, VariableOwner owner);

  std::deque<Held> held_;
  std::unordered_map<const Variable*, Held*> by_var_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_MEMORY_USE_H_
