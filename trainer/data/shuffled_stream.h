// Records of one stream, epoch after epoch, in training order. One thread at a time.
#ifndef WEIR_TRAINER_DATA_SHUFFLED_STREAM_H_
#define WEIR_TRAINER_DATA_SHUFFLED_STREAM_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/data/data_set.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/record.h"

namespace weir {

class ShuffledStream {
 public:
  struct Options {
    ExampleStream::Options stream;
    bool shuffle = true;
    // Limits of the buffer, which holds at least one record.
    int64_t buffer_bytes = 0;
    int64_t buffer_examples = std::numeric_limits<int64_t>::max();
    uint64_t seed = 1;
  };

  // Records from this stream have their memory in it and must be destroyed before it.
  explicit ShuffledStream(Options options);

  // Reads up to `records` records into the buffer, if it is to be filled before the first Next of an epoch. Returns
  // false while the buffer wants more. Calling it is optional.
  bool Prepare(int64_t records);
  // Reads the next record of the epoch. Returns false at its end and on an error; see status(). `position` may be null;
  // with shuffling it is not set.
  bool Next(Record* record, InputPosition* position);
  const absl::Status& status() const { return stream_.status(); }

  // Starts a later epoch. Call at any time after the first epoch has ended.
  void StartEpoch(int64_t epoch);
  // Starts a later epoch, of other files (ExampleStream::Rewind).
  void StartEpoch(int64_t epoch, const DataSet* data, int64_t dealt_before);
  // ExampleStream::dealt_records, at the end of the epoch.
  int64_t dealt_records() const { return stream_.dealt_records(); }
  int64_t epoch() const { return epoch_; }
  // Returns the number of examples read so far, of all epochs.
  int64_t total_read() const { return total_read_; }
  // Returns the number of examples of a whole epoch; -1 until the first has ended.
  int64_t epoch_examples() const { return epoch_examples_; }
  // Returns that number as soon as it can be known: in ALL, when the buffer has been filled. -1 before.
  int64_t expected_examples() const { return epoch_examples_ < 0 && filled_ && !window_ ? read_ : epoch_examples_; }
  // Returns true if the buffer had to emit elements before it had read the whole stream; known from the first Next of
  // an epoch on.
  bool window() const { return window_; }
  // Return the largest number of examples and bytes that the buffer has held.
  int64_t most_examples() const { return most_examples_; }
  int64_t most_bytes() const { return most_bytes_; }

 private:
  // Drops what is left of the present epoch.
  void Forget(int64_t epoch);
  // Reads one record; returns false at the end of the stream.
  bool Read(Record* record, InputPosition* position);
  // Returns a uniform number in [0, n): draw number draws_ of this (seed, stream, epoch).
  uint64_t Draw(uint64_t n);
  uint64_t Random(uint64_t draw) const;

  // A chosen record is usually in no cache, so it is prefetched this many draws ahead.
  static constexpr uint64_t kAhead = 16;

  const Options options_;
  const uint64_t key_;
  RecordPool pool_;
  ExampleStream stream_;
  Example example_;
  std::vector<Record> buffer_;
  Record waiting_;  // did not fit when the buffer was filled
  bool has_waiting_ = false;
  bool filled_ = false;
  bool window_ = false;
  int64_t epoch_ = 0;
  uint64_t draws_ = 0;
  uint64_t ahead_[kAhead] = {};  // [i % kAhead]: Random(i), for draws from draws_ on
  int64_t buffered_bytes_ = 0;   // while the buffer is being filled
  int64_t read_ = 0;             // in this epoch
  int64_t total_read_ = 0;
  int64_t epoch_examples_ = -1;
  int64_t most_examples_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_SHUFFLED_STREAM_H_
