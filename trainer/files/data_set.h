// Files of a data set. trainer/files/stream_rule.h cuts them into streams.
#ifndef WEIR_TRAINER_FILES_DATA_SET_H_
#define WEIR_TRAINER_FILES_DATA_SET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/formats/row_filter.h"
#include "proto/job.pb.h"
#include "trainer/files/data_file.h"
#include "trainer/files/stream_rule.h"

namespace weir {

// A file of a data set, as a look at the directory, or another trainer, has found it.
struct FoundFile {
  std::string name;  // in the job
  int64_t bytes = 0;
  uint64_t sample = 0;  // DataFile.sample; 0: unknown
  // Differs when the file has changed since another look; "" where the command that lists files says none.
  std::string version;
};

class DataSet {
 public:
  // Expands the patterns of `source` (relative to `directory`), sorts the files by name and reads their first bytes.
  // `field` names the source in messages ("data.train"). NotFound: a pattern without a match. InvalidArgument: no
  // patterns; all files are empty; a file named .gz or .zst that is not compressed in that format; a path that is not a
  // regular file. DataLoss: a .gz or .zst file too short for its format. PermissionDenied, Unavailable: cannot be read.
  static absl::StatusOr<DataSet> Open(const v1::DataSource& source, std::string_view directory, std::string_view field);
  // Opens the files for the reader of `data`: if it reads IDX files, also finds their labels and checks their headers
  // (trainer/files/idx_source.h). With data.pipe the files are behind commands, which pipe_list may list:
  // FailedPrecondition if commands are not allowed (trainer/files/piped_command.h), and its errors. InvalidArgument: a
  // name lacks a partition of the job (framework/formats/partitions.h).
  static absl::StatusOr<DataSet> Open(const v1::Data& data, const v1::DataSource& source, std::string_view directory,
                                      std::string_view field);

  // Looks which files there are now, without opening them; sorted by name, perhaps none. Those up to the name `after`
  // may lack all but their names. `field` names the patterns in messages: "data.train.files". PermissionDenied: a
  // directory must not be read, Unavailable: it cannot be for now. Errors of data.pipe_list.
  static absl::StatusOr<std::vector<FoundFile>> Look(const v1::Data& data, const v1::DataSource& source,
                                                     std::string_view directory, std::string_view field,
                                                     std::string_view after = "");
  // Opens files that a look has found, in that order; any number. FailedPrecondition: one has other bytes by now.
  // Errors as Open. Not for data.idx.
  static absl::StatusOr<DataSet> OpenFound(const v1::Data& data, const v1::DataSource& source,
                                           std::string_view directory, std::string_view field,
                                           const std::vector<FoundFile>& found);

  const std::vector<DataFile>& files() const { return files_; }
  // Rules of the source, by which examples are left out, and their path in the job: "data.train.where".
  const RowRules& where() const { return where_; }
  const std::string& where_path() const { return where_path_; }

  // Returns the segments of stream `stream` of `streams`, in the order in which they are read. `scheme`: version of the
  // rule that cuts the files (trainer/files/stream_rule.h).
  std::vector<Segment> Stream(int stream, int streams, int scheme = kStreamScheme) const;

  // Returns one line per file: "a.tsv: 120 bytes, gzip, xxh3 0123456789abcdef". Two processes, or two runs, read the
  // same examples at the same steps if their descriptions differ only in names: values of partitions are in the sample.
  std::string Description() const;

 private:
  std::vector<DataFile> files_;
  RowRules where_;
  std::string where_path_;
};

// Returns the first difference of two Descriptions, names aside: "'b.tsv' has 12 bytes here, 10 there"; "" if there is
// none.
std::string FirstDataDifference(std::string_view here, std::string_view there);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_DATA_SET_H_
