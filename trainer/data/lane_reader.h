// Batches of the lanes of one process, made ahead by threads of the reader.
//
// Stream l gives batches of its own, of `StreamBatch(l)` examples. Where an epoch ends, a batch continues with the
// first examples of the next epoch; only the very last batch may be short. A stream with fewer examples than a batch
// gives all of them once per epoch. With drop_last a batch holds examples of one epoch, and the rest of an epoch is
// dropped. After the last epoch a stream has ended and gives no examples. Streams do not wait for each other: a shorter
// one begins its next epoch earlier. So the sum of examples over streams never grows from one step to the next. The
// t-th batch of stream l is a function of (job, data, seed, t) alone.
//
// With LaneReaderOptions.followed a group of files is to a stream what an epoch is. A stream that has come to the end
// of the groups that are known waits for the next one, with the batch that it has begun: batches are those of a run
// that has known all groups from the beginning.
//
// Shuffling is one algorithm. A buffer holds examples up to shuffle_memory_mb / streams (or shuffle_window examples).
// An element of it, chosen by Philox(seed, epoch, stream, draw), is emitted, and the next example of the stream takes
// its place. If a stream fits into the buffer, this permutes the whole stream (ALL), otherwise a window (WINDOW).
#ifndef WEIR_TRAINER_DATA_LANE_READER_H_
#define WEIR_TRAINER_DATA_LANE_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/formats/example.h"
#include "proto/stream_places.pb.h"
#include "proto/trainer.pb.h"
#include "trainer/data/lane_options.h"
#include "trainer/files/data_set.h"
#include "trainer/statistics/seen_inputs.h"

namespace weir {

// Places at which the streams of a reader go on in another run.
class LanePlaces {
 public:
  // Moves to where every stream has given `step` batches: Next then gives what it would have given there. Requires:
  // called before the first Next, and not with LaneReaderOptions.followed.
  //
  // A stream goes on at the newest of its places in `places` that it had come to by then, if it fits the files and the
  // job; the log says what is read again. Without one it reads the first epoch and part of the last. The reader's
  // threads read; errors come from Next.
  virtual void SkipTo(int64_t step, const v1::StreamPlaces& places) = 0;

  // Records that every stream has given `step` batches that are trained on. Needed with LaneReaderOptions.keeps_places,
  // so that memory does not grow. May be called from any thread.
  virtual void Passed(int64_t step) = 0;
  // Returns where streams go on that have given `step` batches, at least as many as at the last Passed: the newest
  // places that are known up to there. Streams that have none are left out. Takes a second for ten million examples in
  // shuffle buffers. May be called from any thread.
  virtual v1::StreamPlaces Places(int64_t step) const = 0;

 protected:
  ~LanePlaces() = default;
};

// Counts and descriptions of what a reader has read.
class LaneReport {
 public:
  // Returns the inputs, by their places in ExpectedInputs, that no example has had that was read so far. May be called
  // from any thread.
  virtual v1::AbsentInputs absent_inputs() const = 0;

  // Returns the number of lines skipped so far because of data.bad_line: SKIP, including lines read ahead, in every
  // epoch.
  virtual int64_t skipped_lines() const = 0;
  // Returns the positions of skipped lines, in no particular order; with_positions only. Complete when every stream has
  // ended.
  virtual std::vector<InputPosition> skipped_positions() const = 0;
  // Returns what is known so far, one line per stream: "stream 0: ALL, 36826 examples, 9.4 of 256 MiB".
  virtual std::string ShuffleDescription() const = 0;

 protected:
  ~LaneReport() = default;
};

// Reader of the lanes' batches. Next, SkipTo, ended and given belong to one thread; Cancel, positions and counters may
// be called from any.
class LaneReader : public LanePlaces, public LaneReport {
 public:
  // Creates a reader; starts no thread yet. FailedPrecondition if required statistics are missing.
  static absl::StatusOr<std::unique_ptr<LaneReader>> Create(DataSet data, LaneReaderOptions options);
  // Cancels and joins. A thread that does not return from the disk within two seconds is abandoned with a line in the
  // log, because the message of what went wrong matters more. It keeps the objects that it works on alive, and ends
  // when it returns.
  virtual ~LaneReader() = default;

  virtual const std::vector<Column>& columns() const = 0;
  virtual int lanes() const = 0;

  // Returns the next batch of each lane, lanes() of them; [i] is stream `streams.begin + i`. Recycles what `batches`
  // held, so pass the batches of the step before; variables may be swapped with those of an executor. Waits for the
  // readers: DeadlineExceeded after `timeout`, naming the awaited lanes and their activity; nothing is lost, call
  // again. Cancelled after Cancel. Any other error is that of a stream and final: InvalidArgument "data/train.tsv:17:
  // expected 40 tab-separated fields, got 39", DataLoss for a cut or damaged file, NotFound.
  virtual absl::Status Next(absl::Duration timeout, std::vector<LaneBatch>* batches) = 0;

  // Returns a batch of each lane as of a stream that was stopped, without examples: for a caller that was asked to stop
  // and waits no longer for Next.
  virtual std::vector<LaneBatch> StoppedBatches() const = 0;

  // Returns true if every stream of this process has ended, as of the last Next.
  virtual bool ended() const = 0;
  // Returns true if Next has waited for a moment, or has ended with DeadlineExceeded, and every stream that lacks a
  // batch waits for files that do not exist yet. May be called from any thread.
  virtual bool AwaitsFiles() const = 0;
  // Returns the number of examples that Next has given.
  virtual int64_t given() const = 0;

  // Wakes Next and stops the threads. Later calls of Next return Cancelled.
  virtual void Cancel() = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LANE_READER_H_
