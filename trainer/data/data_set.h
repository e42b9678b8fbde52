// The files of a data set, and the rule that cuts them into streams.
//
// The rule is a function of files and number of streams alone. Plain files, in order of their names, are one space of bytes;
// stream s of n has the lines that begin in [bytes * s / n, bytes * (s + 1) / n). Of compressed files, file i (counting compressed
// files) belongs to stream i mod n; when there are fewer compressed files than streams, line i (counting lines of compressed files,
// headers left out) belongs to stream i mod n. A stream's plain lines come before its compressed ones. Every line is in exactly one
// stream. IDX files: the same with examples in place of lines, and of bytes.
#ifndef WEIR_TRAINER_DATA_DATA_SET_H_
#define WEIR_TRAINER_DATA_DATA_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

enum class Compression { kNone, kGzip, kZstd };

struct IdxFile;

struct DataFile {
  std::string path;  // to open
  std::string name;  // as the job has it, for messages
  int64_t bytes = 0;
  Compression compression = Compression::kNone;
  // Of files in IDX format, else null.
  std::shared_ptr<const IdxFile> idx = nullptr;

  bool compressed() const { return compression != Compression::kNone; }
};

// What the headers of an IDX file and of its labels say.
struct IdxFile {
  int64_t examples = 0;
  int64_t values = 0;  // bytes of an example
  int64_t header_bytes = 0;
  std::shared_ptr<const DataFile> labels = nullptr;  // may be null
  int64_t labels_header_bytes = 0;
};

// Part of one file that belongs to a stream.
struct Segment {
  int64_t file = 0;
  // Plain: lines that begin in [begin, end), or the examples [begin, end) of an IDX file. Compressed: the whole file.
  int64_t begin = 0;
  int64_t end = 0;
  // Compressed, cut by lines: line (or example) i of all compressed files, where i mod modulus == remainder. modulus 1 takes every
  // one.
  int64_t modulus = 1;
  int64_t remainder = 0;
};

class DataSet {
 public:
  // Expands the patterns of `source` (relative to `directory`), sorts the files by name and looks at their first bytes.
  // `field` names the source in messages ("data.train"). NotFound: a pattern without a match. InvalidArgument: no patterns;
  // a file named .gz or .zst that is not compressed so; something that is no regular file.
  static absl::StatusOr<DataSet> Open(const v1::DataSource& source, std::string_view directory, std::string_view field);
  // The same for the reader of `data`: IDX files are found with their labels, and their headers looked at (trainer/data/idx_source.h).
  static absl::StatusOr<DataSet> Open(const v1::Data& data, const v1::DataSource& source, std::string_view directory,
                                      std::string_view field);

  const std::vector<DataFile>& files() const { return files_; }

  // Segments of stream `stream` of `streams`, in the order in which they are read.
  std::vector<Segment> Stream(int stream, int streams) const;

  // Names and sizes as text, one line each: processes that must read the same data compare it.
  std::string Description() const;

 private:
  std::vector<DataFile> files_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_DATA_SET_H_
