// Records of one stream, epoch after epoch, in training order. One thread at a time.
#ifndef WEIR_TRAINER_DATA_SHUFFLED_STREAM_H_
#define WEIR_TRAINER_DATA_SHUFFLED_STREAM_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/stream_place.h"
#include "trainer/data/stream_trail.h"
#include "trainer/files/data_set.h"
#include "trainer/files/record.h"

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
    // True if Describe and TakeChanges will be called; most_kept: the most records of a buffer whose places are kept
    // for them.
    bool keeps_places = false;
    int64_t most_kept = 0;
  };

  // Records from this stream have their memory in it and must be destroyed before it.
  explicit ShuffledStream(Options options);

  // Continues at `place`, which CheckStreamPlace has accepted and which is not the end of the stream: behind the
  // records that were read in its epoch if the place names a record, else at the beginning of that epoch. Errors come
  // from Prepare and Next: FailedPrecondition if the number of examples differs, DataLoss if a record is not there.
  // Requires: called before everything else.
  void GoOn(v1::StreamPlace place);

  // Does the work before the first Next of an epoch, or that of GoOn, in pieces: reads up to `records` records. Returns
  // false while more are to be read, and also on an error, so check status(). Calling it is optional.
  bool Prepare(int64_t records);
  // Reads the next record of the epoch. Returns false at its end and on an error; see status(). `position` may be null;
  // with shuffling it is not set.
  bool Next(Record* record, InputPosition* position);
  const absl::Status& status() const { return stream_.status(); }

  // Starts a later epoch. Requires: status() is OK, the first epoch has ended, epoch > this->epoch().
  void StartEpoch(int64_t epoch);
  // Likewise, with the examples of other files. data: borrowed. dealt_before: see ExampleStream::Rewind.
  void StartEpoch(int64_t epoch, const DataSet* data, int64_t dealt_before);
  // Sets the fields of `border` that are the stream's own.
  void Describe(StreamBorder* border) const;
  // Returns what has changed in the buffer since the last call.
  BufferChanges TakeChanges() { return std::exchange(changes_, {}); }

  // ExampleStream::dealt_records, at the end of the epoch.
  int64_t dealt_records() const { return stream_.dealt_records(); }
  int64_t epoch() const { return epoch_; }
  // Returns the number of examples read so far, with those of earlier epochs, except epochs before GoOn; while GoOn
  // reads again, the records passed in the present file.
  int64_t total_read() const { return total_read_; }
  // Returns the number of examples of a whole epoch; -1 until the first has ended.
  int64_t epoch_examples() const { return epoch_examples_; }
  // Likewise, but known earlier if the whole stream fits into the buffer: as soon as that is filled. -1 before.
  int64_t expected_examples() const { return epoch_examples_ < 0 && filled_ && !window_ ? read_ : epoch_examples_; }
  // Returns true if the buffer had to emit elements before it had read the whole stream; known from the first Next of
  // an epoch on. Stays true in later epochs.
  bool window() const { return window_; }
  // Returns the most examples that the buffer may hold; -1 without one.
  int64_t most_buffered() const { return options_.shuffle ? options_.buffer_examples : -1; }
  // Return the largest number of examples and bytes that the buffer has held.
  int64_t most_examples() const { return size_.most_examples; }
  int64_t most_bytes() const { return size_.most_bytes; }

 private:
  // Drops what is left of the present epoch.
  void Forget(int64_t epoch);
  // Reads one record. Returns false at the end of the stream and on an error: an end at another place than in the run
  // before is one.
  bool Read(Record* record, InputPosition* position);
  // Does a piece of the work of GoOn. Returns false while more is to be done.
  bool ReadAgain(int64_t records);
  // Reads one record for it (ExampleStream::ReadAgain).
  bool ReadAgainAt(const PlaceOfRecord& place, bool last, int64_t most, Record* record);
  // Prepares the random numbers of the draws from draws_.done on.
  void DrawAhead() {
    for (uint64_t i = draws_.done; i < draws_.done + kAhead; ++i) draws_.ahead[i % kAhead] = Random(i);
  }
  // Notes the place of the record in waiting_, which comes into `slot` of the buffer.
  void Note(size_t slot);
  void ForgetPlaces();
  // Returns a uniform number in [0, n): draw number draws_.done of this (seed, stream, epoch).
  uint64_t Draw(uint64_t n);
  uint64_t Random(uint64_t draw) const;

  // A chosen record is usually in no cache, so it is prefetched this many draws ahead.
  static constexpr uint64_t kAhead = 16;

  const Options options_;
  RecordPool pool_;
  ExampleStream stream_;
  Example example_;
  std::vector<Record> buffer_;
  // A record that did not fit when the buffer was filled.
  struct Waiting {
    bool there = false;
    Record record;
    PlaceOfRecord place;
  };
  Waiting waiting_;
  bool filled_ = false;
  bool window_ = false;
  bool fits_ = false;  // the whole stream, into the buffer
  int64_t epoch_ = 0;
  // Random numbers of this (seed, stream, epoch).
  struct Draws {
    uint64_t key = 0;
    uint64_t done = 0;
    uint64_t ahead[kAhead] = {};  // [i % kAhead]: Random(i), for draws from `done` on
  };
  Draws draws_;
  int64_t read_ = 0;  // in this epoch
  int64_t total_read_ = 0;
  int64_t epoch_examples_ = -1;
  // Examples of an epoch in the earlier run (GoOn); -1: unknown, or a command makes the data.
  int64_t expected_ = -1;
  // Size of the buffer.
  struct Size {
    int64_t bytes = 0;  // while it is being filled
    int64_t most_examples = 0;
    int64_t most_bytes = 0;
  };
  Size size_;
  PlaceOfRecord last_;  // of the last record read in this epoch
  // True if changes_, behind what TakeChanges has returned before, describes all of the buffer.
  bool kept_ = false;
  BufferChanges changes_;
  // Records that GoOn is to read again, and how far it has come.
  struct Again {
    v1::StreamPlace place;
    int part = 0;  // of the buffer
    int record = 0;
    PlaceOfRecord at;  // of that record
  };
  std::unique_ptr<Again> again_;  // null: nothing
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_SHUFFLED_STREAM_H_
