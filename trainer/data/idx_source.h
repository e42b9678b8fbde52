// IDX files: a header, then unsigned bytes, example after example; and labels, one byte each, in a file beside.
//
// The header is the bytes 0, 0, 8 (unsigned bytes) and the number of dimensions, then each of them as a big-endian
// 32-bit number. The first dimension counts examples. Nothing of it is trusted: it must be of as many values as the job
// says, and the file as long as the header promises.
#ifndef WEIR_TRAINER_DATA_IDX_SOURCE_H_
#define WEIR_TRAINER_DATA_IDX_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/byte_source.h"
#include "trainer/data/record_source.h"

namespace weir {

// Reads the headers of `file` and of its labels (null: it has none) and sets file->idx. `values`: of one example.
// DataLoss: shorter than a header promises (of a compressed file only the header can be seen). InvalidArgument: no IDX
// file of unsigned bytes, longer than the header promises, another number of values, another number of labels.
absl::Status LookAtIdx(int64_t values, const DataFile* labels, DataFile* file);

// Records are the values of one example and, where the file has labels, the label behind them. Errors of what LookAtIdx
// could not see of compressed files come at the end of them.
class IdxSource : public RecordSource {
 public:
  // Examples of the range of `segment` (plain), or all (compressed). `file` was looked at.
  static absl::StatusOr<std::unique_ptr<RecordSource>> Open(const DataFile& file, const Segment& segment);

  bool Next(std::string_view* record, int64_t* offset) override;

 private:
  // One of the two files, from the first example of the range on.
  class Part {
   public:
    // `size`: bytes of one example.
    Part(const DataFile& file, int64_t size) : file_(file), size_(static_cast<size_t>(size)) {}
    absl::Status Open(int64_t header_bytes, int64_t begin);
    // The bytes of the next example; of `examples` in the file it is number `at`.
    absl::StatusOr<const char*> Next(int64_t at, int64_t examples);
    // Nothing is left of a compressed file.
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

#endif  // WEIR_TRAINER_DATA_IDX_SOURCE_H_
