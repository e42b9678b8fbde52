// Registry of consistency modes, and the choice of a job's mode. A mode registers itself in its own file.
#ifndef WEIR_PSERVER_CONSISTENCY_MAKE_CONSISTENCY_H_
#define WEIR_PSERVER_CONSISTENCY_MAKE_CONSISTENCY_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/program.pb.h"
#include "pserver/consistency/consistency.h"

namespace weir {

struct ConsistencyMode {
  std::string name;   // for messages
  bool sync = false;  // for jobs with this distribute.sync
  ConsistencyFacts facts = {};
  // Returns OK if the mode can keep these settings; null: it can keep all.
  absl::Status (*check)(const Consistency::Options& options) = nullptr;
  // Returns true if the server's program chooses the mode. Null: the mode of programs that choose none.
  bool (*chosen)(const v1::Plan& plan, const v1::TrainingMode& mode) = nullptr;
  std::unique_ptr<Consistency> (*make)(Consistency::Options options, StepBook book) = nullptr;
};

// CHECK-fails if a mode of this name is registered, or another one for programs that choose none. For static
// initializers.
void RegisterConsistency(ConsistencyMode mode);

template <typename Mode>
std::unique_ptr<Consistency> NewConsistency(Consistency::Options options, StepBook book) {
  return std::make_unique<Mode>(std::move(options), std::move(book));
}

struct ConsistencyRegistrar {
  explicit ConsistencyRegistrar(ConsistencyMode mode) { RegisterConsistency(std::move(mode)); }
};
// Use at namespace scope: REGISTER_CONSISTENCY(async)({.name = "async", .make = NewConsistency<AsyncSteps>}).
#define REGISTER_CONSISTENCY(id) static const ::weir::ConsistencyRegistrar weir_consistency_##id

// Returns the mode of a job with distribute.sync = `sync` whose server runs `main`; options.mode and facts are the
// mode's, and options.staleness is taken from the program. InvalidArgument if the program chooses two modes, is of
// another kind, or has settings that its mode cannot keep.
absl::StatusOr<std::unique_ptr<Consistency>> MakeConsistency(bool sync, const v1::ProgramDesc& main,
                                                             Consistency::Options options, StepBook book);

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_MAKE_CONSISTENCY_H_
