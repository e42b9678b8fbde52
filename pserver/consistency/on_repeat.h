// Seam for tests: what becomes of parts of a step that come again.
#ifndef WEIR_PSERVER_CONSISTENCY_ON_REPEAT_H_
#define WEIR_PSERVER_CONSISTENCY_ON_REPEAT_H_

#include <functional>
#include <vector>

namespace weir {

struct Gradient;

// Called with the gradients of a part that has come again, and those that are booked.
using OnRepeat = std::function<void(const std::vector<Gradient>& again, std::vector<Gradient>* booked)>;

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_ON_REPEAT_H_
