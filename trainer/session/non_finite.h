// Origin of a number that is not finite: the operator that made it, or the data, the parameter or the row that held it.
//
// A step that stops the job, or whose verdict is SKIP, has changed nothing. So its lane operators are run once more on
// the same data, rows and parameters, this time with memory of its own for each variable, and the number is followed
// back from where it was seen. A step without such a number pays nothing for this.
#ifndef WEIR_TRAINER_SESSION_NON_FINITE_H_
#define WEIR_TRAINER_SESSION_NON_FINITE_H_

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

// Description of the step. All pointers are borrowed for the call.
struct NonFiniteStep {
  const v1::ProgramDesc* main = nullptr;
  // Variables that the data feeds.
  std::vector<std::string> columns;
  // Layer names from the job; may be empty.
  absl::Span<const std::string> layers;
  // Executor that has just run the step: holds its data and rows.
  Executor* executor = nullptr;
  // Persistable variables, as the step has read them.
  Scope* scope = nullptr;
  // Context and batch sizes of the step.
  StepContext context;
  absl::Span<const int64_t> batch;
  // Variable in which the step has seen the number, if no loss shows it.
  std::string seen;
  // Makes an executor for lanes like that of the step, on another scope.
  std::function<absl::StatusOr<std::unique_ptr<Executor>>(const v1::ProgramDesc& program, Scope* scope,
                                                          const std::vector<std::string>& fetch)>
      make_executor;
};

// Returns a sentence such as "log_loss (op 7, layer 'head') made it: 'head.out' is inf in lane 3, from inputs that are
// finite".
absl::StatusOr<std::string> WhereNonFinite(const NonFiniteStep& step);

// Looks at what the step has read, the parameters and rows, without running anything. Returns such as "row 5 of 't' was
// NaN when the step began", or "" if all are finite.
std::string WhatWasNonFinite(const NonFiniteStep& step);

}  // namespace weir

#endif  // WEIR_TRAINER_SESSION_NON_FINITE_H_
