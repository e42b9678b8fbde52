// Examples of one stream, in the stream's order. One thread at a time.
#ifndef WEIR_TRAINER_DATA_EXAMPLE_STREAM_H_
#define WEIR_TRAINER_DATA_EXAMPLE_STREAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/row_filter.h"
#include "proto/job.pb.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/records_ahead.h"
#include "trainer/data/stream_place.h"
#include "trainer/files/data_set.h"
#include "trainer/files/example_file.h"
#include "trainer/files/record.h"
#include "trainer/files/record_source.h"
#include "trainer/files/stream_rule.h"
#include "trainer/statistics/seen_inputs.h"

namespace weir {

class ExampleStream {
 public:
  struct Options {
    // Borrowed.
    const DataSet* data = nullptr;
    const LineParser* parser = nullptr;
    int stream = 0;
    int streams = 1;
    // Version of the rule that cuts the files into streams.
    int scheme = kStreamScheme;
    // Seed of random draws: Example.draw is a function of it, the epoch, and the record's place in the data, whatever
    // the number of streams.
    uint64_t seed = 0;
    v1::Data::BadLine bad_line = v1::Data::ERROR;
    // Leaves examples out. Borrowed; may be null.
    const RowFilter* where = nullptr;
    // Positions in Example.floats that must not be missing, with names for messages.
    std::vector<std::pair<int64_t, std::string>> required = {};
    // Positions of labels, with the range that a present label must be in.
    std::vector<std::pair<int64_t, LabelRange>> label_ranges = {};
    // Prediction: a label outside its range counts as missing.
    bool forgives_labels = false;
    // Positions of columns that the header of a file need not name: labels, in prediction.
    std::vector<int64_t> may_be_absent = {};
    // Counts skipped lines. May be null.
    std::atomic<int64_t>* skipped = nullptr;
    // Called with the position of each skipped line, on the thread that reads. May be empty.
    std::function<void(const InputPosition&)> on_skipped = {};
    // Set by another thread to end reading with Cancelled. May be null.
    const std::atomic<bool>* cancelled = nullptr;
    // Reads records for several streams, of which this one is number `lane`. May be null: the stream then reads for
    // itself.
    RecordsAhead* ahead = nullptr;
    int lane = 0;
    // Notices which inputs examples have. May be null.
    SeenInputs* seen = nullptr;
    // Records may keep the blocks of example files alive: they are few, and soon gone.
    bool borrows = false;
    // Places at which the streams that `ahead` reads for begin files in the middle. Borrowed; null: none.
    const FileBegins* begins = nullptr;
  };

  explicit ExampleStream(Options options);

  // Sizes `example` for the parser.
  static void Prepare(const LineParser& parser, Example* example);

  // Reads the next example. Returns false at the end of the stream and on an error; see status(). `example` must be
  // prepared.
  bool Next(Example* example, InputPosition* position);
  // Reads the next example as bytes; those of an example file are copied as they are where the job changes nothing, or
  // borrowed from the block (Options.borrows). `scratch` must be prepared.
  bool Next(Example* scratch, RecordPool* pool, Record* record, InputPosition* position);
  const absl::Status& status() const { return status_; }
  // Ends the stream with an error.
  void Fail(absl::Status error) { status_ = std::move(error); }
  // Returns the line, or the bytes of the record, of the example that Next has given; of an example file it may be
  // empty. Valid until the next call.
  std::string_view line() const { return line_; }
  // Starts again from the beginning, as an epoch from 0 on. Not after an error.
  void Rewind(int64_t epoch = 0);
  // Begins with epoch `epoch`, before anything is read.
  void BeginWith(int64_t epoch);
  // Goes on with the examples of other files, as epoch `epoch`, which is greater than that of all files before. `data`:
  // borrowed. `dealt_before`: records of earlier files that are dealt one by one, whose dealing goes on.
  void Rewind(int64_t epoch, const DataSet* data, int64_t dealt_before);
  // Returns the number of records that are dealt one by one in the present files, of all streams; at their end only.
  int64_t dealt_records() const { return dealt_.records; }
  // Returns the place of the record that Next has given, or ReadAgain.
  const PlaceOfRecord& place() const { return given_; }

  // Reads a record of the present epoch that an earlier run has read: before the first Next of the epoch, and in
  // ascending order. `last`: Next goes on behind it. In a file that can only be read in order, a call passes up to
  // `most` records of the stream and returns false; call it again with the same record. Also returns false with an
  // error in status(); DataLoss: there is no such record. `record` may be null; else `scratch` must be prepared.
  bool ReadAgain(const PlaceOfRecord& place, bool last, int64_t most, Example* scratch, RecordPool* pool,
                 Record* record);
  // Returns the number of records of the file of the last ReadAgain that are behind the stream and its own, about.
  int64_t own_passed() const { return now_.passed / segments_[segment_].modulus; }

 private:
  bool NextLine(std::string_view* line);
  // Returns place_ of the record at position_, which is number dealt_.records.
  uint64_t PlaceOf(const Segment& segment) const;
  // Skips records of other streams; returns false at the end of the segment and on an error.
  bool SkipToOwn(const Segment& segment);
  // Returns the place in round `round` of the record that this stream gets of a segment that is dealt.
  int64_t PlaceIn(int64_t round, const Segment& segment);
  // Opens the source of segments_[segment_] and finds the parser of its lines. `from`: a record in it, in front of
  // which little is read where the file allows it; null: the first. `alone`: few records are read, and not by other
  // lanes.
  absl::Status OpenSegment(const PlaceOfRecord* from = nullptr, bool alone = false);
  // Opens the records of `file` for OpenSegment. Sets opened->begin to where they begin, and now_.passed.
  absl::Status OpenSource(const DataFile& file, const PlaceOfRecord* from, bool alone, Segment* opened);
  // Returns the last of Options.begins of a file that is not behind `place`.
  BlockReader::Begin BeginBefore(const PlaceOfRecord& place, int64_t file) const;
  const DataFile& FileOf(const Segment& segment) const { return data_->files()[static_cast<size_t>(segment.file)]; }
  // Returns the error of a record that is not where an earlier run has read it.
  absl::Status NotThere(const PlaceOfRecord& place) const;
  // Returns the files behind segments_[segment_] that all streams read.
  std::vector<RecordsAhead::Following> FollowingFiles() const;
  // Finds the parser of the lines of a segment's file, below its header if it has one, and moves now_.source behind the
  // header if it begins there.
  absl::Status FindParser(const DataFile& file, const Segment& segment);
  // Reads the header from `source`, which is at the start of the file, and returns a parser for the lines below it;
  // null if the file has no record. `parser`: of the file.
  absl::StatusOr<std::unique_ptr<LineParser>> ParserBelowHeader(const DataFile& file, const LineParser& parser,
                                                                RecordSource* source) const;
  // A line that is parsed but for what the parser looks up.
  struct Begun {
    Example example;
    InputPosition position;
    const LineParser* parser = nullptr;
    absl::Status parsed;
    std::string line;  // not of an example file
    PlaceOfRecord place;
  };
  // Begins the next line. Returns false at the end of the stream and on an error.
  bool BeginNext(Begun* begun);
  // Next, where the parser looks up: begins a line before it ends the one before. Returns the example, which stays
  // until the next call; null at the end and on an error.
  Example* NextAhead(InputPosition* position);
  uint64_t DrawAt(uint64_t place) const;
  // Makes the record of a line, or of the bytes of an example; as Take.
  bool MakeRecord(std::string_view line, Example* scratch, RecordPool* pool, Record* record);
  // Makes an example of a line. Returns false if it is left out or, with an error in status(), wrong.
  bool Take(std::string_view line, Example* example);
  // The rest of it for an example that was `parsed`.
  bool Judge(std::string_view line, const InputPosition& position, absl::Status parsed, Example* example);
  // Returns true for a record of an example file that no rule about labels leaves out.
  bool LabelsAreGood(std::string_view record) const;
  // Tell Options.seen of an example that is given.
  void Notice(const Example& example);
  void Notice(std::string_view record);
  // Returns OkStatus if the line is skipped.
  absl::Status BadLine(std::string_view line, const InputPosition& position, const absl::Status& error);

  const Options options_;
  const DataSet* data_;
  std::vector<Segment> segments_;  // of data_
  size_t segment_ = 0;
  // segments_[segment_] as it is read.
  struct Open {
    std::unique_ptr<RecordSource> source;  // null: not open
    bool alone = false;                    // it has been opened so
    const LineParser* parser = nullptr;    // of its lines
    // `source`, if its records are the examples; null if they have to be parsed or filtered.
    const ExampleFileSource* direct = nullptr;
    int64_t passed = 0;  // records of the segment passed so far, without a header
    int64_t before = 0;  // Dealing::records at its beginning
  };
  Open now_;
  // Parsers by file, of files that have headers or partitions, and of example files.
  std::map<int64_t, std::unique_ptr<LineParser>> of_files_;
  // Segments whose records are dealt in turn.
  struct Dealing {
    int64_t records = 0;  // passed so far
    int64_t before = 0;   // the same of earlier files
    RoundDealer dealer;
    struct DrawnPlace {
      int64_t round = -1;
      int64_t place = 0;
    };
    DrawnPlace drawn[2] = {};  // PlaceIn of the last round that is even, and odd
  };
  Dealing dealt_;
  PlaceOfRecord read_;  // of the record that NextLine has given
  PlaceOfRecord given_;
  // Place of the current record among those of all streams, for Example.draw. A record of a numbered segment has its
  // number, which text and the example files made of it share; others have their position.
  uint64_t place_ = 0;
  int64_t round_ = 0;  // number of rewinds; of files that follow each other, the epoch
  int64_t epoch_ = 0;
  int64_t lines_ = 0;
  InputPosition position_;
  std::string_view line_;
  absl::Status status_;
  // Lines of NextAhead.
  struct Lines {
    Begun begun[2];
    int current = 0;        // the next one is the other
    bool has_next = false;  // it has been begun
  };
  Lines ahead_;
  std::vector<uint32_t> open_;  // inputs that Options.seen has not seen
  bool bad_ = false;            // Judge has set status_
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_EXAMPLE_STREAM_H_
