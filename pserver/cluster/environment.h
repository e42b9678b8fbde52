// Variables of the environment, and settings as text with the place that each comes from.
#ifndef WEIR_PSERVER_CLUSTER_ENVIRONMENT_H_
#define WEIR_PSERVER_CLUSTER_ENVIRONMENT_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir {

// Returns the value of a variable; nullopt or "" when it is not set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;

// A value and where it came from, for messages: "--pservers", "PADDLE_TRAINER_ID".
struct Sourced {
  std::string value;
  std::string source;
};
using MaybeSourced = std::optional<Sourced>;

// Returns the variable; nothing if it is not set or empty.
MaybeSourced ReadVariable(const Environment& environment, std::string_view name);

// Returns the one that is given. InvalidArgument names both, with their values, if they differ: `way_out` ends the
// message.
absl::StatusOr<MaybeSourced> OneOf(MaybeSourced a, MaybeSourced b, bool ignore_case = false,
                                   std::string_view way_out = "give one of them");

// Returns the number, from 0. InvalidArgument "RANK is 'x', must be <what>".
absl::StatusOr<int> Number(const Sourced& setting, std::string_view what);

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_ENVIRONMENT_H_
