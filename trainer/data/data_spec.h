// Settings of a job that its readers need.
#ifndef WEIR_TRAINER_DATA_DATA_SPEC_H_
#define WEIR_TRAINER_DATA_DATA_SPEC_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/runtime/lane_tree.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "trainer/files/stream_rule.h"

namespace weir {

// Labels that a loss accepts, or probabilities, or sample weights, or the weights that a metric accepts.
struct LabelRange {
  std::string variable;
  // Type of the operator that reads it.
  std::string loss;
  // Largest label; the smallest is 0.
  float most = 1;
  // If true, only whole numbers are accepted: classes.
  bool whole = false;
  // If true, 0 is not accepted: a probability (LossFacts::Number).
  bool above_zero = false;
  // If true, these are sample weights of the loss.
  bool weight = false;
  // Field of the job that names them as weights of a metric, "metric[0].weight"; else empty.
  std::string metric = {};

  bool Holds(float label) const;
  // Returns the requirement, and what helps with a label that is out of range:
  // "softmax_with_cross_entropy needs a class, a whole number from 0 to 9".
  std::string Wanted(float label) const;
};

struct DataSpec {
  v1::Data config;
  std::string directory;  // directory of the job file
  uint64_t seed = 1;
  // Version of the rule that cuts the files into streams.
  int stream_scheme = kStreamScheme;
  int lanes = 8;  // 0: one stream per trainer
  int trainers = 1;
  int64_t epochs = 1;
  // Float variables that are never transformed: those of data.dense.except if it is set, else what losses read as
  // numbers of the data (labels, sample weights, LossFacts::numbers), or the data variables from which the program
  // computes those.
  std::vector<std::string> never_transformed;
  // Labels, sample weights and probabilities, or their data variables, even if data.dense.except is set: an example
  // that lacks one is a bad line.
  std::vector<std::string> required;
  // Labels that may be missing: they reach the program as NaN.
  std::vector<std::string> keeps_missing;
  // Ranges of labels, probabilities and sample weights that reach a loss unchanged: an example with one outside is a
  // bad line. In prediction it counts as missing.
  std::vector<LabelRange> label_ranges;
  // Slots whose ids statistics do not count, "variable\nslot": what is kept of them is known.
  std::set<std::string> uncounted_slots = {};
  // Raw padding ids by ids variable, of all embeddings that read it.
  std::map<std::string, std::vector<int64_t>> padding_ids;

  // Returns the number of streams of the data set: lanes, or one per trainer.
  int streams() const { return lanes == 0 ? trainers : lanes; }
  // Returns the streams that a trainer reads.
  LaneRange StreamsOf(int trainer) const { return LanesOfTrainer(lanes, trainers, trainer); }
  // Returns the number of examples of one batch of a stream: batch_size / streams; if that does not divide, the first
  // streams have one more.
  int64_t StreamBatch(int stream) const;
};

// Derives the spec of a job. The losses of `program` determine what must be there and what is never transformed
// (framework/graph/loss_inputs.h).
DataSpec MakeDataSpec(const v1::JobConfig& job, const std::string& directory, const v1::ProgramDesc& program);

// Returns the spec of an evaluation: an example must also have the weights of the job's metrics (Metric.weight).
DataSpec SpecOfEvaluation(DataSpec spec, const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_DATA_SPEC_H_
