#include "tests/thread_safety/unguarded.h"

namespace weir {

int Unguarded::Read() const { return value_; }

}  // namespace weir
