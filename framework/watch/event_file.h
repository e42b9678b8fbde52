// Writes TensorBoard's event files: scalars, histograms, texts, a graph and hyperparameters, with the time of each.
//
// TensorBoard shows a directory and each directory below it as a run, and reads the files of one directory one after
// the other, in the order of their names. So a directory has one writer at a time. A later run may write to the same
// directory, into a file of its own.
//
// A file is a sequence of records (proto/event_file.proto), framed like those of TFRecord files: length (8 bytes,
// little-endian), its masked CRC-32C (4), the record, its masked CRC-32C (4). The reader ends at a damaged record
// without a message, so a failed write never leaves a part of a record.
#ifndef WEIR_FRAMEWORK_WATCH_EVENT_FILE_H_
#define WEIR_FRAMEWORK_WATCH_EVENT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/watch/event_histogram.h"
#include "proto/event_file.pb.h"

namespace weir {

// Thread-safe, except that one thread at a time calls Flush. The methods that add never fail, never wait for the disk,
// and keep their records in memory until Flush. Text that is not UTF-8 gets a '?' for each byte that is not.
class EventFile {
 public:
  struct Options {
    // Last part of the file's name, "" for none; without '/'.
    std::string suffix;
    // Records beyond this many bytes are dropped until a Flush succeeds; a scalar takes about 60.
    size_t max_buffered_bytes = 16 << 20;
    Clock* clock = Clock::Real();
  };
  // A vertex of the graph page. `inputs` are names of other nodes; '/' in a name makes groups.
  struct Node {
    std::string name;
    std::string op;
    std::vector<std::string> inputs;
    std::string device;
    std::map<std::string, std::string> attributes;
  };
  using HParam = std::variant<std::string, double, bool>;
  // A chart of the page "custom scalars": the scalars whose tags match one of the regular expressions.
  struct Chart {
    std::string category;
    std::string title;
    std::vector<std::string> tags;
  };

  // Creates `directory`, if there is none, and in it a new file
  // "events.out.tfevents.<seconds since 1970>.<host>.<pid>[.<suffix>]"; if it exists, a number is added after <pid>.
  // Errors name the path and the system's reason.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& directory, Options options);
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(const std::string& directory);
  // Flushes without reporting errors.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Adds a value, which the file holds as a float.
  void Scalar(std::string_view tag, int64_t step, double value);
  void Histogram(std::string_view tag, int64_t step, const EventHistogram& histogram);
  // Adds a text of the page "text".
  void Text(std::string_view tag, int64_t step, std::string_view markdown);
  void Graph(const std::vector<Node>& nodes);
  // Adds the row of this run on the page "HParams": its hyperparameters, and the scalars of this directory whose last
  // values are its metrics. Requires: called once per directory and run.
  void HParams(const std::map<std::string, HParam>& values, const std::vector<std::string>& metric_tags);
  // Adds how the run has ended to that row.
  void HParamsEnd(bool success);
  void Layout(const std::vector<Chart>& charts);
  // Records for the reader that the run goes on at `step` after a resume: entries of earlier files of the directory for
  // that step and later ones are not shown.
  void Resumed(int64_t step);

  // Writes everything added before the call. The content is then in the system's memory, not yet on the disk. After an
  // error the file ends with a whole record and the records stay in memory: a later Flush writes them. Errors name the
  // path, the reason and the number of records dropped so far; they never concern the training, so a caller logs them
  // and goes on. ResourceExhausted if the disk is full; FailedPrecondition if another thread is in Flush.
  absl::Status Flush();

  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, int fd, Options options)
      : path_(std::move(path)), fd_(fd), options_(std::move(options)) {}

  // Adds a record of `event`, which gets the time.
  void Add(v1::TbEvent event);
  void Append(const v1::TbEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  double Now() const;
  // Writes all or nothing.
  absl::Status Write(std::string_view data);

  const std::string path_;
  const int fd_;
  const Options options_;

  Mutex mu_;
  std::string buffer_ ABSL_GUARDED_BY(mu_);
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;  // records
  bool flushing_ ABSL_GUARDED_BY(mu_) = false;
  v1::TbEvent scalar_ ABSL_GUARDED_BY(mu_);  // used again for each scalar
  int64_t size_ = 0;                         // of the file; owned by the thread in Flush
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_EVENT_FILE_H_
