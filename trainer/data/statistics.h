// Statistics from one pass over the training files: mean and deviation of float columns, the id values that occur at
// least min_count times, and what derived variables and classes learn. The bits are equal for any number of trainers:
// moments are taken per stream in double and in file order, and added in the lane tree; counts are integers; samples
// are functions of streams and places in them. Lists in files beside the job are read as well: those that the trainer
// of stream 0 has hold for all, and the others must have the same.
//
//   if (NeedsStatistics(spec.config)) {
//     every trainer:  mine = CollectStatistics(spec, train, spec.StreamsOf(id), pool)   // bytes
//     all = exchange(mine)
//     every trainer:  statistics = MergeStatistics(spec, all)
//   }
//
// A checkpoint stores them as Serialize() returns them; Parse() reads them back.
#ifndef WEIR_TRAINER_DATA_STATISTICS_H_
#define WEIR_TRAINER_DATA_STATISTICS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/lane_tree.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/data_statistics.h"
#include "trainer/files/data_set.h"

namespace weir {

// Returns true if any column is standardised, min_count is above 1, or the job learns anything.
bool NeedsStatistics(const DataSpec& spec);

// Returns this trainer's contribution, from its streams. Streams run in parallel on `pool` (borrowed for the call; may
// be null). `cancelled` (may be empty) is called now and then; true ends the pass with Cancelled. Errors as
// LaneReader::Next; a list in a file that is not there or wrong.
absl::StatusOr<std::string> CollectStatistics(const DataSpec& spec, const DataSet& train, LaneRange streams,
                                              ThreadPool* pool, const std::function<bool()>& cancelled = {});

// Merges the contributions of all trainers, in any order. A pure function. DataLoss: bytes that no trainer wrote; a
// stream that is there twice or not at all. InvalidArgument: there is nothing to learn, as no id or one value alone;
// trainers have other lists.
absl::StatusOr<DataStatistics> MergeStatistics(const DataSpec& spec, const std::vector<std::string>& contributions);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_STATISTICS_H_
