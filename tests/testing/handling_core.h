// Base of cores that only handle calls: without time, stops, failures and counters.
#ifndef WEIR_TESTS_TESTING_HANDLING_CORE_H_
#define WEIR_TESTS_TESTING_HANDLING_CORE_H_

#include "absl/time/time.h"
#include "framework/base/counters.h"
#include "pserver/server/server_core.h"

namespace weir {

class HandlingCore : public ServerCore {
 public:
  void Tick() override {}
  absl::Time NextTick() override { return absl::InfiniteFuture(); }
  void RequestStop() override {}
  void ReportFailure(const absl::Status&) override {}
  bool Finished() override { return false; }
  absl::Status JobStatus() override { return absl::OkStatus(); }
  int64_t Version() override { return 0; }
  const Counters& counters() const override { return counters_; }

 private:
  Counters counters_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_HANDLING_CORE_H_
