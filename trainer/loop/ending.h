// Combines the messages in which the trainers of a job tell each other how each of them has ended (v1::Ending).
#ifndef WEIR_TRAINER_LOOP_ENDING_H_
#define WEIR_TRAINER_LOOP_ENDING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/trainer.pb.h"

namespace weir {

// Combines the endings of all trainers, serialized, by trainer id; empty for one that died in async, whose streams are
// then not whole. Numbers are added and `stopped` is that of any; an input is absent if all lack it; open_evaluations
// are the chief's; the error is that of the lowest trainer with one, and names it. Internal if one cannot be parsed.
absl::StatusOr<v1::Ending> EndingOfAll(const std::vector<std::string>& endings, int chief);

// Logs a warning if more than 1 % of an epoch was left out. `all`: of all trainers.
void WarnOfLeftOut(const v1::LeftOut& all, int64_t epochs);
// Share of an epoch from which WarnOfLeftOut warns.
inline constexpr double kLeftOutWarning = 0.01;

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_ENDING_H_
