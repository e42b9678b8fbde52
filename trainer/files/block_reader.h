// A file of lines or TFRecords, read from its start, or from a record on, in blocks of whole records.
#ifndef WEIR_TRAINER_FILES_BLOCK_READER_H_
#define WEIR_TRAINER_FILES_BLOCK_READER_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/files/byte_source.h"
#include "trainer/files/data_file.h"

namespace weir {

// Thread-safe for readers, once it is filled.
struct BlockOfRecords {
  std::vector<char> bytes;     // and LineParser::kPadding more
  std::vector<uint32_t> ends;  // of records: where the newline is, or the end of a last line without one
  // Of lines of a file with DataFile.rules: where the records begin. Else empty: each begins behind the one before.
  std::vector<uint32_t> begins;
  int64_t offset = 0;  // of the first byte in the file, uncompressed
};

// One thread at a time.
class BlockReader {
 public:
  // Returns whether it reads the records of a file.
  static bool Reads(const DataFile& file) { return file.lines() || file.tf_record; }

  // Place at which a reading of a file begins.
  struct Begin {
    int64_t at = 0;       // byte at which a record begins; of a sequential file 0
    int64_t records = 0;  // in front of it
    auto operator<=>(const Begin&) const = default;
  };

  // `block`: bytes that are read at once. Opens nothing before the first Read.
  BlockReader(const DataFile& file, size_t block, const Begin& begin)
      : file_(file),
        block_(block),
        offset_(begin.at),
        records_(begin.records),
        skipped_(begin.at == 0 && file.rules != nullptr ? file.rules->skipped : 0) {}

  // Reads the next records, perhaps none. Returns whether more may follow. With an error, too, `block` has the records
  // before it.
  // Blocks are cut at the same places in every reading of a file from one place on.
  absl::StatusOr<bool> Read(BlockOfRecords* block);

  // Gives record `i` of a block of a file, and its place in the file. A line is without its end and without a mark of
  // byte order. DataLoss if the record is damaged.
  static absl::Status Give(const DataFile& file, const BlockOfRecords& block, size_t i, std::string_view* record,
                           int64_t* offset);

 private:
  // Add the ends of records in the first `filled` bytes. `searched`: bytes in which no record ends. Return the number
  // of bytes up to the next line, or record.
  size_t FindLines(size_t filled, size_t searched, BlockOfRecords* block);
  absl::StatusOr<size_t> FindRecords(size_t filled, BlockOfRecords* block) const;
  // Adds a line, if it is a record.
  void AddLine(size_t begin, size_t end, BlockOfRecords* block);
  // Checks the lines of a block of `filled` bytes, and ends the last line of the file. `whole`: as of FindLines.
  absl::Status EndLines(size_t filled, size_t whole, bool at_end, BlockOfRecords* block);
  absl::Status TooLong(int64_t offset) const;

  const DataFile file_;
  const size_t block_;
  std::unique_ptr<ByteSource> bytes_;
  std::vector<char> rest_;  // bytes behind the last whole record so far
  int64_t offset_;          // of `rest_`
  int64_t records_;         // before `rest_`
  int64_t skipped_;         // lines to come that the file skips
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_BLOCK_READER_H_
