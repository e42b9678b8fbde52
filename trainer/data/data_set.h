// Files of a data set. trainer/data/stream_rule.h cuts them into streams.
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
  std::string path;  // path to open
  std::string name;  // name in the job, for messages
  int64_t bytes = 0;
  Compression compression = Compression::kNone;
  // xxh3 of a few blocks of the file; usually distinguishes two versions of equal size.
  uint64_t sample = 0;
  // Set for files in IDX format, else null.
  std::shared_ptr<const IdxFile> idx = nullptr;

  bool compressed() const { return compression != Compression::kNone; }
};

// Fields of the headers of an IDX file and of its labels.
struct IdxFile {
  int64_t examples = 0;
  int64_t values = 0;  // bytes per example
  int64_t header_bytes = 0;
  std::shared_ptr<const DataFile> labels = nullptr;  // may be null
  int64_t labels_header_bytes = 0;
};

// Part of one file that belongs to a stream: lines that begin in bytes [begin, end), or examples [begin, end) of an IDX
// file. A compressed file is always read from its start to its end.
struct Segment {
  int64_t file = 0;
  int64_t begin = 0;
  int64_t end = 0;
  // If above 1, records are dealt in turn: of the records of all such segments, in the order of the files and without
  // headers, the stream has those whose number mod modulus is remainder.
  int64_t modulus = 1;
  int64_t remainder = 0;
};

class DataSet {
 public:
  // Expands the patterns of `source` (relative to `directory`), sorts the files by name and reads their first bytes.
  // `field` names the source in messages ("data.train"). NotFound: a pattern without a match. InvalidArgument: no
  // patterns; a file named .gz or .zst that is not compressed in that format; a path that is not a regular file.
  static absl::StatusOr<DataSet> Open(const v1::DataSource& source, std::string_view directory, std::string_view field);
  // Opens the files for the reader of `data`: if it reads IDX files, also finds their labels and checks their headers
  // (trainer/data/idx_source.h).
  static absl::StatusOr<DataSet> Open(const v1::Data& data, const v1::DataSource& source, std::string_view directory,
                                      std::string_view field);

  const std::vector<DataFile>& files() const { return files_; }

  // Returns the segments of stream `stream` of `streams`, in the order in which they are read.
  std::vector<Segment> Stream(int stream, int streams) const;

  // Returns one line per file: "a.tsv: 120 bytes, gzip, xxh3 0123456789abcdef". Two processes, or two runs, read the
  // same examples at the same steps if their descriptions differ only in names.
  std::string Description() const;

 private:
  std::vector<DataFile> files_;
};

// Returns the first difference of two Descriptions, names aside: "'b.tsv' has 12 bytes here, 10 there"; "" if there is
// none.
std::string FirstDataDifference(std::string_view here, std::string_view there);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_DATA_SET_H_
