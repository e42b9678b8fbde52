// Where a number that is not finite came from: the operator that made it, or the data, the parameter or the row that
// held it.
//
// A step that stops the job, or whose verdict is SKIP, has changed nothing. So its operators of lanes are run once more
// on the same data, rows and parameters, this time each variable in memory of its own, and the number is followed from
// where it was seen back to where it began. A step in which all is well pays nothing for this.
#ifndef WEIR_TRAINER_NON_FINITE_H_
#define WEIR_TRAINER_NON_FINITE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/scope.h"
#include "proto/program.pb.h"

namespace weir {

// All borrowed for the call.
struct NonFiniteStep {
  const v1::ProgramDesc* main = nullptr;
  // Variables that the data feeds.
  std::vector<std::string> columns;
  // Names that the job gives its layers; may be empty.
  absl::Span<const std::string> layers;
  // Has just run the step: holds its data and rows.
  Executor* executor = nullptr;
  // Persistable variables, as the step has read them.
  Scope* scope = nullptr;
  // Of the step.
  StepContext context;
  absl::Span<const int64_t> batch;
  // The variable in which the step has seen it, if no loss shows it.
  std::string seen;
  // An executor for lanes as that of the step, on another scope.
  std::function<absl::StatusOr<std::unique_ptr<Executor>>(const v1::ProgramDesc& program, Scope* scope,
                                                          const std::vector<std::string>& fetch)>
      make_executor;
};

// "log_loss (op 7, layer 'head') made it: 'head.out' is inf in lane 3, from inputs that are finite".
absl::StatusOr<std::string> WhereNonFinite(const NonFiniteStep& step);

}  // namespace weir

#endif  // WEIR_TRAINER_NON_FINITE_H_
