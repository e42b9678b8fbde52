// The files of a data set, and the rule that cuts them into streams.
//
// The rule is a function of files and number of streams alone. Plain files, in order of their names, are one space of bytes;
// stream s of n has the lines that begin in [bytes * s / n, bytes * (s + 1) / n). Of gzip files, file i (counting gzip files)
// belongs to stream i mod n; when there are fewer gzip files than streams, line i (counting lines of gzip files) belongs to
// stream i mod n. A stream's plain lines come before its compressed ones. Every line is in exactly one stream.
#ifndef WEIR_TRAINER_DATA_DATA_SET_H_
#define WEIR_TRAINER_DATA_DATA_SET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

struct DataFile {
  std::string path;  // to open
  std::string name;  // as the job has it, for messages
  int64_t bytes = 0;
  bool gzip = false;
};

// Part of one file that belongs to a stream.
struct Segment {
  int64_t file = 0;
  // Plain: lines that begin in [begin, end). gzip: the whole file.
  int64_t begin = 0;
  int64_t end = 0;
  // gzip cut by lines: line i of all gzip files, where i mod modulus == remainder. modulus 1 takes every line.
  int64_t modulus = 1;
  int64_t remainder = 0;
};

class DataSet {
 public:
  // Expands the patterns of `source` (relative to `directory`), sorts the files by name and looks at their first bytes.
  // `field` names the source in messages ("data.train"). NotFound: a pattern without a match. InvalidArgument: no patterns;
  // a file named .gz that is not gzip; something that is no regular file.
  static absl::StatusOr<DataSet> Open(const v1::DataSource& source, std::string_view directory, std::string_view field);

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
