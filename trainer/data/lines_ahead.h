// Lines of compressed files, decompressed ahead of their readers by threads of its own, and once for all lanes that
// read a file together.
//
// A file that several lanes read is decompressed in passes. A pass keeps the blocks of text between the lane furthest
// behind and the one furthest ahead, up to a window. When the window is full and the lane ahead wants more, the oldest
// block goes: no lane ever waits for another one. Lanes that wanted it have fallen out; when they come for it, a new
// pass begins, which all that have fallen out share. So lanes that stay within a window of each other cost one pass,
// and lanes that do not cost time, never a line: what a lane reads is the text of the file.
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
    // Lanes that read every file that is shared.
    int lanes = 1;
    int threads = 1;
    // Bytes of text that are read at once, into one block.
    size_t block = ByteSource::kBlock;
    // Blocks of a pass: decompressed before the first lane wants them, half of them in a row, and kept for the last
    // lane: 2 and 16 MiB of text.
    int64_t ahead = 8;
    int64_t window = 64;
  };

  // For the lanes and threads that read `data`; null when it has no compressed lines.
  static std::unique_ptr<LinesAhead> For(const DataSet& data, int lanes, int threads);

  // Starts no thread before the first Open.
  explicit LinesAhead(const Options& options);
  // Cancels and joins. A thread that does not come back from the disk within two seconds is left behind, with a line in
  // the log.
  ~LinesAhead();
  LinesAhead(const LinesAhead&) = delete;
  LinesAhead& operator=(const LinesAhead&) = delete;

  struct Reader {
    int64_t file = 0;  // its number among the files
    int lane = 0;      // from 0
    // How often the lane has read the data set before: lanes in one round may share a pass.
    int64_t round = 0;
    // All lanes read the file; otherwise this one alone.
    bool shared = false;
  };
  // The lines of a compressed file, as LineSource gives them, for one thread at a time. They may outlive this.
  // NotFound.
  absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Reader& reader);

  // Wakes those who wait for lines: they get Cancelled.
  void Cancel();

  // Times that a file has been decompressed from its start so far.
  int64_t passes() const;

 private:
  class State;
  class Source;

  const std::shared_ptr<State> state_;  // with the threads, which may outlive this
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_LINES_AHEAD_H_
