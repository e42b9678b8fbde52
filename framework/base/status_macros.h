// RETURN_IF_ERROR and ASSIGN_OR_RETURN for absl::Status and absl::StatusOr.
#ifndef WEIR_FRAMEWORK_BASE_STATUS_MACROS_H_
#define WEIR_FRAMEWORK_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expr)                    \
  do {                                           \
    absl::Status weir_status_ = (expr);          \
    if (!weir_status_.ok()) return weir_status_; \
  } while (false)

#define WEIR_CONCAT_INNER(a, b) a##b
#define WEIR_CONCAT(a, b) WEIR_CONCAT_INNER(a, b)

// ASSIGN_OR_RETURN(Foo foo, MakeFoo()); `lhs` may be a declaration without commas, or an existing variable.
#define ASSIGN_OR_RETURN(lhs, expr) WEIR_ASSIGN_OR_RETURN_IMPL(WEIR_CONCAT(weir_or_, __LINE__), lhs, expr)
#define WEIR_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return std::move(tmp).status();   \
  lhs = std::move(tmp).value()

#endif  // WEIR_FRAMEWORK_BASE_STATUS_MACROS_H_
