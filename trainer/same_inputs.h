// What the trainers of a job only assume to be equal, compared before anything is made of it: each cuts the data into
// streams by its own listing of the files, and runs its own copy of the program.
#ifndef WEIR_TRAINER_SAME_INPUTS_H_
#define WEIR_TRAINER_SAME_INPUTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/program.pb.h"
#include "pserver/client/client.h"
#include "trainer/data/data_set.h"
#include "transpiler/transpile.h"

namespace weir {

struct Input {
  std::string name;      // for messages: "data.train", "program"
  std::string text;      // equal at all trainers
  bool is_data = false;  // DataSet::Description, which may differ in names
};

// "data.train" and so on of a listing.
Input DataInput(const std::string& field, const DataSet& data);
// The programs that a trainer runs.
std::vector<Input> ProgramInputs(const Programs& programs);

// FailedPrecondition, at all trainers alike, names two trainers and the first difference of the first input that
// differs between them. Every trainer of the job calls this with as many inputs, once. A trainer that takes the place
// of a dead one is compared with what was said at the start.
absl::Status CheckSameInputs(Client* client, int trainer, int trainers, absl::Span<const Input> inputs);

}  // namespace weir

#endif  // WEIR_TRAINER_SAME_INPUTS_H_
