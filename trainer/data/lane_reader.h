// Batches of the lanes of one process, made ahead by threads of its own.
//
// Stream l gives batches of its own, of `StreamBatch(l)` examples. A batch goes on with the first examples of the next
// epoch where an epoch ends; only the very last one may be short. A stream with fewer examples than a batch gives all
// of them once an epoch. With drop_last a batch holds examples of one epoch, and what is left of an epoch is dropped.
// After the last epoch a stream has ended and gives no examples. Streams do not wait for each other: a shorter one
// begins its next epoch earlier. So the sum of examples over streams never grows from one step to the next. What stream
// l gives as its t-th batch is a function of (job, data, seed, t) alone.
//
// Shuffling is one algorithm: a buffer holds examples up to shuffle_memory_mb / streams (or shuffle_window examples);
// an element of it, chosen by Philox(seed, epoch, stream, draw), is emitted and the next of the stream takes its place.
// While a stream fits into the buffer that is a permutation of the whole stream (ALL), otherwise of a window (WINDOW).
#ifndef WEIR_TRAINER_DATA_LANE_READER_H_
#define WEIR_TRAINER_DATA_LANE_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/runtime/lane_tree.h"
#include "framework/tensor/tensor.h"
#include "trainer/data/data_set.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/example.h"
#include "trainer/data/statistics.h"

namespace weir {

struct LaneBatch {
  int64_t examples = 0;
  // The stream has ended; examples is 0 then and for ever.
  bool ended = false;
  // Examples of the stream's first LaneReaderOptions.first_batches batches, as far as they have been given or skipped.
  int64_t first_examples = 0;
  // One per column, in order of columns(): Tensor [examples, width] float32, or IdBatch. Also with 0 examples.
  std::vector<Variable> vars;
  // One per example, when asked for.
  std::vector<InputPosition> positions;
  // Share of the stream's run, all epochs, that has been given with this batch; 0 while nobody can tell (a first epoch
  // in WINDOW or in file order).
  double fraction = 0;
};

struct LaneReaderOptions {
  DataSpec spec;
  // Streams to read: spec.StreamsOf(trainer).
  LaneRange streams;
  // Needed when NeedsStatistics(spec); copied.
  const DataStatistics* statistics = nullptr;
  // Evaluation and prediction: one pass in file order, whatever the job says of shuffling, epochs and drop_last.
  bool one_pass_in_order = false;
  bool with_positions = false;
  // Prediction: a label that is missing, or none that the loss could use, is 0, not a bad line.
  bool labels_may_be_missing = false;
  // For tests of readers that stall; may be empty. Called on a reader's thread before it makes batch `batch` of a
  // stream, from 0.
  std::function<void(int stream, int64_t batch)> before_batch = {};
  // Batches of a stream in a step of the job.
  int64_t first_batches = 1;
  // 0: as many as cores, at most one per stream. No bit depends on it.
  int threads = 0;
};

// Next, SkipTo, ended and given belong to one thread; Cancel, positions and counters may be called from any.
class LaneReader {
 public:
  // Starts no thread yet. FailedPrecondition without statistics where they are needed.
  static absl::StatusOr<std::unique_ptr<LaneReader>> Create(DataSet data, LaneReaderOptions options);
  // Cancels and joins. A thread that does not come back from the disk within two seconds is left behind, with a line in
  // the log: the message of what went wrong matters more. It keeps what it works on, and ends when it comes back.
  virtual ~LaneReader() = default;

  virtual const std::vector<Column>& columns() const = 0;
  virtual int lanes() const = 0;

  // Goes to where every stream has given `step` batches: what Next gives afterwards is what it would have given then.
  // Before the first Next. Reads the first epoch and part of the last, on the reader's threads: errors come from Next.
  virtual void SkipTo(int64_t step) = 0;

  // The next batch of each lane, lanes() of them; [i] is stream `streams.begin + i`. What `batches` held is recycled,
  // so hand in the ones of the step before; variables may be swapped with those of an executor. Waits for the readers:
  // DeadlineExceeded after `timeout`, naming the lanes it waits for and what they do; nothing is lost, call again.
  // Cancelled after Cancel. Anything else is an error of a stream and final: InvalidArgument
  // "data/train.tsv:17: expected 40 tab-separated fields, got 39", DataLoss for a cut or damaged file, NotFound.
  virtual absl::Status Next(absl::Duration timeout, std::vector<LaneBatch>* batches) = 0;

  // Every stream of this process has ended (as of the last Next).
  virtual bool ended() const = 0;
  // Examples that Next has given.
  virtual int64_t given() const = 0;

  // Wakes Next and stops the threads.
  virtual void Cancel() = 0;

  // Lines skipped so far because of data.bad_line: SKIP, with prefetching and every epoch counted.
  virtual int64_t skipped_lines() const = 0;
  // Where they stand, in no order; with_positions only. All of them when every stream has ended.
  virtual std::vector<InputPosition> skipped_positions() const = 0;
  // "stream 0: ALL, 36826 examples, 9.4 of 256 MiB": what is known so far, a line per stream.
  virtual std::string ShuffleDescription() const = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LANE_READER_H_
