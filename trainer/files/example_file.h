// Example files (docs/example_files.md): examples as a reader gives them, in blocks with checksums, and an index by
// which reading begins at any example. DataSet finds them by their first bytes, beside files of the job's format.
//
// A block is read into memory as a whole and not mapped: a file that shrinks, or a disk that fails, is then an error of
// the read, and not a signal that ends the process.
#ifndef WEIR_TRAINER_FILES_EXAMPLE_FILE_H_
#define WEIR_TRAINER_FILES_EXAMPLE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/atomic_file.h"
#include "framework/formats/example_record.h"
#include "framework/formats/line_parser.h"
#include "proto/example_file.pb.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/data_file.h"
#include "trainer/files/record.h"
#include "trainer/files/record_source.h"

namespace weir {

// Reads the description at the end of `file`, which begins as an example file does, and sets file->examples. DataLoss:
// cut or damaged. InvalidArgument: of another version.
absl::Status LookAtExampleFile(DataFile* file);

// Gives the bytes of the examples of a range, each accepted by CheckExampleRecord; their offset is their number in the
// file. DataLoss names the file and the block that is damaged.
class ExampleFileSource : public RecordSource {
 public:
  // `file` must outlive the source; LookAtExampleFile must have been called for it. No file is opened before Next.
  ExampleFileSource(const DataFile& file, const Segment& segment);
  ~ExampleFileSource() override;

  bool Next(std::string_view* record, int64_t* offset) override;
  // Reads no blocks between that of the place and that of the next example.
  int64_t Skip(int64_t records) override;

  // Sizes of the example that Next has given.
  const ExampleRecordSizes& sizes() const { return sizes_; }
  // Returns the block that has it. A block that a record uses stays as it is.
  RecordBlock* block() const { return buffer_; }

 private:
  // Reads the block of the example at_.
  absl::Status ReadBlock();
  // Moves on by one example of the block at hand.
  absl::Status Pass();
  absl::Status Damaged(std::string_view what) const;

  const DataFile& file_;
  const ExampleFile& info_;
  int64_t at_;
  const int64_t end_;
  std::unique_ptr<ByteSource> bytes_;  // from block next_block_ on
  size_t block_ = 0;                   // in buffer_; the number of blocks: none
  size_t next_block_ = 0;              // which bytes_ gives next
  RecordBlock* buffer_ = nullptr;
  size_t capacity_ = 0;
  size_t begin_ = 0;      // of example in_block_
  size_t filled_ = 0;     // bytes of the block
  int64_t in_block_ = 0;  // number of the example at begin_
  ExampleRecordSizes sizes_;
};

// Writes an example file. Not thread-safe. Nothing has the path before Finish.
class ExampleFileWriter {
 public:
  // `reader`: text for the description (v1::ExampleFile.reader).
  static absl::StatusOr<std::unique_ptr<ExampleFileWriter>> Create(const std::string& path,
                                                                   const std::vector<Column>& columns,
                                                                   std::string reader);
  // Adds an example with the sizes of the columns.
  absl::Status Add(const Example& example);
  // Writes what is left and gives the file its name. Returns the description at its end.
  absl::StatusOr<v1::ExampleFile> Finish();

  // Bytes; a block ends with the first example that reaches it. A stream reads whole blocks to get at its examples, so
  // that these are small, and the index of 100 GB takes 50 MB.
  static constexpr size_t kBlock = size_t{1} << 15;

 private:
  // Sums over a column of floats, in the order of the examples.
  struct FloatSums {
    int64_t values = 0;
    float least = 0, largest = 0;
    double mean = 0, squares = 0;
  };

  ExampleFileWriter(std::unique_ptr<AtomicFile> file, v1::ExampleFile message, size_t floats);
  absl::Status WriteBlock();
  void Count(const Example& example);

  const std::unique_ptr<AtomicFile> file_;
  v1::ExampleFile message_;
  std::vector<FloatSums> floats_;
  std::string block_;
  int64_t block_examples_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_EXAMPLE_FILE_H_
