// Check that inputs which the trainers of a job assume to be equal are equal, before they are used: each trainer cuts
// the data into streams by its own listing of the files, and runs its own copy of the program.
#ifndef WEIR_TRAINER_SESSION_SAME_INPUTS_H_
#define WEIR_TRAINER_SESSION_SAME_INPUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/program.pb.h"
#include "pserver/client/client.h"
#include "trainer/files/data_set.h"
#include "transpiler/split/transpile.h"

namespace weir {

struct Input {
  std::string name;      // for messages: "data.train", "program"
  std::string text;      // equal at all trainers
  bool is_data = false;  // DataSet::Description, which may differ in names
};

// Returns the input for a listing; `field`: "data.train" and so on.
Input DataInput(const std::string& field, const DataSet& data);
// Returns the inputs for the programs that a trainer runs.
std::vector<Input> ProgramInputs(const Programs& programs);

// Compares the inputs over all trainers. FailedPrecondition, equal on all trainers, names two trainers and the first
// difference of the first input that differs. Every trainer of the job calls this once, with the same number of inputs.
// A trainer that takes the place of a dead one is compared with the inputs given at the start.
absl::Status CheckSameInputs(Client* client, int trainer, int trainers, absl::Span<const Input> inputs);

}  // namespace weir

#endif  // WEIR_TRAINER_SESSION_SAME_INPUTS_H_
