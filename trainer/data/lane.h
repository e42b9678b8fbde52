// Makes the batches of one stream for a LaneReader (trainer/data/lane_reader.h says what they are). A lane is used by
// one thread at a time.
#ifndef WEIR_TRAINER_DATA_LANE_H_
#define WEIR_TRAINER_DATA_LANE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/row_filter.h"
#include "trainer/data/features.h"
#include "trainer/data/followed_files.h"
#include "trainer/data/lane_options.h"
#include "trainer/data/records_ahead.h"
#include "trainer/data/shuffled_stream.h"
#include "trainer/data/statistics.h"
#include "trainer/data/stream_place.h"
#include "trainer/data/stream_trail.h"
#include "trainer/files/data_set.h"
#include "trainer/files/record.h"
#include "trainer/statistics/seen_inputs.h"

namespace weir {

// State that all lanes of a reader share. Constant except for the flags and counters.
struct LaneContext {
  LaneReaderOptions options;
  DataSet data;
  std::unique_ptr<LineParser> parser;
  RowFilter where;
  Features features;
  DataStatistics statistics;
  bool has_statistics = false;
  std::unique_ptr<SeenInputs> seen;       // never null
  FileBegins begins;                      // where streams go on in the middle of files
  std::unique_ptr<RecordsAhead> ahead;    // null: no file is read for several lanes
  std::atomic<bool> cancelled{false};     // checked between lines; the lock of the reader orders everything else
  std::atomic<int64_t> skipped_lines{0};  // a counter that no thread waits for
  mutable Mutex skipped_mu;
  std::vector<InputPosition> skipped ABSL_GUARDED_BY(skipped_mu);  // with_positions only

  FollowedFiles* followed() const { return options.followed.get(); }
  int64_t epochs() const { return options.one_pass_in_order ? 1 : options.spec.epochs; }
  bool drop_last() const { return !options.one_pass_in_order && options.spec.config.drop_last(); }
  bool shuffles() const { return !options.one_pass_in_order && options.spec.config.shuffle() != v1::Data::NO_SHUFFLE; }
  // Returns whether places at which streams go on will be asked for.
  bool keeps_places() const {
    return options.keeps_places && options.followed == nullptr && options.spec.stream_scheme == kStreamScheme;
  }
  int64_t shuffle_bytes() const { return (options.spec.config.shuffle_memory_mb() << 20) / options.spec.streams(); }
};

class Lane {
 public:
  // Borrows `shared`.
  Lane(LaneContext* shared, int stream);

  // Begins at a place that CheckStreamPlace has accepted. Call before SkipTo.
  void GoOn(v1::StreamPlace place);
  // Skips batches, so that the first one that is made is number `batches`, from 0. Call before the first Work.
  void SkipTo(int64_t batches) { skip_ = batches - passed_; }

  // Does a piece of the work on the next batch. Returns true when the batch is complete; at the end of the stream it
  // has 0 examples and `ended`. Pieces keep lanes that read one compressed file close together. Errors are those of the
  // stream (LaneReader::Next), and final.
  absl::StatusOr<bool> Work(LaneBatch* batch);

  // Returns the group of files without which the next Work can do nothing; 0: there is none.
  int64_t awaited() const { return awaited_; }

  // Returns the places behind the last batches; null if none are kept. May be used by any thread.
  StreamTrail* trail() const { return trail_.get(); }
  // Returns the most examples that the buffer of a shuffle may hold; -1 without shuffling.
  int64_t most_buffered() const { return records_.most_buffered(); }

  int64_t epoch() const { return records_.epoch(); }
  // Returns true if the stream has been read as a whole.
  bool whole() const { return shared_.followed() == nullptr && records_.epoch_examples() >= 0; }
  int64_t total_read() const { return records_.total_read(); }
  bool window() const { return records_.window(); }
  // Returns the largest number of examples that the shuffle buffer has held.
  int64_t buffered() const { return records_.most_examples(); }
  // Returns a line of LaneReader::ShuffleDescription.
  std::string Describe() const;

 private:
  static ShuffledStream::Options MakeOptions(LaneContext* shared, int stream);
  // Returns LaneBatch.fraction.
  double Fraction() const;
  // Skips a piece of what SkipTo asked for: one batch, some records, or all before the epoch of the first wanted batch.
  absl::Status Skip();
  absl::Status SkipPiece();
  // Moves to the epoch of the first wanted batch if that is a later one, and sets what to skip within it.
  bool Jump();
  bool NextRecord(Record* record, InputPosition* position);
  // Collects the records of the next batch in batch_. Returns true when it is full or the last one; it is empty if the
  // stream has ended. Returns false if the stream has begun another epoch, so that the caller must call again.
  absl::StatusOr<bool> Gather(std::vector<InputPosition>* positions);
  // Ends an epoch before the batch was full. Returns whether the records form a batch nevertheless.
  bool EndEpoch();
  void StartEpoch(int64_t epoch);
  // EndEpoch for a group of files. Where the next group is not known yet it may be called again.
  absl::StatusOr<bool> EndGroup();
  // Counts the batch that Gather has collected as given or skipped.
  void Pass();
  // Adds the place behind it to trail_.
  void Mark();
  int64_t BatchSize() const { return shared_.options.spec.StreamBatch(stream_); }

  LaneContext& shared_;
  const int stream_;
  // Files of the present group; null: none yet. Outlives records_, which reads them.
  std::shared_ptr<const DataSet> files_;
  ShuffledStream records_;
  int64_t skip_ = 0;           // batches to pass
  int64_t skip_records_ = 0;   // records to pass after those batches
  std::vector<Record> batch_;  // records_ owns their memory
  int64_t passed_ = 0;         // batches given or skipped
  int64_t in_epoch_ = 0;       // records of this epoch given or skipped
  int64_t first_examples_ = 0;
  bool ended_ = false;
  // State with files that follow: the present group, examples and records dealt one by one in the groups before it, the
  // group that is waited for (0: none), and whether FollowedFiles::Stop has ended the stream.
  int64_t group_ = 0;
  int64_t examples_before_ = 0;
  int64_t dealt_before_ = 0;
  int64_t awaited_ = 0;
  bool stopped_ = false;
  const std::unique_ptr<StreamTrail> trail_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LANE_H_
