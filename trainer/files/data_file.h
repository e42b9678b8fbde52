// One file of a data set, and the parts of it that streams read.
#ifndef WEIR_TRAINER_FILES_DATA_FILE_H_
#define WEIR_TRAINER_FILES_DATA_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "framework/formats/example.h"
#include "proto/example_file.pb.h"
#include "trainer/files/column_text_form.h"
#include "trainer/files/line_rules.h"

namespace weir {

// First bytes of an example file.
inline constexpr std::string_view kExampleFileBegin = "WEIREXMP";

enum class Compression { kNone, kGzip, kZstd };

struct ExampleFile;
struct FilePipe;
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
  // Set for example files (trainer/files/example_file.h), else null.
  std::shared_ptr<const ExampleFile> examples = nullptr;
  // True if the records are those of TFRecord, and not lines.
  bool tf_record = false;
  // Of lines: which are records; null: all.
  std::shared_ptr<const LineRules> rules = nullptr;
  // Texts of the job's partitions (framework/formats/partitions.h) in the name. None: the job has no partitions, or the
  // file holds their values itself.
  std::vector<std::string> partitions = {};
  // Set for files that a command reads (data.pipe), else null. `bytes` and `sample` are then those of the file, and not
  // of the command's output.
  std::shared_ptr<const FilePipe> pipe = nullptr;

  // Returns whether the records are lines of text.
  bool lines() const { return idx == nullptr && examples == nullptr && !tf_record; }
  // Returns whether the records can only be read from the first one on: compressed files, and those behind a command.
  bool sequential() const { return compression != Compression::kNone || pipe != nullptr; }
  // Returns whether reading may begin in the middle: not if a plain IDX file has compressed labels.
  bool seekable() const;
  // Returns the size: examples of an IDX or example file, bytes of others.
  int64_t units() const;
};

// Command that writes what a file holds.
struct FilePipe {
  std::string command;
  absl::Duration deadline;
  // Form of lines for what is written in columns; nothing if the reader takes no columns.
  std::optional<ColumnTextForm> form;
  // The setting because of which a reader that takes columns takes none: "data.csv.skip_lines". Else empty.
  std::string unfit = {};
};

// Fields of the headers of an IDX file and of its labels.
struct IdxFile {
  int64_t examples = 0;
  int64_t values = 0;  // bytes per example
  int64_t header_bytes = 0;
  std::shared_ptr<const DataFile> labels = nullptr;  // may be null
  int64_t labels_header_bytes = 0;
};

// Description of an example file (trainer/files/example_file.h), known without reading its blocks.
struct ExampleFile {
  v1::ExampleFile message;
  std::vector<Column> columns;
  size_t floats = 0, slots = 0;
  // Place in the file, and number of the first example, of each block and of one behind the last.
  std::vector<int64_t> place;
  std::vector<int64_t> first;

  int64_t examples() const { return first.back(); }
};

// Part of one file that belongs to a stream: lines, or records of TFRecord, that begin in bytes [begin, end), or
// examples [begin, end) of an IDX file or an example file. A sequential file is always read from its start to its end.
struct Segment {
  int64_t file = 0;
  int64_t begin = 0;
  int64_t end = 0;
  // Records are dealt one by one: the records of all such segments, in the order of the files and without headers, are
  // numbered, and each `modulus` of them are a round, of which every stream gets one. Otherwise modulus is 1.
  bool dealt = false;
  // Dealt: which record of a round the stream gets is drawn (PlaceInRound). Else it is always record `remainder`.
  bool drawn = false;
  // Dealt, and a record's number among those is the same for any number of streams: no file of the data set is dealt or
  // not as their number says.
  bool numbered = false;
  int64_t modulus = 1;
  int64_t remainder = 0;

  bool operator==(const Segment&) const = default;
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_DATA_FILE_H_
