// Lines of files that are compressed or dealt line by line, read (and decompressed) ahead of the lanes by separate
// threads, and only once for all lanes that read a file together.
//
// A file that several lanes read is read in passes. A pass keeps the blocks of text between the last and the
// first lane, up to a window. When the window is full and the first lane wants more, the oldest block is dropped: no
// lane ever waits for another one. Lanes that still needed that block have fallen out of the pass; when they ask for
// it, a new pass begins, which all of them share. So lanes that stay within a window of each other cost one pass. Lanes
// that do not cost time, but never a line: a lane always reads the text of the file.
#ifndef WEIR_TRAINER_DATA_LINES_AHEAD_H_
#define WEIR_TRAINER_DATA_LINES_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/data/byte_source.h"
#include "trainer/data/data_set.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/record_source.h"

namespace weir {

// Thread-safe.
class LinesAhead {
 public:
  struct Options {
    // Number of lanes that read every shared file.
    int lanes = 1;
    int threads = 1;
    // Bytes of text that are read at once, into one block.
    size_t block = ByteSource::kBlock;
    // Blocks of a pass that are read before the first lane wants them (half of them in a row), and blocks that
    // are kept for the last lane: 2 and 16 MiB of text.
    int64_t ahead = 8;
    int64_t window = 64;
  };

  // Whether Open is for a file: it has lines and is compressed, or is dealt line by line and larger than a block.
  static bool IsFor(const DataFile& file, const Segment& segment);
  // Returns an object for the threads that read `streams` of all streams of `spec` in `data`; null if it has no file
  // for one. `follows`: other files follow, which may be such.
  static std::unique_ptr<LinesAhead> For(const DataSpec& spec, const DataSet& data, bool follows, LaneRange streams,
                                         int threads);

  // Starts no thread before the first Open.
  explicit LinesAhead(const Options& options);
  // Cancels and joins. A thread that does not return from the disk within two seconds is abandoned with a line in the
  // log.
  ~LinesAhead();
  LinesAhead(const LinesAhead&) = delete;
  LinesAhead& operator=(const LinesAhead&) = delete;

  struct Reader {
    int64_t file = 0;  // index in the data set's files
    int lane = 0;      // from 0
    // Number of times the lane has read the data set before: lanes in one round may share a pass.
    int64_t round = 0;
    // True if all lanes read the file; false if only this one does.
    bool shared = false;
  };
  // Opens the lines of a file, equal to those of LineSource for all of it, for one thread at a time. The result may
  // outlive this object. NotFound if there is no such file.
  absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Reader& reader);

  // Ends all waits for lines with Cancelled.
  void Cancel();

  // Returns how often files have been read from their start so far.
  int64_t passes() const;

 private:
  class State;
  class Source;

  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LINES_AHEAD_H_
