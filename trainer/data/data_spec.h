// What reading needs to know of a job.
#ifndef WEIR_TRAINER_DATA_DATA_SPEC_H_
#define WEIR_TRAINER_DATA_DATA_SPEC_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/runtime/lane_tree.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"

namespace weir {

// What a loss can make sense of.
struct LabelRange {
  std::string variable;
  // Type of the operator that reads it.
  std::string loss;
  // From 0 to this, ...
  float most = 1;
  // ... whole numbers only: classes.
  bool whole = false;

  bool Holds(float label) const;
  // "softmax_with_cross_entropy needs a class, a whole number from 0 to 9".
  std::string Wanted() const;
};

struct DataSpec {
  v1::Data config;
  std::string directory;  // of the job file
  uint64_t seed = 1;
  int lanes = 8;  // 0: one stream per trainer
  int trainers = 1;
  int64_t epochs = 1;
  // Float variables that are never transformed: data.dense.except, or labels and sample weights of all losses, or what
  // the program makes them of.
  std::vector<std::string> never_transformed;
  // The same without data.dense.except: an example without one is a bad line.
  std::vector<std::string> required;
  // Of labels that come from the data as they are: an example outside is a bad line. In prediction its label is
  // missing.
  std::vector<LabelRange> label_ranges;
  // Raw padding ids by ids variable, of all embeddings that read it.
  std::map<std::string, std::vector<int64_t>> padding_ids;

  // Streams of the data set: lanes, or one per trainer.
  int streams() const { return lanes == 0 ? trainers : lanes; }
  // Streams that a trainer reads.
  LaneRange StreamsOf(int trainer) const { return LanesOfTrainer(lanes, trainers, trainer); }
  // Examples of one batch of a stream; batch_size / streams, the first ones one more when that does not divide.
  int64_t StreamBatch(int stream) const;
};

// `program`: whose losses say what is label and sample weight. One that is made of data alone (cast, scaled, joined)
// stands for that data; one that a parameter takes part in, for itself.
DataSpec MakeDataSpec(const v1::JobConfig& job, const std::string& directory, const v1::ProgramDesc& program);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_DATA_SPEC_H_
