// Lines of compressed files, decompressed ahead of their readers by separate threads, and only once for all lanes that
// read a file together.
//
// A file that several lanes read is decompressed in passes. A pass keeps the blocks of text between the last and the
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
    // Blocks of a pass that are decompressed before the first lane wants them (half of them in a row), and blocks that
    // are kept for the last lane: 2 and 16 MiB of text.
    int64_t ahead = 8;
    int64_t window = 64;
  };

  // Returns an object for the lanes and threads that read `data`; null if it has no compressed lines. `follows`: other
  // files follow, which may have some.
  static std::unique_ptr<LinesAhead> For(const DataSet& data, bool follows, int lanes, int threads);

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
  // Opens the lines of a compressed file, equal to those of LineSource, for one thread at a time. The result may
  // outlive this object. NotFound if there is no such file.
  absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Reader& reader);

  // Ends all waits for lines with Cancelled.
  void Cancel();

  // Returns how often files have been decompressed from their start so far.
  int64_t passes() const;

 private:
  class State;
  class Source;

  const std::shared_ptr<State> state_;  // shared with the threads, which may outlive this object
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LINES_AHEAD_H_
