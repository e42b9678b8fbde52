// Messages in which the trainers of a job tell each other how each of them has ended.
#ifndef WEIR_TRAINER_LOOP_ENDING_H_
#define WEIR_TRAINER_LOOP_ENDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/statistics/absent_inputs.h"

namespace weir {

// Examples left in streams when a run ended.
struct LeftOut {
  int64_t examples = 0;
  bool more = false;    // true if streams hold more than `examples`
  int64_t trained = 0;  // examples of all steps, including those before a resume

  void Add(const LeftOut& other);

  // Returns "examples,more,trained".
  std::string Serialize() const;
  static std::optional<LeftOut> Parse(absl::string_view text);
};

// State of a trainer after its last step.
struct Ending {
  int64_t steps = 0;
  // Elements of gradients beyond 65504, pushed in WIRE_FLOAT16.
  int64_t large_gradients = 0;
  // Lines of data.train skipped because of data.bad_line: SKIP.
  int64_t skipped_lines = 0;
  bool stopped = false;
  LeftOut left_out = {};
  // Inputs that data.train lacks.
  AbsentInputs absent = {};
  // Steps of async evaluations that were still incomplete (Evaluations::Open).
  std::string open_evaluations = {};
  // Error with which this trainer will end after the parameters are saved (DeferredError).
  absl::Status error = {};

  // Returns one line per field; the message of the error, which may have lines of its own, comes last.
  std::string Serialize() const;
  static std::optional<Ending> Parse(absl::string_view text);

  // Combines the endings of all trainers, serialized, by trainer id; empty for one that died in async, whose streams
  // are then not whole. Numbers are added and `stopped` is that of any; an input is absent if all lack it;
  // open_evaluations is the chief's; the error is that of the lowest trainer with one, and names it. Internal if one
  // cannot be parsed.
  static absl::StatusOr<Ending> OfAll(const std::vector<std::string>& endings, int chief);
};

// Logs a warning if more than 1 % of an epoch was left out. `all`: of all trainers.
void WarnOfLeftOut(const LeftOut& all, int64_t epochs);
// Share of an epoch from which WarnOfLeftOut warns.
inline constexpr double kLeftOutWarning = 0.01;

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_ENDING_H_
