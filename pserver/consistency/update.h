// One unit of work that changes parameters: made by the consistency mode under the server's lock, run by UpdateRunner
// without it, and given back to the mode. A value.
#ifndef WEIR_PSERVER_CONSISTENCY_UPDATE_H_
#define WEIR_PSERVER_CONSISTENCY_UPDATE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "pserver/params/server_params.h"
#include "pserver/protocol/norm_rounds.h"

namespace weir {

struct Update {
  enum class Kind {
    kStep,         // sync: a step of all trainers
    kTables,       // async_tables: the table gradients of one trainer's step
    kTransaction,  // async: one trainer's step
    kPart,         // EAGER: a part of one trainer's step that takes effect on arrival
  };

  Kind kind = Kind::kStep;
  int trainer = -1;  // -1: all
  int64_t step = 0;
  // False: the update changes nothing, because a verdict has skipped the step or because it has too few samples.
  bool effective = true;
  ServerParams::StepPart part = ServerParams::StepPart::kWhole;
  // One element per trainer whose gradients take effect, by id.
  std::shared_ptr<const std::vector<TrainerGradients>> gradients;
  NormRounds norms = NormRounds();  // rounds of norms so far; all must be complete before the update takes effect
  int64_t table_step = 0;           // kPart: the step as tables count it

  // Returns "step 3", or "trainer 1, step 3".
  std::string Name() const {
    return trainer < 0 ? absl::StrCat("step ", step) : absl::StrCat("trainer ", trainer, ", step ", step);
  }
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_UPDATE_H_
