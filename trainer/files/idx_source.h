// IDX files: a header, then unsigned bytes, example after example; labels, one byte each, are in a second file.
//
// The header is the bytes 0, 0, 8 (unsigned bytes) and the number of dimensions, then each dimension as a big-endian
// 32-bit number. The first dimension counts examples. The header is not trusted: it must have as many values as the job
// says, and the file must be as long as the header promises.
#ifndef WEIR_TRAINER_FILES_IDX_SOURCE_H_
#define WEIR_TRAINER_FILES_IDX_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/data_file.h"
#include "trainer/files/record_source.h"

namespace weir {

// Reads the headers of `file` and of its labels (null: it has none) and sets file->idx. `values`: number of values of
// one example. DataLoss: shorter than a header promises (of a compressed file only the header is read).
// InvalidArgument: not an IDX file of unsigned bytes, longer than the header promises, another number of values,
// another number of labels.
absl::Status LookAtIdx(int64_t values, const DataFile* labels, DataFile* file);

// Reads records that hold the values of one example, followed by the label if the file has labels. Errors of compressed
// files that LookAtIdx could not see are returned at the end of the file.
class IdxSource : public RecordSource {
 public:
  // Opens the examples of the range of `segment` (plain), or all (compressed). LookAtIdx must have been called for
  // `file`.
  static absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Segment& segment);

  bool Next(std::string_view* record, int64_t* offset) override;

 private:
  // One of the two files, from the first example of the range on.
  class Part {
   public:
    // `size`: bytes of one example.
    Part(const DataFile& file, int64_t size) : file_(file), size_(static_cast<size_t>(size)) {}
    absl::Status Open(int64_t header_bytes, int64_t begin);
    // Returns the bytes of the next example, number `at` of the `examples` in the file.
    absl::StatusOr<const char*> Next(int64_t at, int64_t examples);
    // Checks that nothing is left of a compressed file.
    absl::Status ExpectEnd();

   private:
    const DataFile& file_;
    const size_t size_;
    std::unique_ptr<ByteSource> bytes_;
    std::vector<char> buffer_;
    size_t begin_ = 0;
    size_t filled_ = 0;
  };

  IdxSource(const DataFile& file, int64_t begin, int64_t end);
  absl::Status Read();

  const DataFile& file_;
  int64_t at_;
  const int64_t end_;
  Part values_;
  std::unique_ptr<Part> labels_;
  std::vector<char> record_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_IDX_SOURCE_H_
