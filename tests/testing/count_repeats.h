// A planted fault: a server that adds the gradients of a part that has come again to those that it has.
#ifndef WEIR_TESTS_TESTING_COUNT_REPEATS_H_
#define WEIR_TESTS_TESTING_COUNT_REPEATS_H_

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "pserver/params/server_params.h"

namespace weir {

// ServerOptions::on_repeat.
inline void CountRepeats(const std::vector<Gradient>& again, std::vector<Gradient>* booked) {
  for (Gradient& first : *booked) {
    for (const Gradient& gradient : again) {
      if (first.of_table != gradient.of_table || first.target != gradient.target || !(first.node == gradient.node) ||
          first.begin != gradient.begin || first.count != gradient.count) {
        continue;
      }
      const size_t n = static_cast<size_t>(first.count) * static_cast<size_t>(std::max(1, first.width));
      // The owner of the ids stays with the new values.
      auto doubled = std::make_shared<std::pair<std::vector<float>, std::shared_ptr<const void>>>();
      doubled->second = first.keep;
      for (size_t i = 0; i < n; ++i) doubled->first.push_back(first.values[i] + gradient.values[i]);
      first.values = doubled->first.data();
      first.keep = doubled;
    }
  }
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_COUNT_REPEATS_H_
