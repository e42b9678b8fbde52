// Example files that are cut into parts, each of which one stream reads (trainer/files/stream_rule.h).
#ifndef WEIR_TRAINER_FILES_EXAMPLE_PARTS_H_
#define WEIR_TRAINER_FILES_EXAMPLE_PARTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "trainer/files/data_file.h"

namespace weir {

// Total size of plain files up to which example files are dealt example by example.
inline constexpr int64_t kDealtBytes = int64_t{16} << 20;

// Files side by side, measured in units (DataFile::units), which are cut from the front to the back.
class FileRow {
 public:
  // `is_of`: whether a file is of the row.
  FileRow(absl::Span<const DataFile> files, const std::function<bool(const DataFile&)>& is_of);
  int64_t units() const { return units_; }
  int64_t bytes() const { return bytes_; }
  // Returns units * part / parts.
  int64_t Cut(int64_t part, int64_t parts) const;
  // Adds what is in [begin, end), which must not begin before the range of the last call.
  void Add(int64_t begin, int64_t end, std::vector<Segment>* segments);

 private:
  std::vector<int64_t> sizes_;  // by file; 0 of those that are not of the row
  int64_t units_ = 0;
  int64_t bytes_ = 0;
  size_t file_ = 0;
  int64_t base_ = 0;  // of the file, in units
};

// Returns the number of rounds of parts of `least_part` bytes or more.
int64_t PartRounds(int64_t bytes, int streams, int64_t least_part);

// Adds the parts of the example files that are dealt to `stream`.
void AddExampleParts(absl::Span<const DataFile> files, int stream, int streams, std::vector<Segment>* segments);

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_EXAMPLE_PARTS_H_
