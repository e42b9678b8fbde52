// Batches of a lane, and the settings by which they are made (trainer/data/lane_reader.h).
#ifndef WEIR_TRAINER_DATA_LANE_OPTIONS_H_
#define WEIR_TRAINER_DATA_LANE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "framework/runtime/lane_tree.h"
#include "framework/tensor/tensor.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/followed_files.h"
#include "trainer/data/statistics.h"
#include "trainer/files/data_set.h"

namespace weir {

struct LaneBatch {
  int64_t examples = 0;
  // True if the stream has ended; examples is then 0, now and later.
  bool ended = false;
  // True if the stream has ended because of FollowedFiles::Stop or StoppedBatches, without the batch that it had begun.
  bool stopped = false;
  // True if no batch with examples follows, because no file does.
  bool last = false;
  // Number of examples of the stream's first LaneReaderOptions.first_batches batches, as far as they have been given or
  // skipped.
  int64_t first_examples = 0;
  // One per column, in order of columns(): Tensor [examples, width] float32, or IdBatch. Present even with 0 examples.
  std::vector<Variable> vars;
  // One per example, if requested.
  std::vector<InputPosition> positions;
  // Fraction of the stream's run, over all epochs, that has been given with this batch; 0 while unknown (a first epoch
  // in WINDOW or in file order, files that follow).
  double fraction = 0;
};

struct LaneReaderOptions {
  DataSpec spec;
  // Streams to read: spec.StreamsOf(trainer).
  LaneRange streams;
  // Required if NeedsStatistics(spec); copied.
  const DataStatistics* statistics = nullptr;
  // Evaluation and prediction: one pass in file order; shuffling, epochs and drop_last of the job are ignored.
  bool one_pass_in_order = false;
  bool with_positions = false;
  // Prediction: a label that is missing, or that the loss cannot use, becomes 0 instead of making a bad line.
  bool labels_may_be_missing = false;
  // Test hook for readers that stall; may be empty. Called on a reader's thread before it makes batch `batch` (from 0)
  // of a stream.
  std::function<void(int stream, int64_t batch)> before_batch = {};
  // Number of batches of a stream in a step of the job.
  int64_t first_batches = 1;
  // data.follow: the files, beside those of the data set, which then has none. Null: no files follow.
  std::shared_ptr<FollowedFiles> followed = nullptr;
  // Beginning of each stream of `streams`, with `followed`.
  std::vector<StreamStart> starts = {};
  // True if Places will be called. Places knows nothing of files that follow.
  bool keeps_places = false;
  // Log a warning, once, about inputs that the first examples do not have (trainer/statistics/seen_inputs.h).
  bool warns_of_absent = false;
  // Number of threads. 0: as many as cores, at most one per stream. No bit depends on it.
  int threads = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LANE_OPTIONS_H_
