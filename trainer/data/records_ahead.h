// Records of files that are compressed or dealt record by record, read once for all lanes that read a file together:
// lines and TFRecords.
//
// A file that several lanes read is read in passes. A pass keeps the blocks of records between the last and the
// first lane, up to a window. When the window is full and the first lane wants more, the oldest block is dropped: no
// lane ever waits for another one. Lanes that still needed that block have fallen out of the pass; when they ask for
// it, a new pass begins, which all of them share. So lanes that stay within a window of each other cost one pass. Lanes
// that do not cost time, but never a record: a lane always reads the bytes of the file.
//
// Separate threads decompress ahead of the lanes, in the next files, too. A plain block is read by the lane that comes
// to it first, while others work on the one before.
#ifndef WEIR_TRAINER_DATA_LINES_AHEAD_H_
#define WEIR_TRAINER_DATA_LINES_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/data_spec.h"
#include "trainer/files/block_reader.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/data_set.h"
#include "trainer/files/record_source.h"

namespace weir {

// Thread-safe.
class RecordsAhead {
 public:
  struct Options {
    // Number of lanes that read every shared file.
    int lanes = 1;
    int threads = 1;
    // Bytes, uncompressed, that are read at once, into one block.
    size_t block = ByteSource::kBlock;
    // Blocks of a pass that are read before the first lane wants them (half of them in a row), and blocks that
    // are kept for the last lane: 2 and 16 MiB.
    int64_t ahead = 8;
    int64_t window = 64;
  };

  // Returns whether Open serves a file: it has lines or TFRecords, and is compressed, or is dealt record by record and
  // larger than a block.
  static bool IsFor(const DataFile& file, const Segment& segment);
  // Returns an object for the threads that read `streams` of all streams of `spec` in `data`; null if it has no file
  // for one. `follows`: other files follow, which may be such. Blocks and window grow with the streams: 1 MiB and
  // 256 MiB for 1024.
  static std::unique_ptr<RecordsAhead> For(const DataSpec& spec, const DataSet& data, bool follows, LaneRange streams,
                                           int threads);

  // Starts no thread before the first Open.
  explicit RecordsAhead(const Options& options);
  // Cancels and joins. A thread that does not return from the disk within two seconds is abandoned with a line in the
  // log.
  ~RecordsAhead();
  RecordsAhead(const RecordsAhead&) = delete;
  RecordsAhead& operator=(const RecordsAhead&) = delete;

  struct Reader {
    int64_t file = 0;  // index in the data set's files
    int lane = 0;      // from 0
    // Number of times the lane has read the data set before: lanes in one round may share a pass.
    int64_t round = 0;
    // True if all lanes read the file; false if only this one does.
    bool shared = false;
    // Place at which the reading of a plain file begins. Lanes share passes that begin at one place.
    BlockReader::Begin begin = {};
  };
  // A file that all lanes read later in the same round.
  struct Following {
    int64_t file = 0;  // index in the data set's files
    const DataFile* of = nullptr;
  };
  // Opens the records of a file from Reader.begin on, equal to those of OpenRecords, for one thread at a time. The
  // result may outlive this object. NotFound if there is no such file. `following`: files that the lane reads next, in
  // this order; as many of them as there are threads, at most 8, are decompressed ahead, up to half a window each, if
  // the file is shared.
  absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Reader& reader,
                                                     absl::Span<const Following> following = {});

  // Ends all waits for records with Cancelled.
  void Cancel();

  // Returns how often reading a file has begun so far.
  int64_t passes() const;

 private:
  class State;
  class Source;

  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LINES_AHEAD_H_
