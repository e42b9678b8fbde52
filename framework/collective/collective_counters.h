// Counters of the messages of one rank, among the counters of the process (framework/base/counters.h).
//
//   <name>.collective.messages    messages that the rank sends, each to one other rank
//   <name>.collective.bytes_out   their bytes
//   <name>.collective.bytes_in    bytes of the messages that it receives
//
// <name>: "trainer.0". Headers of operations are messages too. Messages count when they begin; what a mesh puts around
// one (frames, TCP) does not count.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_COLLECTIVE_COUNTERS_H_
#define WEIR_FRAMEWORK_COLLECTIVE_COLLECTIVE_COUNTERS_H_

#include <cstddef>
#include <string_view>

#include "framework/base/counters.h"

namespace weir {

// Thread-safe.
class CollectiveCounters {
 public:
  explicit CollectiveCounters(std::string_view name, Counters* counters = &Counters::Process());

  void Sent(size_t bytes) const;
  void Received(size_t bytes) const;

 private:
  Counter* const messages_;
  Counter* const bytes_out_;
  Counter* const bytes_in_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_COLLECTIVE_COUNTERS_H_
